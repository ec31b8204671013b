#include "csrc/peer/state/state_sync.h"

#include <numeric>

#include "csrc/protocol/state.h"
#include "tests/cpp/change_list.h"
#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

using protocol::JointKind;

// Entries "w0" to "w2" of 4 floats each, all with the hash `hash`, and "w3" of two pieces.
protocol::Offer offer(uint64_t hash) {
  protocol::Offer out;
  out.revision = 7;
  for (int i = 0; i < 3; ++i)
    out.entries.push_back({"w" + std::to_string(i), DType::kFloat32, {2, 2}, hash});
  out.entries.push_back({"w3", DType::kUint8, {int64_t{8} << 20}, 1});
  return out;
}

// The state has one piece of small entries, 0, or three pieces with both parts of "w3".
class StateSyncTest : public testing::Test {
 protected:
  StateSyncTest() {
    t.become_member();
    EXPECT_EQ(t.on(JointCalled{5, JointKind::kSyncSharedState, offer(1), std::chrono::seconds(5)}),
              "tell Vote 0 sync_shared_state of 1.1\n");
  }
  // This peer is 1.2. It lacks the keys.
  static protocol::SyncPlan fetch(const std::vector<uint32_t>& keys = {0, 2},
                                  std::vector<PeerId> receivers = {peer_id(2)}) {
    protocol::SyncPlan plan{0, 7, offer(1).entries, keys, {peer_id(1)}, std::move(receivers), ""};
    change_list(plan.entries, [&keys](auto& entries) {
      for (const uint32_t key : keys) entries[key].hash = 2;
    });
    return plan;
  }
  // It has everything, and 1.3 lacks the keys.
  static protocol::SyncPlan give(const std::vector<uint32_t>& keys = {1}) {
    return {0, 7, offer(1).entries, keys, {peer_id(2)}, {peer_id(3)}, ""};
  }
  static OpKey op(uint32_t source, uint32_t destination, uint32_t number = 0) {
    return {reserved_tag("state " + text(peer_id(source)) + " " + text(peer_id(destination))),
            number};
  }
  static PieceRequested ask(const protocol::SyncPlan& plan, uint32_t peer, uint32_t what,
                            uint32_t number = 0) {
    return {epoch_id(1), peer_id(peer), op(2, peer, number),
            StateSync::digest_of(StateSync::digest_of(plan), what), what};
  }
  std::string arrives(uint32_t from, uint32_t number = 0, uint32_t epoch = 1) {
    return t.on(OpTransferred{epoch_id(epoch), op(from, 2, number)});
  }
  std::string is_right(uint32_t from, uint32_t what, uint64_t plan = 1) {
    return t.on(PieceChecked{5, plan, peer_id(from), what, {}, {}});
  }
  std::string is_wrong(uint32_t from, uint32_t what) {
    return t.on(PieceChecked{
        5, 1, peer_id(from), what, {Code::kSharedState, "w0 has another hash", {}}, {}});
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
};

TEST_F(StateSyncTest, NobodyIsStale) { EXPECT_EQ(t.hear(answer()), "finish joint call 5: ok\n"); }

TEST_F(StateSyncTest, AStalePeerAsksVerifiesAndInstalls) {
  EXPECT_EQ(t.hear(fetch()),
            "pieces of call 5 begin\nstart call 5 as ?#0: 1 of 2, from 1.1, piece 0\n");
  EXPECT_EQ(arrives(1), "end ?#0 committed\ncheck call 5, piece 0 from 1.1\n");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), op(1, 2)}), "");
  EXPECT_EQ(is_right(1, 0), "tell Fetched 0\n");
  EXPECT_EQ(t.hear(answer()), "finish joint call 5: ok, install 0, install 2\n");
}

// The peer has the agreed state of revision 6, and takes the step to 7 with other bits.
TEST_F(StateSyncTest, OtherBitsAfterTheNextStepAreDrift) {
  protocol::Answer before = answer();
  before.revision = 6;
  t.hear(before);
  const auto step = [this](uint32_t number, const protocol::Answer& answer) {
    t.on(JointCalled{6, JointKind::kSyncSharedState, offer(1), std::chrono::seconds(5)});
    protocol::SyncPlan plan = fetch();
    plan.number = number;
    t.hear(plan);
    arrives(1, number - 1);
    t.on(PieceChecked{6, number, peer_id(1), 0, {}, {}});
    return t.hear(answer);
  };
  protocol::Answer failed = answer(Code::kPeerLost, "peer 1.3 lost");
  failed.number = 1;
  EXPECT_EQ(step(1, failed), "finish joint call 6: peer lost: sync_shared_state: peer 1.3 lost\n");
  protocol::Answer succeeded = answer();
  succeeded.number = 2;
  EXPECT_EQ(
      step(2, succeeded),
      "warn: this process drifts: its result differs from that of the others, and "
      "sync_shared_state has corrected \"w0\", \"w2\" (32 bytes) at revision 7 (1 correction so "
      "far): look for a faulty machine, another kind of processor or GPU, or code that is not "
      "deterministic (docs/running.md, section 6)\n"
      "finish joint call 6: ok, install 0, install 2, drifted\n");
}

