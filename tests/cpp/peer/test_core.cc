#include "csrc/peer/core.h"

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

using protocol::JointKind;

const std::string kRemoved = "this process was removed from the run: ";
const std::string kOutOfRun = "; call destroy_process_group(), then join again";

TEST(Core, JoinsARun) {
  Transcript t;
  EXPECT_EQ(t.on(JoinCalled{1}), "connect\n");
  EXPECT_EQ(t.on(MasterConnected{}), "tell Hello\n");
  EXPECT_EQ(t.hear(protocol::Welcome{peer_id(2), 77, 1, "10.0.0.2", false}),
            "accept as 1.2\nlisten\n");
  EXPECT_EQ(t.on(Listening{uint16_t{4000}}), "tell Register\n");
  EXPECT_EQ(t.hear(protocol::Dial{peer_id(3), "10.0.0.3", 4001}), "dial 1.3 at 10.0.0.3:4001\n");
  EXPECT_EQ(t.on(LinkChanged{{peer_id(3), protocol::LinkState::kUp, "", 2}}),
            "tell LinkReport 1.3 up\n");
  EXPECT_EQ(t.hear(t.start_of(1, {1, 2, 3})),
            "begin epoch 1.1 with 1.1 1.3\n"
            "info: epoch 1.1 begins: this process is rank 1 of 3\n"
            "finish joint call 1: ok, rank 1 of 3 in epoch 1.1\n");
}

