#include "csrc/peer/membership.h"

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

using protocol::LinkState;

const std::string kBroke = "warn: the master at host:1 broke the protocol: ";

// The subject's complaint about an epoch; empty if it accepts the epoch.
std::string complaint(Transcript& t, const protocol::EpochStart& start) {
  const std::string story = t.hear(start);
  if (!story.starts_with(kBroke)) return "";
  return story.substr(kBroke.size(), story.find('\n') - kBroke.size());
}

TEST(Membership, RefusesEpochsThatMakeNoSense) {
  const auto refused = [](auto change) {
    Transcript t;
    t.become_member();
    t.joint(2, protocol::JointKind::kUpdateTopology);
    protocol::EpochStart start = t.start_of(2, {1, 2, 3});
    change(start);
    return complaint(t, start);
  };
  EXPECT_EQ(refused([](auto&) {}), "");
  EXPECT_EQ(refused([](auto& start) { start.epoch = start.generation = epoch_id(0); }),
            "epoch 1.0 follows epoch 1.1");
  EXPECT_EQ(refused([](auto& start) { start.generation = epoch_id(0); }),
            "epoch 1.2 is of generation 1.0");
  EXPECT_EQ(refused([](auto& start) { start.generation = epoch_id(1); }),
            "EpochStart of a reconfiguration after an epoch that does not continue");
  EXPECT_EQ(refused([](auto& start) { start.members[0].peer = peer_id(2); }),
            "epoch 1.2 has a member twice");
  EXPECT_EQ(refused([](auto& start) { start.members[1].peer = peer_id(9); }),
            "epoch 1.2 does not have this peer among its members");
  EXPECT_EQ(refused([](auto& start) { start.members.clear(); }),
            "epoch 1.2 does not have this peer among its members");
  for (const std::vector<uint32_t>& ring :
       {std::vector<uint32_t>{0, 1}, {0, 1, 1}, {0, 1, 3}, {}, {0, 1, 2, 2}}) {
    EXPECT_EQ(refused([&](auto& start) { start.ring = ring; }),
              "epoch 1.2 has a ring that is no permutation of its ranks");
  }
  EXPECT_EQ(refused([](auto& start) { start.one_shot_bytes = protocol::kOneShotBytesMax + 1; }),
            "epoch 1.2 has one-shot operations of 65537 bytes");
  for (const std::vector<uint16_t>& shares : {std::vector<uint16_t>{128, 128},
                                              {100, 100, 100},
                                              {256, 0, 0, 0},
                                              {0, 0, 0},
                                              {85, 85, 85}}) {
    EXPECT_EQ(refused([&](auto& start) { start.shares = shares; }),
              "epoch 1.2 has shares that are not one per rank with the sum 256");
  }
  EXPECT_EQ(refused([](auto& start) { start.shares = {0, 256, 0}; }), "");
  EXPECT_EQ(refused([](auto& start) {
              start.direct = {5, 5};
            }),
            "epoch 1.2 has direct all-reduces from 5 to 5 bytes");
  EXPECT_EQ(refused([](auto& start) {
              for (uint32_t peer = 10; peer < 140; ++peer)
                start.members.push_back({peer_id(peer), ""});
            }),
            "epoch 1.2 has too many members");
}

// All-reduces pass between all members but those that both own nothing, and other collectives
// around the ring.
// A member of five, with these all-reduces in the direct pattern.
std::vector<PeerId> neighbours_with(protocol::DirectSizes direct) {
  Context context;
  Effects effects;
  context.effects = &effects;
  Membership membership(context);
  for (const Phase phase : {Phase::kConnecting, Phase::kHandshaking, Phase::kWelcomed})
    membership.enter(phase);
  protocol::Welcome welcome;
  welcome.peer = peer_id(2);
  membership.welcome(welcome);
  membership.enter(Phase::kRegistered);
  Transcript t;
  protocol::EpochStart start = t.start_of(1, {1, 2, 3, 4, 5});
  start.shares = {0, 0, 128, 128, 0};
  start.direct = direct;
  EXPECT_TRUE(membership.begin(start).ok());
  membership.enter(Phase::kMember);
  EXPECT_EQ(std::get<BeginEpoch>(effects.front()).neighbours, membership.neighbours());
  membership.check();
  return membership.neighbours();
}

