#include "csrc/link/core.h"

#include "tests/cpp/link/core_test.h"

namespace pccl::link {
namespace {

TEST_F(LinkCoreTest, TheSideThatDialsReportsTheLink) {
  EXPECT_EQ(dial(kLow), (Lines{"connect a to 10.0.0.3:48201 in 5000 ms"}));
  EXPECT_EQ(step(Connected{named('a')}), (Lines{"hello a serial 1"}));
  EXPECT_EQ(hear('a', hello(kLow)), (Lines{"up a far", "report up 1"}));
  EXPECT_FALSE(core.deadline().has_value());
  EXPECT_EQ(core.links().at(kLow).rtt, milliseconds(20));
}

TEST_F(LinkCoreTest, TheOtherSideAnswers) {
  accept();
  LaneHello same_machine = hello(kLow, 4);
  same_machine.machine = kMachine;
  EXPECT_EQ(hear(named('a'), same_machine, {}),
            (Lines{"answer a serial 4", "up a local", "report up 4"}));
}

TEST_F(LinkCoreTest, AnUnreachablePeerIsTriedAgainUntilItIsForgotten) {
  dial(kLow);
  EXPECT_EQ(step(Refused{named('a'), "connection refused", LinkFault::kRefused}),
            (Lines{"report unreachable 0: connection refused"}));
  EXPECT_EQ(core.deadline(), now + milliseconds(500));
  EXPECT_EQ(pass(milliseconds(500)), (Lines{"connect b to 10.0.0.3:48201 in 5000 ms"}));
  EXPECT_EQ(step(Forget{kLow}), (Lines{"close b"}));
  EXPECT_FALSE(core.deadline().has_value());
  EXPECT_EQ(pass(seconds(10)), Lines{});
  EXPECT_EQ(step(Connected{named('b')}), Lines{}) << "it came too late";
}

TEST_F(LinkCoreTest, AConnectionWithoutAnIntroductionIsClosedInTime) {
  dial(kLow);
  step(Connected{named('a')});
  EXPECT_EQ(pass(seconds(5)),
            (Lines{"close a",
                   "report unreachable 0: 10.0.0.3:48201: it did not introduce itself in time"}));
}

// Each field of a hello is wrong once, on both sides.
TEST_F(LinkCoreTest, AWrongHelloIsHungUpOn) {
  std::map<std::string, LaneHello> wrong;
  wrong["it belongs to another run"] = hello(kLow);
  wrong["it belongs to another run"].run_id = kRun + 1;
  const std::string newer =
      "version mismatch: that peer speaks versions 10 to 77 of the pccl protocol, this run speaks "
      "version 9: this run keeps its version until it ends, so install the pccl that its other "
      "peers have, or name another run";
  wrong[newer] = hello(kLow);
  wrong[newer].versions = {10, 77};
  // A hello of another version is read no further than its versions.
  wrong[newer].run_id = kRun + 1;
  const std::string older =
      "version mismatch: that peer speaks version 8 of the pccl protocol, this run speaks version "
      "9: install a later pccl for that peer";
  wrong[older] = hello(kLow);
  wrong[older].versions = {8, 8};
  wrong["it looks for peer " + text(kHigh)] = hello(kLow);
  wrong["it looks for peer " + text(kHigh)].other = kHigh;
  wrong["it says that it is peer " + text(kSelf)] = hello(kSelf);
  wrong["it says that it is peer " + text(kHigh)] = hello(kHigh);  // we have dialled another peer
  wrong["it speaks of connection 0"] = hello(kLow, 0);
  wrong["it speaks of a further lane"] = hello(kLow, 1, true);
  for (const auto& [why, one] : wrong) {
    LinkCore dialler{Options{}};
    dialler.set_identity({kSelf, kRun, kMachine, kVersion});
    Effects effects;
    dialler.step(Dial{kLow, {kAt}, 0}, now, effects);
    dialler.step(Connected{named('a')}, now, effects);
    effects.clear();
    dialler.step(HelloReceived{named('a'), one, {}}, now, effects);
    ASSERT_EQ(effects.size(), 2u) << why;
    EXPECT_EQ(line(effects[0]), "close a");
    EXPECT_EQ(line(effects[1]), "report unreachable 0: 10.0.0.3:48201: " + why);
    EXPECT_EQ(std::get<ReportLink>(effects[1]).what.fault, LinkFault::kAnotherPeer);
    LinkCore acceptor{Options{}};
    acceptor.set_identity({kSelf, kRun, kMachine, kVersion});
    effects.clear();
    acceptor.step(Accepted{{acceptor.new_lane(), one}, "10.0.0.9:5"}, now, effects);
    const bool any_peer_may = one.self == kHigh;  // an accepted connection may come from any peer
    EXPECT_EQ(line(effects[0]), any_peer_may ? "answer a serial 1" : "close a") << why;
    EXPECT_EQ(effects.size(), any_peer_may ? 3u : 1u) << "a stranger learns nothing: " << why;
  }
  accept();
  EXPECT_EQ(hear(named('a'), {}, {}), (Lines{"close a"})) << "another frame";
}

TEST_F(LinkCoreTest, AnAnswerIsOfTheConnectionThatWasDialled) {
  dial(kLow);
  step(Connected{named('a')});
  EXPECT_EQ(hear('a', hello(kLow, 2)),
            (Lines{"close a", "report unreachable 0: 10.0.0.3:48201: it speaks of connection 2"}));
}

// ---- Several addresses ----

class LinkCoreAddressesTest : public LinkCoreTest {
 protected:
  static constexpr const char* kOnly = "10.0.0.3:48201 in 5000 ms";
  static Endpoint at(const std::string& host) { return {host, 48201}; }
  Lines dial(PeerId peer, const std::vector<std::string>& hosts, uint32_t dead_serial = 0) {
    std::vector<Endpoint> all;
    for (const std::string& host : hosts) all.push_back(at(host));
    return step(Dial{peer, all, dead_serial});
  }
  Lines refuse(char letter, LinkFault fault = LinkFault::kRefused) {
    return step(Refused{named(letter), std::string("no ") + letter, fault});
  }
};

TEST_F(LinkCoreAddressesTest, TheOthersAreTriedTwoAtOnceWhenTheFirstHasFailed) {
  EXPECT_EQ(dial(kLow, {"1.0.0.1", "1.0.0.2", "1.0.0.3", "1.0.0.4"}),
            (Lines{"connect a to 1.0.0.1:48201 in 2500 ms"}));
  EXPECT_EQ(pass(seconds(2)), Lines{}) << "it is public";
  EXPECT_EQ(refuse('a', LinkFault::kNoAnswer), (Lines{"connect b to 1.0.0.2:48201 in 1250 ms",
                                                      "connect c to 1.0.0.3:48201 in 1250 ms"}));
  EXPECT_EQ(refuse('c'), (Lines{"connect d to 1.0.0.4:48201 in 1250 ms"}));
  EXPECT_EQ(refuse('b'), Lines{});
  Effects effects;
  core.step(Refused{named('d'), "no d", LinkFault::kRefused}, now, effects);
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(line(effects[0]), "report unreachable 0: no a; no c; no b; no d");
  EXPECT_EQ(std::get<ReportLink>(effects[0]).what.fault, LinkFault::kNoAnswer)
      << "what members find at the others is not for the peer";
  EXPECT_EQ(pass(milliseconds(500)), (Lines{"connect e to 1.0.0.1:48201 in 2500 ms"}));
}

TEST_F(LinkCoreAddressesTest, APrivateOneHasAHeadStartOnly) {
  dial(kLow, {"10.0.0.3", "1.0.0.2", "1.0.0.3"});
  EXPECT_EQ(pass(milliseconds(249)), Lines{});
  EXPECT_EQ(pass(milliseconds(1)), (Lines{"connect b to 1.0.0.2:48201 in 2500 ms"}));
  EXPECT_EQ(pass(seconds(1)), Lines{}) << "two at once";
  EXPECT_EQ(refuse('a'), (Lines{"connect c to 1.0.0.3:48201 in 2500 ms"}));
}

TEST_F(LinkCoreAddressesTest, TheOneThatWorkedIsFirstNextTime) {
  dial(kLow, {"1.0.0.1", "1.0.0.2", "1.0.0.3"});
  refuse('a');
  step(Connected{named('b')});
  EXPECT_EQ(hear('b', hello(kLow)), (Lines{"close c", "up b far", "report up 1"}));
  EXPECT_EQ(step(NeighboursKnown{{kLow}})[0], "connect d to 1.0.0.2:48201 in 5000 ms")
      << "further lanes, too";
  EXPECT_EQ(dial(kLow, {"1.0.0.1", "1.0.0.2", "1.0.0.3"}, 1).back(),
            "connect g to 1.0.0.2:48201 in 5000 ms");
  EXPECT_EQ(refuse('g')[0], "connect h to 1.0.0.1:48201 in 2500 ms");
  step(Forget{kLow});
  EXPECT_EQ(dial(kLow, {"1.0.0.1", "1.0.0.2"}), (Lines{"connect j to 1.0.0.1:48201 in 2500 ms"}));
}

TEST_F(LinkCoreAddressesTest, AnotherMachineAtAnAddressIsPassedOver) {
  dial(kLow, {"1.0.0.1", "1.0.0.2"});
  step(Connected{named('a')});
  EXPECT_EQ(hear('a', hello(kHigh)), (Lines{"close a", "connect b to 1.0.0.2:48201 in 2500 ms"}));
  step(Connected{named('b')});
  EXPECT_EQ(hear('b', hello(kLow, 3)), (Lines{"up b far", "report up 3"}));
}

TEST_F(LinkCoreAddressesTest, AKnownAddressThatClosesEndsThePassAFewTimes) {
  dial(kLow, {"1.0.0.1", "1.0.0.2"});
  step(Connected{named('a')});
  hear('a', hello(kLow));  // it has worked
  EXPECT_EQ(dial(kLow, {"1.0.0.1", "1.0.0.2"}, 1).back(), "connect b to 1.0.0.1:48201 in 5000 ms");
  char letter = 'b';
  for (int closed = 0; closed < 4; ++closed, ++letter) {
    step(Connected{named(letter)});
    EXPECT_EQ(step(Failed{named(letter), {Code::kSystem, "closed", {}}, LinkFault::kOther}),
              (Lines{"report unreachable 1: closed"}))
        << "pass " << closed << ": the other address is not tried";
    EXPECT_EQ(pass(seconds(1)).size(), 1u);
  }
  step(Connected{named(letter)});
  EXPECT_EQ(step(Failed{named(letter), {Code::kSystem, "closed", {}}, LinkFault::kOther}),
            (Lines{"connect g to 1.0.0.2:48201 in 2500 ms"}))
      << "it may be another machine by now";
}

TEST_F(LinkCoreAddressesTest, ButNotWhenAnotherMachineAnswersThereNow) {
  dial(kLow, {"1.0.0.1", "1.0.0.2"});
  step(Connected{named('a')});
  hear('a', hello(kLow));
  dial(kLow, {"1.0.0.1", "1.0.0.2"}, 1);
  step(Connected{named('b')});
  EXPECT_EQ(hear('b', hello(kHigh)).back(), "connect c to 1.0.0.2:48201 in 2500 ms");
}

// TCP sends a lost SYN again after 1 s and 3 s. With half of the time an outage that is over would
// not be seen.
TEST_F(LinkCoreAddressesTest, AKnownAddressHasTheWholeTimeAndTheOthersStartMeanwhile) {
  dial(kLow, {"1.0.0.1", "1.0.0.2", "1.0.0.3", "1.0.0.4"});
  step(Connected{named('a')});
  hear('a', hello(kLow));
  EXPECT_EQ(dial(kLow, {"1.0.0.1", "1.0.0.2", "1.0.0.3", "1.0.0.4"}, 1).back(),
            "connect b to 1.0.0.1:48201 in 5000 ms");
  EXPECT_EQ(pass(milliseconds(2499)), Lines{});
  EXPECT_EQ(pass(milliseconds(1)), (Lines{"connect c to 1.0.0.2:48201 in 1250 ms",
                                          "connect d to 1.0.0.3:48201 in 1250 ms"}));
  EXPECT_EQ(refuse('c'), (Lines{"connect e to 1.0.0.4:48201 in 1250 ms"}));
  refuse('d');
  refuse('e');
  EXPECT_EQ(refuse('b'), (Lines{"report unreachable 1: no c; no d; no e; no b"}));
}

TEST_F(LinkCoreAddressesTest, APeerThatWasReachedBeforeDoesNotWaitForOthers) {
  dial(kLow, {"1.0.0.1", "1.0.0.2"});
  step(Connected{named('a')});
  hear('a', hello(kLow));
  dial(kHigh, {"1.0.0.5", "1.0.0.6"});
  EXPECT_EQ(refuse('b'), (Lines{"connect c to 1.0.0.6:48201 in 2500 ms"})) << "its turn begins";
  dial(kLow, {"1.0.0.1", "1.0.0.2"}, 1);
  EXPECT_EQ(refuse('d'), (Lines{"connect e to 1.0.0.2:48201 in 2500 ms"}));
}

TEST_F(LinkCoreAddressesTest, OnePeerAtATimeIsLookedForElsewhere) {
  dial(kLow, {"1.0.0.1", "1.0.0.2"});
  dial(kHigh, {"1.0.0.5", "1.0.0.6"});
  refuse('a');
  EXPECT_EQ(refuse('b'), Lines{}) << "after the other one";
  EXPECT_EQ(pass(milliseconds(1)), Lines{});
  EXPECT_FALSE(core.deadline().has_value());
  EXPECT_EQ(refuse('c'),
            (Lines{"report unreachable 0: no a; no c", "connect d to 1.0.0.6:48201 in 2500 ms"}));
  EXPECT_EQ(pass(milliseconds(500)), (Lines{"connect e to 1.0.0.1:48201 in 2500 ms"}));
  EXPECT_EQ(refuse('e'), Lines{});
  EXPECT_EQ(step(Forget{kHigh}), (Lines{"close d", "connect f to 1.0.0.2:48201 in 2500 ms"}));
}

TEST_F(LinkCoreAddressesTest, AnotherDialGoesOnWithWhatIsUnderWay) {
  dial(kLow, {"1.0.0.1", "1.0.0.2", "1.0.0.3"});
  refuse('a');
  step(Connected{named('b')});  // has serial 1
  EXPECT_EQ(dial(kLow, {"1.0.0.1", "1.0.0.2", "1.0.0.3"}), Lines{});
  EXPECT_EQ(dial(kLow, {"1.0.0.1", "1.0.0.2", "1.0.0.3"}, 1), (Lines{"close b"}));
  EXPECT_EQ(dial(kLow, {"1.0.0.9"}, 1),
            (Lines{"close c", "connect d to 1.0.0.9:48201 in 5000 ms"}));
}

// ---- Both dial at once ----

TEST_F(LinkCoreTest, TheConnectionOfTheHigherIdStaysIfTwoDialAtOnce) {
  dial(kLow);  // we have the higher id
  step(Connected{named('a')});
  accept();
  EXPECT_EQ(hear('b', hello(kLow, 8)), Lines{}) << "not before it is clear what becomes of ours";
  EXPECT_EQ(hear('a', hello(kLow)), (Lines{"close b", "up a far", "report up 1"}));
}

TEST_F(LinkCoreTest, AndTheOtherOneIfThatFails) {
  dial(kLow);
  step(Connected{named('a')});
  accept();
  hear('b', hello(kLow, 8));
  accept();
  EXPECT_EQ(hear('c', hello(kLow, 10)), (Lines{"close b"})) << "it has dialled again";
  EXPECT_EQ(pass(seconds(5)), (Lines{"close a", "answer c serial 10", "up c far", "report up 10"}));
}

TEST_F(LinkCoreTest, AConnectionThatCrossesMayEndWhileItWaits) {
  dial(kLow);
  step(Connected{named('a')});
  accept();
  hear('b', hello(kLow, 8));
  EXPECT_EQ(hear('b', hello(kLow, 8)), (Lines{"close b"})) << "it speaks before it was answered";
  accept();
  hear('c', hello(kLow, 10));
  EXPECT_EQ(step(Failed{named('c'), {Code::kSystem, "reset", {}}, LinkFault::kOther}), Lines{});
  EXPECT_EQ(step(Failed{named('a'), {Code::kSystem, "reset", {}}, LinkFault::kOther}),
            (Lines{"report unreachable 0: reset"}));
}

// The master knows that all connections up to serial 8 are dead.
TEST_F(LinkCoreTest, AConnectionFromBeforeTheLastDialIsClosed) {
  dial(kLow);
  step(Connected{named('a')});
  accept();
  hear('b', hello(kLow, 8));
  EXPECT_EQ(dial(kLow, 8), (Lines{"close b", "close a", "connect c to 10.0.0.3:48201 in 5000 ms"}));
  accept();
  EXPECT_EQ(hear('d', hello(kLow, 6)), (Lines{"close d"}));
  EXPECT_EQ(step(Connected{named('c')}), (Lines{"hello c serial 9"}));
}

TEST_F(LinkCoreTest, NumbersSayWhichSideHasMadeAConnection) {
  for (uint32_t last = 0; last < 4; ++last) {
    for (const bool higher : {false, true}) {
      const uint32_t next = protocol::next_serial(last, higher);
      EXPECT_GT(next, last);
      EXPECT_LE(next, last + 2);
      EXPECT_EQ(protocol::made_by_higher(next), higher);
    }
  }
  accept();
  EXPECT_EQ(hear('a', hello(kLow, 1)), (Lines{"close a"})) << "it is lower than we are";
}

// Otherwise one peer could use up the numbers of all.
TEST_F(LinkCoreTest, TheNumbersOfOnePeerSayNothingAboutThoseOfOthers) {
  dial(kLow, 2'000'000'000);
  step(Connected{named('a')});
  EXPECT_EQ(hear('a', hello(kLow, 2'000'000'001)).back(), "report up 2000000001");
  dial(kHigh);
  EXPECT_EQ(step(Connected{named('b')}), (Lines{"hello b serial 2"}));
}

TEST_F(LinkCoreTest, AHelloFarAheadIsRefused) {
  accept();
  const uint32_t most = protocol::kSerialStepMax;  // even: ours is the higher id
  EXPECT_EQ(hear('a', hello(kLow, most + 2)), (Lines{"close a"}));
  accept();
  EXPECT_EQ(hear('b', hello(kLow, most)).back(), "report up " + std::to_string(most));
}

// Anybody can claim to be a newcomer of whom we have not heard yet.
TEST_F(LinkCoreTest, OnlyTheLatestUnnamedPeersHaveLinks) {
  const auto connect = [&](PeerId peer) {
    return hear(accept(), hello(peer, peer > kSelf ? 1 : 2), milliseconds(20));
  };
  step(NeighboursKnown{{kHigh}});
  connect(kHigh);
  const auto nobody = [](uint64_t number) { return PeerId{(uint64_t{77} << 32) | number}; };
  for (uint64_t number = 0; number < protocol::kUnnamedLinksMax; ++number) connect(nobody(number));
  EXPECT_EQ(core.links().size(), protocol::kUnnamedLinksMax + 1);
  connect(nobody(1000));
  EXPECT_EQ(core.links().size(), protocol::kUnnamedLinksMax + 1);
  EXPECT_FALSE(core.links().contains(nobody(0))) << "the oldest";
  EXPECT_TRUE(core.links().contains(kHigh)) << "the master has named it";
  dial(nobody(1), 0);
  for (uint64_t number = 1001; number <= 1002; ++number) connect(nobody(number));
  EXPECT_TRUE(core.links().contains(nobody(1))) << "now it is named";
  EXPECT_FALSE(core.links().contains(nobody(2)));
}

TEST_F(LinkCoreTest, AndTheLowerIdsIsGivenUp) {
  dial(kHigh);
  step(Connected{named('a')});
  accept();
  EXPECT_EQ(hear('b', hello(kHigh, 9)),
            (Lines{"close a", "answer b serial 9", "up b far", "report up 9"}));
  EXPECT_FALSE(core.deadline().has_value()) << "it is not dialled any more";
}

TEST_F(LinkCoreTest, ADiallerWithoutAConnectionTakesTheOthers) {
  dial(kLow);
  accept();
  EXPECT_EQ(hear('b', hello(kLow, 8)),
            (Lines{"close a", "answer b serial 8", "up b far", "report up 8"}));
}

// ---- A second link of the same peer ----

TEST_F(LinkCoreTest, ASecondLinkIsRefusedWhileTheFirstAnswers) {
  link(kLow);
  accept();
  EXPECT_EQ(hear('b', hello(kLow, 8)), (Lines{"close b", "ping a 1"}));
  EXPECT_EQ(step(PongReceived{named('a'), 1}), Lines{});
  EXPECT_EQ(pass(milliseconds(250)), Lines{});
  EXPECT_FALSE(core.deadline().has_value());
}

TEST_F(LinkCoreTest, AFirstLinkThatDoesNotAnswerIsGivenUp) {
  link(kLow);
  accept();
  hear('b', hello(kLow, 8));
  step(PongReceived{named('a'), 0});  // an ordinary pong does not answer the probe
  EXPECT_EQ(pass(milliseconds(250)), Lines{});
  EXPECT_EQ(pass(milliseconds(250)), Lines{});
  EXPECT_EQ(pass(milliseconds(250)),
            (Lines{"down " + text(kLow), "close a",
                   "report down 1: it does not answer on this link, and dials again"}));
}

// ---- Life and death of a link ----

TEST_F(LinkCoreTest, ALinkIsAliveWhileSomethingIsHeardOnEachLane) {
  link(kLow);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(tick("a"), Lines{});
  EXPECT_EQ(tick("a"), (Lines{"ping a 0"})) << "nothing was said for four ticks";
  for (int i = 0; i < 9; ++i) tick();
  EXPECT_EQ(tick().back(), "report down 1: nothing was received on it for 5 s");
  EXPECT_TRUE(core.links().empty());
}

TEST_F(LinkCoreTest, ALaneThatFailsTakesItsLinkAndIsNotDialledAgainByItself) {
  link(kLow);
  EXPECT_EQ(step(Failed{named('a'), {Code::kSystem, "reset", {}}, LinkFault::kOther}),
            (Lines{"down " + text(kLow), "close a", "report down 1: reset"}));
  EXPECT_FALSE(core.deadline().has_value());
  EXPECT_EQ(step(Suspected{kLow, "again"}), Lines{});
}

TEST_F(LinkCoreTest, ADialAfterItsDeathMakesALinkAnewAndOneBeforeItDoesNot) {
  link(kLow);
  EXPECT_EQ(dial(kLow), (Lines{"report up 1"})) << "it lives";
  EXPECT_EQ(dial(kLow, 1), (Lines{"down " + text(kLow), "close a",
                                  "report down 1: the other end has lost this connection",
                                  "connect b to 10.0.0.3:48201 in 5000 ms"}));
  EXPECT_EQ(dial(kLow, 1), Lines{}) << "it is under way";
  step(Connected{named('b')});
  EXPECT_EQ(dial(kLow, 1), Lines{}) << "it has serial 3";
  EXPECT_EQ(dial(kLow, 3), (Lines{"close b", "connect c to 10.0.0.3:48201 in 5000 ms"}));
}

// ---- Further lanes ----

TEST_F(LinkCoreTest, ALongLinkToANeighbourGetsFurtherLanes) {
  link(kLow);
  EXPECT_EQ(step(NeighboursKnown{{kLow}}).size(), 3u) << "four in all";
  EXPECT_EQ(step(Connected{named('b')}), (Lines{"hello b serial 1 further"}));
  EXPECT_EQ(hear('b', hello(kLow, 1, true)), (Lines{"up b further far"}));
  EXPECT_EQ(step(Refused{named('c'), "refused", LinkFault::kRefused}), Lines{})
      << "one lane fewer; tried again in the next epoch";
  EXPECT_EQ(step(NeighboursKnown{{kLow}}), (Lines{"connect e to 10.0.0.3:48201 in 5000 ms"}));
  EXPECT_EQ(step(Forget{kLow}), (Lines{"down " + text(kLow), "close a", "close b", "close d",
                                       "close e", "report down 1: it was to be forgotten"}));
}

// In the direct pattern every other member is a neighbour.
TEST_F(LinkCoreTest, ManyNeighboursShareTheLanesThatAProcessCanAfford) {
  link(kLow);
  const auto other = [](uint64_t number) { return PeerId{(uint64_t{7} << 32) | number}; };
  EXPECT_EQ(step(NeighboursKnown{{kLow, other(1), other(2), other(3)}}).size(), 1u)
      << "two in all: four are for each of two neighbours";
  std::vector<PeerId> many = {kLow};
  for (uint64_t number = 1; number < 20; ++number) many.push_back(other(number));
  EXPECT_EQ(step(NeighboursKnown{many}), Lines{}) << "never fewer than one";
}

// As many as a large transfer begins with, and no more than all links can have.
TEST_F(LinkCoreTest, ALinkThatIsToCarryMuchGetsTheLanesWithWhichThatBegins) {
  link(kLow);
  EXPECT_EQ(core.opening(kLow), 0u);
  step(LanesLearnt{kLow, 3});
  EXPECT_EQ(step(LanesWanted{kLow}).size(), 2u) << "three pay";
  EXPECT_EQ(core.opening(kLow), 2u);
  EXPECT_EQ(step(LanesWanted{kLow}), Lines{}) << "they are being opened";
  step(Refused{named('b'), "refused", LinkFault::kRefused});
  EXPECT_EQ(core.opening(kLow), 1u);
  EXPECT_EQ(step(LanesWanted{kLow}).size(), 1u);
  EXPECT_EQ(step(LanesWanted{kHigh}), Lines{}) << "there is no link";
  EXPECT_EQ(core.opening(kHigh), 0u);
  EXPECT_EQ(step(NeighboursKnown{{kLow}}).size(), 1u) << "a neighbour has all four";
}

TEST_F(LinkCoreTest, ALinkThatIsToBeMeasuredGetsAllLanesThatItCanHave) {
  link(kLow);
  step(LanesLearnt{kLow, 2});
  EXPECT_EQ(step(LanesWanted{kLow}).size(), 1u) << "two pay";
  EXPECT_EQ(step(LanesWanted{kLow, true}).size(), 2u) << "four are the most";
}

TEST_F(LinkCoreTest, APathOfWhichOnlyTheRttIsKnownGetsLanesByThat) {
  link(kLow);
  EXPECT_EQ(step(LanesWanted{kLow}).size(), 3u) << "five, but this process can afford four";
}

TEST_F(LinkCoreTest, ManyLinksShareTheLanesThatArePreparedForThem) {
  link(kLow);
  for (uint64_t number = 1; number <= 10; ++number) {
    hear(accept(), hello(PeerId{(uint64_t{7} << 32) | number}), milliseconds(20));
  }
  ASSERT_EQ(core.links().size(), 11u);
  EXPECT_EQ(step(LanesWanted{kLow, true}), Lines{}) << "one for each: 16 lanes are for all";
}

TEST_F(LinkCoreTest, AFurtherLaneIsOfTheLinkThatIsUp) {
  accept();
  hear('a', hello(kLow, 4));
  accept();
  EXPECT_EQ(hear('b', hello(kLow, 3, true)), (Lines{"close b"})) << "of an older link";
  accept();
  EXPECT_EQ(hear('c', hello(kLow, 4, true)),
            (Lines{"answer c serial 4 further", "up c further far"}));
  accept();
  EXPECT_EQ(hear('d', hello(kHigh, 4, true)), (Lines{"close d"})) << "there is no such link";
  for (char more = 'e'; more < 'g'; ++more) {
    accept();
    hear(more, hello(kLow, 4, true));
  }
  accept();
  EXPECT_EQ(hear('g', hello(kLow, 4, true)), (Lines{"close g"})) << "four are the most";
}

TEST_F(LinkCoreTest, TheNextLinkBeginsWithAsManyLanesAsHavePaid) {
  step(LanesLearnt{kLow, 3});
  dial(kLow);
  step(Connected{named('a')});
  Effects effects;
  core.step(HelloReceived{named('a'), hello(kLow), milliseconds(20)}, now, effects);
  EXPECT_EQ(std::get<LaneUp>(effects[0]).lanes_at_first, 3u);
}

// At a peer timeout of ten minutes a tick is half a minute. Pings are sent more often than that.
TEST_F(LinkCoreTest, PingsOftenWhateverThePeerTimeout) {
  LinkCore patient{Options{}};
  patient.set_identity({kSelf, kRun, kMachine, kVersion, {}, std::chrono::minutes(10)});
  Effects effects;
  patient.step(Dial{kLow, {kAt}, 0}, now, effects);
  patient.step(Connected{named('a')}, now, effects);
  patient.step(HelloReceived{named('a'), hello(kLow), {}}, now, effects);
  EXPECT_EQ(patient.beat(), seconds(5));
  const auto beats = [&](int count, bool stuck) {
    effects.clear();
    Tick tick;
    if (stuck) tick.progress.push_back({named('a'), 1460, false});
    for (; count > 0; --count) patient.step(tick, now, effects);
    return effects.size();
  };
  EXPECT_EQ(beats(59, false), 29u) << "a ping at every other one";
  EXPECT_EQ(patient.links().size(), 1u);
  EXPECT_EQ(beats(1, true), 4u) << "silent for five minutes: a ping, and the link is down";
  EXPECT_TRUE(patient.links().empty());
}

// ---- Narrow paths ----

// `ticks` pass in which a large packet of a link is under way and nothing is received.
class NarrowPathTest : public LinkCoreTest {
 protected:
  Lines stuck(char letter, uint32_t segment = 1460, int ticks = protocol::kTicksPerLinkTimeout) {
    Lines all;
    for (int left = ticks; left > 0; --left) {
      Tick tick;
      tick.progress.push_back({named(letter), segment, false});
      for (const std::string& line : step(tick)) {
        if (!line.starts_with("ping")) all.push_back(line);
      }
    }
    return all;
  }
  Lines arrived(char letter, uint32_t segment) {
    Tick tick;
    tick.received.push_back(named(letter));
    tick.progress.push_back({named(letter), segment, true});
    return step(tick);
  }
  // We dial again and set up the link once more.
  void remake(char letter, uint32_t serial, uint32_t segment) {
    const Lines dialled = dial(kLow, serial - 2);
    ASSERT_EQ(dialled.back(), std::string("connect ") + letter + " to 10.0.0.3:48201 in 5000 ms" +
                                  (segment > 0 ? " segment " + std::to_string(segment) : ""));
    step(Connected{named(letter)});
    ASSERT_EQ(hear(letter, hello(kLow, serial)).back(), "report up " + std::to_string(serial));
  }
  const std::string silent = "nothing was received on it for 5 s";
};

TEST_F(NarrowPathTest, TheNextConnectionsHaveSmallerSegments) {
  link(kLow);
  EXPECT_EQ(stuck('a'), (Lines{"limit accepted 1200", "down " + text(kLow), "close a",
                               "report down 1: " + silent}));
  remake('b', 3, 1200);
  EXPECT_EQ(step(NeighboursKnown{{kLow}}).front(),
            "connect c to 10.0.0.3:48201 in 5000 ms segment 1200")
      << "a further lane";
  EXPECT_EQ(arrived('b', 1188), (Lines{"helped b 1188"}));
  EXPECT_EQ(arrived('b', 1188), Lines{}) << "once";
  const Lines forgotten = step(Forget{kLow});
  EXPECT_EQ(Lines(forgotten.end() - 2, forgotten.end()),
            (Lines{"narrow path gone " + text(kLow), "limit accepted 0"}));
}

TEST_F(NarrowPathTest, ALinkThatIsGivenUpByTheMasterIsWeighedToo) {
  link(kLow);
  stuck('a', 1460, protocol::kTicksWithoutProgress);
  EXPECT_EQ(dial(kLow, 1).back(), "connect b to 10.0.0.3:48201 in 5000 ms segment 1200");
}

TEST_F(NarrowPathTest, AShortTimeProvesNothing) {
  link(kLow);
  stuck('a', 1460, protocol::kTicksWithoutProgress - 1);
  EXPECT_EQ(step(Failed{named('a'), {Code::kSystem, "reset", {}}, LinkFault::kOther}).size(), 3u);
  remake('b', 3, 0);
}

TEST_F(NarrowPathTest, ALinkWithProgressHasAnotherFault) {
  link(kLow);
  arrived('a', 1460);
  for (int left = protocol::kTicksPerLinkTimeout; left > 0; --left) tick();
  EXPECT_TRUE(core.links().empty());
  remake('b', 3, 0);
}

TEST_F(NarrowPathTest, OneLaneWithProgressIsEnough) {
  link(kLow);
  step(NeighboursKnown{{kLow}});
  step(Connected{named('b')});
  hear('b', hello(kLow, 1, true));
  arrived('b', 1460);
  stuck('a');
  ASSERT_TRUE(core.links().empty());
  step(NeighboursKnown{{}});
  remake('e', 3, 0);
}

TEST_F(NarrowPathTest, NoSizeHelps) {
  link(kLow);
  stuck('a');
  remake('b', 3, 1200);
  EXPECT_EQ(stuck('b', 1188).front(), "limit accepted 536");
  remake('c', 5, 536);
  EXPECT_EQ(stuck('c', 524).back(), "report down 5: " + silent);
  const Lines given_up{
      "report unreachable 5: small packets arrive, but larger ones "
      "do not, not even those of 576 bytes: does a router drop them?"};
  EXPECT_EQ(dial(kLow, 5), given_up);
  EXPECT_EQ(pass(milliseconds(500)), given_up);
  accept();
  EXPECT_EQ(hear('d', hello(kLow, 8)), (Lines{"close d"})) << "it does not know yet";
  EXPECT_EQ(step(Forget{kLow}), (Lines{"limit accepted 0"}));
  EXPECT_EQ(dial(kLow), (Lines{"connect e to 10.0.0.3:48201 in 5000 ms"}));
}

TEST_F(NarrowPathTest, TheNarrowestPathLimitsWhatIsAccepted) {
  link(kLow);
  stuck('a');
  accept();
  hear('b', hello(kHigh, 1));
  ASSERT_EQ(core.links().size(), 1u);
  EXPECT_EQ(stuck('b', 1188).front(), "limit accepted 536");
  EXPECT_EQ(step(Forget{kHigh}), (Lines{"limit accepted 1200"}));
  EXPECT_EQ(step(Forget{kLow}), (Lines{"limit accepted 0"}));
}

}  // namespace
}  // namespace pccl::link
