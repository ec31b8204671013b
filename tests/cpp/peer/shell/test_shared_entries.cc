#include "csrc/peer/shell/shared_entries.h"

#include <gtest/gtest.h>

#include <cstring>

#include "csrc/memory/state_hash.h"

namespace pccl::peer {
namespace {

class SharedEntriesTest : public testing::Test {
 protected:
  StateSpan entry(const std::string& key, std::vector<float>& values) {
    return {key,
            DType::kFloat32,
            {static_cast<int64_t>(values.size())},
            std::as_writable_bytes(std::span(values))};
  }
  std::string refusal(std::vector<StateSpan> entries) {
    const auto made = SharedEntries::make(std::move(entries));
    EXPECT_FALSE(made.ok());
    if (made.ok()) return "";
    EXPECT_EQ(made.status().code, Code::kInvalidArgument);
    return made.status().message;
  }
  std::vector<float> a = std::vector<float>(4, 1.0f), b = std::vector<float>(8, 2.0f), none;
};

TEST_F(SharedEntriesTest, TheOfferIsSortedAndHashed) {
  const auto entries = SharedEntries::make({entry("b", b), entry("a", a), entry("", none)}).value();
  const auto& offered = entries->offer().entries;
  ASSERT_EQ(offered.size(), 3u);
  EXPECT_EQ(offered[0].key, "");
  EXPECT_EQ(offered[1].key, "a");
  EXPECT_EQ(offered[2].shape, std::vector<int64_t>{8});
  EXPECT_EQ(offered[2].hash, memory::state_hash(reinterpret_cast<const std::byte*>(b.data()), 32));
}

TEST_F(SharedEntriesTest, WhatIsReceivedStaysApartUntilItIsInstalled) {
  const auto entries =
      SharedEntries::make({entry("a", a), entry("b", b), entry("none", none)}).value();
  const auto spans = entries->lend({1, 2}, true).value();
  ASSERT_EQ(spans.size(), 2u);
  ASSERT_EQ(spans[0].size(), 32u);
  EXPECT_NE(static_cast<void*>(spans[0].data()), b.data());
  const std::vector<float> fresh(8, 5.0f);
  std::memcpy(spans[0].data(), fresh.data(), 32);
  const uint64_t nothing = memory::state_hash(nullptr, 0);
  const uint64_t right = memory::state_hash(spans[0].data(), 32);
  EXPECT_EQ(entries->verify({1, 2}, {right, nothing}), Status{});
  EXPECT_EQ(entries->verify({1, 2}, {right + 1, nothing}).message,
            "entry \"b\" arrived with another hash than was agreed on: its owner changed it during "
            "the call");
  EXPECT_EQ(b, std::vector<float>(8, 2.0f));
  entries->install({1, 2});
  EXPECT_EQ(b, fresh);
  EXPECT_EQ(a, std::vector<float>(4, 1.0f));
  EXPECT_EQ(entries->bytes_received(), 32u);
  EXPECT_EQ(entries->bytes_sent(), 0u);
}

TEST_F(SharedEntriesTest, WhatIsSentIsTheTensorItself) {
  const auto entries = SharedEntries::make({entry("a", a), entry("b", b)}).value();
  const auto spans = entries->lend({0}, false).value();
  EXPECT_EQ(static_cast<void*>(spans[0].data()), a.data());
  EXPECT_EQ(entries->bytes_sent(), 16u);
}

TEST_F(SharedEntriesTest, EntriesThatCannotBeOffered) {
  EXPECT_EQ(refusal({entry("a", a), entry("a", b)}), "shared state: the key \"a\" is there twice");
  StateSpan wrong = entry("a", a);
  wrong.shape = {5};
  EXPECT_EQ(refusal({wrong}), "shared state: entry \"a\" has 16 bytes, its shape says 20");
  wrong.shape = {-4};
  EXPECT_EQ(refusal({wrong}),
            "shared state: entry \"a\" has 16 bytes, its shape says something else");
  wrong.shape = {int64_t{1} << 62, 4, 1};
  EXPECT_EQ(refusal({wrong}),
            "shared state: entry \"a\" has 16 bytes, its shape says something else");
  wrong = entry("a", a);
  wrong.shape.resize(65, 1);
  EXPECT_EQ(refusal({wrong}),
            "shared state: entry \"a\" has 65 dimensions, at most 64 are allowed");
  wrong = entry(std::string(513, 'k'), a);
  EXPECT_EQ(refusal({wrong}), "shared state: the key \"" + std::string(64, 'k') +
                                  "...\" has 513 bytes, at most 512 are allowed");
}

TEST_F(SharedEntriesTest, AsManyAsOneMessageHolds) {
  std::vector<StateSpan> entries;
  for (int i = 0; i <= 65536; ++i) entries.push_back(entry(std::to_string(i), a));
  EXPECT_EQ(refusal(entries), "shared state: 65537 entries, at most 65536 are allowed");
  entries.resize(40000);
  for (StateSpan& each : entries) each.key.resize(500, 'k');
  EXPECT_EQ(refusal(entries).substr(0, 60),
            "shared state: its keys and shapes take 21600000 bytes, at mo");
}

}  // namespace
}  // namespace pccl::peer
