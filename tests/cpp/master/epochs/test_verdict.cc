#include "master/epochs/verdict.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "csrc/protocol/limits.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::OpState;
using protocol::Outcome;
using protocol::StateReport;
using protocol::Verdict;

constexpr PeerId kA{1}, kB{2};

// Applies the commit rule (docs/design.md, section 6), written a second time, to every combination
// of states of up to five survivors.
TEST(Verdict, RuleHoldsForEverythingThatSurvivorsCanReport) {
  constexpr OpState kStates[] = {OpState::kNotDone, OpState::kDone, OpState::kReturned};
  size_t contradictions = 0;
  for (size_t survivors = 1; survivors <= 5; ++survivors) {
    size_t combinations = 1;
    for (size_t i = 0; i < survivors; ++i) combinations *= 3;
    for (size_t number = 0; number < combinations; ++number) {
      std::vector<OpState> held;
      States by;
      for (size_t i = 0, rest = number; i < survivors; ++i, rest /= 3) {
        held.push_back(kStates[rest % 3]);
        by[{i + 1}] = held.back();
      }
      const auto among = [&](OpState state) { return std::count(held.begin(), held.end(), state); };
      const auto returned = among(OpState::kReturned), not_done = among(OpState::kNotDone);
      const std::vector<PeerId> liars = contradicting(by);
      EXPECT_EQ(liars.empty(), returned == 0 || not_done == 0) << number;
      if (liars.empty()) {
        EXPECT_EQ(decide(held), not_done == 0 ? Outcome::kCommitted : Outcome::kAborted) << number;
        continue;
      }
      ++contradictions;
      for (const PeerId liar : liars) by.erase(liar);
      EXPECT_TRUE(contradicting(by).empty()) << number << ": the others agree";
      // With one liar among them, at most one honest member goes with it.
      EXPECT_TRUE(liars.size() == 1 || (returned == 1 && not_done == 1) ||
                  (returned > 1 && not_done > 1))
          << number;
    }
  }
  EXPECT_EQ(contradictions, 2u + 12u + 50u + 180u);  // 3^n - 2 * 2^n + 1; n = 2..5
}

TEST(Verdict, TwoWhoAgreeAreBelievedAgainstOne) {
  const PeerId c{3};
  using enum OpState;
  EXPECT_EQ(contradicting({{kA, kReturned}, {kB, kReturned}, {c, kNotDone}}), std::vector{c});
  EXPECT_EQ(contradicting({{kA, kNotDone}, {kB, kReturned}, {c, kNotDone}}), std::vector{kB});
  EXPECT_EQ(contradicting({{kA, kDone}, {kB, kReturned}, {c, kNotDone}}), (std::vector{kB, c}));
  EXPECT_EQ(contradicting({{kA, kDone}, {kB, kDone}, {c, kNotDone}}), std::vector<PeerId>{});
  EXPECT_EQ(contradicting({{kA, kDone}, {kB, kReturned}, {c, kReturned}}), std::vector<PeerId>{});
}

TEST(Verdict, OperationsThatAllSurvivorsHaveFinishedAreKept) {
  const std::map<PeerId, StateReport> reports = {
      {kA, {epoch(1), {{op(0), OpState::kNotDone, 9}, {op(1), OpState::kDone, 8}, {op(2)}}}},
      {kB, {epoch(1), {{op(0), OpState::kDone, 20}, {op(1), OpState::kDone, 8}, {op(3)}}}}};
  const auto keeps = [](OpKey key) { return key != op(2); };
  EXPECT_EQ(decide_kept(reports, {op(1)}, keeps), (std::vector<protocol::Kept>{{op(0), 9}}))
      << "1 commits, 2 is not kept, 3 was not begun by all";
}

using Reports = std::map<PeerId, StateReport>;

std::vector<OpKey> decided(const Reports& reports) {
  return decide(states_of(reports, [&](OpKey) {
    std::vector<PeerId> all;
    for (const auto& [peer, report] : reports) all.push_back(peer);
    return all;
  }));
}