TEST_F(StateSyncTest, PartsAreCheckedWhenTheManifestIsHere) {
  EXPECT_EQ(t.hear(fetch({0, 3})),
            "pieces of call 5 begin\n"
            "start call 5 as ?#0: 1 of 2, from 1.1, manifest\n"
            "start call 5 as ?#1: 1 of 2, from 1.1, piece 0\n"
            "start call 5 as ?#2: 1 of 2, from 1.1, piece 1\n");
  EXPECT_EQ(arrives(1, 2), "end ?#2 committed\nstart call 5 as ?#3: 1 of 2, from 1.1, piece 2\n");
  EXPECT_EQ(arrives(1, 1), "end ?#1 committed\ncheck call 5, piece 0 from 1.1\n");
  EXPECT_EQ(arrives(1, 0), "end ?#0 committed\ncheck call 5, manifest from 1.1\n");
  EXPECT_EQ(is_right(1, kManifest), "check call 5, piece 1 from 1.1\n");
  EXPECT_EQ(is_right(1, 0), "");
  EXPECT_EQ(is_right(1, 1), "");
  EXPECT_EQ(arrives(1, 3), "end ?#3 committed\ncheck call 5, piece 2 from 1.1\n");
  EXPECT_EQ(is_right(1, 2), "tell Fetched 0\n");
}

TEST_F(StateSyncTest, TheMasterMayAskForTheEntries) {
  EXPECT_EQ(t.hear(protocol::ListRequest{0}), "tell StateList 0 of 1.1: 4 entries\n");
  EXPECT_EQ(t.hear(protocol::ListRequest{1}), "") << "of another call";
  t.hear(answer());
  EXPECT_EQ(t.hear(protocol::ListRequest{0}), "") << "it is over";
}

TEST_F(StateSyncTest, AnOfferMayHaveADigestAlone) {
  t.hear(answer());
  JointCalled call{6, JointKind::kSyncSharedState, {}, std::chrono::seconds(5), {}};
  call.entries = offer(1).entries;
  call.offer.digest = protocol::state_hash(call.entries);
  t.on(call);
  EXPECT_EQ(t.hear(protocol::ListRequest{1}), "tell StateList 1 of 1.1: 4 entries\n");
  protocol::SyncPlan plan = fetch();
  plan.number = 1;
  EXPECT_EQ(t.hear(plan),
            "pieces of call 6 begin\nstart call 6 as ?#0: 1 of 2, from 1.1, piece 0\n");
}

TEST_F(StateSyncTest, APartialOfferTakesEntriesThatItLacks) {
  t.hear(answer());
  JointCalled call{6, JointKind::kSyncSharedState, offer(1), std::chrono::seconds(5), {}};
  call.offer.strategy = protocol::SyncStrategy::kReceiveOnly;
  call.offer.partial = true;
  call.offer.entries.erase(call.offer.entries.begin() + 1);
  t.on(call);
  protocol::SyncPlan plan{1, 7, offer(1).entries, {1}, {peer_id(1)}, {peer_id(2)}, ""};
  change_list(plan.entries, [](auto& entries) { entries.erase(entries.begin()); });
  EXPECT_NE(refusal(plan), "") << "an offered entry is not there";
}

TEST_F(StateSyncTest, APartialOfferTakesNoSenselessEntries) {
  t.hear(answer());
  JointCalled call{6, JointKind::kSyncSharedState, {}, std::chrono::seconds(5), {}};
  call.offer.strategy = protocol::SyncStrategy::kReceiveOnly;
  call.offer.partial = true;
  t.on(call);
  protocol::SyncPlan plan{1, 7, offer(1).entries, {0, 1, 2, 3}, {peer_id(1)}, {peer_id(2)}, ""};
  change_list(plan.entries, [](auto& entries) { entries[3].shape = {int64_t{1} << 62}; });
  EXPECT_NE(refusal(plan).find("its entries make no sense"), std::string::npos);
}

