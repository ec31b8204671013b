// A master that was killed and restarted from its journal (PROTOCOL.md, section 7).
#include <gtest/gtest.h>

#include "master/group/group.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::JointKind;
using protocol::OpState;

struct Restart : testing::Test {
  // The Resume of a member of epoch 1.1, with its open operations.
  protocol::Resume resume(const std::string& name,
                          const std::vector<std::pair<uint32_t, OpState>>& ops = {}) {
    protocol::Resume resume = h.resume(name, epoch(1));
    for (const auto& [sequence, state] : ops) {
      resume.ops.push_back({op(sequence), state});
      resume.infos.push_back(all_reduce(8));
    }
    return resume;
  }
  // The same for a member that received this answer to its first call.
  protocol::Resume announced(const std::string& name, const protocol::Answer& answer) {
    protocol::Resume announced = resume(name);
    announced.joint_answered = 1;
    announced.last_answer = answer;
    announced.together = answer.together;
    announced.pending = answer.pending;
    return announced;
  }
  void come_back_with(const protocol::Answer& answer) {
    for (const char* name : {"a", "b"}) h.come_back(name, announced(name, answer));
  }
  // The answer that peers are pending.
  static protocol::Answer yes() {
    protocol::Answer answer;
    answer.kind = kPending;
    answer.pending = true;
    return answer;
  }
  void begin(uint32_t sequence) {
    for (const char* name : {"a", "b"}) {
      h.say(name, protocol::Begin{epoch(1), op(sequence), all_reduce(8)});
    }
  }
  Harness h;
};

TEST_F(Restart, TheEpochGoesOnWhenAllAreBack) {
  h.found({"a", "b"});
  begin(0);
  h.restart();
  h.come_back("a", resume("a", {{0, OpState::kDone}}));
  EXPECT_EQ(h.story(), (Lines{"a < Resumed"}));
  h.come_back("b", resume("b", {{0, OpState::kNotDone}}));
  EXPECT_EQ(h.story(), (Lines{"b < Resumed"}));
  h.say("b", protocol::Done{epoch(1), op(0), 0});
  EXPECT_EQ(h.story(), (Lines{"a < Verdicts 0: #0 committed", "b < Verdicts 0: #0 committed"}));
}

TEST_F(Restart, AnOperationThatAllHaveDoneMeanwhileCommits) {
  h.found({"a", "b"});
  begin(0);
  h.restart();
  h.come_back("a", resume("a", {{0, OpState::kDone}}));
  h.come_back("b", resume("b", {{0, OpState::kDone}}));
  EXPECT_EQ(h.story(), (Lines{"a < Resumed", "b < Resumed", "a < Verdicts 0: #0 committed",
                              "b < Verdicts 0: #0 committed"}));
}

TEST_F(Restart, AVerdictThatOneHasHeardHoldsForAll) {
  h.found({"a", "b"});
  begin(0);
  h.restart();
  protocol::Resume knowing = resume("a");
  knowing.verdict_index = 3;
  knowing.stable_index = 1;
  knowing.verdicts = {aborted(9, "they differ"), aborted(0, "they differ")};
  protocol::Resume lagging = resume("b", {{0, OpState::kDone}});
  lagging.verdict_index = 2;
  lagging.stable_index = 1;
  lagging.verdicts = {aborted(9, "they differ")};
  h.come_back("b", lagging);
  h.come_back("a", knowing);
  EXPECT_EQ(h.story(),
            (Lines{"b < Resumed", "a < Resumed", "b < Verdicts 2: #0 collective mismatch"}));
}