TEST(Membership, WithSharesTheNeighboursAreAlsoThoseThatShare) {
  EXPECT_EQ(neighbours_with({}), (std::vector<PeerId>{peer_id(3), peer_id(4), peer_id(1)}));
}

// Other members need one lane each, and the ring has all that this process can afford.
TEST(Membership, SmallDirectAllReducesNeedNoNeighbours) {
  const std::vector<PeerId> in_the_ring{peer_id(1), peer_id(3)};
  EXPECT_EQ(neighbours_with({.from = 0, .to = 1 << 20}), in_the_ring);
  EXPECT_EQ(neighbours_with({.from = 0, .to = 2 << 20}).size(), 3u);
}

TEST(Membership, AnEpochComesOnlyByAVote) {
  Transcript t;
  t.become_member();
  EXPECT_EQ(complaint(t, t.start_of(2, {1, 2, 3})), "EpochStart without a vote");
}

TEST(Membership, AnEpochComesOnlyToTheRegistered) {
  Transcript t;
  t.on(JoinCalled{1});
  t.on(MasterConnected{});
  t.hear(protocol::Welcome{peer_id(2), 77, 1, "10.0.0.2", false});
  EXPECT_EQ(complaint(t, t.start_of(1, {1, 2, 3})), "EpochStart before Register");
}

TEST(Membership, ANewcomerRefusesAnEpochThatContinuesNone) {
  Transcript t;
  t.register_now();
  protocol::EpochStart start = t.start_of(1, {1, 2, 3});
  start.generation = {};
  const std::string story = t.hear(start);
  EXPECT_NE(story.find("epoch 1.1 is of generation 0.0"), std::string::npos) << story;
}

TEST(Membership, RefusesAWelcomeWithoutAnId) {
  Transcript t;
  t.on(JoinCalled{1});
  t.on(MasterConnected{});
  const std::string story = t.hear(protocol::Welcome{{}, 77, 1, "10.0.0.2", false});
  EXPECT_NE(story.find("Welcome without an id"), std::string::npos) << story;
}

TEST(Membership, AnEpochComesOnlyWhenTheLastIsSettled) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  t.joint(2, protocol::JointKind::kUpdateTopology);
  EXPECT_EQ(complaint(t, t.start_of(2, {1, 2, 3})),
            "EpochStart before the operations of the last were settled");
}

TEST(Membership, ALossBreaksTheGroupUntilUpdateTopology) {
  Transcript t;
  t.become_member();
  EXPECT_TRUE(t.core().broken().ok());
  EXPECT_EQ(t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), "10.0.0.3"}}}),
            "info: epoch 1.1 is ending: peer 1.3 (10.0.0.3) lost\n"
            "tell StateReport\n");
  EXPECT_TRUE(t.core().broken().ok());
  EXPECT_EQ(t.lose(1, 3), "info: epoch 1.1 ended: peer 1.3 lost\n");
  EXPECT_EQ(t.core().broken(),
            (Status{Code::kPeerLost, "peer 1.3 lost; call pccl.update_topology() and repeat",
                    peer_id(3)}));
  EXPECT_EQ(t.joint(6, protocol::JointKind::kSyncSharedState),
            "finish joint call 6: peer lost: sync_shared_state: peer 1.3 lost; call "
            "pccl.update_topology() and repeat\n");
  EXPECT_EQ(t.joint(7, protocol::JointKind::kUpdateTopology),
            "tell Vote 0 update_topology of 1.1\n");
  protocol::EpochStart start = t.start_of(2, {1, 2});
  start.left = {peer_id(3)};
  EXPECT_EQ(t.hear(start),
            "begin epoch 1.2 with 1.1\n"
            "info: epoch 1.2 begins: this process is rank 1 of 2\n"
            "finish joint call 7: ok, rank 1 of 2 in epoch 1.2\n");
  EXPECT_TRUE(t.core().broken().ok());
}