TEST(Verdict, AnOperationThatASurvivorDoesNotReportIsNotDone) {
  const StateReport all{
      {}, {{op(0), OpState::kDone}, {op(1), OpState::kDone}, {op(2), OpState::kDone}}};
  const StateReport some{{}, {{op(2), OpState::kDone}, {op(1), OpState::kNotDone}}};
  EXPECT_EQ(decided({{kA, all}, {kB, some}}), (std::vector{op(2)}));
  EXPECT_EQ(decided({{kA, some}, {kB, all}}), (std::vector{op(2)}));
  EXPECT_EQ(decided({{kA, all}}), (std::vector{op(0), op(1), op(2)}));
  EXPECT_EQ(decided({{kA, all}, {kB, StateReport{}}}), std::vector<OpKey>{});
}

TEST(Verdict, AnOperationListedTwiceCountsAsItsFirst) {
  const StateReport twice{{}, {{op(0), OpState::kNotDone}, {op(0), OpState::kDone}}};
  EXPECT_EQ(decided({{kA, twice}}), std::vector<OpKey>{});
}

TEST(Verdict, OnlyThoseConcernedDecide) {
  const Reports reports{
      {kA, StateReport{{}, {{op(0), OpState::kDone}, {op(1), OpState::kNotDone}}}},
      {kB, StateReport{{}, {{op(1), OpState::kDone}}}}};
  const auto by = [&](const std::vector<PeerId>& some) {
    return decide(states_of(reports, [&](OpKey) { return some; }));
  };
  EXPECT_EQ(by({kA}), std::vector{op(0)});
  EXPECT_EQ(by({kB}), std::vector{op(1)});
  EXPECT_EQ(by({}), std::vector<OpKey>{});
}

TEST(VerdictLog, ForgetsWhatAllHaveSeen) {
  VerdictLog log(std::vector<PeerId>{{1}, {2}});
  log.append({committed(0), aborted(1), committed(2)});
  EXPECT_TRUE(log.acknowledge({1}, 3));
  EXPECT_EQ(log.stable_index(), 0u);
  EXPECT_TRUE(log.acknowledge({2}, 1));
  EXPECT_EQ(log.stable_index(), 1u);
  EXPECT_FALSE(log.contains(op(0)));
  EXPECT_TRUE(log.contains(op(1)));
  EXPECT_EQ(log.kept().back(), committed(2));
  EXPECT_EQ(log.unseen({2}), 2u);
  EXPECT_TRUE(log.acknowledge({2}, 0));  // late: an older index changes nothing
  EXPECT_EQ(log.stable_index(), 1u);
  EXPECT_FALSE(log.acknowledge({2}, 4)) << "more than there are";
  log.lose({2});
  EXPECT_EQ(log.stable_index(), 3u);
}

TEST(VerdictLog, TellsWhatIsMissingFromAnyIndexThatIsKept) {
  VerdictLog log(std::vector<PeerId>{{1}, {2}});
  log.append({committed(0), aborted(1)});
  log.append({committed(2)});
  log.acknowledge({1}, 1);
  log.acknowledge({2}, 1);
  const auto rest = log.since({5}, 1);
  ASSERT_TRUE(rest.has_value());
  ASSERT_EQ(rest->size(), 1u);
  EXPECT_EQ((*rest)[0], (protocol::Verdicts{{5}, 1, {aborted(1), committed(2)}}));
  EXPECT_TRUE(log.since({5}, 3)->empty());
  EXPECT_FALSE(log.since({5}, 0).has_value()) << "forgotten";
  EXPECT_FALSE(log.since({5}, 4).has_value()) << "never told";
}

TEST(VerdictLog, SplitsWhatDoesNotFitIntoOneMessage) {
  VerdictLog log(std::vector<PeerId>{{1}});
  std::vector<Verdict> many;
  for (uint32_t i = 0; i < 20000; ++i) many.push_back(aborted(i, std::string(1000, 'x')));
  log.append(many);
  uint64_t next = 0;
  const auto messages = *log.since({5}, 0);
  EXPECT_GT(messages.size(), 1u);
  for (const auto& message : messages) {
    EXPECT_EQ(message.first_index, next);
    next += message.verdicts.size();
    size_t bytes = 0;
    for (const Verdict& verdict : message.verdicts) bytes += 40 + verdict.text.size();
    EXPECT_LT(bytes, protocol::kMessageBytesMax);
    EXPECT_LE(message.verdicts.size(), protocol::kOpsOpenMax);
  }
  EXPECT_EQ(next, 20000u);
}

}  // namespace
}  // namespace pccl::master