TEST_F(StateSyncTest, EachVerifiedPieceIsProgress) {
  t.hear(fetch({0, 3}));
  arrives(1, 0);
  is_right(1, kManifest);
  EXPECT_EQ(t.progress().total, 0u) << "nothing of the state is here";
  arrives(1, 1);
  is_right(1, 0);
  EXPECT_EQ(t.progress().handle, 5u);
  EXPECT_EQ(t.progress().done, 16u);
  EXPECT_EQ(t.progress().total, 16u + (8u << 20));
  EXPECT_EQ(t.progress().peers, 1u);
}

TEST_F(StateSyncTest, ALineEachSecondSaysHowFarItHasCome) {
  EXPECT_EQ(t.wait(0.1), "") << "there is no plan yet";
  t.hear(fetch({0, 3}));
  EXPECT_EQ(t.wait(0.9), "");
  arrives(1, 0);
  is_right(1, kManifest);
  arrives(1, 2);
  is_right(1, 1);
  EXPECT_EQ(t.wait(0.2),
            "tell Fetching\n"
            "info: sync_shared_state: fetched 4 MiB of 8 MiB, 4 MiB/s, from 1 peer; sent 0 MiB, "
            "0 MiB/s\n");
  EXPECT_EQ(t.wait(1),
            "info: sync_shared_state: fetched 4 MiB of 8 MiB, 0 MiB/s, from 1 peer; sent 0 MiB, "
            "0 MiB/s\n");
  t.hear(answer(Code::kSharedState, "given up"));
  EXPECT_EQ(t.wait(1.5).find("sync_shared_state"), std::string::npos) << "the call is over";
}

// The master judges a newcomer by these.
TEST_F(StateSyncTest, TheMasterHearsThatMoreHasCome) {
  const auto told = [this](double seconds) {
    return t.wait(seconds).find("tell Fetching\n") != std::string::npos;
  };
  const auto bytes_come = [this] { t.on(OpProgressed{epoch_id(1), op(1, 2, 1), 4096}); };
  t.hear(fetch({0, 3}));
  EXPECT_FALSE(told(1.5)) << "nothing has come";
  EXPECT_EQ(t.on(OpProgressed{epoch_id(1), op(1, 2, 1), 1024}), "tell Fetching\n");
  bytes_come();
  EXPECT_FALSE(told(0.9)) << "once a second is enough";
  EXPECT_TRUE(told(0.2));
  bytes_come();
  t.hear(answer(Code::kSharedState, "given up"));
  EXPECT_FALSE(told(2)) << "the call is over";
  t.on(OpProgressed{epoch_id(1), op(1, 2, 1), 8192});
}

TEST_F(StateSyncTest, ASenderSaysWhatItHasSent) {
  const protocol::SyncPlan plan = give({1, 3});
  t.hear(plan);
  t.on(ask(plan, 3, 1));
  t.on(OpTransferred{epoch_id(1), op(2, 3)});
  EXPECT_EQ(t.wait(1.1), "info: sync_shared_state: sent 4 MiB, 4 MiB/s\n");
}