// A loss that leaves a call in doubt deserves a warning, and so does its end.
TEST(Membership, AWarningOfALossEndsWithTheNextEpoch) {
  Transcript t;
  t.become_member();
  t.joint(6, protocol::JointKind::kArePeersPending);
  EXPECT_EQ(t.lose(1, 3), "warn: epoch 1.1 ended: peer 1.3 lost\n");
  protocol::Answer answer;
  answer.kind = protocol::JointKind::kArePeersPending;
  answer.code = Code::kPeerLost;
  t.hear(answer);
  t.joint(7, protocol::JointKind::kUpdateTopology);
  EXPECT_EQ(t.hear(t.start_of(2, {1, 2})),
            "begin epoch 1.2 with 1.1\n"
            "warn: epoch 1.2 begins: this process is rank 1 of 2\n"
            "finish joint call 7: ok, rank 1 of 2 in epoch 1.2\n");
  t.joint(8, protocol::JointKind::kUpdateTopology);
  EXPECT_EQ(t.hear(t.start_of(3, {1, 2, 4})),
            "begin epoch 1.3 with 1.1 1.4\n"
            "info: epoch 1.3 begins: this process is rank 1 of 3\n"
            "finish joint call 8: ok, rank 1 of 3 in epoch 1.3\n");
}

TEST(Membership, ALossThatTheOthersOutliveEndsWithTheNextEpoch) {
  Transcript t;
  t.become_member();
  EXPECT_EQ(t.hear(protocol::EpochEnd{epoch_id(1),
                                      {{peer_id(3), ""}},
                                      {},
                                      "peer 1.3 lost",
                                      protocol::Continuation::kEverything,
                                      {}}),
            "warn: peer 1.3 lost; the others go on\n");
  protocol::EpochStart start = t.start_of(2, {1, 2});
  start.generation = epoch_id(1);
  start.left = {peer_id(3)};
  EXPECT_TRUE(t.hear(start).starts_with(
      "begin epoch 1.2 with 1.1\nwarn: epoch 1.2 begins: this process is rank 1 of 2\n"));
}

TEST(Membership, AnEpochEndsOnce) {
  Transcript t;
  t.become_member();
  EXPECT_TRUE(t.hear(protocol::FreezeRequest{epoch_id(9), {}})
                  .starts_with(kBroke + "FreezeRequest for epoch 1.9"));
  Transcript u;
  u.become_member();
  u.lose(1, 3);
  EXPECT_TRUE(u.lose(1, 3).starts_with(kBroke + "EpochEnd for epoch 1.1"));
  Transcript v;
  v.become_member();
  v.lose(1, 3);
  EXPECT_TRUE(v.hear(protocol::FreezeRequest{epoch_id(1), {}})
                  .starts_with(kBroke + "FreezeRequest for epoch 1.1"));
}

TEST(Membership, AFurtherLossAsksAgain) {
  Transcript t;
  t.become_member();
  t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}});
  EXPECT_EQ(t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}, {peer_id(1), ""}}}),
            "tell StateReport\n");
}

