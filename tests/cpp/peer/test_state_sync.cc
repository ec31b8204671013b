#include "csrc/peer/state_sync.h"

#include "csrc/protocol/state.h"
#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

using protocol::JointKind;
using protocol::Transfer;

// Entries "w0" to "w2" of 4 floats each, all with the hash `hash`.
protocol::Offer offer(uint64_t hash) {
  protocol::Offer out;
  out.revision = 7;
  for (int i = 0; i < 3; ++i)
    out.entries.push_back({"w" + std::to_string(i), DType::kFloat32, {2, 2}, hash});
  return out;
}

class StateSyncTest : public testing::Test {
 protected:
  StateSyncTest() {
    t.become_member();
    EXPECT_EQ(t.on(JointCalled{5, JointKind::kSyncSharedState, offer(1), std::chrono::seconds(5)}),
              "tell Vote 0 sync_shared_state of 1.1\n");
  }
  static protocol::SyncPlan plan(std::vector<Transfer> transfers) {
    return {0, 7, offer(2).entries, std::move(transfers)};
  }
  static OpKey op(uint32_t source, uint32_t destination) {
    return {reserved_tag("state " + text(peer_id(source)) + " " + text(peer_id(destination))), 0};
  }
  static protocol::Answer answer(Code code = Code::kOk, std::string text = "") {
    return {0, JointKind::kSyncSharedState, code, std::move(text), false, 7, 42, {}};
  }
  std::string refusal(const protocol::SyncPlan& wrong) {
    const std::string story = t.hear(wrong),
                      broke = "warn: the master at host:1 broke the protocol: ";
    return story.starts_with(broke) ? story.substr(broke.size(), story.find('\n') - broke.size())
                                    : story;
  }

  Transcript t;
  const Transfer fetch{peer_id(1), peer_id(2), {0, 2}};
  const Transfer give{peer_id(2), peer_id(3), {1}};
};

TEST_F(StateSyncTest, NobodyIsStale) { EXPECT_EQ(t.hear(answer()), "finish joint call 5: ok\n"); }

TEST_F(StateSyncTest, AStalePeerFetchesVerifiesAndInstalls) {
  EXPECT_EQ(t.hear(plan({fetch})), "start call 5 as ?#0: 1 of 2, from 1.1, key 0, key 2\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), op(1, 2)}),
            "end ?#0 committed\nverify call 5, key 0, key 2\n");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), op(1, 2)}), "");
  EXPECT_EQ(t.on(StateVerified{5, {}}), "tell Fetched 0\n");
  EXPECT_EQ(t.hear(answer()), "finish joint call 5: ok, install 0, install 2\n");
}

TEST_F(StateSyncTest, FromSeveralSourcesAtOnce) {
  EXPECT_EQ(t.hear(plan({{peer_id(1), peer_id(2), {2}}, {peer_id(3), peer_id(2), {0, 1}}})),
            "start call 5 as ?#0: 1 of 2, from 1.1, key 2\n"
            "start call 5 as ?#0: 1 of 2, from 1.3, key 0, key 1\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), op(3, 2)}), "end ?#0 committed\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), op(1, 2)}),
            "end ?#0 committed\nverify call 5, key 0, key 1, key 2\n");
}

TEST_F(StateSyncTest, ASourceIsDoneWhenItsBytesHaveLeft) {
  EXPECT_EQ(t.hear(plan({give})), "start call 5 as ?#0: 0 of 2, to 1.3, key 1\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), op(2, 3)}), "end ?#0 committed\n");
  EXPECT_EQ(t.hear(answer()), "finish joint call 5: ok\n");
}

TEST_F(StateSyncTest, TheAnswerWaitsForWhatIsLent) {
  t.hear(plan({give}));
  EXPECT_EQ(t.hear(answer()), "end ?#0 aborted\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), op(2, 3)}), "");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), op(2, 3)}), "finish joint call 5: ok\n");
}

TEST_F(StateSyncTest, BytesThatDoNotHashRightFailItForAll) {
  t.hear(plan({fetch}));
  t.on(OpTransferred{epoch_id(1), op(1, 2)});
  EXPECT_EQ(t.on(StateVerified{5, {Code::kSharedState, "w0 has another hash", {}}}),
            "tell Fetched 0: rank 1 (peer 1.2): w0 has another hash\n");
  EXPECT_EQ(t.hear(answer(Code::kSharedState, "rank 1: w0")),
            "finish joint call 5: shared state: sync_shared_state: rank 1: w0\n");
}

TEST_F(StateSyncTest, NoMemoryForStagingFailsItForAll) {
  t.hear(plan({fetch}));
  EXPECT_EQ(t.on(OpFailed{epoch_id(1), op(1, 2), {Code::kSystem, "no memory", {}}}),
            "tell Fetched 0: rank 1 (peer 1.2): no memory\n");
  EXPECT_EQ(t.hear(answer(Code::kSystem, "no memory")), "end ?#0 aborted\n");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), op(1, 2)}),
            "finish joint call 5: system: sync_shared_state: no memory\n");
}