TEST(Core, ARunOfAVersionThatItDoesNotSpeakIsNotJoined) {
  Transcript t;
  t.on(JoinCalled{1});
  t.on(MasterConnected{});
  protocol::Welcome welcome{peer_id(2), 77, 1, "10.0.0.2", false};
  welcome.version = protocol::kSpoken.highest + 1;
  const std::string text = t.hear(welcome);
  EXPECT_NE(text.find("broke the protocol: Welcome to a run of version " +
                      std::to_string(welcome.version) + ", which this peer does not speak"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("listen"), std::string::npos) << text;
}

TEST(Core, TakesTheSettingsOfTheRunFromWelcome) {
  Transcript t;
  t.on(JoinCalled{1});
  t.on(MasterConnected{});
  t.wait(0.4);
  protocol::Welcome welcome = t.welcome();
  welcome.settings.peer_timeout = std::chrono::seconds(1);
  EXPECT_EQ(t.hear(welcome), "accept as 1.2 with a peer timeout of 1 s\nlisten\n");
  t.on(Listening{uint16_t{4000}});
  const std::string story = t.wait(1.1);
  EXPECT_NE(story.find("silent for 1 s"), std::string::npos) << story;
}

TEST(Core, RegistersAgainOnANewConnection) {
  Transcript t;
  t.on(JoinCalled{1});
  t.on(MasterConnected{});
  t.hear(protocol::Welcome{peer_id(2), 77, 1, "10.0.0.2", false});
  t.on(MasterClosed{{Code::kSystem, "reset", {}}});
  EXPECT_EQ(t.on(Listening{uint16_t{4000}}), "") << "there is nobody to tell";
  EXPECT_EQ(t.wait(0.1), "connect\n");
  t.on(MasterConnected{});
  EXPECT_EQ(t.hear(protocol::Resumed{1}),
            "warn: the master at host:1 is back after 100 ms\n"
            "tell Register\n");
}

TEST(Core, TriesTheMasterForPeerTimeoutAndSaysSo) {
  Transcript t;
  EXPECT_EQ(t.on(JoinCalled{1}), "connect\n");
  EXPECT_EQ(t.on(MasterClosed{{Code::kSystem, "connection refused", {}}}), "");
  EXPECT_EQ(t.wait(0.1), "connect\n");
  EXPECT_EQ(t.on(MasterClosed{{Code::kSystem, "connection refused", {}}}), "");
  EXPECT_EQ(t.wait(0.1), "");  // the pause doubles
  EXPECT_EQ(t.wait(0.1), "connect\n");
  EXPECT_EQ(t.wait(0.7),
            "warn: still no master at host:1 (connection refused); trying for 9 s more\n");
  EXPECT_EQ(t.wait(8.9), "");
  EXPECT_EQ(t.wait(0.1),
            "close\n"
            "finish joint call 1: master lost: no master at host:1 within 10 s (connection "
            "refused): is `pccl master` running there, "
            "and can its port be reached from here?\n"
            "gone: master lost: no master at host:1 within 10 s (connection refused): is `pccl "
            "master` running there, "
            "and can its port be reached from here?\n");
  EXPECT_EQ(t.core().deadline(), std::nullopt);
}

TEST(Core, AMasterThatDoesNotAnswerHelloIsNoMaster) {
  Transcript t;
  t.on(JoinCalled{1});
  t.on(MasterConnected{});
  const std::string story = t.wait(10);
  EXPECT_NE(story.find("gone: master lost: no master at host:1 within 10 s (no answer)"),
            std::string::npos)
      << story;
}

TEST(Core, IsRejected) {
  Transcript t;
  t.on(JoinCalled{1});
  t.on(MasterConnected{});
  EXPECT_EQ(t.hear(protocol::Reject{Code::kInvalidArgument, "rank 3 is taken"}),
            "close\n"
            "finish joint call 1: invalid argument: rank 3 is taken\n"
            "gone: invalid argument: rank 3 is taken\n");
}

TEST(Core, NobodyAdmitsIt) {
  Transcript t;
  t.register_now();
  EXPECT_EQ(t.hear(protocol::Notice{"peer 1.1 cannot reach 10.0.0.2:4000"}),
            "warn: not admitted yet: peer 1.1 cannot reach 10.0.0.2:4000; this process gives up "
            "in 60 s\n");
  EXPECT_EQ(t.hear(protocol::Notice{"peer 1.1 cannot reach 10.0.0.2:4000"}), "");
  std::string story;
  for (int i = 0; i < 61; ++i) story += t.hear(protocol::Ping{}) + t.wait(1);
  const std::string why =
      "too few peers: not admitted to run \"demo\" within 60 s; the master's last "
      "word was: "
      "peer 1.1 cannot reach 10.0.0.2:4000\n";
  EXPECT_TRUE(story.ends_with("tell Leave\nclose\nfinish joint call 1: " + why + "gone: " + why))
      << story;
}

TEST(Core, CallsOutOfTurnFail) {
  Transcript t;
  EXPECT_EQ(
      t.call(t.all_reduce(5)),
      "finish call 5: invalid state: all_reduce before this process was admitted to the run\n");
  t.register_now();
  EXPECT_EQ(t.joint(6, JointKind::kUpdateTopology),
            "finish joint call 6: invalid state: update_topology before this process was admitted "
            "to the run\n");
  t.hear(t.start_of(1, {1, 2, 3}));
  t.on(LeaveCalled{});
  EXPECT_EQ(t.call(t.all_reduce(7)),
            "finish call 7: invalid state: all_reduce: this process has left the run\n");
  EXPECT_EQ(t.joint(8, JointKind::kUpdateTopology),
            "finish joint call 8: invalid state: update_topology: this process has left the run\n");
  EXPECT_EQ(t.on(LeaveCalled{}), "");
}

TEST(Core, LeavesOnlyWhenNothingIsLentAnyMore) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  t.joint(6, JointKind::kArePeersPending);
  EXPECT_EQ(t.on(LeaveCalled{}),
            "tell Leave\n"
            "close\n"
            "end #0 aborted\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), t.key(0)}), "");  // this event was under way
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), t.key(0)}),
            "finish call 5: invalid state: all_reduce(sum, float32, 8 elements, world size 3) (#0) "
            "in epoch 1.1: "
            "this process has left the run\n"
            "finish joint call 6: invalid state: are_peers_pending: this process has left the run\n"
            "gone: ok\n");
}

TEST(Core, IsKicked) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  EXPECT_EQ(t.hear(protocol::Kicked{"silent for 10 s"}), "close\nend #0 aborted\n");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), t.key(0)}),
            "finish call 5: kicked: all_reduce(sum, float32, 8 elements, world size 3) (#0) in "
            "epoch 1.1: " +
                kRemoved + "silent for 10 s" + kOutOfRun + "\ngone: kicked: " + kRemoved +
                "silent for 10 s" + kOutOfRun + "\n");
}