TEST_F(StateSyncTest, ReceiversServeEachOther) {
  const protocol::SyncPlan plan = fetch({0, 3}, {peer_id(2), peer_id(3)});
  EXPECT_EQ(t.hear(plan),
            "pieces of call 5 begin\n"
            "start call 5 as ?#0: 1 of 2, from 1.1, manifest\n"
            "start call 5 as ?#0: 1 of 2, from 1.3, news after 0\n"
            "start call 5 as ?#1: 1 of 2, from 1.1, piece 0\n"
            "start call 5 as ?#2: 1 of 2, from 1.1, piece 2\n");
  EXPECT_EQ(t.on(ask(plan, 3, 0, 0)), "") << "it is not here yet";
  EXPECT_EQ(t.on(ask(plan, 3, kManifest, 1)), "") << "likewise";
  EXPECT_EQ(t.on(ask(plan, 3, kHave, 2)), "start call 5 as ?#2: 0 of 2, to 1.3, news after 0\n")
      << "the first answer comes at once";
  EXPECT_EQ(t.on(ask(plan, 3, kHave | 1, 3)), "") << "it knows";
  EXPECT_EQ(arrives(1, 1), "end ?#1 committed\ncheck call 5, piece 0 from 1.1\n");
  EXPECT_EQ(is_right(1, 0),
            "start call 5 as ?#0: 0 of 2, to 1.3, piece 0\n"
            "start call 5 as ?#3: 0 of 2, to 1.3, news after 1\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), op(2, 3)}), "end ?#0 committed\nreturn ?#0\n");
}

TEST_F(StateSyncTest, APieceIsTakenFromAnotherReceiver) {
  t.hear(fetch({0, 3}, {peer_id(2), peer_id(3)}));
  arrives(1, 1);
  t.on(OpTransferred{epoch_id(1), op(3, 2)});
  EXPECT_EQ(t.on(PieceChecked{5, 1, peer_id(3), kHave, {}, {1}}),
            "start call 5 as ?#1: 1 of 2, from 1.3, news after 2\n")
      << "it has what this one has, and it says more when it has more";
  t.on(OpTransferred{epoch_id(1), op(3, 2, 1)});
  EXPECT_EQ(t.on(PieceChecked{5, 1, peer_id(3), kHave, {}, {7}}),
            "start call 5 as ?#2: 1 of 2, from 1.3, news after 4\n"
            "start call 5 as ?#3: 1 of 2, from 1.3, piece 1\n");
}

TEST_F(StateSyncTest, ASourceSendsWhatItIsAskedFor) {
  const protocol::SyncPlan plan = give({1, 3});
  EXPECT_EQ(t.hear(plan), "pieces of call 5 begin\n");
  EXPECT_EQ(t.on(ask(plan, 3, kManifest)), "start call 5 as ?#0: 0 of 2, to 1.3, manifest\n");
  EXPECT_EQ(t.on(ask(plan, 3, 1, 1)), "start call 5 as ?#1: 0 of 2, to 1.3, piece 1\n");
  EXPECT_EQ(t.on(ask(plan, 3, 2 | kSpare, 2)), "") << "it is busy";
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), op(2, 3, 1)}),
            "end ?#1 committed\nreturn ?#1\nstart call 5 as ?#2: 0 of 2, to 1.3, spare piece 2\n");
  EXPECT_EQ(t.hear(answer()), "end ?#0 aborted\nend ?#2 aborted\n");
  t.on(OpDrained{epoch_id(1), op(2, 3, 0)});
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), op(2, 3, 2)}), "return ?#2\nfinish joint call 5: ok\n");
}

// A newcomer that says that it has the state already is neither source nor receiver.
TEST_F(StateSyncTest, AMemberWithoutAPartLearnsThatAllHaveVoted) {
  protocol::SyncPlan plan = give();
  plan.sources = {peer_id(1)};
  EXPECT_EQ(t.hear(plan), "pieces of call 5 begin\n");
  EXPECT_EQ(t.hear(answer()), "finish joint call 5: ok\n");
}

TEST_F(StateSyncTest, ARequestMayComeBeforeThePlan) {
  const protocol::SyncPlan plan = give();
  EXPECT_EQ(t.on(ask(plan, 3, 0)), "");
  EXPECT_EQ(t.on(ask(plan, 3, 0)), "") << "twice";
  EXPECT_EQ(t.hear(plan), "pieces of call 5 begin\nstart call 5 as ?#0: 0 of 2, to 1.3, piece 0\n");
  EXPECT_EQ(t.on(ask(plan, 3, 0)), "") << "it is being sent";
}

TEST_F(StateSyncTest, RequestsThatMakeNoSenseAreDropped) {
  const protocol::SyncPlan plan = give();
  t.hear(plan);
  EXPECT_EQ(t.on(ask(plan, 3, 1)), "end ?#0 aborted\n") << "no such piece";
  EXPECT_EQ(t.on(ask(plan, 3, kManifest, 1)), "end ?#1 aborted\n") << "nothing is cut";
  EXPECT_EQ(t.on(ask(plan, 3, kManifest | kHave, 6)), "end ?#6 aborted\n");
  EXPECT_EQ(t.on(ask(plan, 1, 0, 2)), "end ?#2 aborted\n") << "it lacks nothing";
  EXPECT_EQ(t.on(ask(fetch(), 3, 0, 3)), "end ?#3 aborted\n") << "of another plan";
  PieceRequested foreign = ask(plan, 3, 0, 4);
  foreign.op.tag = tag_id("grads");
  EXPECT_EQ(t.on(foreign), "") << "it is no request, and the operation may be called later";
  PieceRequested old = ask(plan, 3, 0, 5);
  old.epoch = epoch_id(0);
  EXPECT_EQ(t.on(old), "");
}

TEST_F(StateSyncTest, OnlySoManyRequestsOfOnePeerWait) {
  for (uint32_t number = 0; number < protocol::kStateRequestsMax; ++number)
    EXPECT_EQ(t.on(ask(give(), 3, 0, number)), "");
  EXPECT_EQ(t.on(ask(give(), 3, 0, 1000)), "end ?#1000 aborted\n");
  EXPECT_EQ(t.on(ask(give(), 1, 0, 0)), "") << "of another peer";
}

