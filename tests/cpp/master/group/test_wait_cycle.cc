#include "master/group/wait_cycle.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using Missing = std::vector<uint32_t>;

BlockedRank waits(uint32_t rank, const std::string& tag, Missing missing) {
  return {rank, {{op(0, tag), std::move(missing)}}};
}
// Rank i waits for rank i + 1, and the last one for the first.
std::vector<BlockedRank> around(uint32_t size) {
  std::vector<BlockedRank> all;
  for (uint32_t rank = 0; rank < size; ++rank)
    all.push_back(waits(rank, "t" + std::to_string(rank), {(rank + 1) % size}));
  return all;
}

// "0>1>2": in the order of the waits.
Lines cycle_lines(const std::vector<WaitCycle>& cycles) {
  Lines lines;
  for (const WaitCycle& cycle : cycles) {
    std::string line;
    for (const WaitLink& link : cycle)
      line += (line.empty() ? "" : ">") + std::to_string(link.rank);
    for (size_t i = 0; i < cycle.size(); ++i)
      EXPECT_EQ(cycle[i].awaited, cycle[(i + 1) % cycle.size()].rank);
    lines.push_back(line);
  }
  return lines;
}
Lines find(const std::vector<BlockedRank>& blocked) { return cycle_lines(wait_cycles(blocked)); }

TEST(WaitCycle, OneRankIsNoCycle) {
  EXPECT_EQ(find({}), Lines{});
  EXPECT_EQ(find({waits(0, "a", {1})}), Lines{});
  EXPECT_EQ(find({waits(0, "a", {0})}), Lines{}) << "it has made its own call";
}

TEST(WaitCycle, TwoRanksThatWaitForEachOther) {
  const auto cycles = wait_cycles({waits(1, "b", {0}), waits(0, "a", {1})});
  ASSERT_EQ(cycle_lines(cycles), Lines{"0>1"});
  EXPECT_EQ(cycles[0], (WaitCycle{{0, op(0, "a"), 1}, {1, op(0, "b"), 0}}));
}

TEST(WaitCycle, ThreeAndEight) {
  EXPECT_EQ(find(around(3)), Lines{"0>1>2"});
  EXPECT_EQ(find(around(8)), Lines{"0>1>2>3>4>5>6>7"});
  EXPECT_EQ(find(around(128)).size(), 1u);
}

TEST(WaitCycle, AChainEndsWithARankThatDoesNotBlock) {
  EXPECT_EQ(find({waits(0, "a", {1}), waits(1, "b", {2})}), Lines{}) << "rank 2 computes";
  EXPECT_EQ(find({waits(0, "a", {1}), waits(1, "b", {2}), waits(2, "c", {})}), Lines{})
      << "all have made the call of rank 2";
  auto all = around(8);
  all.erase(all.begin() + 5);
  EXPECT_EQ(find(all), Lines{});
}

TEST(WaitCycle, ARankThatWaitsForACycleIsNoPartOfIt) {
  EXPECT_EQ(find({waits(0, "a", {1}), waits(1, "b", {2}), waits(2, "c", {1})}), Lines{"1>2"});
}

TEST(WaitCycle, ARankIsStuckIfAnyOfTheMissingOnesIs) {
  EXPECT_EQ(find({waits(0, "a", {1, 2, 3}), waits(3, "b", {0, 1})}), Lines{"0>3"});
}

TEST(WaitCycle, TheShortestOneComesFirst) {
  EXPECT_EQ(
      find({waits(0, "a", {1}), waits(1, "b", {2}), waits(2, "c", {0, 3}), waits(3, "d", {2})}),
      Lines{"2>3"});
}

TEST(WaitCycle, TheOrderOfTheFactsDoesNotMatter) {
  auto all = around(5);
  const Lines expected = find(all);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  do {
    ASSERT_EQ(find(all), expected);
  } while (std::next_permutation(all.begin(), all.end(),
                                 [](const auto& a, const auto& b) { return a.rank < b.rank; }));
}

TEST(WaitCycle, CyclesWithoutACommonRank) {
  EXPECT_EQ(find({waits(0, "a", {3}), waits(3, "b", {0}), waits(1, "c", {2}), waits(2, "d", {1})}),
            (Lines{"0>3", "1>2"}));
}

// Two sends whose senders wait: each operation is between the two.
TEST(WaitCycle, SendsThatFaceEachOther) {
  EXPECT_EQ(find({waits(0, "0 to 1", {1}), waits(1, "1 to 0", {0})}), Lines{"0>1"});
}

TEST(WaitCycle, JointCallsCount) {
  const std::vector<BlockedRank> blocked{{0, {{protocol::JointKind::kUpdateTopology, {1}}}},
                                         waits(1, "b", {0})};
  const auto cycles = wait_cycles(blocked);
  ASSERT_EQ(cycle_lines(cycles), Lines{"0>1"});
  EXPECT_EQ(cycles[0][0].call, WaitedCall(protocol::JointKind::kUpdateTopology));
}

// Rank 0 has two threads. One waits for rank 1, the other one for rank 2.
TEST(WaitCycle, ARankWithSeveralThreadsContinuesIfOneOfThemDoes) {
  const BlockedRank both{0, {{op(0, "a"), {1}}, {op(0, "b"), {2}}}};
  EXPECT_EQ(find({both, waits(1, "c", {0})}), Lines{}) << "rank 2 computes";
  EXPECT_EQ(find({both, waits(1, "c", {0}), waits(2, "d", {1})}), Lines{"0>1"});
  EXPECT_EQ(find({both, waits(1, "c", {0}), waits(2, "d", {})}), Lines{}) << "d is under way";
}

TEST(WaitCycle, ARankWithoutAWaitDoesNotBlock) {
  EXPECT_EQ(find({waits(0, "a", {1}), {1, {}}}), Lines{});
}

}  // namespace
}  // namespace pccl::master
