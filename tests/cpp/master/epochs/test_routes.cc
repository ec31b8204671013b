#include "master/epochs/routes.h"

#include <gtest/gtest.h>

#include "csrc/protocol/shares.h"
#include "master/epochs/ring_order.h"
#include "master/runs/records.h"

namespace pccl::master {
namespace {

constexpr PeerId kOne{1}, kTwo{2}, kThree{3}, kFour{4};

// Four peers in rank order; the RTT between two is the sum of their ids in ms.
class RoutesTest : public testing::Test {
 protected:
  void link(PeerId a, PeerId b) {
    links_.add(a, b);
    const auto rtt = static_cast<uint32_t>(1000 * (a.value + b.value));
    links_.report(a, {b, protocol::LinkState::kUp, "", 1, rtt});
  }
  const std::vector<PeerId> members_ = {kOne, kThree, kTwo, kFour};
  Links links_;
};

TEST_F(RoutesTest, AMeshHasALinkOfEachPair) {
  link(kOne, kTwo);
  link(kOne, kThree);
  link(kOne, kFour);
  link(kTwo, kThree);
  link(kTwo, kFour);
  EXPECT_FALSE(is_mesh(links_, members_));
  EXPECT_TRUE(is_mesh(links_, {kOne, kTwo, kFour}));
  link(kThree, kFour);
  EXPECT_TRUE(is_mesh(links_, members_));
  links_.report(kFour, {kThree, protocol::LinkState::kDown, "reset", 1});
  EXPECT_FALSE(is_mesh(links_, members_)) << "it is down";
  EXPECT_TRUE(is_mesh(links_, {kOne}));
}

TEST_F(RoutesTest, TheRingHasFewerPathsThanTheMesh) {
  for (const PeerId a : members_) {
    for (const PeerId b : members_) {
      if (a < b) link(a, b);
    }
  }
  EXPECT_EQ(longest_rtt_in_ring(links_, members_), 6000u);  // 1+3, 3+2, 2+4, 4+1
  EXPECT_EQ(longest_rtt_in_mesh(links_, members_), 7000u);  // 3+4
}

TEST(Routes, SharesThatDoNotFitAreReplacedByEqualOnes) {
  EXPECT_EQ(shares_of({0, 256, 0}, 3), (std::vector<uint16_t>{0, 256, 0}));
  EXPECT_EQ(shares_of({0, 256, 0}, 2), (std::vector<uint16_t>{128, 128}));
  EXPECT_EQ(shares_of({1, 2, 3}, 3), protocol::equal_shares(3));
  EXPECT_EQ(shares_of({}, 4), protocol::equal_shares(4));
}

// ---- The choice of the pattern ----

class ChoiceTest : public testing::Test {
 protected:
  // A member of each of these hosts. `rate`: MB per second of each path, from and to.
  void connect(size_t hosts, uint32_t rtt, auto&& rate) {
    for (uint32_t host = 1; host <= hosts; ++host)
      start_.members.push_back({{host}, "10.0.0." + std::to_string(host)});
    for (const auto& [from, from_address, from_name] : start_.members) {
      for (const auto& [to, to_address, to_name] : start_.members) {
        if (from < to) links_.add(from, to);
        if (from < to) links_.report(from, {to, protocol::LinkState::kUp, "", 1, rtt});
      }
    }
    for (const auto& [from, from_address, from_name] : start_.members) {
      for (const auto& [to, to_address, to_name] : start_.members) {
        if (from == to) continue;
        const auto bytes = static_cast<uint64_t>(1e6 * rate(from.value, to.value));
        EXPECT_TRUE(links_.measured(from, {{{to, bytes}}}).ok());
      }
    }
  }
  void route(const PatternWish& wish = {}, const RoutesBefore& before = {}) {
    start_.ring = ring_order(links_, ids(start_.members), before);
    set_routes(start_, links_, wish, before);
  }
  bool is_direct(uint64_t bytes) const {
    return !start_.shares.empty() && start_.direct.contain(bytes);
  }
  protocol::EpochStart start_;
  Links links_;
};

constexpr uint64_t kMB = 1'000'000;

TEST_F(ChoiceTest, EqualPathsDifferInTheHopsAlone) {
  connect(4, 40'000, [](uint64_t, uint64_t) { return 10; });
  route();
  EXPECT_EQ(start_.shares, protocol::equal_shares(4));
  EXPECT_TRUE(is_direct(100'000));
  EXPECT_FALSE(is_direct(1000 * kMB)) << "the hops are a small part of it";
  EXPECT_EQ(start_.rtt, 40'000u);
}

// A path that no ring uses is slow: only small all-reduces gain by fewer hops.
TEST_F(ChoiceTest, ASlowPathBesideTheRingIsForSmallAllReduces) {
  connect(6, 40'000, [](uint64_t from, uint64_t to) { return from % 6 + 1 == to ? 10.0 : 2.5; });
  route();
  EXPECT_TRUE(is_direct(100'000));
  EXPECT_FALSE(is_direct(10 * kMB));
}

// The pairs on two sides of an ocean have shown what they carry when all of them work at once.
TEST_F(ChoiceTest, PairsThatShareAnOceanKeepTheRing) {
  const auto crosses = [](uint64_t from, uint64_t to) { return (from <= 4) != (to <= 4); };
  const auto in_ring = [](uint64_t from, uint64_t to) { return from % 8 + 1 == to; };
  connect(8, 80'000, [&](uint64_t from, uint64_t to) {
    return crosses(from, to) && !in_ring(from, to) ? 25.0 / 16 : 25.0;
  });
  route();
  EXPECT_FALSE(is_direct(64 * kMB));
}

TEST_F(ChoiceTest, AnUnknownPathKeepsTheRing) {
  connect(3, 40'000, [](uint64_t, uint64_t) { return 10; });
  ASSERT_TRUE(network_of(links_, {kOne, kTwo, kThree}).has_value());
  links_.report(kTwo, {kThree, protocol::LinkState::kUp, "", 2, 0});
  EXPECT_FALSE(network_of(links_, {kOne, kTwo, kThree}).has_value()) << "no RTT";
  links_.report(kTwo, {kThree, protocol::LinkState::kUp, "", 3, 40'000});
  links_.add(kOne, kFour);
  links_.add(kTwo, kFour);
  links_.add(kThree, kFour);
  for (const PeerId one : {kOne, kTwo, kThree})
    links_.report(one, {kFour, protocol::LinkState::kUp, "", 1, 40'000});
  EXPECT_FALSE(network_of(links_, {kOne, kTwo, kThree, kFour}).has_value()) << "no rates";
  start_.members.push_back({kFour, "10.0.0.4"});
  route();
  EXPECT_TRUE(start_.shares.empty());
}

TEST_F(ChoiceTest, AMemberSendsInAllWhatItsFastestLinkCarries) {
  connect(3, 40'000,
          [](uint64_t from, uint64_t to) { return static_cast<double>(from * 10 + to); });
  const auto network = network_of(links_, {kOne, kTwo, kThree});
  ASSERT_TRUE(network.has_value());
  EXPECT_EQ(network->out, (std::vector<double>{13e6, 23e6, 32e6}));
  EXPECT_EQ(network->in, (std::vector<double>{31e6, 32e6, 23e6}));
}

TEST_F(ChoiceTest, AWishIsObeyed) {
  connect(3, 40'000, [](uint64_t, uint64_t) { return 10; });
  route({protocol::PatternChoice::kRing});
  EXPECT_TRUE(start_.shares.empty());
  links_.add(kOne, kFour);
  route({protocol::PatternChoice::kDirect, {0, 128, 128}});
  EXPECT_EQ(start_.shares, (std::vector<uint16_t>{0, 128, 128}));
  EXPECT_EQ(start_.direct, protocol::DirectSizes{}) << "all sizes";
}

// They exchange whole tensors, which takes less time than either.
TEST_F(ChoiceTest, TwoMembersHaveNoChoice) {
  connect(2, 40'000, [](uint64_t, uint64_t) { return 10; });
  route();
  EXPECT_TRUE(start_.shares.empty());
}

// ---- What follows from the epoch before ----

TEST_F(ChoiceTest, AnUnknownPathIsGuessedFromItsEnds) {
  connect(3, 40'000, [](uint64_t from, uint64_t to) { return from * 10.0 + to; });
  links_.add(kOne, kFour);
  links_.add(kTwo, kFour);
  links_.add(kThree, kFour);
  for (const PeerId one : {kOne, kTwo, kThree})
    links_.report(one, {kFour, protocol::LinkState::kUp, "", 1, one == kThree ? 500u : 40'000u});
  EXPECT_TRUE(links_.measured(kOne, {{{kFour, 20 * kMB}}}).ok());
  const auto network = guessed_network(links_, {kOne, kTwo, kThree, kFour});
  EXPECT_EQ(network.paths.rate.at(0, 1), 12e6) << "known";
  EXPECT_DOUBLE_EQ(network.paths.rate.at(1, 3), 0.7 * 20e6) << "no more has gone into the fourth";
  EXPECT_DOUBLE_EQ(network.paths.rate.at(3, 1), 0.7 * 32e6) << "nothing is known of its way out";
  EXPECT_EQ(network.paths.rate.at(2, 3), topology::Network::kUnlimited) << "it is near";
  EXPECT_EQ(network.out[0], 20e6);
  links_.report(kOne, {kTwo, protocol::LinkState::kDown, "reset", 1});
  EXPECT_EQ(guessed_network(links_, {kOne, kTwo}).paths.rate.at(0, 1), 1) << "it has no link";
}

TEST_F(ChoiceTest, APlanForTheseMembersIsObeyed) {
  connect(4, 40'000, [](uint64_t, uint64_t) { return 10; });
  const RoutePlan plan{{kOne, kTwo, kThree, kFour}, {{0, 2, 3, 1}, {0, 100, 100, 56}, {7, 9}}};
  route({}, {nullptr, &plan});
  EXPECT_EQ(plan_of(start_), plan.plan);
}

// Not even if other shares, or the ring, seem faster now. A plan that was adopted changes them.
TEST_F(ChoiceTest, TheSameMembersKeepTheirShares) {
  connect(3, 40'000, [](uint64_t, uint64_t) { return 10; });
  protocol::EpochStart before = start_;
  before.ring = {0, 2, 1};
  before.shares = {0, 128, 128};
  before.direct = {100, 1000};
  route({}, {&before, nullptr});
  EXPECT_EQ(plan_of(start_), plan_of(before));
  links_.report(kTwo, {kThree, protocol::LinkState::kUp, "", 2, 0});
  start_.shares.clear();
  route({}, {&before, nullptr});
  EXPECT_EQ(plan_of(start_), plan_of(before)) << "no RTT any more";
  const RoutePlan ring{{kOne, kTwo, kThree}, {{0, 1, 2}, {}, {}}};
  start_.shares.clear();
  start_.direct = {};
  route({}, {&before, &ring});
  EXPECT_EQ(plan_of(start_), ring.plan);
  start_.members.pop_back();
  start_.members.push_back({kFour, "10.0.0.4"});
  start_.shares.clear();
  route({}, {&before, nullptr});
  EXPECT_TRUE(start_.shares.empty()) << "other members";
}

}  // namespace
}  // namespace pccl::master