TEST_F(StateSyncTest, TheAnswerWaitsForWhatIsLent) {
  t.hear(give());
  t.on(ask(give(), 3, 0));
  EXPECT_EQ(t.hear(answer()), "end ?#0 aborted\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), op(2, 3)}), "");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), op(2, 3)}), "return ?#0\nfinish joint call 5: ok\n");
}

TEST_F(StateSyncTest, AWrongPieceOfASourceFailsItForAll) {
  t.hear(fetch());
  arrives(1);
  EXPECT_EQ(is_wrong(1, 0),
            "tell Fetched 0: rank 1 (peer 1.2): w0 has another hash, from rank 0 (peer 1.1)\n");
  EXPECT_EQ(t.hear(answer(Code::kSharedState, "rank 1: w0")),
            "finish joint call 5: shared state: sync_shared_state: rank 1: w0\n");
}

TEST_F(StateSyncTest, AWrongPieceOfAReceiverIsTakenFromSomebodyElse) {
  t.hear(fetch({0, 3}, {peer_id(3), peer_id(2)}));
  t.on(OpTransferred{epoch_id(1), op(3, 2)});
  EXPECT_NE(t.on(PieceChecked{5, 1, peer_id(3), kHave, {}, {1}}).find("from 1.3, piece 0\n"),
            std::string::npos);
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), op(3, 2, 2)}),
            "end ?#2 committed\ncheck call 5, piece 0 from 1.3\n");
  EXPECT_EQ(is_wrong(3, 0),
            "warn: w0 has another hash, from rank 2 (peer 1.3): this process takes nothing more "
            "from it\n"
            "start call 5 as ?#2: 1 of 2, from 1.1, piece 0\n");
}

TEST_F(StateSyncTest, NoMemoryFailsItForAll) {
  t.hear(fetch());
  EXPECT_EQ(t.on(OpFailed{epoch_id(1), op(1, 2), {Code::kSystem, "no memory", {}}}),
            "tell Fetched 0: rank 1 (peer 1.2): no memory\n");
  EXPECT_EQ(t.hear(answer(Code::kSystem, "no memory")), "end ?#0 aborted\n");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), op(1, 2)}),
            "finish joint call 5: system: sync_shared_state: no memory\n");
}

TEST_F(StateSyncTest, ALossThatNothingContinuesAfterStopsThem) {
  t.hear(fetch());
  t.on(ask(fetch(), 3, 0));
  t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}});
  const std::string story = t.lose(1, 3);
  EXPECT_TRUE(story.ends_with("end ?#0 aborted\n")) << story;
  EXPECT_EQ(t.hear(answer(Code::kPeerLost, "peer 1.3 lost")), "");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), op(1, 2)}),
            "finish joint call 5: peer lost: sync_shared_state: peer 1.3 lost\n");
}

TEST_F(StateSyncTest, InAReconfigurationTheNextPlanWaitsUntilItsMemoryIsFree) {
  t.hear(fetch());
  EXPECT_EQ(t.go_on(1), "end ?#0 aborted\n");
  EXPECT_NE(t.reconfigure(2).find("tell Vote 0 sync_shared_state of 1.2"), std::string::npos);
  EXPECT_EQ(t.hear(fetch()), "") << "what has been written to is not drained";
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), op(1, 2)}),
            "pieces of call 5 go on\nstart call 5 as ?#1: 1 of 2, from 1.1, piece 0\n");
  EXPECT_EQ(arrives(1, 1, 2), "end ?#1 committed\ncheck call 5, piece 0 from 1.1\n");
  t.go_on(2);
  t.reconfigure(3);
  EXPECT_EQ(t.hear(fetch()), "") << "it is being read";
  EXPECT_EQ(is_right(1, 0, 2), "pieces of call 5 go on\ntell Fetched 0\n")
      << "what was checked for the void plan counts";
}

TEST_F(StateSyncTest, AVerifiedPieceIsNotAskedForAgain) {
  t.hear(fetch({0, 3}));
  arrives(1, 0);
  is_right(1, kManifest);
  arrives(1, 1);
  is_right(1, 0);
  t.go_on(1);
  t.reconfigure(2);
  t.on(OpDrained{epoch_id(1), op(1, 2, 2)});
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), op(1, 2, 3)}), "");
  EXPECT_EQ(t.hear(fetch({0, 3})),
            "pieces of call 5 go on\n"
            "start call 5 as ?#4: 1 of 2, from 1.1, piece 1\n"
            "start call 5 as ?#5: 1 of 2, from 1.1, piece 2\n");
}

TEST_F(StateSyncTest, AnotherPlanBeginsAfresh) {
  t.hear(fetch());
  arrives(1);
  is_right(1, 0);
  t.go_on(1);
  t.reconfigure(2);
  EXPECT_EQ(t.hear(fetch({0, 1, 2})),
            "pieces of call 5 begin\nstart call 5 as ?#1: 1 of 2, from 1.1, piece 0\n");
}

