#include "master/members/membership.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "csrc/protocol/limits.h"
#include "master/text_format.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::LinkState;

constexpr Duration kTimeout = std::chrono::seconds(10);

class MembershipTest : public testing::Test {
 protected:
  // Registers peer `number` and links it with all others except those in `but`.
  void enlist(uint64_t number, int32_t wish = -1, const std::vector<uint64_t>& but = {}) {
    Membership::Peer about;
    about.seen_host = "10.0.0." + std::to_string(number);
    about.wish = wish;
    group.welcome({number}, about);
    for (const PeerId dialler : group.register_peer({number}, {"", 1000})) {
      if (std::find(but.begin(), but.end(), dialler.value) != but.end()) continue;
      up(dialler.value, number);
    }
  }
  void up(uint64_t from, uint64_t to) { group.links.report({from}, {{to}, LinkState::kUp, "", 1}); }
  void down(uint64_t from, uint64_t to) {
    group.links.report({from}, {{to}, LinkState::kDown, "reset", 1});
  }
  static std::vector<PeerId> peers(const std::vector<uint64_t>& numbers) {
    std::vector<PeerId> out;
    for (const uint64_t number : numbers) out.push_back({number});
    return out;
  }
  // The peers that are lost at the next tick.
  std::vector<PeerId> lost() {
    std::vector<PeerId> out;
    for (const auto& one : group.tick(kTimeout, [this](PeerId peer) { return peer != silent; })) {
      out.push_back(one.peer);
      why = one.why;
    }
    return out;
  }
  std::string why;
  PeerId silent;
  Membership group;
};

TEST_F(MembershipTest, WishedRanksAreKeptTheOthersFillTheGaps) {
  enlist(1, 2);
  enlist(2);
  EXPECT_FALSE(group.founders(3).has_value());
  enlist(3, 0);
  EXPECT_EQ(group.founders(3), peers({3, 2, 1}));
  EXPECT_EQ(group.wished_by(2), PeerId{1});
  EXPECT_EQ(group.wished_by(1), std::nullopt);
}

TEST_F(MembershipTest, AnUnreachablePeerIsNotAwaited) {
  enlist(1);
  enlist(2, -1, {1});
  enlist(3);
  EXPECT_EQ(group.pending(10), peers({1, 3}));
  EXPECT_EQ(group.founders(2), peers({1, 3}));
  up(1, 2);
  EXPECT_EQ(group.pending(10), peers({1, 2, 3}));
  EXPECT_EQ(group.pending(2), peers({1, 2}));
  group.set_connected({2}, false);
  EXPECT_EQ(group.pending(10), peers({1, 3}));
}

TEST_F(MembershipTest, AFirstPeerThatNobodyReachesKeepsNobodyOut) {
  enlist(1);
  enlist(2, -1, {1});
  enlist(3, -1, {1});
  EXPECT_EQ(group.pending(10), peers({1})) << "whether it can be reached is not known yet";
  for (const uint64_t other : {2, 3})
    group.links.report({other}, {{1}, LinkState::kUnreachable, "no answer", 0});
  EXPECT_EQ(group.pending(10), peers({2, 3}));
  EXPECT_EQ(group.founders(2), peers({2, 3}));
}

TEST_F(MembershipTest, AllMembersMustHaveReachedANewcomer) {
  enlist(1);
  enlist(2);
  group.admit(peers({2, 1}));
  enlist(3, -1, {2});
  enlist(4, -1, {3});
  EXPECT_EQ(group.pending(10), peers({4})) << "3 is not reached by 2; 4 does not wait for it";
  up(2, 3);
  EXPECT_EQ(group.pending(10), peers({3})) << "4 is not linked with 3, which is before it";
  up(3, 4);
  EXPECT_EQ(group.pending(10), peers({3, 4}));
}

TEST_F(MembershipTest, RanksStayWhatTheyAreWhenOthersGo) {
  for (uint64_t i = 1; i <= 3; ++i) enlist(i);
  group.admit(peers({1, 2, 3}));
  group.remove({2}, "gone");
  EXPECT_EQ(group.members(), peers({1, 3}));
  EXPECT_EQ(group.rank({3}), 2u);
  EXPECT_FALSE(group.is_member({2}));
  EXPECT_EQ(group.describe({3}), "peer 0.3 (rank 2, 10.0.0.3:1000)");
  ASSERT_EQ(group.gone().size(), 1u);
  EXPECT_EQ(group.gone()[0].why, "gone");
}