// The peer with the higher id makes connections with odd serial numbers. This peer is 1.2.
TEST(Membership, TheDiallerReportsThatALinkIsUp) {
  Transcript t;
  t.become_member();
  EXPECT_EQ(t.on(LinkChanged{{peer_id(1), LinkState::kUp, "", 2}}), "");
  EXPECT_EQ(t.hear(protocol::Dial{peer_id(1), "10.0.0.1", 1}), "tell LinkReport 1.1 up\n")
      << "who is asked says it, too";
  EXPECT_EQ(t.on(LinkChanged{{peer_id(1), LinkState::kDown, "reset", 2}}),
            "tell LinkReport 1.1 down\n");
  EXPECT_EQ(t.on(LinkChanged{{peer_id(1), LinkState::kUp, "", 3}}), "tell LinkReport 1.1 up\n");
  EXPECT_EQ(t.hear(protocol::Dial{peer_id(4), "10.0.0.4", 1}), "dial 1.4 at 10.0.0.4:1\n");
  EXPECT_EQ(t.on(LinkChanged{{peer_id(4), LinkState::kUnreachable, "timed out", 0}}),
            "tell LinkReport 1.4 unreachable\n");
  EXPECT_EQ(t.on(LinkChanged{{peer_id(4), LinkState::kUnreachable, "timed out", 0}}), "");
  EXPECT_EQ(t.on(LinkChanged{{peer_id(4), LinkState::kUp, "", 2}}), "tell LinkReport 1.4 up\n");
  EXPECT_EQ(t.hear(protocol::Forget{peer_id(4)}), "forget 1.4\n");
}

// ---- The rates of links ----

TEST(Membership, TellsRatesThatHaveChangedBeforeAVoteForUpdateTopology) {
  Transcript t;
  t.become_member();
  t.on(LinkChanged{{peer_id(1), LinkState::kUp, "", 3}});
  t.on(LinkChanged{{peer_id(3), LinkState::kUp, "", 2}});
  EXPECT_EQ(t.on(RateMeasured{{peer_id(1), 1000}}), "") << "not by itself";
  EXPECT_EQ(t.on(RateMeasured{{peer_id(4), 1000}}), "") << "nobody's link";
  EXPECT_EQ(t.joint(2, protocol::JointKind::kUpdateTopology),
            "tell LinkRates 1.1 1000\ntell Vote 0 update_topology of 1.1\n");
  t.on(RateMeasured{{peer_id(1), 1050}});  // within what traffic measures
  t.on(RateMeasured{{peer_id(3), 70}});
  EXPECT_EQ(t.hear(protocol::FreezeRequest{epoch_id(1), {}}),
            "info: epoch 1.1 is ending: nobody is lost: there is a new link or plan, or the master "
            "is about to end\ntell LinkRates 1.3 70\ntell StateReport\n");
}

