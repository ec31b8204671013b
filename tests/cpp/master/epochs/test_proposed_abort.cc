#include <gtest/gtest.h>

#include "master/epochs/operations.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::OpState;
using protocol::Outcome;

bool forbids(const Status& status) { return status.code == Code::kProtocol; }

// Members that may have committed an operation without the master.
class ProposedAbortsTest : public testing::Test {
 protected:
  void begin(std::initializer_list<PeerId> peers) {
    for (const PeerId peer : peers) EXPECT_TRUE(table.begin(peer, op(0), all_reduce(8)).ok());
  }
  void done(std::initializer_list<PeerId> peers) {
    for (const PeerId peer : peers) EXPECT_TRUE(table.done(peer, op(0)).ok());
  }
  Status request(PeerId peer) {
    return table.abort(peer, {epoch(5), op(0), Code::kOperationTimeout, "(#0) timed out"});
  }
  Status answer(PeerId peer, OpState state) { return table.answer(peer, {epoch(5), op(0), state}); }
  std::vector<PeerId> asked() {
    std::vector<PeerId> peers;
    for (const auto& [peer, proposal] : table.take_proposals()) peers.push_back(peer);
    return peers;
  }
  // The code of the only verdict since the last call; nothing: there is none.
  std::optional<Code> verdict() {
    const auto settled = table.take_settled({});
    EXPECT_LE(settled.size(), 1u);
    return settled.empty() ? std::nullopt : std::optional(settled[0].code);
  }
  std::vector<PeerId> liars() {
    std::vector<PeerId> peers;
    for (const Misfit& liar : table.take_liars()) peers.push_back(liar.peer);
    return peers;
  }
  Operations table{epoch(5), {kA, kB, kC}, {}, true};
};

TEST_F(ProposedAbortsTest, AllOthersAreAskedOnce) {
  begin({kA, kB});
  EXPECT_TRUE(request(kA).ok());
  EXPECT_EQ(asked(), (std::vector{kB, kC}));
  EXPECT_EQ(table.proposals(kC).size(), 1u) << "and again when it resumes";
  EXPECT_TRUE(table.proposals(kA).empty()) << "its request is an answer";
  EXPECT_TRUE(contains(table.asked(kC), "all_reduce(sum, float32, 8 elements"));
  EXPECT_EQ(table.asked(kA), "");
  EXPECT_TRUE(request(kA).ok());
  EXPECT_EQ(asked(), std::vector<PeerId>{});
  EXPECT_EQ(verdict(), std::nullopt);
  table.check();
}

TEST_F(ProposedAbortsTest, TwoMembersThatAreNotDoneSuffice) {
  begin({kA, kB, kC});
  done({kB});
  EXPECT_TRUE(request(kA).ok());
  asked();
  EXPECT_TRUE(answer(kC, OpState::kNotDone).ok());
  EXPECT_EQ(verdict(), Code::kOperationTimeout);
  EXPECT_TRUE(answer(kB, OpState::kReturned).ok()) << "it crossed the verdict";
  EXPECT_EQ(liars(), std::vector<PeerId>{});
  EXPECT_EQ(table.asked(kB), "");
}

TEST_F(ProposedAbortsTest, AMemberThatHasNotCalledAnswersToo) {
  begin({kA, kB});
  EXPECT_TRUE(request(kA).ok());
  asked();
  EXPECT_TRUE(answer(kC, OpState::kNotDone).ok());
  EXPECT_EQ(verdict(), Code::kOperationTimeout);
  EXPECT_TRUE(table.begin(kC, op(0), all_reduce(8)).ok());
  EXPECT_EQ(table.known_count(), 0u);
}

TEST_F(ProposedAbortsTest, OneMemberThatIsNotDoneAbortsWhatNobodyHasReturned) {
  begin({kA, kB, kC});
  done({kA, kB});
  EXPECT_TRUE(request(kA).ok());
  EXPECT_EQ(asked(), (std::vector{kB, kC}));
  EXPECT_TRUE(answer(kB, OpState::kDone).ok());
  EXPECT_EQ(verdict(), std::nullopt);
  EXPECT_TRUE(answer(kC, OpState::kNotDone).ok());
  EXPECT_EQ(verdict(), Code::kOperationTimeout);
}

TEST_F(ProposedAbortsTest, AnOperationThatAllHaveDoneIsCommitted) {
  begin({kA, kB, kC});
  done({kA, kB});
  EXPECT_TRUE(request(kA).ok());
  asked();
  done({kC});
  EXPECT_EQ(verdict(), Code::kOk);
}