// Nobody is warned: the caller of a call that needs the master is told.
TEST(Core, AMasterThatSaysFarewellIsNotLookedFor) {
  const std::string why = std::string(protocol::kFarewellText) + "\n";
  Transcript t;
  t.become_member();
  t.decide(1, 0, {t.aborted(t.key(0), Code::kOperationTimeout, "rank 0 gave it up")});
  t.lose(1, 1);
  t.joint(6, JointKind::kUpdateTopology, 5);
  EXPECT_EQ(t.hear(protocol::Farewell{}),
            "info: " + why + "close\nfinish joint call 6: master lost: update_topology: " + why);
  EXPECT_EQ(t.core().deadline(), std::nullopt);
  EXPECT_EQ(t.call(t.all_reduce(7)),
            "end #0 aborted\nfinish call 7: operation timeout: rank 0 gave it up\n")
      << "as for the others";
  EXPECT_EQ(
      t.call(t.all_reduce(8)),
      "end #1 aborted\nfinish call 8: master lost: all_reduce(sum, float32, 8 elements, world "
      "size 3) (#1) in epoch 1.1: " +
          why);
  for (const JointKind kind : {JointKind::kUpdateTopology, JointKind::kArePeersPending}) {
    EXPECT_EQ(t.joint(9, kind), std::string("finish joint call 9: master lost: ") +
                                    protocol::text(kind) + ": " + why);
  }
  EXPECT_EQ(t.on(LinkChanged{{peer_id(3), protocol::LinkState::kDown, "reset", 1}}), "");
  EXPECT_EQ(t.wait(1000), "");
  EXPECT_EQ(t.on(LeaveCalled{}), "gone: ok\n");
}

// It has to say first what became of the epoch.
TEST(Core, AFarewellInTheMiddleOfAnEpochIsALoss) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  EXPECT_EQ(t.hear(protocol::Farewell{}),
            std::string("info: ") + protocol::kFarewellText + "\nclose\nend #0 aborted\n");
  EXPECT_TRUE(t.on(OpDrained{epoch_id(1), t.key(0)}).starts_with("finish call 5: master lost: "));
}

TEST(Core, AMasterThatSaysFarewellEndsTheJoin) {
  const std::string why = std::string("master lost: ") + protocol::kFarewellText + "\n";
  Transcript t;
  t.register_now();
  EXPECT_EQ(t.hear(protocol::Farewell{}), std::string("info: ") + protocol::kFarewellText +
                                              "\nclose\nfinish joint call 1: " + why +
                                              "gone: " + why);
}

// A master that ends first ends the epoch, without a loss.
TEST(Core, AnEpochThatEndsWithTheMasterAbortsWhatDidNotCommit) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  t.call(t.all_reduce(6));
  t.on(OpTransferred{epoch_id(1), t.key(0)});
  EXPECT_EQ(t.hear(protocol::FreezeRequest{epoch_id(1), {}}),
            "info: epoch 1.1 is ending: nobody is lost: there is a new link or plan, or the master "
            "is about to end\n"
            "tell StateReport, #0 done, #1 not done\n");
  EXPECT_EQ(t.hear(protocol::EpochEnd{epoch_id(1),
                                      {},
                                      {t.key(0)},
                                      protocol::kFarewellText,
                                      protocol::Continuation::kNothing,
                                      {}}),
            std::string("warn: epoch 1.1 ended: ") + protocol::kFarewellText +
                "\nend #0 committed\nfinish call 5: ok\nend #1 aborted\n");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), t.key(1)}),
            std::string("finish call 6: master lost: all_reduce(sum, float32, 8 elements, world "
                        "size 3) (#1) in epoch 1.1: ") +
                protocol::kFarewellText + "\n");
  EXPECT_EQ(t.call(t.all_reduce(7)),
            std::string("end #2 aborted\nfinish call 7: master lost: all_reduce(sum, float32, 8 "
                        "elements, world size 3) (#2) in epoch 1.1: ") +
                protocol::kFarewellText + "\n");
}

