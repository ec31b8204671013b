#include "master/topology/tournament.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <utility>

#include "csrc/protocol/limits.h"

namespace pccl::master::topology {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<PeerId> numbered_peers(uint64_t count) {
  std::vector<PeerId> all;
  for (uint64_t id = 1; id <= count; ++id) all.push_back({id});
  return all;
}

Tournament::Known path_of(Duration rtt) {
  return {.rtt = [rtt](Pair) { return rtt; }, .doubt = [](Pair) { return 1.0; }};
}
const Tournament::Known ten_ms = path_of(milliseconds(10));

// Both ends of each pair report, but those of `silent`.
void all_report(Tournament& tournament, const Tournament::Round& round,
                const std::set<Pair>& silent = {}) {
  for (const Pair& pair : round.pairs) {
    if (silent.contains(pair)) continue;
    for (const PeerId peer : {pair.low, pair.high}) {
      ASSERT_TRUE(tournament.expects(peer, pair.other(peer), round.number));
      tournament.report(peer, pair.other(peer), true);
    }
  }
}

TEST(Tournament, EachPairMeetsOnceInRoundsOfDisjointPairs) {
  for (const uint64_t count : {0, 1, 2, 3, 4, 5, 8, 17, 18}) {
    const auto rounds = round_robin(numbered_peers(count));
    const uint64_t pairs = count < 2 ? 0 : count * (count - 1) / 2;
    EXPECT_EQ(rounds.size(), count < 2 ? 0 : count - 1 + count % 2);
    std::set<Pair> seen;
    for (const auto& round : rounds) {
      std::set<PeerId> busy;
      for (const Pair& pair : round) {
        EXPECT_LT(pair.low, pair.high);
        EXPECT_TRUE(busy.insert(pair.low).second && busy.insert(pair.high).second);
        EXPECT_TRUE(seen.insert(pair).second);
      }
    }
    EXPECT_EQ(seen.size(), pairs);
  }
}

TEST(Tournament, OneCallMeasuresAllPairsWithinItsBudget) {
  Tournament tournament;
  Instant now;
  tournament.begin(numbered_peers(6), seconds(10));
  size_t rounds = 0;
  while (const auto round = tournament.next(ten_ms, now)) {
    tournament.check();
    EXPECT_EQ(round->length, Tournament::kRoundMin);
    EXPECT_FALSE(tournament.end_if_over(now));
    now = now + round->length;
    all_report(tournament, *round);
    EXPECT_TRUE(tournament.end_if_over(now));
    tournament.check();
    ++rounds;
  }
  EXPECT_EQ(rounds, 5u);
  EXPECT_EQ(tournament.measured().size(), 15u);
  EXPECT_EQ(tournament.budget_left(), seconds(10) - 5 * Tournament::kRoundMin);
  EXPECT_TRUE(tournament.left_over().empty() && tournament.failed().empty());
}

// ---- A limit of bytes ----

constexpr uint64_t kTurn = protocol::kProbesBytesMin;  // of a member: it sends and receives

// The bytes that a call may carry, by member. `known`: the master's knowledge of the pairs.
std::map<PeerId, uint64_t> bytes_of_call(Tournament& tournament, const Tournament::Known& known) {
  std::map<PeerId, uint64_t> carried;
  Instant now;
  while (const auto round = tournament.next(known, now)) {
    tournament.check();
    for (const Pair& pair : round->pairs) {
      carried[pair.low] += 2 * round->bytes_max;
      carried[pair.high] += 2 * round->bytes_max;
    }
    now = now + round->length;
    all_report(tournament, *round);
    tournament.end_if_over(now);
  }
  return carried;
}

TEST(Tournament, TheBytesOfACallHaveALimitForEachMember) {
  Tournament::Known doubted = ten_ms;
  doubted.doubt = [](Pair) { return 10.0; };
  for (const uint64_t count : {2, 3, 6, 7, 18}) {
    for (const uint64_t max_bytes : {kTurn, 3 * kTurn + 1, 20 * kTurn, 1000 * kTurn}) {
      Tournament tournament;
      tournament.begin(numbered_peers(count), seconds(600), max_bytes);
      const auto carried = bytes_of_call(tournament, doubted);
      EXPECT_EQ(carried.size(), max_bytes == kTurn ? count - count % 2 : count);
      for (const auto& [peer, bytes] : carried) EXPECT_LE(bytes, max_bytes) << count;
      if (max_bytes >= count * kTurn) {
        EXPECT_TRUE(tournament.left_over().empty()) << count;
      }
    }
  }
}

TEST(Tournament, TooFewBytesLeavePairsForTheNextCall) {
  Tournament tournament;
  std::set<Pair> measured;
  for (const size_t left : {6, 0}) {
    tournament.begin(numbered_peers(6), seconds(100), 3 * kTurn);
    const auto round = tournament.next(ten_ms, {});
    ASSERT_TRUE(round.has_value());
    EXPECT_EQ(round->bytes_max, protocol::kProbeBytesMin);
    all_report(tournament, *round);
    tournament.end_if_over({});
    bytes_of_call(tournament, ten_ms);
    measured.insert(tournament.measured().begin(), tournament.measured().end());
    EXPECT_EQ(15 - measured.size(), left);
    EXPECT_EQ(tournament.too_long(), Duration{0}) << "there was time enough";
  }
}

TEST(Tournament, TheBytesOfACancelledRoundAreSpent) {
  Tournament tournament;
  tournament.begin(numbered_peers(2), seconds(100), kTurn);
  ASSERT_TRUE(tournament.next(ten_ms, {}).has_value());
  tournament.cancel();
  tournament.resume(numbered_peers(2));
  EXPECT_FALSE(tournament.next(ten_ms, {}).has_value());
  EXPECT_EQ(tournament.left_over().size(), 1u);
}

TEST(Tournament, ARoundLastsTwelveRoundTripsOfItsLongestPath) {
  Tournament tournament;
  tournament.begin(numbered_peers(4), seconds(100));
  Tournament::Known known = ten_ms;
  known.rtt = [](Pair pair) { return milliseconds(pair.low == PeerId{1} ? 150 : 10); };
  const auto round = tournament.next(known, {});
  ASSERT_TRUE(round.has_value());
  EXPECT_EQ(round->length, milliseconds(1800));
  EXPECT_EQ(tournament.deadline(), Instant{} + milliseconds(3 * 1800 + 300) + Tournament::kLate);
}

// The next call begins with the pairs that had no turn, then come the oldest.
TEST(Tournament, TheNextCallGoesOnWithWhatIsLeft) {
  Tournament tournament;
  Instant now;
  std::vector<std::vector<Pair>> order;
  const auto call = [&](Duration budget) {
    tournament.begin(numbered_peers(6), budget);
    while (const auto round = tournament.next(ten_ms, now)) {
      order.push_back(round->pairs);
      all_report(tournament, *round);
      now = now + round->length;
      tournament.end_if_over(now);
    }
  };
  call(Tournament::kRoundMin * 9 / 4);
  EXPECT_EQ(order.size(), 2u);
  EXPECT_EQ(tournament.left_over().size(), 9u);
  EXPECT_EQ(tournament.too_long(), Tournament::kRoundMin);
  call(3 * Tournament::kRoundMin);
  call(Tournament::kRoundMin);
  ASSERT_EQ(order.size(), 6u);
  std::set<Pair> first;
  for (size_t round = 0; round < 5; ++round) first.insert(order[round].begin(), order[round].end());
  EXPECT_EQ(first.size(), 15u) << "each pair has had its turn before one has its second";
  EXPECT_EQ(order[5], order[0]) << "the oldest";
}

TEST(Tournament, ABudgetThatIsTooShortMeasuresNothing) {
  Tournament tournament;
  tournament.begin(numbered_peers(3), Tournament::kRoundMin - milliseconds(1));
  EXPECT_FALSE(tournament.next(ten_ms, {}).has_value());
  EXPECT_EQ(tournament.too_long(), Tournament::kRoundMin);
  tournament.begin(numbered_peers(3), Duration{0});
  EXPECT_FALSE(tournament.next(ten_ms, {}).has_value());
  EXPECT_EQ(tournament.left_over().size(), 3u);
}

TEST(Tournament, ALatePairIsCut) {
  Tournament tournament;
  tournament.begin(numbered_peers(4), seconds(10));
  const auto round = tournament.next(ten_ms, {});
  const Pair late = round->pairs[0];
  all_report(tournament, *round, {late});
  tournament.report(late.low, late.high, true);  // one end alone proves nothing
  const Instant deadline = *tournament.deadline();
  EXPECT_FALSE(tournament.end_if_over({deadline.since_start - milliseconds(1)}));
  EXPECT_TRUE(tournament.end_if_over(deadline));
  EXPECT_EQ(tournament.failed(), std::set<Pair>{late});
  EXPECT_EQ(deadline - Instant{}, 3 * round->length + milliseconds(1020));
  EXPECT_EQ(tournament.budget_left(), seconds(10) - 3 * round->length) << "so long it was awaited";
  EXPECT_FALSE(tournament.measured().contains(late));
  EXPECT_FALSE(tournament.expects(late.high, late.low, round->number)) << "it comes too late";
  const auto second = tournament.next(ten_ms, deadline);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(std::count(second->pairs.begin(), second->pairs.end(), late), 0) << "not twice a call";
  tournament.cancel();
  tournament.begin(numbered_peers(4), seconds(10));
  size_t turns = 0;
  while (const auto next = tournament.next(ten_ms, deadline)) {
    turns += static_cast<size_t>(std::count(next->pairs.begin(), next->pairs.end(), late));
    tournament.end_if_over(*tournament.deadline());
  }
  EXPECT_EQ(turns, 1u) << "in the next call";
}

// Its lanes may take as long as the probe, and its first byte may, too.
TEST(Tournament, AProbeThatBeginsLateCounts) {
  Tournament tournament;
  tournament.begin(numbered_peers(2), seconds(10));
  const auto round = tournament.next(ten_ms, {});
  const Instant late{3 * round->length};
  EXPECT_FALSE(tournament.end_if_over(late));
  all_report(tournament, *round);
  EXPECT_TRUE(tournament.end_if_over(late));
  EXPECT_EQ(tournament.measured().size(), 1u);
  EXPECT_EQ(tournament.budget_left(), seconds(10) - 3 * round->length + milliseconds(1020));
}

TEST(Tournament, AFailedProbeIsNotMeasured) {
  Tournament tournament;
  tournament.begin(numbered_peers(2), seconds(10));
  const auto round = tournament.next(ten_ms, {});
  tournament.report({1}, {2}, true);
  tournament.report({2}, {1}, false);
  EXPECT_TRUE(tournament.end_if_over({}));
  EXPECT_TRUE(tournament.measured().empty());
  EXPECT_EQ(tournament.failed().size(), 1u);
}

TEST(Tournament, OnlyTheEndsOfAPairReportAboutIt) {
  Tournament tournament;
  tournament.begin(numbered_peers(3), seconds(10));
  const auto round = tournament.next(ten_ms, {});
  ASSERT_EQ(round->pairs.size(), 1u);
  const Pair pair = round->pairs[0];
  for (const PeerId from : numbered_peers(4)) {
    for (const PeerId about : numbered_peers(4)) {
      const bool right = from != about && pair.has(from) && pair.has(about);
      EXPECT_EQ(tournament.expects(from, about, round->number), right);
      EXPECT_FALSE(tournament.expects(from, about, round->number + 1));
    }
  }
}

TEST(Tournament, APeerThatDiesInARoundDoesNotStopIt) {
  Tournament tournament;
  tournament.begin(numbered_peers(4), seconds(10));
  const auto round = tournament.next(ten_ms, {});
  const Pair cut = round->pairs[0];
  all_report(tournament, *round, {cut});
  EXPECT_FALSE(tournament.end_if_over({}));
  tournament.lose(cut.high);
  EXPECT_TRUE(tournament.end_if_over({}));
  EXPECT_FALSE(tournament.measured().contains(cut));
  tournament.forget(cut.high);
  EXPECT_EQ(tournament.left_over().size(), 2u) << "the pairs of the others alone";
  std::vector<PeerId> left = numbered_peers(4);
  std::erase(left, cut.high);
  tournament.resume(left);
  tournament.check();
  size_t pairs = tournament.measured().size();
  while (const auto next = tournament.next(ten_ms, {})) {
    pairs += next->pairs.size();
    all_report(tournament, *next);
    tournament.end_if_over({});
  }
  EXPECT_EQ(pairs, 3u) << "the call goes on with the pairs of the others";
  EXPECT_EQ(tournament.measured().size(), 3u);
}

TEST(Tournament, APairOfARoundThatWasCancelledHasItsTurnAgain) {
  Tournament tournament;
  tournament.begin(numbered_peers(2), 2 * Tournament::kRoundMin);
  const auto round = tournament.next(ten_ms, {});
  tournament.cancel();
  EXPECT_FALSE(tournament.deadline().has_value());
  EXPECT_EQ(tournament.left_over().size(), 1u);
  tournament.resume(numbered_peers(2));
  const auto again = tournament.next(ten_ms, {});
  ASSERT_TRUE(again.has_value());
  EXPECT_GT(again->number, round->number);
  EXPECT_EQ(tournament.budget_left(), Duration{0}) << "its time is used up";
}

// Member 3 seems slow to some others, the slowest first.
Tournament::Known with_doubts() {
  Tournament::Known known = ten_ms;
  known.doubt = [](Pair pair) {
    const std::map<Pair, double> doubts = {
        {Pair::of({1}, {2}), 1.9}, {Pair::of({1}, {3}), 10}, {Pair::of({2}, {3}), 5}};
    const auto at = doubts.find(pair);
    return at == doubts.end() ? 1 : at->second;
  };
  return known;
}

// All pairs that have a turn in one call.
std::vector<Pair> turns(Tournament& tournament, const Tournament::Known& known, Duration budget,
                        uint64_t members = 4) {
  std::vector<Pair> pairs;
  tournament.begin(numbered_peers(members), budget);
  while (const auto round = tournament.next(known, {})) {
    pairs.insert(pairs.end(), round->pairs.begin(), round->pairs.end());
    all_report(tournament, *round);
    tournament.end_if_over({});
    tournament.check();
  }
  return pairs;
}

TEST(Tournament, DoubtfulPairsHaveASecondTurn) {
  Tournament tournament;
  const std::vector<Pair> pairs = turns(tournament, with_doubts(), seconds(10));
  ASSERT_EQ(pairs.size(), 6u + 2u);
  EXPECT_EQ(pairs[6], Pair::of({1}, {3})) << "the most doubtful first";
  EXPECT_EQ(pairs[7], Pair::of({2}, {3}));
  EXPECT_EQ(tournament.measured().size(), 6u);
  EXPECT_TRUE(tournament.left_over().empty());
  EXPECT_EQ(turns(tournament, with_doubts(), seconds(10)), pairs) << "likewise in the next call";
}

TEST(Tournament, ASecondTurnIsForWhatTheBudgetHasLeft) {
  Tournament tournament;
  EXPECT_EQ(turns(tournament, with_doubts(), 4 * Tournament::kRoundMin).size(), 6u + 1u);
  EXPECT_EQ(tournament.too_long(), Duration{0}) << "each pair has had its turn";
  EXPECT_TRUE(tournament.failed().empty());
}

TEST(Tournament, ThereAreFewSecondRounds) {
  Tournament::Known known = ten_ms;
  known.doubt = [](Pair) { return 3.0; };
  Tournament tournament;
  EXPECT_EQ(turns(tournament, known, seconds(100), 4).size(), 6u + 2u * 2u) << "4 s in all";
  EXPECT_EQ(turns(tournament, known, seconds(100), 6).size(), 15u) << "4 s without";
  EXPECT_EQ(turns(tournament, known, seconds(100), 8).size(), 28u + 4u) << "a seventh";
  EXPECT_EQ(turns(tournament, known, seconds(100), 18).size(), 153u + 9u + 8u) << "likewise";
}

TEST(Tournament, ASecondTurnThatFailsLeavesThePairMeasured) {
  Tournament tournament;
  tournament.begin(numbered_peers(4), seconds(10));
  Instant now;
  size_t second = 0;
  while (const auto round = tournament.next(with_doubts(), now)) {
    if (!tournament.repeats()) {
      all_report(tournament, *round);
    } else if (++second == 1) {
      tournament.report({1}, {3}, false);
      tournament.report({3}, {1}, true);
    } else {
      now = *tournament.deadline();  // nobody reports
    }
    EXPECT_TRUE(tournament.end_if_over(now));
    tournament.check();
  }
  EXPECT_EQ(second, 2u);
  EXPECT_EQ(tournament.measured().size(), 6u);
  EXPECT_TRUE(tournament.failed().empty());
}

TEST(Tournament, ASecondTurnThatWasCancelledComesAgain) {
  Tournament tournament;
  tournament.begin(numbered_peers(4), seconds(10));
  std::vector<Pair> pairs;
  while (const auto round = tournament.next(with_doubts(), {})) {
    if (!tournament.repeats()) {
      all_report(tournament, *round);
    } else if (pairs.empty()) {
      pairs = round->pairs;
      tournament.cancel();
      continue;
    } else {
      EXPECT_EQ(std::exchange(pairs, round->pairs), round->pairs) << "the one that was cancelled";
      all_report(tournament, *round, {round->pairs.begin(), round->pairs.end()});
      tournament.lose({3});
      tournament.forget({3});
    }
    tournament.end_if_over({});
    tournament.check();
  }
  EXPECT_EQ(pairs, std::vector{Pair::of({1}, {3})});
  EXPECT_EQ(tournament.measured().size(), 3u);
  EXPECT_TRUE(tournament.failed().empty());
}

}  // namespace
}  // namespace pccl::master::topology
