#include "csrc/peer/shell/state/bound_entries.h"

#include <gtest/gtest.h>

#include "csrc/protocol/limits.h"

namespace pccl::peer {
namespace {

using protocol::StateEntry;

class BoundEntriesTest : public testing::Test {
 protected:
  std::shared_ptr<StateSpans> spans(std::optional<StateSpans::MayAdd> may_add) {
    return StateSpans::make({{"b", DType::kFloat32, {4}, std::as_writable_bytes(std::span(b))}},
                            std::move(may_add))
        .value();
  }
  std::string refusal(const StateSpans::MayAdd& may_add, const StateSpans::List& elected) {
    BoundEntries entries(spans(may_add));
    const Status status = entries.bind(elected);
    EXPECT_FALSE(entries.adds());
    EXPECT_EQ(entries[0].size() + entries[1].size(), 16u) << "nothing is allocated";
    return status.message;
  }
  std::vector<float> b = std::vector<float>(4, 2.0f);
  const StateEntry own{"b", DType::kFloat32, {4}, 1};
};

TEST_F(BoundEntriesTest, AWholeStateStaysWhereItIs) {
  BoundEntries entries(spans({}));
  EXPECT_EQ(entries.bind({own}), Status{});
  EXPECT_EQ(static_cast<void*>(entries[0].bytes.data()), b.data());
  EXPECT_TRUE(entries.take_added().empty());
}

TEST_F(BoundEntriesTest, AMissingEntryGetsMemoryOfItsOwn) {
  BoundEntries entries(spans(StateSpans::MayAdd{9, {}}));
  EXPECT_EQ(entries[0].key, "b") << "as it was offered";
  const StateSpans::List elected{{"a", DType::kInt8, {3, 3}, 5}, own, {"c", DType::kInt8, {0}, 6}};
  EXPECT_EQ(entries.bind(elected), Status{});
  EXPECT_EQ(static_cast<void*>(entries[1].bytes.data()), b.data());
  EXPECT_TRUE(entries.is_added(0));
  EXPECT_FALSE(entries.is_added(1));
  EXPECT_EQ(entries[0].bytes.size(), 9u);
  entries[0].bytes[8] = std::byte{7};
  const std::vector<AddedEntry> added = entries.take_added();
  ASSERT_EQ(added.size(), 2u);
  EXPECT_EQ(added[0].key, "a");
  EXPECT_EQ(added[0].shape, (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(added[0].memory.get()[8], std::byte{7});
  EXPECT_EQ(added[1].key, "c");
  EXPECT_FALSE(entries.adds());
}

TEST_F(BoundEntriesTest, AnotherElectionBeginsAnew) {
  BoundEntries entries(spans(StateSpans::MayAdd{100, {}}));
  EXPECT_EQ(entries.bind({{"a", DType::kInt8, {3}, 5}, own}), Status{});
  EXPECT_EQ(entries.bind({own, {"c", DType::kInt8, {2}, 5}}), Status{});
  EXPECT_EQ(entries[0].key, "b");
  EXPECT_EQ(entries.take_added().size(), 1u);
  EXPECT_EQ(entries.bind({own}), Status{});
  EXPECT_EQ(entries[0].key, "b");
  EXPECT_FALSE(entries.adds());
}

TEST_F(BoundEntriesTest, MoreThanFitsIsRefusedBeforeItIsAllocated) {
  EXPECT_EQ(refusal({8, {}}, {{"a", DType::kInt8, {9}, 5}, own}),
            "the state of the run has 1 tensor of 9 bytes that this process lacks, and it can take "
            "8 bytes of memory: use a host with more memory");
#ifndef PCCL_SANITIZED  // a sanitizer ends the process that asks for so much
  EXPECT_NE(refusal({protocol::kStateBytesMax, {}},
                    {{"a", DType::kInt8, {int64_t{protocol::kStateBytesMax - 16}}, 5}, own}),
            "");
#endif
}

TEST_F(BoundEntriesTest, ANameThatCannotBeShownIsRefused) {
  EXPECT_EQ(refusal({100, {}}, {{"a\n\xff", DType::kInt8, {1}, 5}, own}),
            "the state of the run has an entry with the name \"a\\n\\xff\", which is no printable "
            "text: rename it there, or bring it here");
}

TEST_F(BoundEntriesTest, AnotherNameOfATensorIsNoEntryOfItsOwn) {
  EXPECT_EQ(
      refusal({100, {"tied"}}, {own, {"tied", DType::kFloat32, {4}, 5}}),
      "\"tied\" is another name of a tensor here, and an entry of its own in the state of the "
      "run: tie the tensors in the same way on all peers");
}

}  // namespace
}  // namespace pccl::peer