TEST(Core, ResumesAfterABrokenConnection) {
  Transcript t;
  t.become_member();
  t.on(LinkChanged{{peer_id(3), protocol::LinkState::kUp, "", 1}});
  t.on(LinkChanged{{peer_id(3), protocol::LinkState::kDown, "reset", 1}});
  t.call(t.all_reduce(5));
  t.call(t.all_reduce(6));
  t.on(OpTransferred{epoch_id(1), t.key(0)});
  t.joint(7, JointKind::kArePeersPending, 5);
  EXPECT_EQ(
      t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}}),
      "warn: connection to the master at host:1 broke: reset by peer; trying again for 60 s\n");
  EXPECT_EQ(t.call(t.all_reduce(8)),
            // No message: the master is not connected.
            "start call 8 as #2: 1 of 3, from 1.1, to 1.3\n");
  EXPECT_EQ(t.wait(0.1), "connect\n");
  EXPECT_EQ(t.on(MasterConnected{}),
            "tell Resume in epoch 1.1, reconfigures, #0 done, #1 not done, #2 not done, seen 0, "
            "answered 0\n");
  EXPECT_EQ(t.hear(protocol::Resumed{1}),
            "warn: the master at host:1 is back after 100 ms\n"
            "tell Vote 0 are_peers_pending of 1.1\ntell LinkReport 1.3 down\n");
  EXPECT_EQ(t.decide(1, 0, {t.committed(t.key(0))}), "end #0 committed\nfinish call 5: ok\n");
}

TEST(Core, RepeatsWhatMayNotHaveArrived) {
  Transcript t;
  t.become_member();
  t.hear(protocol::Dial{peer_id(4), "10.0.0.4", 4001});
  OpRequest request = t.all_reduce(5);
  request.timeout = std::chrono::seconds(1);
  t.call(request);
  t.joint(7, JointKind::kUpdateTopology, 1);
  t.wait(1);
  t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
  EXPECT_EQ(t.on(LinkChanged{{peer_id(4), protocol::LinkState::kUp, "", 2}}), "");
  t.wait(0.1);
  t.on(MasterConnected{});
  EXPECT_EQ(t.hear(protocol::Resumed{1}),
            "warn: the master at host:1 is back after 100 ms\n"
            "tell AbortRequest #0, operation timeout: all_reduce(sum, float32, 8 elements, world "
            "size 3) (#0) in epoch 1.1 "
            "timed out after 1 s on rank 1 (peer 1.2)\n"
            "tell Vote 0 update_topology of 1.1\n"
            "tell JointAbort 0 of 1.1\n"
            "tell LinkReport 1.4 up\n");
  // The master does not know that its Dial arrived and repeats it. The peer does not dial twice.
  EXPECT_EQ(t.hear(protocol::Dial{peer_id(4), "10.0.0.4", 4001}), "tell LinkReport 1.4 up\n");
}

TEST(Core, GivesTheMasterUpAfterMasterTimeout) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
  std::string story;
  for (int i = 0; i < 599; ++i) {
    const std::string happened = t.wait(0.1);
    if (happened == "connect\n") t.on(MasterClosed{{Code::kSystem, "connection refused", {}}});
    story += happened;
  }
  EXPECT_EQ(story.find("gone"), std::string::npos);
  const std::string why =
      "no master at host:1 for 60 s (connection refused); the tensors of unfinished operations are "
      "as "
      "before. Join again when the master is back\n";
  EXPECT_EQ(t.wait(0.2), "warn: the search for the master is over: " + why + "end #0 aborted\n");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), t.key(0)}),
            "finish call 5: master lost: all_reduce(sum, float32, 8 elements, world size 3) (#0) "
            "in epoch 1.1: " +
                why + "gone: master lost: " + why);
}

TEST(Core, SaysThatAHostedMasterDoesNotComeBack) {
  Options options = Transcript::default_options();
  options.hosted = true;
  Transcript t(options);
  t.become_member();
  const std::string broke = t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
  EXPECT_NE(
      broke.find("It is in the process of rank 0: if that process has ended, the run is over"),
      std::string::npos)
      << broke;
  const std::string end = t.wait(61);
  EXPECT_NE(end.find("The master was in the process of rank 0: start the whole run again"),
            std::string::npos)
      << end;
}