// The verdict came to all, before these members called the operation. Those who had called it are
// gone.
TEST_F(Restart, ACallThatComesAfterItsVerdictIsNoNewOperation) {
  h.found({"a", "b"});
  h.restart();
  for (const char* name : {"a", "b"}) {
    protocol::Resume knowing = resume(name);
    knowing.uncalled = {{op(0), {}, {}}};
    h.come_back(name, knowing);
  }
  h.story();
  h.say("a", protocol::Begin{epoch(1), op(0), all_reduce(8)});
  h.say("a", protocol::AbortRequest{epoch(1), op(0), Code::kOperationTimeout, "timed out"});
  EXPECT_EQ(h.story(), Lines{}) << "it is settled";
  h.say("b", protocol::Begin{epoch(1), op(0), all_reduce(8)});
  h.say("b", protocol::AbortRequest{epoch(1), op(0), Code::kOperationTimeout, "timed out"});
  EXPECT_EQ(h.story(), Lines{}) << "and forgotten";
}

// b has not received the verdict that a has: after it has, it has yet to call the operation.
TEST_F(Restart, AVerdictThatOneHasReceivedSettlesALaterCallOfTheOther) {
  h.found({"a", "b"});
  h.restart();
  protocol::Resume knowing = resume("a");
  knowing.verdict_index = 1;
  knowing.verdicts = {aborted(0, "ended by update_topology")};
  h.come_back("a", knowing);
  h.come_back("b", resume("b"));
  h.story();
  h.say("b", protocol::Begin{epoch(1), op(0), all_reduce(8)});
  h.say("b", protocol::AbortRequest{epoch(1), op(0), Code::kOperationTimeout, "timed out"});
  EXPECT_EQ(h.story(), Lines{});
}

TEST_F(Restart, MessagesMeanwhileAreProcessedWhenAllAreBack) {
  h.found({"a", "b"});
  h.restart();
  h.come_back("a", resume("a"));
  h.say("a", protocol::Begin{epoch(1), op(0), all_reduce(8)});
  h.say("a", protocol::Done{epoch(1), op(0), 0});
  h.vote("a", epoch(1), 0, kPending);
  h.say("a", protocol::Ping{1, 0, epoch(1)});
  EXPECT_EQ(h.take(), (Lines{"a < Resumed", "a < Dial b 10.0.0.1:1002", "a < Pong"}));
  h.come_back("b", resume("b", {{0, OpState::kDone}}));
  EXPECT_EQ(h.story(),
            (Lines{"b < Resumed", "a < Verdicts 0: #0 committed", "b < Verdicts 0: #0 committed"}));
  h.vote("b", epoch(1), 0, kPending);
  EXPECT_EQ(h.story(),
            (Lines{"a < Answer 0 are_peers_pending ok", "b < Answer 0 are_peers_pending ok"}));
}

TEST_F(Restart, ButOneVoteIsAllThereCanBe) {
  h.found({"a", "b"});
  h.restart();
  h.come_back("a", resume("a"));
  h.vote("a", epoch(1), 0, kPending);
  h.vote("a", epoch(1), 1, kPending);
  EXPECT_EQ(h.story(), (Lines{"a < Resumed", "a closed"}));
}

TEST_F(Restart, AMemberThatDoesNotComeBackIsLost) {
  h.found({"a", "b", "c"});
  begin(0);
  h.say("c", protocol::Begin{epoch(1), op(0), all_reduce(8)});
  h.restart();
  h.come_back("a", resume("a", {{0, OpState::kDone}}));
  h.come_back("b", resume("b", {{0, OpState::kDone}}));
  h.take();
  h.tick_with({"a", "b"}, 20);
  EXPECT_EQ(h.story(), (Lines{"a < FreezeRequest lost [c]", "b < FreezeRequest lost [c]"}));
  for (const char* name : {"a", "b"}) {
    h.say(name, protocol::StateReport{epoch(1), {{op(0), OpState::kDone}}});
  }
  EXPECT_EQ(h.story(),
            (Lines{"persist", "a < EpochEnd 1.1 committed #0", "b < EpochEnd 1.1 committed #0"}));
}

