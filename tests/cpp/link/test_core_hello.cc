#include "csrc/net/keys.h"
#include "tests/cpp/link/core_test.h"

namespace pccl::link {
namespace {

using protocol::AcceptingKey;
using protocol::Key;
using protocol::LaneCredential;
using protocol::LaneIdentity;
using protocol::LaneIntroduction;

const Key kOld{{1, 1, 1, 1}}, kNew{{2, 2, 2, 2}}, kTheirs{{3, 3, 3, 3}};

// A LinkCore of a run that is secured, in the first incarnation of the master.
class SecuredTest : public LinkCoreTest {
 protected:
  SecuredTest() : LinkCoreTest(AcceptingKey{1, kOld}) {}
  static LaneIdentity from(PeerId dialler, uint32_t incarnation = 1, uint64_t number = 1) {
    return {dialler, kSelf, incarnation, number};
  }
  static LaneCredential to(PeerId acceptor, uint64_t number = 1) {
    const LaneIdentity identity{kSelf, acceptor, 1, number};
    return {identity, net::lane_key(kTheirs, kRun, identity)};
  }
  static LaneIntroduction shown(PeerId dialler, uint32_t serial = 1, bool further = false) {
    return {from(dialler), serial, further};
  }
  Lines prove(const LaneIntroduction& shown) { return step(Proven{accept(shown), shown}); }
};

TEST_F(SecuredTest, TheKeyOfADiallerFollowsFromTheAcceptingKey) {
  EXPECT_EQ(core.key_of(shown(kLow)), net::lane_key(kOld, kRun, from(kLow)));
  LaneIdentity another = from(kLow);
  another.acceptor = kHigh;
  EXPECT_EQ(core.key_of({another, 1}), std::nullopt) << "for another peer";
  EXPECT_EQ(core.key_of(shown(kSelf)), std::nullopt) << "our own, sent back";
  EXPECT_EQ(core.key_of(shown(PeerId{})), std::nullopt);
  EXPECT_EQ(core.key_of({from(kLow, 2), 1}), std::nullopt) << "of a master that was not here yet";
}

TEST_F(SecuredTest, AnAcceptedLaneIsOfThePeerThatItHasProven) {
  accept(shown(kHigh));
  EXPECT_EQ(hear('a', hello(kHigh, 1)), (Lines{"answer a serial 1", "up a far", "report up 1"}));
  EXPECT_EQ(core.credential_of(kHigh)->identity, from(kHigh));
  accept(shown(kHigh));
  EXPECT_EQ(hear('b', hello(kLow, 2)), (Lines{"close b"})) << "it says that it is another peer";
  accept(shown(kHigh, 3));
  EXPECT_EQ(hear('c', hello(kHigh, 5)), (Lines{"close c"})) << "it means another connection";
  accept(shown(kHigh, 1, true));
  EXPECT_EQ(hear('d', hello(kHigh, 1)), (Lines{"close d"})) << "it had meant a further lane";
}

TEST_F(SecuredTest, ADialHasTheCredentialOfItsLink) {
  Effects effects;
  core.step(Dial{kLow, {kAt}, 0, to(kLow)}, now, effects);
  EXPECT_EQ(std::get<Connect>(effects.at(0)).credential, to(kLow));
  step(Connected{named('a')});
  hear('a', hello(kLow));
  EXPECT_EQ(core.credential_of(kLow), to(kLow));
  effects.clear();
  core.step(NeighboursKnown{{kLow}}, now, effects);
  ASSERT_EQ(effects.size(), 3u) << "the further lanes";
  EXPECT_EQ(std::get<Connect>(effects[0]).credential, to(kLow));
}

TEST_F(SecuredTest, ANewDialReplacesTheCredential) {
  step(Dial{kLow, {kAt}, 0, to(kLow, 1)});
  step(Refused{named('a'), "the other end has another key", LinkFault::kAnotherPeer});
  Effects effects;
  core.step(Dial{kLow, {kAt}, 0, to(kLow, 2)}, now, effects);
  EXPECT_EQ(std::get<Connect>(effects.at(0)).credential, to(kLow, 2));
}

TEST_F(SecuredTest, AForgottenPeerIsRefusedAlsoInTheMiddleOfItsHandshake) {
  step(Forget{kHigh});
  EXPECT_EQ(core.key_of(shown(kHigh)), std::nullopt);
  accept(shown(kHigh));
  EXPECT_EQ(hear('a', hello(kHigh, 1)), (Lines{"close a"})) << "its handshake had begun before";
  EXPECT_TRUE(core.key_of(shown(kLow)).has_value());
}

TEST_F(SecuredTest, TheKeysOfTwoIncarnationsAreGood) {
  step(AcceptWith{{2, kNew}});
  EXPECT_EQ(core.key_of({from(kLow, 1), 1}), net::lane_key(kOld, kRun, from(kLow, 1)));
  EXPECT_EQ(core.key_of({from(kLow, 2), 1}), net::lane_key(kNew, kRun, from(kLow, 2)));
  step(AcceptWith{{3, kTheirs}});
  EXPECT_EQ(core.key_of({from(kLow, 1), 1}), std::nullopt) << "two restarts old";
  EXPECT_TRUE(core.key_of({from(kLow, 2), 1}).has_value());
}

TEST_F(SecuredTest, ALinkThatIsUpGetsFurtherLanesAfterTwoRestarts) {
  accept(shown(kHigh));
  hear('a', hello(kHigh, 1));
  step(AcceptWith{{2, kNew}});
  step(AcceptWith{{3, kTheirs}});
  EXPECT_TRUE(core.key_of(shown(kHigh, 1, true)).has_value());
  accept(shown(kHigh, 1, true));
  EXPECT_EQ(hear('b', hello(kHigh, 1, true)),
            (Lines{"answer b serial 1 further", "up b further far"}));
  EXPECT_EQ(core.key_of({from(kHigh, 1, 2), 1}), std::nullopt) << "another credential of that time";
  step(Forget{kHigh});
  EXPECT_EQ(core.key_of(shown(kHigh)), std::nullopt);
}

// ---- The answer to a proof that may be a copy ----

TEST_F(SecuredTest, AProofIsAnsweredARoundTripBeforeItIsComplete) {
  EXPECT_EQ(prove(shown(kHigh)), (Lines{"answer a serial 1"}));
  EXPECT_EQ(hear('a', hello(kHigh, 1)), (Lines{"up a far", "report up 1"})) << "no second answer";
  EXPECT_EQ(prove(shown(kHigh, 1, true)), (Lines{"answer b serial 1 further"}));
  EXPECT_EQ(hear('b', hello(kHigh, 1, true)), (Lines{"up b further far"}));
}

TEST_F(SecuredTest, ACopyOfAProofChangesNothing) {
  prove(shown(kHigh));
  EXPECT_EQ(core.links().size(), 0u);
  accept(shown(kHigh, 3));
  EXPECT_EQ(hear('b', hello(kHigh, 3)), (Lines{"answer b serial 3", "up b far", "report up 3"}))
      << "the peer itself";
  EXPECT_EQ(step(Failed{named('a'), {Code::kSystem, "took too long", {}}, LinkFault::kOther}),
            Lines{});
}

TEST_F(SecuredTest, AProofThatWasCompletedIsRefusedFromThenOn) {
  prove(shown(kHigh, 3));
  EXPECT_TRUE(core.key_of(shown(kHigh, 3)).has_value()) << "it may still be completed";
  EXPECT_EQ(hear('a', hello(kHigh, 3)), (Lines{"up a far", "report up 3"}));
  EXPECT_EQ(core.key_of(shown(kHigh, 3)), std::nullopt) << "a copy";
  EXPECT_EQ(core.key_of(shown(kHigh, 1)), std::nullopt) << "an attempt before it";
  EXPECT_TRUE(core.key_of(shown(kHigh, 5)).has_value());
  EXPECT_TRUE(core.key_of(shown(kHigh, 3, true)).has_value()) << "a further lane";
  step(Failed{named('a'), {Code::kSystem, "reset", {}}, LinkFault::kOther});
  EXPECT_EQ(prove(shown(kHigh, 3)), Lines{}) << "also without a link";
}

TEST_F(SecuredTest, AProofThatAWrongHelloFollowsUsesUpNoSerialNumbers) {
  accept(shown(kHigh, 1'000'001));
  protocol::LaneHello wrong = hello(kHigh, 1'000'001);
  wrong.run_id ^= 1;
  EXPECT_EQ(hear('a', wrong), (Lines{"close a"}));
  EXPECT_TRUE(core.key_of(shown(kHigh, 1)).has_value());
  EXPECT_EQ(prove(shown(kHigh, 1)), (Lines{"answer b serial 1"}));
}

TEST_F(SecuredTest, AProofIsNotAnsweredAtOnceWhereTheAnswerDependsOnMore) {
  EXPECT_EQ(prove(shown(kHigh, 2)), Lines{}) << "a serial number that only we could give";
  EXPECT_EQ(prove(shown(kHigh, 1, true)), Lines{}) << "a further lane of no link";
  step(Dial{kLow, {kAt}, 0, to(kLow)});
  EXPECT_EQ(prove(shown(kLow, 2)), Lines{}) << "we dial, too";
  EXPECT_EQ(hear('d', hello(kLow, 2)),
            (Lines{"close c", "answer d serial 2", "up d far", "report up 2"}));
  EXPECT_EQ(prove(shown(kLow, 4)), Lines{}) << "there is a link";
}

// The dialler has the answer, so the link is up there.
TEST_F(SecuredTest, AnAnswerHoldsAlsoIfWeDialAfterIt) {
  EXPECT_EQ(prove(shown(kLow, 2)), (Lines{"answer a serial 2"}));
  step(Dial{kLow, {kAt}, 0, to(kLow)});
  EXPECT_EQ(step(Connected{named('b')}), (Lines{"hello b serial 1"}));
  EXPECT_EQ(hear('a', hello(kLow, 2)), (Lines{"close b", "up a far", "report up 2"}))
      << "without the answer it would wait for our own attempt";
}

TEST_F(SecuredTest, NoMoreFurtherLanesAreAnsweredThanFit) {
  accept(shown(kHigh));
  hear('a', hello(kHigh, 1));
  for (const char letter : {'b', 'c', 'd'}) {
    EXPECT_EQ(prove(shown(kHigh, 1, true)),
              (Lines{std::string("answer ") + letter + " serial 1 further"}));
  }
  EXPECT_EQ(prove(shown(kHigh, 1, true)), Lines{}) << "the link has room for four";
  EXPECT_EQ(hear('e', hello(kHigh, 1, true)), (Lines{"close e"}))
      << "the others have been promised";
  EXPECT_EQ(hear('b', hello(kHigh, 1, true)), (Lines{"up b further far"}));
  step(Failed{named('c'), {Code::kSystem, "reset", {}}, LinkFault::kOther});
  EXPECT_EQ(prove(shown(kHigh, 1, true)), (Lines{"answer f serial 1 further"}));
}

}  // namespace
}  // namespace pccl::link