// A run that is secured.
class SecuredRun : public testing::Test {
 protected:
  SecuredRun() : t(with_a_token()) {
    t.on(JoinCalled{1});
    t.on(MasterConnected{});
    t.hear(protocol::Welcome{peer_id(2), 77, 1, "10.0.0.2", false, protocol::kSpoken.highest,
                             protocol::Key{{1, 2, 3, 4}}});
    t.on(Listening{uint16_t{4000}});
  }
  static Options with_a_token() {
    Options options = Transcript::default_options();
    options.secured = true;
    return options;
  }
  static protocol::Dial dial(PeerId dialler, PeerId acceptor) {
    protocol::Dial dial{peer_id(3), "10.0.0.3", 4001};
    dial.credential = {{dialler, acceptor, 1, 1}, protocol::Key{{5, 6, 7, 8}}};
    return dial;
  }
  Transcript t;
};

TEST_F(SecuredRun, ADialNeedsTheCredentialOfThisLink) {
  EXPECT_EQ(t.hear(dial(peer_id(2), peer_id(3))), "dial 1.3 at 10.0.0.3:4001\n");
  const auto broken = [](const std::string& what) {
    return what.find("broke the protocol") != std::string::npos;
  };
  EXPECT_TRUE(broken(t.hear(dial(peer_id(3), peer_id(2)))));
}

TEST_F(SecuredRun, ADialWithoutACredentialBreaksTheProtocol) {
  const std::string out = t.hear(protocol::Dial{peer_id(3), "10.0.0.3", 4001});
  EXPECT_NE(out.find("Dial without a credential"), std::string::npos) << out;
}

TEST_F(SecuredRun, ANewTokenIsShownAtOnceAndIsNoLossOfTheMaster) {
  t.hear(t.start_of(1, {1, 2, 3}));
  t.on(TokenRead{2});
  EXPECT_EQ(t.wait(0.05),
            "info: this peer has a new token, and shows it to the master at host:1\nclose\n");
  EXPECT_EQ(t.wait(0.05), "connect with token 2\n");
  EXPECT_EQ(t.on(MasterConnected{}), "tell Resume in epoch 1.1, seen 0, answered 0\n");
  EXPECT_EQ(t.hear(protocol::Resumed{1, protocol::Key{{1, 2, 3, 4}}}),
            "accept with the key of 1\n"
            "info: the master at host:1 has taken the new token of this peer\n"
            "forget tokens before 2\n");
}

TEST_F(SecuredRun, ANewTokenThatIsRefusedCostsNothing) {
  const std::string warning =
      "warn: the master at host:1 refuses the new token of this peer (no): ";
  t.hear(t.start_of(1, {1, 2, 3}));
  t.on(TokenRead{2});
  t.wait(0.1);
  std::string story = t.on(MasterClosed{{Code::kAuthentication, "no", {}}});
  EXPECT_TRUE(story.starts_with(warning)) << story;
  EXPECT_EQ(story.find('\n') + 1, story.size()) << story;  // and nothing else
  EXPECT_EQ(t.wait(0.2), "connect\n");
  t.on(MasterConnected{});
  EXPECT_EQ(t.hear(protocol::Resumed{1, protocol::Key{{1, 2, 3, 4}}}),
            "accept with the key of 1\n");

  t.on(TokenRead{3});
  t.wait(0.1);
  t.on(MasterConnected{});
  story = t.hear(protocol::Reject{Code::kAuthentication, "no"});
  EXPECT_TRUE(story.starts_with(warning)) << story;
  EXPECT_TRUE(story.ends_with("\nclose\n")) << story;
  EXPECT_EQ(t.wait(0.2), "connect\n");
}

TEST_F(SecuredRun, ARestartedMasterBringsAnotherKey) {
  t.hear(t.start_of(1, {1, 2, 3}));
  t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
  t.wait(0.2);
  t.on(MasterConnected{});
  const std::string out = t.hear(protocol::Resumed{2, protocol::Key{{9, 9, 9, 9}}});
  EXPECT_NE(out.find("accept with the key of 2\n"), std::string::npos) << out;
}