TEST_F(StateSyncTest, ALossStopsTheTransfersAndTheAnswerEndsTheCall) {
  t.hear(plan({fetch, give}));
  t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}});
  const std::string story = t.lose(1, 3);
  EXPECT_TRUE(story.ends_with("end ?#0 aborted\nend ?#0 aborted\n")) << story;
  t.on(OpDrained{epoch_id(1), op(2, 3)});
  EXPECT_EQ(t.hear(answer(Code::kPeerLost, "peer 1.3 lost")), "");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), op(1, 2)}),
            "finish joint call 5: peer lost: sync_shared_state: peer 1.3 lost\n");
}

TEST_F(StateSyncTest, InAReconfigurationTheNextPlanWaitsUntilStagingIsFree) {
  t.hear(plan({fetch}));
  EXPECT_EQ(t.go_on(1), "end ?#0 aborted\n");
  EXPECT_NE(t.reconfigure(2).find("tell Vote 0 sync_shared_state of 1.2"), std::string::npos);
  EXPECT_EQ(t.hear(plan({fetch})), "") << "what has been written to is not drained";
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), op(1, 2)}),
            "start call 5 as ?#0: 1 of 2, from 1.1, key 0, key 2\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(2), op(1, 2)}),
            "end ?#0 committed\nverify call 5, key 0, key 2\n");
  t.go_on(2);
  t.reconfigure(3);
  EXPECT_EQ(t.hear(plan({fetch})), "") << "it is being read";
  EXPECT_EQ(t.on(StateVerified{5, {}}), "start call 5 as ?#0: 1 of 2, from 1.1, key 0, key 2\n")
      << "of a plan that is void";
}

// State was fetched and verified before a reconfiguration. The answer comes after it, without
// another plan.
class AnsweredAfterAReconfiguration : public StateSyncTest {
 protected:
  std::string answered_with(const protocol::Offer& elected) {
    t.hear(plan({fetch}));
    t.on(OpTransferred{epoch_id(1), op(1, 2)});
    t.on(StateVerified{5, {}});
    t.go_on(1);
    t.reconfigure(2);
    protocol::Answer agreed = answer();
    agreed.state_hash = protocol::state_hash(elected.entries);
    return t.hear(agreed);
  }
};

// The answer was given in the previous epoch, on a connection that broke.
TEST_F(AnsweredAfterAReconfiguration, WhatWasFetchedIsInstalled) {
  EXPECT_EQ(answered_with(offer(2)), "finish joint call 5: ok, install 0, install 2\n");
}

// Another election has found that this peer needs nothing.
TEST_F(AnsweredAfterAReconfiguration, WhatWasNotElectedIsNot) {
  EXPECT_EQ(answered_with(offer(1)), "finish joint call 5: ok\n");
}

TEST_F(StateSyncTest, LeavingWaitsForWhatIsLent) {
  t.hear(plan({fetch}));
  EXPECT_EQ(t.on(LeaveCalled{}), "tell Leave\nclose\nend ?#0 aborted\n");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), op(1, 2)}),
            "finish joint call 5: invalid state: sync_shared_state: this process has left the "
            "run\ngone: ok\n");
}

// A plan that waits for the staging of an earlier plan does not begin any more.
TEST_F(StateSyncTest, LeavingBeginsNothing) {
  t.hear(plan({fetch}));
  t.go_on(1);
  t.reconfigure(2);
  EXPECT_EQ(t.hear(plan({fetch})), "");
  EXPECT_EQ(t.on(LeaveCalled{}), "tell Leave\nclose\n");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), op(1, 2)}),
            "finish joint call 5: invalid state: sync_shared_state: this process has left the "
            "run\ngone: ok\n");
}