TEST_F(MembershipTest, KilledMeansBothConnectionsAreClosed) {
  for (uint64_t i = 1; i <= 3; ++i) enlist(i);
  group.admit(peers({1, 2, 3}));
  down(3, 1);
  group.set_connected({3}, false);
  EXPECT_FALSE(group.lost_at_once({3})) << "its own word does not count";
  down(2, 3);
  EXPECT_TRUE(group.lost_at_once({3}));
  group.set_connected({3}, true);
  EXPECT_FALSE(group.lost_at_once({3}));
  EXPECT_FALSE(group.lost_at_once({9})) << "nobody";
}

// The first is cut off from the others. The third loses its connection to the master meanwhile.
TEST_F(MembershipTest, ALinkThatWasDownBeforeIsNoSignOfADeath) {
  for (uint64_t i = 1; i <= 3; ++i) enlist(i);
  group.admit(peers({1, 2, 3}));
  down(1, 3);
  EXPECT_TRUE(lost().empty());
  group.set_connected({3}, false);
  EXPECT_TRUE(group.lost_at_once({3})) << "both went down within two ticks";
  group.set_connected({3}, true);
  EXPECT_TRUE(lost().empty());
  group.set_connected({3}, false);
  EXPECT_FALSE(group.lost_at_once({3}));
  down(2, 3);
  EXPECT_TRUE(group.lost_at_once({3})) << "another link of it went down with the connection";
}

TEST_F(MembershipTest, AMemberThatIsAwayTooLongIsLost) {
  for (uint64_t i = 1; i <= 2; ++i) enlist(i);
  group.admit(peers({1, 2}));
  group.set_connected({2}, false);
  for (int tick = 1; tick < protocol::kTicksPerTimeout; ++tick) EXPECT_TRUE(lost().empty());
  group.set_connected({2}, true);
  group.set_connected({2}, false);  // it was back, so the time starts from zero
  for (int tick = 1; tick < protocol::kTicksPerTimeout; ++tick) EXPECT_TRUE(lost().empty());
  EXPECT_EQ(lost(), peers({2}));
  EXPECT_EQ(why, "its connection to the master broke and it did not come back within 10 s");
}

TEST_F(MembershipTest, ADeadLinkRemovesTheEndWithMoreDeadLinksThenTheYounger) {
  for (uint64_t i = 1; i <= 3; ++i) enlist(i);
  group.admit(peers({3, 2, 1}));
  down(1, 2);
  for (int tick = 0; tick < 9; ++tick) EXPECT_TRUE(lost().empty());
  EXPECT_EQ(lost(), peers({2})) << "after ten ticks";
  EXPECT_EQ(why, "the link between it and peer 0.1 (rank 2, 10.0.0.1:1000) is down: reset");
  down(3, 1);
  EXPECT_EQ(lost(), peers({1}));
}

TEST_F(MembershipTest, ADeadLinkCountsOnlyBetweenMembersThatAreHeard) {
  for (uint64_t i = 1; i <= 3; ++i) enlist(i);
  group.admit(peers({1, 2}));
  down(1, 3);
  down(1, 2);
  // Paused: it cannot dial, and nobody can connect to it.
  silent = {2};
  for (int tick = 0; tick < 19; ++tick) EXPECT_TRUE(lost().empty());
  silent = {};
  for (int tick = 0; tick < 9; ++tick) EXPECT_TRUE(lost().empty());
  EXPECT_EQ(lost(), peers({2}));
}

TEST_F(MembershipTest, AddressesAreTranslatedForWhoStandsElsewhere) {
  const auto welcome = [this](uint64_t number, const std::string& host, bool loopback,
                              const std::string& own = "") {
    Membership::Peer about;
    about.seen_host = host;
    about.seen_loopback = loopback;
    group.welcome({number}, about);
    group.register_peer({number}, {own, 1000});
  };
  welcome(1, "127.0.0.1", true);
  welcome(2, "127.0.0.1", true);
  welcome(3, "10.0.0.3", false);
  welcome(4, "10.0.0.4", false, "example.org");
  EXPECT_EQ(group.dial({1}, {2}), (protocol::Dial{{2}, "127.0.0.1", 1000}));
  EXPECT_EQ(group.dial({3}, {1}), (protocol::Dial{{1}, "", 1000})) << "where the master is";
  EXPECT_EQ(group.dial({1}, {3}), (protocol::Dial{{3}, "10.0.0.3", 1000}));
  EXPECT_EQ(group.dial({1}, {4}), (protocol::Dial{{4}, "example.org", 1000}));
}