TEST_F(SecuredRun, ARestartedMasterWithoutKeysBreaksTheProtocol) {
  t.hear(t.start_of(1, {1, 2, 3}));
  t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
  t.wait(0.2);
  t.on(MasterConnected{});
  const std::string out = t.hear(protocol::Resumed{2});
  EXPECT_NE(out.find("Resumed without a key"), std::string::npos) << out;
}

// There is no fallback: a peer with a token opens no plain lane, and keys never travel in plain
// text.
TEST(Core, AWelcomeHasAKeyIfAndOnlyIfThePeerHasAToken) {
  for (const bool token : {false, true}) {
    Options options = Transcript::default_options();
    options.secured = token;
    Transcript t(options);
    t.on(JoinCalled{1});
    t.on(MasterConnected{});
    protocol::Welcome welcome{peer_id(2), 77, 1, "10.0.0.2", false, protocol::kSpoken.highest};
    if (!token) welcome.accepting = protocol::Key{{1, 2, 3, 4}};
    const std::string out = t.hear(welcome);
    EXPECT_EQ(out.find("listen"), std::string::npos) << out;
    EXPECT_NE(out.find(token ? "Welcome without a key" : "Welcome with a key"), std::string::npos)
        << out;
  }
}

// One forged answer on the path ends no join.
TEST(Core, AMasterThatDoesNotKnowTheTokenIsAskedTwice) {
  Options options = Transcript::default_options();
  options.secured = true;
  Transcript t(options);
  t.on(JoinCalled{1});
  EXPECT_EQ(t.on(MasterClosed{{Code::kAuthentication, "it does not know the token", {}}}), "");
  EXPECT_EQ(t.wait(0.1), "connect\n");
  EXPECT_EQ(t.on(MasterClosed{{Code::kAuthentication, "it does not know the token", {}}}),
            "finish joint call 1: authentication: it does not know the token\n"
            "gone: authentication: it does not know the token\n");
}

TEST(Core, APeerWithoutATokenLearnsAtOnceThatItNeedsOne) {
  Transcript t;
  t.on(JoinCalled{1});
  EXPECT_EQ(t.on(MasterClosed{{Code::kAuthentication, "this process has no token", {}}}),
            "finish joint call 1: authentication: this process has no token\n"
            "gone: authentication: this process has no token\n");
}

TEST(Core, AnAddressThatTheMasterRefusesEndsTheJoin) {
  Transcript t;
  t.register_now();
  EXPECT_EQ(t.hear(protocol::Reject{Code::kInvalidArgument, "this peer advertises 127.0.0.1"}),
            "close\n"
            "finish joint call 1: invalid argument: this peer advertises 127.0.0.1\n"
            "gone: invalid argument: this peer advertises 127.0.0.1\n");
}

// A refusal of a token is not proven: the network has changed a bit, or another program has the
// port of the master for a moment.
TEST(Core, AMemberWhoseTokenIsRefusedTriesAgain) {
  Transcript t;
  t.become_member();
  t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
  std::string out;
  for (int i = 0; i < 10; ++i) {
    out = t.wait(1.0);
    EXPECT_NE(out.find("connect"), std::string::npos) << out;
    EXPECT_EQ(t.on(MasterClosed{{Code::kAuthentication, "it does not know the token", {}}}), "");
  }
  out = t.wait(60);
  EXPECT_NE(out.find("gone: master lost: no master"), std::string::npos) << out;
  EXPECT_NE(out.find("it does not know the token"), std::string::npos) << out;
}

TEST(Core, RefusesACredentialInAnUnsecuredRun) {
  Transcript t;
  t.register_now();
  protocol::Dial dial{peer_id(3), "10.0.0.3", 4001};
  dial.credential = {{peer_id(2), peer_id(3), 1, 1}, protocol::Key{}};
  const std::string out = t.hear(dial);
  EXPECT_NE(out.find("Dial with a credential"), std::string::npos) << out;
}