TEST_F(StateSyncTest, WithoutSourcesTheReceiversCompleteEachOther) {
  protocol::SyncPlan plan = fetch({0, 3}, {peer_id(2), peer_id(3)});
  plan.sources.clear();
  plan.gone = "peer 1.1 lost";
  EXPECT_EQ(t.hear(plan),
            "pieces of call 5 begin\n"
            "start call 5 as ?#0: 1 of 2, from 1.3, manifest\n"
            "start call 5 as ?#1: 1 of 2, from 1.3, news after 0\n");
  t.on(OpTransferred{epoch_id(1), op(3, 2, 1)});
  EXPECT_EQ(t.on(PieceChecked{5, 1, peer_id(3), kHave, {}, {3}}),
            "start call 5 as ?#2: 1 of 2, from 1.3, news after 3\n"
            "tell Fetched 0: rank 1 (peer 1.2): no peer that is left has all of \"w3\": peer 1.1 "
            "lost\n");
}

TEST_F(StateSyncTest, WithoutAnybodyItFailsAtOnce) {
  protocol::SyncPlan plan = fetch();
  plan.sources.clear();
  plan.gone = "peer 1.1 lost";
  EXPECT_EQ(t.hear(plan),
            "pieces of call 5 begin\ntell Fetched 0: rank 1 (peer 1.2): no peer that is left has "
            "all of \"w0\", \"w2\": peer 1.1 lost\n");
}

// State was fetched and verified before a reconfiguration. The answer comes after it, without
// another plan.
class AnsweredAfterAReconfiguration : public StateSyncTest {
 protected:
  std::string answered_with(const std::vector<protocol::StateEntry>& elected) {
    t.hear(fetch());
    arrives(1);
    is_right(1, 0);
    t.go_on(1);
    t.reconfigure(2);
    protocol::Answer agreed = answer();
    agreed.state_hash = protocol::state_hash(elected);
    return t.hear(agreed);
  }
};

// The answer was given in the previous epoch, on a connection that broke.
TEST_F(AnsweredAfterAReconfiguration, AFetchedStateIsInstalled) {
  EXPECT_EQ(answered_with(fetch().entries), "finish joint call 5: ok, install 0, install 2\n");
}

// Another election has found that this peer needs nothing.
TEST_F(AnsweredAfterAReconfiguration, AStateThatWasNotElectedIsNotInstalled) {
  EXPECT_EQ(answered_with(offer(1).entries), "finish joint call 5: ok\n");
}

// ---- Collectives while the state is fetched ----

bool is_absent(const std::string& story) {
  EXPECT_NE(story.find("start call"), std::string::npos) << story;
  return story.find(", absent\n") != std::string::npos;
}

TEST_F(StateSyncTest, AReceiverIsAbsentUntilTheApplicationHasTheState) {
  EXPECT_FALSE(is_absent(t.call(t.all_reduce(6)))) << "the vote is under way";
  t.hear(fetch());
  EXPECT_TRUE(is_absent(t.call(t.all_reduce(7))));
  arrives(1);
  is_right(1, 0);
  t.hear(answer());
  EXPECT_TRUE(is_absent(t.call(t.all_reduce(8)))) << "nothing is installed yet";
  t.on(JointConcluded{4});
  EXPECT_TRUE(is_absent(t.call(t.all_reduce(9)))) << "another call was concluded";
  t.on(JointConcluded{5});
  EXPECT_FALSE(is_absent(t.call(t.all_reduce(10))));
}

TEST_F(StateSyncTest, ASenderIsPresent) {
  t.hear(give());
  EXPECT_FALSE(is_absent(t.call(t.all_reduce(6))));
}

TEST_F(StateSyncTest, AFailedSyncEndsTheAbsenceWhenTheApplicationHasItsError) {
  t.hear(fetch());
  t.hear(answer(Code::kSharedState, "nobody has it"));
  t.on(OpDrained{epoch_id(1), op(1, 2)});
  EXPECT_TRUE(is_absent(t.call(t.all_reduce(6))));
  t.on(JointConcluded{5});
  EXPECT_FALSE(is_absent(t.call(t.all_reduce(7))));
}