TEST_F(ProposedAbortsTest, OneWhoIsNotDoneAgainstTwoReturnsLies) {
  begin({kA, kB, kC});
  done({kA, kB});
  EXPECT_TRUE(request(kC).ok());
  asked();
  EXPECT_TRUE(answer(kA, OpState::kReturned).ok());
  EXPECT_EQ(liars(), std::vector<PeerId>{});
  EXPECT_TRUE(answer(kB, OpState::kReturned).ok());
  EXPECT_EQ(liars(), std::vector{kC});
  EXPECT_EQ(verdict(), std::nullopt) << "the end of the epoch decides";
}

TEST_F(ProposedAbortsTest, OneAgainstOneBothAreToGo) {
  begin({kA, kB, kC});
  done({kA, kB});
  EXPECT_TRUE(request(kC).ok());
  asked();
  EXPECT_TRUE(answer(kA, OpState::kReturned).ok());
  EXPECT_TRUE(answer(kB, OpState::kDone).ok());
  const std::vector<Misfit> both = table.take_liars();
  ASSERT_EQ(both.size(), 2u);
  EXPECT_TRUE(contains(both[0].why,
                       "returned by rank 0, which needs all others; not finished by "
                       "rank 2"));
}

TEST_F(ProposedAbortsTest, AnAnswerIsBinding) {
  begin({kA, kB, kC});
  EXPECT_TRUE(request(kA).ok());
  EXPECT_TRUE(forbids(table.done(kA, op(0))));
  EXPECT_TRUE(forbids(answer(kB, OpState::kDone))) << "it has not sent Done";
  done({kB});
  EXPECT_TRUE(forbids(answer(kB, OpState::kNotDone)));
  EXPECT_TRUE(answer(kB, OpState::kDone).ok());
  EXPECT_TRUE(answer(kB, OpState::kReturned).ok()) << "the first answer counts";
  asked();
  EXPECT_TRUE(answer(kC, OpState::kNotDone).ok());
  EXPECT_EQ(verdict(), Code::kOperationTimeout);
  EXPECT_EQ(liars(), std::vector<PeerId>{});
}

TEST_F(ProposedAbortsTest, AnAnswerNeedsAProposal) {
  begin({kA});
  EXPECT_TRUE(forbids(answer(kA, OpState::kNotDone)));
}

// The words of a member can leave before its Begin, its Leave or its vote.
TEST_F(ProposedAbortsTest, EveryAbortIsProposed) {
  begin({kA, kB});
  EXPECT_TRUE(table.begin(kC, op(0), all_reduce(9)).ok());
  EXPECT_EQ(asked().size(), 3u) << "they differ";
  EXPECT_TRUE(table.begin(kA, op(1), all_reduce(8)).ok());
  table.drain();
  EXPECT_EQ(asked().size(), 3u) << "update_topology ends it";
  EXPECT_TRUE(table.begin(kA, op(2), all_reduce(8)).ok());
  table.end_cycle({op(2)}, "they wait for each other");
  EXPECT_EQ(asked().size(), 3u);
  EXPECT_EQ(verdict(), std::nullopt);
  table.check();
}

TEST_F(ProposedAbortsTest, ALeaverHasAnswered) {
  begin({kA, kB, kC});
  table.leave(kC);
  EXPECT_EQ(asked(), (std::vector{kA, kB}));
  EXPECT_TRUE(answer(kA, OpState::kNotDone).ok());
  EXPECT_EQ(verdict(), Code::kPeerLost);
  table.check();
}

TEST_F(ProposedAbortsTest, ALeaverThatLiedKeepsNobodyFromTheResult) {
  begin({kA, kB, kC});
  done({kA, kB});
  table.leave(kC);
  asked();
  EXPECT_TRUE(answer(kA, OpState::kReturned).ok());
  EXPECT_TRUE(answer(kB, OpState::kReturned).ok());
  EXPECT_EQ(verdict(), Code::kOk);
  EXPECT_EQ(liars(), std::vector<PeerId>{});
}

TEST_F(ProposedAbortsTest, DataOfALeaverMayBeLost) {
  begin({kA, kB, kC});
  done({kC});
  table.leave(kC);
  EXPECT_EQ(verdict(), std::nullopt);
  table.abort_all_with(kC);
  EXPECT_EQ(asked(), (std::vector{kA, kB}));
  table.abort_all_with(kC);
  EXPECT_EQ(asked(), std::vector<PeerId>{});
  done({kA, kB});
  EXPECT_EQ(verdict(), Code::kOk);
  EXPECT_FALSE(table.needs(kC));
}