// Each step of scratch has one chunk here, and 100 MB/s in 25 ms are 2.5 MB.
TEST(Membership, AFastAndLongPathToDownstreamNeedsMoreScratch) {
  Options options = Transcript::default_options();
  options.scratch_bytes_max = 3'000'000;
  for (const bool far : {false, true}) {
    Transcript t(options);
    far ? t.become_far_member() : t.become_member();
    Handle handle = 10;
    const auto scratch = [&] {
      OpRequest request = t.all_reduce(++handle);
      request.count = 1 << 20;
      Effects effects;
      t.core().step(OpCalled{request}, t.now(), effects);
      for (const Effect& effect : effects) {
        if (const auto* const start = std::get_if<StartOp>(&effect))
          return start->task.shape.scratch_bytes;
      }
      return uint64_t{1};
    };
    EXPECT_EQ(scratch(), 0u);
    t.on(LinkChanged{{peer_id(1), LinkState::kUp, "", 3}});
    t.on(LinkChanged{{peer_id(3), LinkState::kUp, "", 2}});
    t.on(RateMeasured{{peer_id(1), 1'000'000'000}});
    EXPECT_EQ(scratch(), 0u) << "it comes from there";
    t.on(RateMeasured{{peer_id(3), 100'000'000}});
    EXPECT_EQ(scratch(), far ? 2'500'000u : 0u);
    t.on(RateMeasured{{peer_id(3), 1'000'000'000}});
    EXPECT_EQ(scratch(), far ? 3'000'000u : 0u) << "there is no more memory for it";
  }
}

TEST(Membership, ARestartedMasterLearnsAllRates) {
  Transcript t;
  t.become_member();
  t.on(LinkChanged{{peer_id(1), LinkState::kUp, "", 2}});
  t.on(RateMeasured{{peer_id(1), 1000}});
  t.joint(2, protocol::JointKind::kUpdateTopology);
  t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
  t.wait(0.1);
  t.on(MasterConnected{});
  const std::string resumed = t.hear(protocol::Resumed{2});
  EXPECT_NE(resumed.find("tell LinkRates 1.1 1000\n"), std::string::npos) << resumed;
}

// A restarted master does not know a waiting peer until that peer has registered again.
TEST(Membership, WhileItIsResumingItKeepsWhatBecameOfLinks) {
  Transcript t;
  t.on(JoinCalled{1});
  t.on(MasterConnected{});
  t.hear(protocol::Welcome{peer_id(2), 77, 1, "10.0.0.2", false});
  t.on(Listening{uint16_t{4000}});
  t.on(LinkChanged{{peer_id(3), LinkState::kUp, "", 2}});
  t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
  t.wait(0.1);
  t.on(MasterConnected{});
  EXPECT_EQ(t.on(LinkChanged{{peer_id(3), LinkState::kDown, "reset", 2}}), "");
  const std::string resumed = t.hear(protocol::Resumed{1});
  EXPECT_NE(resumed.find("tell Register\ntell LinkReport 1.3 down\n"), std::string::npos)
      << resumed;
}

std::string reconnect(Transcript& t) {
  t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
  t.wait(0.1);
  return t.on(MasterConnected{});
}

// The master that sent the Dial knows that the connection is dead. The next master does not.
TEST(Membership, ADialThatVoidsTheLinkOfAMemberIsALossInThisEpoch) {
  Transcript t;
  t.become_member();
  t.on(LinkChanged{{peer_id(1), LinkState::kUp, "", 2}});
  EXPECT_EQ(t.hear(protocol::Dial{peer_id(1), "10.0.0.1", 1, 2}), "dial 1.1 at 10.0.0.1:1\n");
  t.on(LinkChanged{{peer_id(1), LinkState::kDown, "the other end has lost it", 2}});
  t.on(LinkChanged{{peer_id(1), LinkState::kUp, "", 3}});
  EXPECT_EQ(reconnect(t), "tell Resume in epoch 1.1, reconfigures, seen 0, answered 0\n");
  const std::string resumed = t.hear(protocol::Resumed{2});
  EXPECT_NE(resumed.find("tell LinkReport 1.1 down\ntell LinkReport 1.1 up\n"), std::string::npos)
      << resumed;
}

// The Resume has left already, so the loss follows as a report.
TEST(Membership, ALinkThatIsLostAndMadeAnewWhileItIsResumingIsReportedAsLost) {
  Transcript t;
  t.become_member();
  t.on(LinkChanged{{peer_id(1), LinkState::kUp, "", 3}});
  EXPECT_EQ(reconnect(t), "tell Resume in epoch 1.1, seen 0, answered 0\n");
  EXPECT_EQ(t.on(LinkChanged{{peer_id(1), LinkState::kDown, "reset", 3}}), "");
  EXPECT_EQ(t.on(LinkChanged{{peer_id(1), LinkState::kUp, "", 4}}), "");
  const std::string resumed = t.hear(protocol::Resumed{2});
  EXPECT_NE(resumed.find("tell LinkReport 1.1 down\n"), std::string::npos) << resumed;
}

// The previous master did not announce that these newcomers are gone, and no master will.
TEST(Membership, ForgetsNewcomersOfTheMasterBefore) {
  Transcript t;
  t.become_member();
  t.hear(protocol::Dial{peer_id(4), "10.0.0.4", 1});
  t.on(LinkChanged{{peer_id(4), LinkState::kUnreachable, "timed out", 0}});
  t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
  t.wait(0.1);
  t.on(MasterConnected{});
  const std::string resumed = t.hear(protocol::Resumed{2});
  EXPECT_NE(resumed.find("forget 1.4\n"), std::string::npos) << resumed;
  EXPECT_EQ(resumed.find("LinkReport"), std::string::npos) << resumed;
  EXPECT_EQ(resumed.find("forget 1.1"), std::string::npos) << "a member is none: " << resumed;
}

// The epoch that has this newcomer as a member was durable before the master was killed, and has
// not begun here yet. A new link might come too late for rule 4.
TEST(Membership, KeepsLinksToTheMembersThatARestartedMasterKnows) {
  Transcript t;
  t.become_member();
  t.hear(protocol::Dial{peer_id(4), "10.0.0.4", 1});
  t.on(LinkChanged{{peer_id(4), LinkState::kUp, "", 2}});
  t.joint(2, protocol::JointKind::kUpdateTopology);
  t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
  t.wait(0.1);
  t.on(MasterConnected{});
  const std::string resumed =
      t.hear(protocol::Resumed{2, {}, {peer_id(1), peer_id(2), peer_id(3), peer_id(4)}});
  EXPECT_EQ(resumed.find("forget"), std::string::npos) << resumed;
  const std::string story = t.hear(t.start_of(2, {1, 2, 3, 4}));
  EXPECT_EQ(story.find("forget"), std::string::npos) << story;
}

// The data plane may set up a link before it receives the order to forget the peer. The master
// knows of that link, so it must learn that the link is down.
TEST(Membership, SaysThatAForgottenLinkIsDown) {
  Transcript t;
  t.become_member();
  t.hear(protocol::Dial{peer_id(4), "10.0.0.4", 1});
  EXPECT_EQ(t.hear(protocol::Forget{peer_id(4)}), "forget 1.4\n");
  EXPECT_EQ(t.on(LinkChanged{{peer_id(4), LinkState::kDown, "it was to be forgotten", 2}}),
            "tell LinkReport 1.4 down\n");
  t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
  t.wait(0.1);
  t.on(MasterConnected{});
  EXPECT_EQ(t.hear(protocol::Resumed{1}).find("LinkReport"), std::string::npos) << "once";
}

// The previous master lost these members while this peer was not connected to it.
TEST(Membership, ForgetsMembersThatARestartedMasterDoesNotKnow) {
  Transcript t;
  t.become_member();
  t.on(LinkChanged{{peer_id(3), LinkState::kUp, "", 2}});
  t.on(LinkChanged{{peer_id(1), LinkState::kUp, "", 2}});
  t.joint(2, protocol::JointKind::kUpdateTopology);
  t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
  t.wait(0.1);
  t.on(MasterConnected{});
  EXPECT_EQ(t.hear(protocol::Resumed{2}).find("forget"), std::string::npos);
  const std::string story = t.hear(t.start_of(2, {1, 2}));
  EXPECT_NE(story.find("forget 1.3\n"), std::string::npos) << story;
  EXPECT_EQ(story.find("forget 1.1"), std::string::npos) << story;
}

TEST(Membership, LinksAreBounded) {
  Transcript t;
  t.become_member();
  std::string story;
  for (uint32_t peer = 10; peer < 10 + 8 * protocol::kMembersMax; ++peer)
    story = t.hear(protocol::Dial{peer_id(peer), "h", 1});
  EXPECT_TRUE(story.starts_with("dial ")) << story;
  EXPECT_TRUE(
      t.hear(protocol::Dial{peer_id(9), "h", 1}).starts_with(kBroke + "more than 1024 links"));
}

TEST(Membership, NobodyIsToBeDialledWhoIsNoOtherPeer) {
  for (const PeerId peer : {PeerId{}, peer_id(2)}) {
    Transcript t;
    t.become_member();
    EXPECT_TRUE(t.hear(protocol::Dial{peer, "10.0.0.9", 1})
                    .starts_with(kBroke + "Dial of peer " + text(peer)));
  }
}

// A process that knows the run may claim to be one peer after another.
TEST(Membership, LinksUnderManyNamesLeaveRoomForTheMaster) {
  Transcript t;
  t.become_member();
  for (uint32_t peer = 10; peer < 10 + 16 * protocol::kMembersMax; ++peer) {
    t.on(LinkChanged{{peer_id(peer), LinkState::kUp, "", 2}});
    t.on(LinkChanged{{peer_id(peer), LinkState::kDown, "reset", 2}});
  }
  EXPECT_EQ(t.hear(protocol::Dial{peer_id(9), "10.0.0.9", 1}), "dial 1.9 at 10.0.0.9:1\n");
  protocol::Dial beyond{peer_id(9), "10.0.0.9", 1};
  beyond.dead_serial = protocol::kSerialMax + 1;
  EXPECT_TRUE(t.hear(beyond).starts_with(kBroke + "connection 2147483649 is to be dead"));
}

// Checks the table of messages that the master may send, with every message in every phase.
TEST(Membership, TheMessagesOfTheMasterInEachPhase) {
  const std::vector<protocol::Message> messages = {
      protocol::Hello{},         protocol::Reject{},     protocol::Welcome{},
      protocol::Register{},      protocol::Ping{},       protocol::Pong{},
      protocol::Dial{},          protocol::Forget{},     protocol::LinkReport{},
      protocol::Notice{},        protocol::EpochStart{}, protocol::FreezeRequest{},
      protocol::StateReport{},   protocol::Verdicts{},   protocol::EpochEnd{},
      protocol::Begin{},         protocol::Done{},       protocol::AbortRequest{},
      protocol::Vote{},          protocol::JointAbort{}, protocol::Answer{},
      protocol::SyncPlan{},      protocol::Fetched{},    protocol::Leave{},
      protocol::Kicked{},        protocol::Resume{},     protocol::Resumed{},
      protocol::AbortProposal{}, protocol::Farewell{},   protocol::AwaitSend{},
      protocol::SendBegun{},     protocol::LinkRates{},  protocol::Fetching{},
      protocol::ListRequest{},   protocol::StateList{},  protocol::Probe{},
      protocol::ProbeReport{},   protocol::Blocked{},    protocol::Watch{},
      protocol::Snapshot{},      protocol::Observe{},    protocol::Telemetry{},
      protocol::DialBack{},      protocol::DialedBack{}, protocol::AbortAnswer{},
      protocol::Regroup{},       protocol::Regrouped{}};
  ASSERT_EQ(messages.size(), std::variant_size_v<protocol::Message>);
  const auto allowed = [&](const Membership& membership, bool resuming) {
    std::string out;
    for (const protocol::Message& message : messages) {
      if (membership.check(message, resuming).ok())
        out += std::string(" ") + protocol::name(message);
    }
    return out;
  };
  Context context;
  Effects effects;
  context.effects = &effects;
  Membership membership(context);
  EXPECT_EQ(allowed(membership, false), "");
  membership.enter(Phase::kConnecting);
  membership.enter(Phase::kHandshaking);
  EXPECT_EQ(allowed(membership, false), " Reject Welcome Ping Pong");
  membership.enter(Phase::kWelcomed);
  membership.enter(Phase::kRegistered);
  EXPECT_EQ(allowed(membership, false),
            " Reject Ping Pong Dial Forget Notice EpochStart Kicked Farewell");
  EXPECT_EQ(allowed(membership, true), " Reject Ping Pong Kicked Resumed");
  membership.enter(Phase::kMember);
  EXPECT_EQ(allowed(membership, false),
            " Ping Pong Dial Forget Notice EpochStart FreezeRequest Verdicts EpochEnd Answer "
            "SyncPlan Kicked AbortProposal Farewell SendBegun ListRequest Probe Observe Regrouped");
  EXPECT_EQ(allowed(membership, true), " Reject Ping Pong Kicked Resumed");
  membership.enter(Phase::kEnding);
  EXPECT_EQ(allowed(membership, false), "");
}

}  // namespace
}  // namespace pccl::peer