TEST_F(StateSyncTest, OnlySumsAndAveragesOfSomeElementsAreWithoutWhoFetches) {
  t.hear(fetch());
  Handle handle = 6;
  const auto absent_from = [&](protocol::OpKind kind, ReduceOp reduce, uint64_t count = 8) {
    OpRequest request = t.kind(handle++, kind, kind == protocol::OpKind::kReduce ? 0 : -1);
    request.reduce = reduce;
    request.count = count;
    return is_absent(t.call(request));
  };
  for (const auto kind : {protocol::OpKind::kAllReduce, protocol::OpKind::kReduce,
                          protocol::OpKind::kReduceScatter}) {
    EXPECT_TRUE(absent_from(kind, ReduceOp::kSum));
    EXPECT_TRUE(absent_from(kind, ReduceOp::kAvg));
    EXPECT_FALSE(absent_from(kind, ReduceOp::kMax));
    EXPECT_FALSE(absent_from(kind, ReduceOp::kProduct));
    EXPECT_FALSE(absent_from(kind, ReduceOp::kSum, 0)) << "an empty tensor";
  }
  EXPECT_FALSE(absent_from(protocol::OpKind::kAllGather, ReduceOp::kSum));
}

OpRequest kept(Transcript& t, Handle handle) {
  OpRequest request = t.all_reduce(handle);
  request.count = 100;
  request.keep = true;
  return request;
}

TEST_F(StateSyncTest, TheAbsentAreNoContributors) {
  t.hear(give());
  t.call(kept(t, 6));
  t.on(OpTransferred{epoch_id(1), t.key(0), protocol::AbsentRanks::of(2, 3)});
  EXPECT_EQ(t.decide(1, 0, {t.committed(t.key(0))}),
            "end #0 committed\nfinish call 6: ok, to 100 over 1.1 1.2\n");
}

TEST_F(StateSyncTest, APeerThatCannotBeAbsentWaitsForTheStateFirst) {
  Transcript large;
  large.register_now();
  std::vector<uint32_t> peers(66);
  std::iota(peers.begin(), peers.end(), 1u);
  large.hear(large.start_of(1, peers));
  large.on(JointCalled{5, JointKind::kSyncSharedState, offer(1), {}});
  large.hear(fetch());
  EXPECT_NE(large.call(large.all_reduce(6))
                .find("all_reduce: rank 1 of 66 fetches the shared state, and only the last 64"),
            std::string::npos);
  OpRequest largest = large.all_reduce(7);
  largest.reduce = ReduceOp::kMax;
  EXPECT_FALSE(is_absent(large.call(largest)));
}

// The tensor was made without the state, though the state is here when the operation starts again.
TEST_F(StateSyncTest, ACallKeepsItsAbsenceWhenItStartsAgain) {
  t.hear(fetch());
  EXPECT_TRUE(is_absent(t.call(kept(t, 6))));
  arrives(1);
  is_right(1, 0);
  t.hear(answer());
  t.on(JointConcluded{5});
  t.on(OpProgressed{epoch_id(1), t.key(0), 40, protocol::AbsentRanks::of(1, 3)});
  t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}});
  t.hear(protocol::EpochEnd{epoch_id(1),
                            {{peer_id(3), ""}},
                            {},
                            "peer 1.3 lost",
                            protocol::Continuation::kEverything,
                            {{t.key(0), 40}}});
  protocol::EpochStart start = t.start_of(2, {1, 2});
  start.generation = epoch_id(1);
  start.left = {peer_id(3)};
  t.hear(start);
  EXPECT_TRUE(is_absent(t.on(OpDrained{epoch_id(1), t.key(0)})));
  t.on(OpTransferred{epoch_id(2), t.key(0), protocol::AbsentRanks::of(1, 2)});
  EXPECT_EQ(t.decide(2, 0, {t.committed(t.key(0))}),
            "end #0 committed\nfinish call 6: ok, to 40 over 1.1 1.3, to 100 over 1.1\n");
}

TEST_F(StateSyncTest, LeavingWaitsForWhatIsLent) {
  t.hear(fetch());
  EXPECT_EQ(t.on(LeaveCalled{}), "tell Leave\nclose\nend ?#0 aborted\n");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), op(1, 2)}),
            "finish joint call 5: invalid state: sync_shared_state: this process has left the "
            "run\ngone: ok\n");
}

// A plan that waits for the memory of an earlier plan does not begin any more.
TEST_F(StateSyncTest, LeavingBeginsNothing) {
  t.hear(fetch());
  t.go_on(1);
  t.reconfigure(2);
  EXPECT_EQ(t.hear(fetch()), "");
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
  EXPECT_EQ(t.hear(fetch()),
            "pieces of call 7 begin\nstart call 7 as ?#0: 1 of 2, from 1.1, piece 0\n");
}

TEST_F(StateSyncTest, ItsTimeoutAsksTheMaster) {
  t.hear(fetch());
  EXPECT_NE(t.wait(5).find("tell JointAbort 0 of 1.1\n"), std::string::npos);
  EXPECT_EQ(t.hear(answer(Code::kOperationTimeout, "rank 1 is slow")), "end ?#0 aborted\n");
}