TEST_F(MembershipTest, FurtherAddressesAreToldAndKept) {
  const std::vector<Endpoint> others = {{"10.9.0.1", 48201}, {"2001:db8::1", 48201}};
  Membership::Peer first;
  first.seen_host = "10.0.0.1";
  group.welcome({1}, first);
  group.register_peer({1}, {"a.example", 40001, others});
  enlist(2);
  EXPECT_EQ(group.dial({2}, {1}), (protocol::Dial{{1}, "a.example", 40001, 0, others}));
  group.admit(peers({1, 2}));
  EXPECT_EQ(group.record({1}).others, others);
  Membership::Peer near;
  near.seen_host = "10.0.0.3";
  group.welcome({3}, near);
  group.register_peer({3}, {"", 48201, {{"10.0.0.3", 48201}, {"10.9.0.3", 48201}}});
  EXPECT_EQ(group.dial({2}, {3}),
            (protocol::Dial{{3}, "10.0.0.3", 48201, 0, {{"10.9.0.3", 48201}}}))
      << "each once";
  Membership restarted;
  restarted.restore({group.member({1}), group.member({2})}, {group.record({1}), group.record({2})});
  EXPECT_EQ(restarted.dial({2}, {1}), (protocol::Dial{{1}, "a.example", 40001, 0, others}));
}

TEST_F(MembershipTest, SaysWhoCannotBeLinkedWithANewcomerAndWhy) {
  enlist(1);
  group.admit(peers({1}));
  enlist(2, -1, {1});
  EXPECT_EQ(group.obstacle({2}), "");
  const auto obstacle = [this](LinkFault fault, LinkFault back) {
    group.links.report({1}, {{2}, LinkState::kUnreachable, "SSH-2.0 at 10.0.0.2", 1, 0, fault});
    if (back == LinkFault::kOther) return group.obstacle({2});
    group.links.report({2}, {{1}, LinkState::kUnreachable, "SSH-2.0 at 10.0.0.1", 1, 0, back});
    return group.obstacle({2});
  };
  EXPECT_EQ(obstacle(LinkFault::kNoAnswer, LinkFault::kOther), "") << "the other side may do it";
  const std::string who =
      "peer 0.1 (rank 0, 10.0.0.1:1000) cannot connect to peer 0.2 (10.0.0.2:1000)";
  EXPECT_EQ(
      obstacle(LinkFault::kOther, LinkFault::kRefused),
      who +
          " (its log has the reason, with PCCL_LOG=info); peer 0.2 cannot connect to peer 0.1: "
          "connection refused")
      << "the words of the system are for members";
  EXPECT_EQ(
      group.obstacle({2}, Membership::Reader::kOperator),
      who + ": SSH-2.0 at 10.0.0.2; peer 0.2 cannot connect to peer 0.1: SSH-2.0 at 10.0.0.1");
  EXPECT_EQ(obstacle(LinkFault::kNoAnswer, LinkFault::kUnknownName),
            who + ": no answer; peer 0.2 cannot connect to peer 0.1: unknown host name");
  EXPECT_EQ(
      obstacle(LinkFault::kAnotherProgram, LinkFault::kAnotherPeer),
      who + ": another program answers; peer 0.2 cannot connect to peer 0.1: another peer answers");
}