TEST_F(Restart, AFrozenOperationIsDecidedAnew) {
  h.found({"a", "b"});
  begin(0);
  h.restart();
  protocol::Resume frozen = resume("a", {{0, OpState::kNotDone}});
  frozen.needs_reconfiguration = true;
  h.come_back("a", frozen);
  h.come_back("b", resume("b", {{0, OpState::kNotDone}}));
  EXPECT_EQ(h.story(), (Lines{"a < Resumed", "b < Resumed", "a < FreezeRequest lost []",
                              "b < FreezeRequest lost []"}));
  for (const char* name : {"a", "b"}) {
    h.say(name, protocol::StateReport{epoch(1), {{op(0), OpState::kNotDone}}});
  }
  EXPECT_EQ(h.story(),
            (Lines{"persist", "a < EpochEnd 1.1 committed none", "b < EpochEnd 1.1 committed none",
                   "a < EpochStart 2.1 [a b] joined []", "b < EpochStart 2.1 [a b] joined []"}));
}

// The members that came back before did not report that the epoch needs reconfiguration.
TEST_F(Restart, DataOnALinkThatWasMadeAnewMeanwhileIsLost) {
  h.found({"a", "b", "c"});
  h.restart();
  h.come_back("a", resume("a", {{0, OpState::kNotDone}}));
  h.come_back("b", resume("b", {{0, OpState::kNotDone}}));
  using protocol::LinkState;
  h.say("a", protocol::LinkReport{h.id("b"), LinkState::kUp, "", 1});
  h.say("a", protocol::LinkReport{h.id("b"), LinkState::kDown, "reset", 1});
  h.say("a", protocol::LinkReport{h.id("b"), LinkState::kUp, "", 2});
  h.story();
  h.come_back("c", resume("c", {{0, OpState::kNotDone}}));
  EXPECT_EQ(h.story(), (Lines{"c < Resumed", "a < FreezeRequest lost []",
                              "b < FreezeRequest lost []", "c < FreezeRequest lost []"}));
}

// It dials by itself since the master before told it, with a credential of that master. The other
// end may know the keys of later masters only.
TEST_F(Restart, APeerThatDialsAlreadyHearsItAnew) {
  h.found({"a", "b"});
  h.restart();
  h.come_back("b", resume("b"));
  h.take();
  const protocol::LinkReport report{h.id("a"), protocol::LinkState::kUnreachable, "a key", 1};
  h.say("b", report);
  EXPECT_EQ(h.take(), (Lines{"b < Dial a 10.0.0.1:1001"}));
  h.say("b", report);
  EXPECT_EQ(h.take(), Lines{}) << "once";
}