TEST_F(StateSyncTest, AnInterruptedTransferFailsItForAll) {
  t.hear(fetch());
  EXPECT_EQ(t.on(JointGivenUp{5}),
            "tell Fetched 0: rank 1 (peer 1.2): it was interrupted, or a thread of it has "
            "failed\n");
  EXPECT_EQ(t.on(JointGivenUp{5}), "tell JointAbort 0 of 1.1\n") << "and does not wait for it";
}

TEST_F(StateSyncTest, AnInterruptedSourceFailsItForAll) {
  t.hear(give());
  EXPECT_TRUE(t.on(JointGivenUp{5}).starts_with("tell Fetched 0: rank 1 "));
}

TEST_F(StateSyncTest, APeerThatNobodyNeedsAsksTheMaster) {
  protocol::SyncPlan plan = give();
  plan.sources = {peer_id(1)};
  t.hear(plan);
  EXPECT_EQ(t.on(JointGivenUp{5}), "tell JointAbort 0 of 1.1\n");
}

TEST_F(StateSyncTest, AReconnectionRepeatsWhatWasSaid) {
  t.hear(fetch());
  arrives(1);
  is_right(1, 0);
  t.on(MasterClosed{{Code::kSystem, "reset", {}}});
  t.wait(0.1);
  t.on(MasterConnected{});
  const std::string story = t.hear(protocol::Resumed{1});
  EXPECT_TRUE(story.ends_with("tell Vote 0 sync_shared_state of 1.1\ntell Fetched 0\n")) << story;
  // The master does not know that the plan arrived. A restarted master does not know the reply to
  // it either.
  EXPECT_EQ(t.hear(fetch()), "tell Fetched 0\n");
}

TEST_F(StateSyncTest, TheNextCallStartsAfresh) {
  t.hear(fetch());
  arrives(1);
  is_right(1, 0);
  t.hear(answer());
  EXPECT_EQ(is_right(1, 0), "") << "of a call that is over";
  EXPECT_EQ(t.on(JointCalled{6, JointKind::kSyncSharedState, offer(2), {}}),
            "tell Vote 1 sync_shared_state of 1.1\n");
  protocol::Answer again = answer();
  again.number = 1;
  EXPECT_EQ(t.hear(again), "finish joint call 6: ok\n");
}

TEST_F(StateSyncTest, PlansThatMakeNoSense) {
  const std::vector<std::pair<std::string, std::function<void(protocol::SyncPlan&)>>> wrong = {
      {"no such call is open here", [](auto& plan) { plan.number = 1; }},
      {"its entries are not those that were offered",
       [](auto& plan) {
         change_list(plan.entries, [](auto& entries) { entries[1].shape = {1 << 20, 1 << 20}; });
       }},
      {"a peer that is not of this epoch takes part",
       [](auto& plan) { plan.sources = {peer_id(9)}; }},
      {"this peer lacks entries and is no receiver",
       [](auto& plan) { plan.receivers = {peer_id(3)}; }},
      {"a peer takes part twice", [](auto& plan) { plan.sources.push_back(peer_id(2)); }},
      {"nobody lacks anything", [](auto& plan) { plan.receivers.clear(); }},
      {"its keys make no sense",
       [](auto& plan) {
         plan.keys = {2, 0};
       }},
      {"its keys make no sense", [](auto& plan) { plan.keys = {4}; }},
      {"its keys make no sense", [](auto& plan) { plan.keys.clear(); }},
      {"it does not bring what this peer lacks", [](auto& plan) { plan.keys = {0}; }},
      {"it does not bring what this peer lacks",
       [](auto& plan) { plan.entries = offer(1).entries; }},
      {"this peer lacks entries and is no receiver",
       [](auto& plan) {
         plan.sources = {peer_id(2)};
         plan.receivers = {peer_id(3)};
       }},
  };
  for (const auto& [why, spoil] : wrong) {
    protocol::SyncPlan plan = fetch();
    spoil(plan);
    Transcript other;
    other.become_member();
    other.on(JointCalled{5, JointKind::kSyncSharedState, offer(1), {}});
    const std::string story = other.hear(plan);
    EXPECT_NE(story.find("SyncPlan " + std::to_string(plan.number) + ": " + why), std::string::npos)
        << story;
  }
}
TEST_F(StateSyncTest, ASecondPlan) {
  t.hear(fetch());
  EXPECT_EQ(refusal(give()), "SyncPlan 0: another one has come before");
}

}  // namespace
}  // namespace pccl::peer