// A newcomer may register the address of somebody else, and a program there may answer or not.
TEST_F(MembershipTest, AStrangerLearnsOneReasonForAllFaultsWhereTheMasterDoesNotSeeIt) {
  using Reader = Membership::Reader;
  enlist(1);
  group.admit(peers({1}));
  Membership::Peer stranger;
  stranger.seen_host = "1.2.3.4";
  group.welcome({2}, stranger);
  group.register_peer({2}, {"5.6.7.8", 22});
  EXPECT_EQ(group.disclosure({1}, {2}), Disclosure::kFailure);
  group.links.dialled({1}, {2}, group.disclosure({1}, {2}));
  group.links.report({2}, {{1}, LinkState::kUnreachable, "", 0, 0, LinkFault::kNoAnswer});
  std::set<std::string> shown;
  const auto show = [&](LinkFault fault) {
    group.links.report({1}, {{2}, LinkState::kUnreachable, "5.6.7.8:22: words", 0, 0, fault});
    EXPECT_NE(group.obstacle({2}, Reader::kMember).find(fault_text(fault)), std::string::npos);
    shown.insert(group.obstacle({2}, Reader::kStranger));
    shown.insert(group.obstacle({2}, Reader::kObserver));
  };
  show(LinkFault::kRefused);
  EXPECT_EQ(shown, (std::set<std::string>{""})) << "the time of the news would show something, too";
  shown.clear();
  for (int tick = 0; tick < Links::kTriedTicks; ++tick) EXPECT_TRUE(lost().empty());
  for (const LinkFault fault : {LinkFault::kRefused, LinkFault::kNoAnswer, LinkFault::kAnotherPeer,
                                LinkFault::kUnknownName})
    show(fault);
  const std::string all =
      "peer 0.1 (rank 0, 10.0.0.1:1000) cannot connect to peer 0.2 (5.6.7.8:22) (its log has the "
      "reason, with PCCL_LOG=info); peer 0.2 cannot connect to peer 0.1: no answer";
  EXPECT_EQ(shown, (std::set<std::string>{all}));
  EXPECT_NE(group.obstacle({2}, Reader::kOperator).find("5.6.7.8:22: words"), std::string::npos);
  for (int tick = 0; tick < 14; ++tick) EXPECT_TRUE(lost().empty());
  const auto refused = group.tick(kTimeout, [](PeerId) { return true; });
  ASSERT_EQ(refused.size(), 1u) << "fifteen ticks after the failure is shown";
  EXPECT_TRUE(refused[0].why.starts_with(all)) << refused[0].why;
  EXPECT_NE(refused[0].refusal.find("unknown host name"), std::string::npos) << "for the members";
  group.admit(peers({1, 2}));
  EXPECT_EQ(group.disclosure({1}, {2}), Disclosure::kFull) << "members get all news";
}

TEST_F(MembershipTest, APrivateAddressThatWasNotDialledIsNamedWithTheReason) {
  enlist(1);
  group.admit(peers({1}));
  Membership::Peer elsewhere;
  elsewhere.seen_host = "1.2.3.4";
  group.welcome({2}, elsewhere);
  group.register_peer({2}, {"10.0.0.7", 40001});
  EXPECT_EQ(group.dial({1}, {2}), (protocol::Dial{{2}, "1.2.3.4", 40001}));
  group.links.report({1}, {{2}, LinkState::kUnreachable, "", 0, 0, LinkFault::kNoAnswer});
  group.links.report({2}, {{1}, LinkState::kUnreachable, "", 0, 0, LinkFault::kNoAnswer});
  EXPECT_NE(group.obstacle({2}).find(
                "cannot connect to peer 0.2 (10.0.0.7:40001): no answer (the latter advertises "
                "10.0.0.7, a private address, and the master sees it at 1.2.3.4; it was dialled at "
                "1.2.3.4 instead, because the master does not see both in one network)"),
            std::string::npos)
      << group.obstacle({2});
}

// A member that has lost links to others too may itself be the one that nobody can reach.
TEST_F(MembershipTest, ANewcomerThatNoSideCanReachIsRefused) {
  enlist(1), enlist(2);
  group.admit(peers({1, 2}));
  enlist(3, -1, {2});
  const auto says = [this](uint64_t from, uint64_t to, LinkState state, uint32_t serial) {
    group.links.report({from}, {{to}, state, "", serial, 0, LinkFault::kNoAnswer});
  };
  const auto pass = [this](int ticks) {
    std::vector<Membership::Lost> lost;
    for (int i = 0; i < ticks; ++i) {
      lost = group.tick(std::chrono::seconds(10), [](PeerId) { return true; });
      if (!lost.empty()) break;
    }
    return lost;
  };
  says(2, 3, LinkState::kUnreachable, 0);
  EXPECT_TRUE(pass(15).empty());
  says(3, 2, LinkState::kUnreachable, 0);
  EXPECT_TRUE(pass(4).empty()) << "it is waited for as long as for any peer";
  says(1, 2, LinkState::kDown, 2);
  EXPECT_TRUE(pass(5).empty()) << "perhaps it is 2 that nobody can reach";
  says(1, 2, LinkState::kUp, 4);
  const auto lost = pass(1);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].peer, (PeerId{3}));
  EXPECT_EQ(lost[0].refusal,
            "refused: peer 0.2 (rank 1, 10.0.0.2:1000) cannot connect to peer 0.3 "
            "(10.0.0.3:1000): no answer; peer 0.3 cannot connect to peer 0.2: no answer" +
                kWhatToOpen);
}

}  // namespace
}  // namespace pccl::master
