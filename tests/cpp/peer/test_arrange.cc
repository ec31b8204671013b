#include "csrc/peer/arrange.h"

#include <gtest/gtest.h>

#include <array>

namespace pccl::peer {
namespace {

using ring::Memory;
using ring::Pattern;
using ring::Task;

// Ring indices 0, 1, 2 are the ranks 2, 0, 1. This member is rank 0.
class ArrangeTest : public testing::Test {
 protected:
  std::span<std::byte> bytes(size_t at, size_t count) { return {memory_.data() + at, count}; }
  static Task task(Pattern pattern, uint64_t count) {
    Task task;
    task.shape.pattern = pattern;
    task.shape.rank = 1;
    task.shape.world = 3;
    task.shape.element_bytes = 4;
    task.shape.count = count;
    return task;
  }
  // By ring index: what goes there, and what comes from there.
  static Task direct(Pattern pattern, std::array<uint64_t, 3> to, std::array<uint64_t, 3> from) {
    Task out = task(pattern, 0);
    for (size_t index = 0; index < 3; ++index)
      out.parts.push_back({.to = to[index], .from = from[index]});
    return out;
  }
  Result<Memory> arranged(const Task& task, uint64_t start = 0) {
    return arrange(lent, task, start, ring_);
  }
  template <typename Span>
  std::vector<std::pair<long, size_t>> places(const std::vector<Span>& spans) const {
    std::vector<std::pair<long, size_t>> out;
    for (const Span& span : spans)
      out.emplace_back(span.empty() ? -1 : span.data() - memory_.data(), span.size());
    return out;
  }
  using Places = std::vector<std::pair<long, size_t>>;

  Memory lent;

 private:
  const std::vector<uint32_t> ring_{2, 0, 1};
  std::array<std::byte, 1000> memory_{};
};

TEST_F(ArrangeTest, OneTensorWithoutWhatIsFinal) {
  lent.spans = {bytes(0, 40)};
  EXPECT_EQ(places(arranged(task(Pattern::kAllReduce, 10)).value().spans), (Places{{0, 40}}));
  EXPECT_EQ(places(arranged(task(Pattern::kAllReduce, 7), 3).value().spans), (Places{{12, 28}}));
  EXPECT_EQ(arranged(task(Pattern::kAllReduce, 9)).status().code, Code::kInvalidArgument);
}

TEST_F(ArrangeTest, BlocksByRingIndex) {
  lent.spans = {bytes(0, 12), bytes(20, 12), bytes(40, 12)};
  lent.inputs = {bytes(100, 12)};
  const Memory gathered = arranged(task(Pattern::kAllGather, 3)).value();
  EXPECT_EQ(places(gathered.spans), (Places{{40, 12}, {0, 12}, {20, 12}}));
  EXPECT_EQ(places(gathered.inputs), (Places{{100, 12}}));
  lent = {.spans = {bytes(0, 36)}};
  EXPECT_EQ(places(arranged(task(Pattern::kAllGather, 3)).value().spans),
            (Places{{24, 12}, {0, 12}, {12, 12}}))
      << "one span with all blocks";
  lent.spans = {bytes(0, 12), bytes(20, 12)};
  EXPECT_EQ(arranged(task(Pattern::kAllGather, 3)).status().code, Code::kMembershipChanged);
}

TEST_F(ArrangeTest, TheResultOfAReduceScatterIsApart) {
  lent.spans = {bytes(0, 12)};
  lent.inputs = {bytes(100, 12), bytes(120, 12), bytes(140, 12)};
  for (Task one : {task(Pattern::kReduceScatter, 3), task(Pattern::kOneShot, 3)}) {
    const Memory memory = arranged(one).value();
    EXPECT_EQ(places(memory.spans), (Places{{0, 12}}));
    EXPECT_EQ(places(memory.inputs), (Places{{140, 12}, {100, 12}, {120, 12}}));
  }
  lent.inputs.pop_back();
  EXPECT_EQ(arranged(task(Pattern::kReduceScatter, 3)).status().code, Code::kMembershipChanged);
}

TEST_F(ArrangeTest, PartsHaveTheirOwnSizes) {
  lent.spans = {bytes(0, 8), bytes(20, 12), bytes(40, 16)};
  lent.inputs = {bytes(100, 8), bytes(120, 4), bytes(140, 0)};
  const Task task = direct(Pattern::kExchange, {0, 8, 4}, {16, 8, 12});
  const Memory memory = arranged(task).value();
  EXPECT_EQ(places(memory.spans), (Places{{40, 16}, {0, 8}, {20, 12}}));
  EXPECT_EQ(places(memory.inputs), (Places{{-1, 0}, {100, 8}, {120, 4}}));
  EXPECT_EQ(arranged(direct(Pattern::kExchange, {0, 8, 4}, {16, 8, 13})).status().code,
            Code::kInvalidArgument);
}

TEST_F(ArrangeTest, OneTensorGoesToAll) {
  lent.spans = {bytes(0, 8)};
  const Memory root = arranged(direct(Pattern::kOneShotExchange, {8, 0, 8}, {0, 0, 0})).value();
  EXPECT_EQ(places(root.inputs), (Places{{0, 8}, {-1, 0}, {0, 8}})) << "the root of a broadcast";
  EXPECT_EQ(places(root.spans), (Places{{-1, 0}, {-1, 0}, {-1, 0}}));
  const Memory other = arranged(direct(Pattern::kOneShotExchange, {0, 0, 0}, {0, 0, 8})).value();
  EXPECT_EQ(places(other.spans), (Places{{-1, 0}, {-1, 0}, {0, 8}}));
  lent = {.spans = {}, .inputs = {bytes(100, 8)}};
  const Memory given = arranged(direct(Pattern::kExchange, {8, 0, 0}, {0, 0, 0})).value();
  EXPECT_EQ(places(given.inputs), (Places{{100, 8}, {-1, 0}, {-1, 0}})) << "one rank of a gather";
}

TEST_F(ArrangeTest, DataInPlaceIsSentFromThere) {
  lent.spans = {bytes(0, 8), bytes(20, 8), bytes(40, 8)};
  const Memory memory = arranged(direct(Pattern::kOneShotExchange, {8, 8, 8}, {8, 8, 8})).value();
  EXPECT_EQ(places(memory.inputs), (Places{{0, 8}, {0, 8}, {0, 8}}));
  EXPECT_EQ(places(memory.spans), (Places{{40, 8}, {0, 8}, {20, 8}}));
}

}  // namespace
}  // namespace pccl::peer