// Each member reports its links when it has resumed, so before it answers the freeze request.
TEST_F(Restart, TheDirectPatternStays) {
  const std::vector<std::string> names = {"a", "b", "c"};
  for (const std::string& name : names) {
    protocol::Hello hello = Harness::hello(3);
    hello.settings.pattern = protocol::PatternChoice::kDirect;
    h.enlist(name, hello);
  }
  h.link_all();
  EXPECT_EQ(h.last<protocol::EpochStart>("a")->shares.size(), 3u);
  h.restart();
  for (const std::string& name : names) {
    protocol::Resume frozen = resume(name, {});
    frozen.needs_reconfiguration = true;
    h.come_back(name, frozen);
  }
  for (const auto& [from, to] : {std::pair("a", "b"), std::pair("a", "c"), std::pair("b", "c")})
    h.say(from, protocol::LinkReport{h.id(to), protocol::LinkState::kUp, "", 1, 40'000});
  for (const std::string& name : names) h.say(name, protocol::StateReport{epoch(1), {}});
  const auto* start = h.last<protocol::EpochStart>("a");
  EXPECT_EQ(start->epoch.value >> 32, 2u) << "of the restarted master";
  EXPECT_EQ(start->shares.size(), 3u);
  EXPECT_EQ(start->rtt, 40'000u);
}

TEST_F(Restart, ADurableDecisionReachesMembersThatMissedIt) {
  h.found({"a", "b"});
  begin(0);
  h.say("a", protocol::Done{epoch(1), op(0), 0});
  h.close("b");
  h.say("a", protocol::LinkReport{h.id("b"), protocol::LinkState::kDown, "reset", 1});
  h.hold_persists = true;
  h.say("a", protocol::StateReport{epoch(1), {{op(0), OpState::kDone}}});
  EXPECT_EQ(h.story().back(), "persist");
  h.hold_persists = false;
  h.release();
  h.restart();  // the end of epoch 1.1 was durable; assume that no peer received it
  h.come_back("a", resume("a", {{0, OpState::kDone}}));
  EXPECT_EQ(h.story(), (Lines{"a < Resumed", "a < EpochEnd 1.1 committed #0"}));
  h.come_back("b", resume("b", {{0, OpState::kNotDone}}));
  EXPECT_TRUE(h.story().at(0).starts_with("b < Reject kicked"));
}

TEST_F(Restart, ADecisionThatWasNotDurableIsVoid) {
  h.found({"a", "b"});
  begin(0);
  h.close("b");
  h.hold_persists = true;
  h.say("a", protocol::LinkReport{h.id("b"), protocol::LinkState::kDown, "reset", 1});
  h.say("a", protocol::StateReport{epoch(1), {{op(0), OpState::kDone}}});
  h.restart();
  h.hold_persists = false;
  protocol::Resume frozen = resume("a", {{0, OpState::kDone}});
  frozen.needs_reconfiguration = true;
  h.come_back("a", frozen);
  h.come_back("b", resume("b", {{0, OpState::kDone}}));  // it is alive after all
  EXPECT_EQ(h.story(), (Lines{"a < Resumed", "b < Resumed", "a < Verdicts 0: #0 committed",
                              "b < Verdicts 0: #0 committed", "a < FreezeRequest lost []",
                              "b < FreezeRequest lost []"}));
}

TEST_F(Restart, AnAnswerThatOneHasHeardIsGivenToAll) {
  h.found({"a", "b"});
  h.restart();
  h.come_back("a", announced("a", yes()));
  h.come_back("b", resume("b"));
  h.story();
  h.vote("b", epoch(1), 0, kPending);
  EXPECT_EQ(h.story(), (Lines{"b < Answer 0 are_peers_pending ok pending"}));
  h.vote("a", epoch(1), 1, kPending);
  h.vote("b", epoch(1), 1, kPending);
  EXPECT_EQ(h.story().size(), 2u);
}

TEST_F(Restart, CallsThatFailedForOneFailForAll) {
  h.found({"a", "b"});
  h.restart();
  protocol::Resume answered = resume("a");
  answered.joint_answered = 3;
  answered.last_answer = protocol::Answer{};
  answered.last_answer->number = 2;
  answered.last_answer->code = Code::kOperationTimeout;
  h.come_back("a", answered);
  h.come_back("b", resume("b"));
  h.story();
  for (uint32_t number = 0; number < 3; ++number) h.vote("b", epoch(1), number, kPending);
  EXPECT_EQ(h.story(), (Lines{"b < Answer 0 are_peers_pending operation timeout",
                              "b < Answer 1 are_peers_pending operation timeout",
                              "b < Answer 2 are_peers_pending operation timeout"}));
}

// a has made another call since, which was refused. b has received nothing.
TEST_F(Restart, AnAnswerFromBeforeTheGroupWasBrokenIsGivenToAll) {
  h.found({"a", "b", "c"});
  h.close("c");
  for (const char* name : {"a", "b"})
    h.say(name, protocol::LinkReport{h.id("c"), protocol::LinkState::kDown, "reset", 1});
  for (const char* name : {"a", "b"}) h.say(name, protocol::StateReport{epoch(1), {}});
  h.restart();
  protocol::Resume answered = announced("a", yes());
  answered.ended = true;
  answered.joint_answered = 2;  // the second call was refused
  h.come_back("a", answered);
  h.come_back("b", resume("b"));
  h.story();
  h.vote("b", epoch(1), 0, kPending);
  EXPECT_EQ(h.story(), (Lines{"b < Answer 0 are_peers_pending ok pending"}));
  h.vote("b", epoch(1), 1, kPending);
  EXPECT_EQ(h.last<protocol::Answer>("b")->code, Code::kPeerLost);
}

// Two groups: a and b in epoch 1, c and d in epoch 2. Only the first one has received the answer.
struct RestartOfGroups : Restart {
  RestartOfGroups() {
    h.found({"a", "b"}, 0);
    h.found({"c", "d"}, 1);
  }
  void restart_after(JointKind kind, bool pending) {
    for (const char* name : {"a", "b"}) h.vote(name, epoch(1), 0, kind);
    for (const char* name : {"c", "d"}) h.vote(name, epoch(2), 0, kind);
    const protocol::Answer answer = *h.last<protocol::Answer>("a");
    EXPECT_EQ(answer.pending, pending);
    EXPECT_EQ(answer.together,
              (std::vector<protocol::Settled>{{{0}, epoch(1), {}, 0}, {{1}, epoch(2), {}, 0}}));
    h.restart();
    come_back_with(answer);
    for (const char* name : {"c", "d"}) h.come_back(name, h.resume(name, epoch(2)));
    h.story();
    for (const char* name : {"c", "d"}) h.vote(name, epoch(2), 0, kind);
  }
};

TEST_F(RestartOfGroups, AGroupDoesNotWaitForAnAnswerThatTheOtherHasReceived) {
  restart_after(JointKind::kUpdateTopology, false);
  EXPECT_EQ(h.story(),
            (Lines{"c < Answer 0 update_topology ok", "d < Answer 0 update_topology ok"}));
  for (const char* name : {"c", "d"}) h.vote(name, epoch(2), 1);
  EXPECT_EQ(h.story(), Lines{}) << "the next one is for all again";
  for (const char* name : {"a", "b"}) h.vote(name, epoch(1), 1);
  EXPECT_EQ(h.story().size(), 4u);
}

// c and d vote before any member that received the answer is back. Other groups have their steps in
// between.
TEST_F(RestartOfGroups, AWaitingGroupGetsItsAnswerWhenTheOthersAreBack) {
  for (const char* name : {"a", "b"}) h.vote(name, epoch(1), 0);
  for (const char* name : {"c", "d"}) h.vote(name, epoch(2), 0);
  const protocol::Answer answer = *h.last<protocol::Answer>("a");
  h.restart();
  for (const char* name : {"c", "d"}) h.come_back(name, h.resume(name, epoch(2)));
  for (const char* name : {"c", "d"}) h.vote(name, epoch(2), 0);
  for (const char* name : {"x", "y"}) h.enlist(name, Harness::hello(2, -1, 7));
  h.story();
  come_back_with(answer);
  EXPECT_EQ(h.story(), (Lines{"a < Resumed", "b < Resumed", "c < Answer 0 update_topology ok",
                              "d < Answer 0 update_topology ok"}));
}

TEST_F(RestartOfGroups, ItIsAnsweredAlikeThoughMuchHasChanged) {
  h.enlist("e", Harness::hello(2, -1, 1));
  h.link_all();
  restart_after(kPending, true);  // e does not come back
  EXPECT_EQ(h.story(), (Lines{"c < Answer 0 are_peers_pending ok pending",
                              "d < Answer 0 are_peers_pending ok pending"}));
}

// One member of the first group has received both answers. The other one has received only the
// first, which is a yes.
TEST_F(RestartOfGroups, EachAnswerBelongsToItsOwnBallot) {
  h.restart();
  for (const uint32_t number : {0u, 1u}) {
    const char* const name = number == 0 ? "a" : "b";
    protocol::Resume heard = resume(name);
    heard.joint_answered = number + 1;
    heard.last_answer = protocol::Answer{};
    heard.last_answer->number = number;
    heard.last_answer->kind = kPending;
    heard.last_answer->pending = heard.pending = number == 0;
    heard.together =
        heard.last_answer->together = {{{0}, epoch(1), {}, number}, {{1}, epoch(2), {}, number}};
    h.come_back(name, heard);
  }
  for (const char* name : {"c", "d"}) {
    protocol::Resume heard = h.resume(name, epoch(2));
    heard.joint_answered = 1;
    h.come_back(name, heard);
  }
  h.story();
  for (const char* name : {"c", "d"}) h.vote(name, epoch(2), 1, kPending);
  EXPECT_EQ(h.story(),
            (Lines{"c < Answer 1 are_peers_pending ok", "d < Answer 1 are_peers_pending ok"}));
}

// In a broken group each member counts its own calls. The second group has lost e, and c has made
// one call more than d. The update that both groups called together failed for the second group,
// because its min_peers is three.
struct RestartOfABrokenGroup : Restart {
  RestartOfABrokenGroup() {
    h.found({"a", "b"}, 0);
    h.found({"c", "d", "e"}, 1);
    h.close("e");
    for (const char* name : {"c", "d"}) {
      h.say(name, protocol::LinkReport{h.id("e"), protocol::LinkState::kDown, "reset", 1});
    }
    for (const char* name : {"c", "d"}) h.say(name, protocol::StateReport{epoch(2), {}});
    h.vote("c", epoch(2), 0, kPending);  // refused
    for (const char* name : {"a", "b"}) h.vote(name, epoch(1), 0);
    h.vote("c", epoch(2), 1);
    h.vote("d", epoch(2), 0);
    answer = *h.last<protocol::Answer>("a");
  }
  // `settled`: c and d, too, received the reason why their update failed.
  void restart(bool settled) {
    h.restart();
    come_back_with(answer);
    for (const char* name : {"c", "d"}) {
      protocol::Resume broken = h.resume(name, epoch(2));
      broken.ended = true;
      broken.joint_answered = (name[0] == 'c' ? 1 : 0) + (settled ? 1 : 0);
      h.come_back(name, broken);
    }
    h.story();
  }
  protocol::Answer answer;
};

TEST_F(RestartOfABrokenGroup, OneVoteIsNamed) {
  EXPECT_EQ(answer.together, (std::vector<protocol::Settled>{{{0}, epoch(1), {}, 0},
                                                             {{1}, epoch(2), h.id("c"), 1}}));
}

TEST_F(RestartOfABrokenGroup, ItGoesOnWithTheUpdateThatTheOtherHasHeardOf) {
  restart(false);
  h.enlist("f", Harness::hello(3, -1, 1));
  h.link_all();
  h.story();
  h.vote("c", epoch(2), 1);
  EXPECT_EQ(h.story(), Lines{});
  h.vote("d", epoch(2), 0);
  EXPECT_TRUE(h.story().at(1).starts_with("c < EpochStart")) << "it waits for nobody";
}

TEST_F(RestartOfABrokenGroup, ButTheNextUpdateIsForAllAgain) {
  restart(true);
  h.enlist("f", Harness::hello(3, -1, 1));
  h.link_all();
  h.story();
  h.vote("c", epoch(2), 2);
  h.vote("d", epoch(2), 1);
  EXPECT_EQ(h.story(), Lines{}) << "a and b have not called it";
  for (const char* name : {"a", "b"}) h.vote(name, epoch(1), 1);
  EXPECT_GE(h.story().size(), 4u);
}

TEST_F(RestartOfGroups, AGenerationSaysWithWhomItWasAgreedOn) {
  h.enlist("e", Harness::hello(2, -1, 0));
  h.link_all();
  h.hold_persists = true;
  for (const char* name : {"c", "d"}) h.vote(name, epoch(2), 0);
  for (const char* name : {"a", "b"}) h.vote(name, epoch(1), 0);
  h.hold_persists = false;
  h.release();
  const auto* const start = h.last<protocol::EpochStart>("a");
  ASSERT_NE(start, nullptr);
  EXPECT_EQ(start->together, h.last<protocol::Answer>("c")->together);
  h.restart();
  // They missed the EpochStart.
  for (const char* name : {"a", "b"}) h.come_back(name, resume(name));
  h.come_back("e", h.resume("e", {}));
  for (const char* name : {"c", "d"}) h.come_back(name, h.resume(name, epoch(2)));
  h.story();
  for (const char* name : {"c", "d"}) h.vote(name, epoch(2), 0);
  EXPECT_EQ(h.story(),
            (Lines{"c < Answer 0 update_topology ok", "d < Answer 0 update_topology ok"}));
}

TEST_F(Restart, AReportBeforeItIsAskedForLeavesNobodyToAsk) {
  h.found({"a", "b"});
  h.restart();
  h.come_back("a", resume("a"));
  h.say("a", protocol::StateReport{epoch(1), {}});
  h.tick_with({"a"}, 22);  // b does not come back
  EXPECT_NE(h.last<protocol::EpochEnd>("a"), nullptr);
}

TEST_F(Restart, HeldMessagesHaveALimitOfMemory) {
  h.found({"a", "b"});
  h.restart();
  h.come_back("a", resume("a"));
  const std::string tag(protocol::kTagBytesMax, 't');
  size_t bytes = 0;
  uint32_t sequence = 0;
  h.story();
  while (h.story().empty() && bytes <= protocol::kHeldBytesMax) {
    const protocol::Begin begin{epoch(1), op(++sequence, tag), all_reduce(1, tag)};
    bytes += protocol::encoded_bytes(begin);
    h.say("a", begin);
  }
  EXPECT_LT(bytes, protocol::kHeldBytesMax) << "a message takes more than what is said of it";
  EXPECT_GT(bytes, protocol::kHeldBytesMax / 4);
  std::string log;
  for (const std::string& line : h.take_log()) log += line + "\n";
  EXPECT_TRUE(contains(log, "bytes that cannot be handled yet")) << log;
  // Its messages are forgotten with its connection.
  h.come_back("a", resume("a"));
  h.come_back("b", resume("b"));
  EXPECT_FALSE(h.story().empty());
}

TEST_F(Restart, TheSharedStateIsWhatItWasAgreedToBe) {
  h.found({"a", "b"});
  h.vote("a", epoch(1), 0, kSync, offer(7, {1}));
  h.vote("b", epoch(1), 0, kSync, offer(7, {1}));
  h.restart();
  protocol::Resume a = resume("a"), b = resume("b");
  h.come_back("a", a);
  h.come_back("b", b);
  h.story();
  h.vote("a", epoch(1), 0, kSync, offer(3, {2}));
  h.vote("b", epoch(1), 0, kSync, offer(3, {2}));
  EXPECT_EQ(h.story().at(0), "a < Answer 0 sync_shared_state shared state")
      << "not from an old one";
}

// "c" comes back as a member that has never had the state.
TEST_F(Restart, AMemberThatDriftsIsNamedAgain) {
  h.found({"a", "b", "c"});
  const auto sync = [this](uint32_t number, uint64_t revision, uint64_t of_b, uint64_t of_c) {
    h.vote("a", epoch(1), number, kSync, offer(revision, {1}));
    h.vote("b", epoch(1), number, kSync, offer(revision, {of_b}));
    h.vote("c", epoch(1), number, kSync, offer(revision, {of_c}));
    for (const char* name : {"b", "c"}) h.say(name, protocol::Fetched{number, Code::kOk, ""});
    return h.warnings().size();
  };
  EXPECT_EQ(sync(0, 6, 1, 1), 0u);
  EXPECT_EQ(sync(1, 7, 2, 1), 1u) << "b drifts";
  h.restart();
  EXPECT_TRUE(h.core().view().group_of(h.id("b"))->view().agreement.drifts().all().empty());
  for (const char* name : {"a", "b", "c"}) {
    protocol::Resume back = resume(name);
    back.joint_answered = 2;
    back.standing = protocol::Standing::kSynced;
    if (name[0] == 'c') back.standing = protocol::Standing::kCompared;
    h.come_back(name, back);
  }
  h.warnings();
  EXPECT_EQ(sync(2, 8, 2, 2), 1u) << "counted from 1 again";
  const auto& drifts = h.core().view().group_of(h.id("b"))->view().agreement.drifts().all();
  EXPECT_EQ(drifts.size(), 1u) << "c does not drift";
  EXPECT_EQ(drifts.at(h.id("b")).count, 1u);
}

// The newcomer was admitted durably. This member does not know it, and must not close its link.
TEST_F(Restart, AMemberHearsWhoWasAdmittedWithoutItsKnowledge) {
  h.found({"a", "b"});
  h.enlist("n", Harness::hello(2));
  h.link_all();
  h.vote("a", epoch(1), 0);
  h.vote("b", epoch(1), 0);
  h.restart();  // assume that nobody has received EpochStart
  h.come_back("a", resume("a"));
  const auto* const resumed = h.last<protocol::Resumed>("a");
  ASSERT_NE(resumed, nullptr);
  EXPECT_EQ(resumed->members, (std::vector{h.id("a"), h.id("b"), h.id("n")}));
}

TEST_F(Restart, ANewcomerGoesOnWaiting) {
  h.found({"a"});
  h.enlist("n", Harness::hello(1));
  h.restart();
  protocol::Resume waiting = h.resume("n", {});
  waiting.hello = Harness::hello(1);
  h.come_back("n", waiting);
  h.say("n", protocol::Register{"", 1002});
  EXPECT_EQ(h.story(), (Lines{"n < Resumed"}));
  h.come_back("a", resume("a"));
  h.link_all();
  h.story();
  h.vote("a", epoch(1), 0);
  EXPECT_EQ(h.story(), (Lines{"persist", "a < EpochStart 2.1 [a n] joined [n]",
                              "n < EpochStart 2.1 [a n] joined [n]"}));
}

TEST_F(Restart, AnOldJournalIsNoMatchForItsPeers) {
  h.found({"a"});
  h.restart();
  protocol::Resume ahead = h.resume("a", epoch(9));
  h.come_back("a", ahead);
  EXPECT_TRUE(contains(h.take().at(0), "the journal of the master is older than this peer"));
}

TEST_F(Restart, ALinkThatHasBeenUpAllTheTimeIsNoNews) {
  h.found({"a", "b"});
  begin(0);
  h.restart();
  h.come_back("a", resume("a", {{0, OpState::kNotDone}}));
  h.come_back("b", resume("b", {{0, OpState::kNotDone}}));
  h.link_all();  // its reports answer the Dials with what is known already
  EXPECT_EQ(h.story(), (Lines{"a < Resumed", "b < Resumed"}));
}

TEST_F(Restart, NobodyHasSeenMoreVerdictsThanThereCanBe) {
  h.found({"a"});
  h.restart();
  protocol::Resume liar = resume("a");
  liar.verdict_index = liar.stable_index = UINT64_MAX;
  h.come_back("a", liar);
  EXPECT_EQ(h.story(), (Lines{"a closed"}));
}

// c was compared with b, and the answer that would have made a no newcomer got lost.
TEST_F(Restart, ACallIsGivenUpThoughANewcomerOfLowerRankMakesAnother) {
  h.found({"a", "b", "c"});
  h.restart();
  for (const char* name : {"a", "b", "c"}) {
    protocol::Resume back = resume(name);
    if (name[0] != 'a') back.standing = protocol::Standing::kCompared;
    h.come_back(name, back);
  }
  h.vote("a", epoch(1), 0, kSync, offer(1, {1}));
  h.vote("b", epoch(1), 0);
  h.say("b", protocol::JointAbort{0, epoch(1)});
  const auto* answer = h.last<protocol::Answer>("b");
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(
      answer->text,
      "timed out: it waited for rank 0, which has been in sync_shared_state for 0 ms and waits in "
      "turn (all ranks must make the same calls, in the same order); for rank 2, which has not "
      "called anything since the master was started again");
}

}  // namespace
}  // namespace pccl::master
