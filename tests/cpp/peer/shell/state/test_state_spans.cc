#include "csrc/peer/shell/state/state_spans.h"

#include <gtest/gtest.h>

namespace pccl::peer {
namespace {

StateSpan entry(const std::string& key, std::vector<float>& values) {
  return {key,
          DType::kFloat32,
          {static_cast<int64_t>(values.size())},
          std::as_writable_bytes(std::span(values))};
}

TEST(StateSpans, TheyAreSortedByKey) {
  std::vector<float> a(4), b(2);
  const auto spans = StateSpans::make({entry("b", b), entry("a", a)}).value();
  ASSERT_EQ(spans->all().size(), 2u);
  EXPECT_EQ(spans->all()[0].key, "a");
  const auto list = spans->list();
  EXPECT_EQ((*list)[1], (protocol::StateEntry{"b", DType::kFloat32, {2}, 0}));
}

TEST(StateSpans, AListThatNobodyHasIsUsedAgain) {
  std::vector<float> a(4);
  const auto spans = StateSpans::make({entry("a", a)}).value();
  auto list = spans->list();
  const auto* const first = list.get();
  EXPECT_NE(spans->list().get(), first) << "it is in use";
  list = spans->list();
  const auto* const second = list.get();
  list.reset();
  EXPECT_EQ(spans->list().get(), second);
}

TEST(StateSpans, ItsEntriesAreSortedByHowTheyAreHashed) {
  std::vector<float> a(4), b(2), none;
  const auto spans = StateSpans::make({entry("a", a), entry("b", b), entry("none", none)}).value();
  const auto& all = spans->by_kind(16);
  EXPECT_EQ(all.small, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(all.bytes.size(), 3u);
  EXPECT_TRUE(all.large.empty() && all.on_devices.empty());
  const auto& other = spans->by_kind(8);
  EXPECT_EQ(other.small, (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(other.bytes[0].data(), reinterpret_cast<const std::byte*>(b.data()));
  EXPECT_EQ(other.large, std::vector<uint32_t>{0});
}

TEST(StateSpans, AKeyThatIsThereTwiceIsRefused) {
  std::vector<float> a(4);
  const auto made = StateSpans::make({entry("a", a), entry("a", a)});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().message, "shared state: the key \"a\" is there twice");
}

}  // namespace
}  // namespace pccl::peer