TEST(Core, RefusesAnOlderMaster) {
  Transcript t;
  t.become_member();
  t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
  t.wait(0.1);
  t.on(MasterConnected{});
  EXPECT_EQ(t.hear(protocol::Resumed{0}), "close\n");
  EXPECT_EQ(t.wait(0.2), "connect\n");  // it tries again, to find a newer master
}

TEST(Core, ThatCannotListenLeaves) {
  Transcript t;
  t.on(JoinCalled{1});
  t.on(MasterConnected{});
  t.hear(protocol::Welcome{peer_id(2), 77, 1, "10.0.0.2", false});
  EXPECT_EQ(t.on(Listening{Status{Code::kSystem, "no port", {}}}),
            "tell Leave\nclose\nfinish joint call 1: system: no port\ngone: system: no port\n");
}

TEST(Core, IsNotTakenBack) {
  for (const Code code : {Code::kKicked, Code::kInvalidState}) {
    Transcript t;
    t.become_member();
    t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
    t.wait(0.1);
    t.on(MasterConnected{});
    const std::string why = code == Code::kKicked
                                ? kRemoved + "no" + kOutOfRun + "\n"
                                : "the master at host:1 does not take this peer back: no\n";
    EXPECT_EQ(t.hear(protocol::Reject{code, "no"}),
              "warn: the search for the master is over: " + why +
                  "close\ngone: " + (code == Code::kKicked ? "kicked: " : "master lost: ") + why);
  }
}

TEST(Core, AMasterThatDroppedItWhileItWaitedEndsTheJoin) {
  Transcript t;
  t.register_now();
  t.on(MasterClosed{{Code::kSystem, "reset by peer", {}}});
  t.wait(0.1);
  EXPECT_EQ(t.on(MasterConnected{}), "tell Resume in epoch 0.0, seen 0, answered 0\n");
  const std::string story = t.hear(protocol::Reject{Code::kKicked, "unknown peer"});
  EXPECT_NE(
      story.find(
          "finish joint call 1: master lost: the connection to the master at host:1 broke while "
          "this process waited to be "
          "admitted (reset by peer), and the master has given it up (unknown peer): join again\n"),
      std::string::npos)
      << story;
}

TEST(Core, PingsWhenQuietAndNoticesSilence) {
  Transcript t;
  t.become_member();
  EXPECT_EQ(t.hear(protocol::Ping{5, 0, {}}), "tell Pong 5\n");
  EXPECT_EQ(t.wait(1.5), "");
  EXPECT_EQ(t.wait(1), "tell Ping 1, seen 0\n");
  const std::string story = t.wait(8);
  EXPECT_TRUE(
      story.ends_with("close\nwarn: connection to the master at host:1 broke: silent for 10 s; "
                      "trying again for 60 s\nconnect\n"))
      << story;
}

TEST(Core, AStoppedProcessDoesNotBlameTheMaster) {
  Transcript t;
  t.become_member();
  Effects effects;
  // One tick passes, however late it is.
  t.core().step(TimePassed{}, t.now() + std::chrono::hours(1), effects);
  for (const Effect& effect : effects) EXPECT_FALSE(std::holds_alternative<CloseMaster>(effect));
}

TEST(Core, AViolationCostsTheConnectionAndTheThirdTheMaster) {
  Transcript t;
  t.become_member();
  const std::string what = "Welcome while this peer was a member";
  const std::string warning = "warn: the master at host:1 broke the protocol: ";
  EXPECT_EQ(t.hear(protocol::Welcome{}),
            warning + what + "\nclose\nwarn: connection to the master at host:1 broke: " + what +
                "; trying again for 60 s\n");
  EXPECT_EQ(t.wait(0.1), "connect\n");
  t.on(MasterConnected{});
  EXPECT_EQ(t.hear(protocol::Notice{}), warning + "Notice while this peer was resuming\nclose\n");
  EXPECT_EQ(t.wait(0.2), "connect\n");
  t.on(MasterConnected{});
  t.hear(protocol::Resumed{1});
  EXPECT_EQ(t.hear(protocol::Welcome{}),
            warning + what +
                "\nclose\ngone: protocol: the master at host:1 broke the protocol: " + what + "\n");
}

}  // namespace
}  // namespace pccl::peer