// ---- The group ----

class ProposedAbortsOfGroup : public testing::Test {
 protected:
  ProposedAbortsOfGroup() {
    h.rtt = 5000;
    h.found({"a", "b", "c"});
    for (const char* who : {"a", "b", "c"})
      h.say(who, protocol::Begin{epoch(1), op(0), all_reduce(8)});
  }
  void request(const char* who) {
    h.say(who, protocol::AbortRequest{epoch(1), op(0), Code::kOperationTimeout, "late"});
  }
  void answer(const char* who, OpState state) {
    h.say(who, protocol::AbortAnswer{epoch(1), op(0), state});
  }
  std::string kicked(const char* who) const {
    const auto* message = h.last<protocol::Kicked>(who);
    return message == nullptr ? "" : message->text;
  }
  Harness h;
};

TEST_F(ProposedAbortsOfGroup, AMemberThatIsBackIsAskedAgain) {
  h.close("b");
  request("a");
  EXPECT_EQ(h.story(), Lines{"c < AbortProposal #0"});
  protocol::Resume resume = h.resume("b", epoch(1));
  resume.ops.push_back({op(0), OpState::kNotDone});
  resume.infos.push_back(all_reduce(8));
  h.accept("b2");
  h.say("b2", resume);
  EXPECT_EQ(h.story(), (Lines{"b2 < Resumed", "b2 < AbortProposal #0"}));
  h.say("b2", protocol::AbortAnswer{epoch(1), op(0), OpState::kNotDone});
  EXPECT_EQ(h.last<protocol::Verdicts>("b2")->verdicts[0].code, Code::kOperationTimeout);
}

TEST_F(ProposedAbortsOfGroup, ALiarIsRemovedByName) {
  for (const char* who : {"a", "b"}) h.say(who, protocol::Done{epoch(1), op(0), 0});
  request("c");
  answer("a", OpState::kReturned);
  answer("b", OpState::kReturned);
  EXPECT_TRUE(contains(kicked("c"), "contradict each other: returned by ranks 0 and 1"));
  EXPECT_EQ(kicked("a"), "");
  ASSERT_NE(h.last<protocol::FreezeRequest>("a"), nullptr);
  for (const char* who : {"a", "b"})
    h.say(who, protocol::StateReport{epoch(1), {{op(0), OpState::kReturned}}});
  EXPECT_EQ(h.last<protocol::EpochEnd>("a")->committed, std::vector{op(0)});
}

TEST_F(ProposedAbortsOfGroup, AMemberThatDoesNotAnswerIsRemoved) {
  request("a");
  const auto pass = [this](int ticks) { h.tick_with({"a", "b", "c"}, ticks); };
  answer("b", OpState::kNotDone);
  EXPECT_EQ(h.last<protocol::Verdicts>("c")->verdicts[0].code, Code::kOperationTimeout);
  h.say("a", protocol::Begin{epoch(1), op(1), all_reduce(8)});
  h.say("a", protocol::AbortRequest{epoch(1), op(1), Code::kOperationTimeout, "late"});
  h.say("b", protocol::Begin{epoch(1), op(1), all_reduce(8)});
  h.say("b", protocol::Done{epoch(1), op(1), 0});
  h.say("b", protocol::AbortAnswer{epoch(1), op(1), OpState::kDone});
  pass(2 * protocol::kTicksPerTimeout - 2);
  EXPECT_EQ(kicked("c"), "");
  pass(6);
  EXPECT_TRUE(contains(kicked("c"), "it did not answer within")) << kicked("c");
  EXPECT_EQ(kicked("b"), "");
}

TEST_F(ProposedAbortsOfGroup, AMemberThatDoesNotReportIsRemoved) {
  h.say("b", protocol::Leave{});
  ASSERT_NE(h.last<protocol::FreezeRequest>("a"), nullptr);
  h.say("a", protocol::StateReport{epoch(1), {}});
  h.tick_with({"a", "c"}, 2 * protocol::kTicksPerTimeout + 4);
  EXPECT_TRUE(contains(kicked("c"), "it did not answer within")) << kicked("c");
  EXPECT_EQ(kicked("a"), "");
  EXPECT_NE(h.last<protocol::EpochEnd>("a"), nullptr);
}

}  // namespace
}  // namespace pccl::master