TEST_F(StateSyncTest, ALossWithoutAPlanDoesNotKeepTheNextOneFromStarting) {
  t.hear(answer());
  t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}});
  t.lose(1, 3);
  t.joint(6, JointKind::kUpdateTopology);
  t.hear(t.start_of(2, {1, 2}));
  t.on(JointCalled{7, JointKind::kSyncSharedState, offer(1), {}});
  EXPECT_EQ(t.hear(plan({fetch})), "start call 7 as ?#0: 1 of 2, from 1.1, key 0, key 2\n");
}

TEST_F(StateSyncTest, ItsTimeoutAsksTheMaster) {
  t.hear(plan({fetch}));
  EXPECT_NE(t.wait(5).find("tell JointAbort 0 of 1.1\n"), std::string::npos);
  EXPECT_EQ(t.hear(answer(Code::kOperationTimeout, "rank 1 is slow")), "end ?#0 aborted\n");
}

TEST_F(StateSyncTest, AReconnectionRepeatsWhatWasSaid) {
  t.hear(plan({fetch}));
  t.on(OpTransferred{epoch_id(1), op(1, 2)});
  t.on(StateVerified{5, {}});
  t.on(MasterClosed{{Code::kSystem, "reset", {}}});
  t.wait(0.1);
  t.on(MasterConnected{});
  const std::string story = t.hear(protocol::Resumed{1});
  EXPECT_TRUE(story.ends_with("tell Vote 0 sync_shared_state of 1.1\ntell Fetched 0\n")) << story;
  // The master does not know that the plan arrived. A restarted master does not know the reply to
  // it either.
  EXPECT_EQ(t.hear(plan({fetch})), "tell Fetched 0\n");
}

TEST_F(StateSyncTest, TheNextCallStartsAfresh) {
  t.hear(plan({fetch}));
  t.on(OpTransferred{epoch_id(1), op(1, 2)});
  t.on(StateVerified{5, {}});
  t.hear(answer());
  EXPECT_EQ(t.on(JointCalled{6, JointKind::kSyncSharedState, offer(2), {}}),
            "tell Vote 1 sync_shared_state of 1.1\n");
  protocol::Answer again = answer();
  again.number = 1;
  EXPECT_EQ(t.hear(again), "finish joint call 6: ok\n");
}

TEST_F(StateSyncTest, APlanForAnotherCall) {
  protocol::SyncPlan wrong = plan({fetch});
  wrong.number = 1;
  EXPECT_EQ(refusal(wrong), "SyncPlan 1: no such call is open here");
}
TEST_F(StateSyncTest, APlanOfOtherEntries) {
  protocol::SyncPlan wrong = plan({fetch});
  wrong.entries[1].shape = {1 << 20, 1 << 20};
  EXPECT_EQ(refusal(wrong), "SyncPlan 0: its entries are not those that were offered");
}
TEST_F(StateSyncTest, APlanWithPeersThatAreNoMembers) {
  EXPECT_EQ(refusal(plan({{peer_id(9), peer_id(2), {0}}})),
            "SyncPlan 0: a transfer with nobody of this epoch");
}
TEST_F(StateSyncTest, APlanForOthers) {
  EXPECT_EQ(refusal(plan({{peer_id(1), peer_id(3), {0}}})),
            "SyncPlan 0: a transfer with nobody of this epoch");
}
TEST_F(StateSyncTest, APlanWithATransferTwice) {
  EXPECT_EQ(refusal(plan({give, give})), "SyncPlan 0: a transfer is there twice");
}
TEST_F(StateSyncTest, APlanWithAKeyTwice) {
  EXPECT_EQ(refusal(plan({fetch, {peer_id(3), peer_id(2), {2}}})),
            "SyncPlan 0: a key is to come from two peers");
}
TEST_F(StateSyncTest, APlanWithKeysOutOfOrder) {
  EXPECT_EQ(refusal(plan({{peer_id(1), peer_id(2), {2, 0}}})),
            "SyncPlan 0: the keys of a transfer make no sense");
}
TEST_F(StateSyncTest, APlanWithKeysOutOfBounds) {
  EXPECT_EQ(refusal(plan({{peer_id(1), peer_id(2), {3}}})),
            "SyncPlan 0: the keys of a transfer make no sense");
}
TEST_F(StateSyncTest, APlanWithoutKeys) {
  EXPECT_EQ(refusal(plan({{peer_id(1), peer_id(2), {}}})),
            "SyncPlan 0: the keys of a transfer make no sense");
}
TEST_F(StateSyncTest, ASecondPlan) {
  t.hear(plan({fetch}));
  EXPECT_EQ(refusal(plan({give})), "SyncPlan 0: another one has come before");
}

}  // namespace
}  // namespace pccl::peer
