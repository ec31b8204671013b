#include "master/core.h"

#include "master/runs/journal.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::JointKind;

TEST(Core, FoundsAGroupWhenMinPeersCanReachEachOther) {
  Harness h;
  h.enlist("a", Harness::hello(2));
  EXPECT_EQ(h.take(), (Lines{"a < Welcome"}));
  h.enlist("b", Harness::hello(2));
  EXPECT_EQ(h.take(), (Lines{"b < Welcome", "a < Dial b 10.0.0.1:1002"}));
  h.say("a", protocol::LinkReport{h.id("b"), protocol::LinkState::kUp, "", 1});
  EXPECT_EQ(h.take(), (Lines{"persist", "a < EpochStart 1.1 [a b] joined [a b]",
                             "b < EpochStart 1.1 [a b] joined [a b]"}));
  EXPECT_EQ(h.take_log(), (Lines{"peer 1.1 (10.0.0.1:1001) waits to be admitted",
                                 "peer 1.2 (10.0.0.1:1002) waits to be admitted",
                                 "epoch 1.1 begins with 2 members: 2 joined"}));
}

TEST(Core, NobodyHearsOfAMembershipBeforeItIsDurable) {
  Harness h;
  h.hold_persists = true;
  h.enlist("a", Harness::hello(1));
  EXPECT_EQ(h.take(), (Lines{"a < Welcome", "persist"}));
  const auto& record = std::get<MembershipRecord>(h.records().at(0));
  EXPECT_EQ(record.current.epoch, epoch(1));
  EXPECT_EQ(record.members.size(), 1u);
  h.release();
  EXPECT_EQ(h.take(), (Lines{"a < EpochStart 1.1 [a] joined [a]"}));
}

TEST(Core, CommitsWhenAllAreDoneAndTellsEverybodyOnce) {
  Harness h;
  h.found({"a", "b"});
  h.say("a", protocol::Begin{epoch(1), op(0), all_reduce(8)});
  h.say("b", protocol::Begin{epoch(1), op(0), all_reduce(8)});
  h.say("a", protocol::Done{epoch(1), op(0), 0});
  EXPECT_EQ(h.take(), Lines{});
  h.say("b", protocol::Done{epoch(1), op(0), 0});
  EXPECT_EQ(h.take(), (Lines{"a < Verdicts 0: #0 committed", "b < Verdicts 0: #0 committed"}));
}

// A member that received nothing from a paused master closes its connection too; it may come back.
TEST(Core, APeerThatClosedWhileTheMasterStoodStillIsNotLostAtOnce) {
  for (const bool stopped : {false, true}) {
    Harness h;
    h.found({"a", "b", "c"});
    if (stopped) h.be_stopped(std::chrono::seconds(12));
    h.close("c");
    h.say("a", protocol::LinkReport{h.id("c"), protocol::LinkState::kDown, "reset", 1});
    const Lines proposals{"a < FreezeRequest lost [c]", "b < FreezeRequest lost [c]"};
    EXPECT_EQ(h.story(), stopped ? Lines{} : proposals);
    if (!stopped) continue;
    h.tick_with({"a", "b"}, 19);
    EXPECT_EQ(h.story(), Lines{});
    h.tick_with({"a", "b"}, 2);
    EXPECT_EQ(h.story(), proposals) << "it has had its time";
  }
}

TEST(Core, AMemberThatIsKilledEndsTheEpochAtOnce) {
  Harness h;
  h.found({"a", "b", "c"});
  for (const char* name : {"a", "b", "c"}) {
    for (uint32_t i = 0; i < 2; ++i) h.say(name, protocol::Begin{epoch(1), op(i), all_reduce(8)});
  }
  h.close("c");
  EXPECT_EQ(h.story(), Lines{});
  h.hold_persists = true;
  h.say("a", protocol::LinkReport{h.id("c"), protocol::LinkState::kDown, "reset", 1});
  EXPECT_EQ(h.story(), (Lines{"a < FreezeRequest lost [c]", "b < FreezeRequest lost [c]"}));
  h.say("a", protocol::StateReport{epoch(1), {{op(0), protocol::OpState::kDone}, {op(1), {}}}});
  EXPECT_EQ(h.story(), Lines{});
  h.say("b", protocol::StateReport{
                 epoch(1), {{op(0), protocol::OpState::kDone}, {op(1), protocol::OpState::kDone}}});
  EXPECT_EQ(h.story(), (Lines{"persist"}));
  h.release();
  EXPECT_EQ(h.story(), (Lines{"a < EpochEnd 1.1 committed #0", "b < EpochEnd 1.1 committed #0"}));
  EXPECT_EQ(h.last<protocol::EpochEnd>("a")->text,
            "peer 1.3 (rank 2, 10.0.0.1:1003) lost: its process ended or its network broke; "
            "2 members are left, and min_peers is 3");
  h.vote("a", epoch(1), 0);
  h.vote("b", epoch(1), 0);
  EXPECT_EQ(h.story(), Lines{});
  h.enlist("d", Harness::hello(3));
  h.link_all();
  h.release();
  EXPECT_EQ(h.story(),
            (Lines{"d < Welcome", "persist", "a < EpochStart 1.2 [a b d] joined [d] left [c]",
                   "b < EpochStart 1.2 [a b d] joined [d] left [c]",
                   "d < EpochStart 1.2 [a b d] joined [d] left [c]"}));
}

// ---- Admission ----

TEST(Core, RefusalsSayWhyAndClose) {
  Harness h;
  h.enlist("a", Harness::hello(2));
  h.take();
  h.greet("b", Harness::hello(3));
  EXPECT_EQ(h.take(), (Lines{"b < Reject invalid argument: min_peers is 3 here and 2 for the other "
                             "peers of peer group 0: give all the same",
                             "b closed"}));
}

// ---- The largest number of groups ----

TEST(Core, AFurtherGroupIsRefusedUntilOneIsGone) {
  Harness h;
  constexpr auto kMax = static_cast<uint32_t>(protocol::kGroupsMax);
  for (uint32_t group = 0; group < kMax; ++group) {
    h.enlist(std::to_string(group), Harness::hello(2, -1, group));
  }
  h.take();
  h.greet("x", Harness::hello(2, -1, kMax));
  const Lines lines = h.take();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(contains(lines[0], "x < Reject invalid state: run \"run\" has 1024 peer groups, and"))
      << lines[0];
  EXPECT_EQ(lines[1], "x closed");
  h.greet("y", Harness::hello(2, -1, 5));
  EXPECT_EQ(h.take(), (Lines{"y < Welcome"})) << "another peer of a group that is there";
  h.say("7", protocol::Leave{});
  h.take();
  h.greet("z", Harness::hello(2, -1, kMax));
  EXPECT_EQ(h.take(), (Lines{"z < Welcome"}));
}

// A recorded run in which each group was founded by its only member.
RunRecord run_of(uint32_t groups) {
  Harness h;
  RunRecord run{kRunId, {}, {}};
  h.greet("a", Harness::hello(1));
  h.say("a", protocol::Register{"", 1000});
  MembershipRecord record = std::get<MembershipRecord>(h.records().at(0));
  for (uint32_t group = 0; group < groups; ++group) {
    record.group = {group};
    record.members[0].peer = record.start.members[0].peer = record.start.joined[0] =
        peer_id(group + 1);
    record.start.epoch = record.start.generation = record.current.epoch = epoch(group + 1);
    run.memberships[record.group] = record;
  }
  return run;
}

TEST(Core, AlsoWhoComesBackFromBeforeARestart) {
  Harness h;
  h.restart(run_of(protocol::kGroupsMax));
  protocol::Resume resume;
  resume.run = "run";
  resume.run_id = kRunId;
  resume.peer = peer_id(5000);  // this peer was not admitted
  resume.hello = Harness::hello(1, -1, protocol::kGroupsMax);
  h.come_back("x", resume);
  EXPECT_TRUE(
      contains(h.take().at(0), "x < Reject invalid state: run \"run\" has 1024 peer groups"));
  resume.hello = Harness::hello(1, -1, 7);
  h.come_back("y", resume);
  EXPECT_EQ(h.take(), (Lines{"y < Resumed"}));
}

// The journal is from before there was a bound, or it was written by hand.
TEST(Core, MoreGroupsThanThereCanBeAreRestoredAndGoOn) {
  Harness h;
  constexpr uint32_t kGroups = protocol::kGroupsMax + 1;
  h.restart(run_of(kGroups));
  protocol::Resume resume;
  resume.run = "run";
  resume.run_id = kRunId;
  for (uint32_t group = 0; group < kGroups; ++group) {
    resume.peer = peer_id(group + 1);
    resume.epoch = epoch(group + 1);
    h.come_back(std::to_string(group), resume);
  }
  h.take();
  for (uint32_t group = 0; group < kGroups; ++group) {
    h.vote(std::to_string(group), epoch(group + 1), 0);
  }
  EXPECT_EQ(h.story().size(), kGroups);
  const auto* answer = h.last<protocol::Answer>("0");
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer->code, Code::kOk);
  EXPECT_TRUE(answer->together.empty()) << "so many cannot be named";
  h.greet("x", Harness::hello(1, -1, kGroups));
  EXPECT_TRUE(contains(h.take().at(0), "has 1025 peer groups, and 1024 are the most there can be"));
}

TEST(Core, AllGroupsThatThereCanBeAreNamed) {
  Harness h;
  h.restart(run_of(protocol::kGroupsMax));
  protocol::Resume resume;
  resume.run = "run";
  resume.run_id = kRunId;
  for (uint32_t group = 0; group < protocol::kGroupsMax; ++group) {
    resume.peer = peer_id(group + 1);
    resume.epoch = epoch(group + 1);
    h.come_back(std::to_string(group), resume);
    h.vote(std::to_string(group), epoch(group + 1), 0);
  }
  const auto* answer = h.last<protocol::Answer>("0");
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer->together.size(), protocol::kGroupsMax);
  EXPECT_GT(protocol::encoded_bytes(*answer), 0u) << "within the bounds of the codec";
}

TEST(Core, TheFirstMessageIsHelloOrResume) {
  Harness h;
  h.accept("a");
  h.say("a", protocol::Ping{1, 0, {}});
  EXPECT_EQ(h.take(), (Lines{"a closed"}));
  EXPECT_EQ(h.take_log(),
            (Lines{"closed the connection of a peer at 10.0.0.1: Ping from a peer that "
                   "is handshaking"}));
  EXPECT_TRUE(h.core().view().is_idle());
}

TEST(Core, AProcessThatIsStartedAgainGetsItsRankBack) {
  Harness h;
  h.enlist("a", Harness::hello(2, 0));
  h.greet("b", Harness::hello(2, 0));
  EXPECT_TRUE(contains(h.take().at(1), "rank 0 is already taken"));
  h.close("a");
  h.enlist("c", Harness::hello(2, 0));
  h.enlist("d", Harness::hello(2, 1));
  h.link_all();
  EXPECT_EQ(h.story().back(), "d < EpochStart 1.1 [c d] joined [c d]");
}

TEST(Core, ARunWithoutPeersTakesNewTerms) {
  Harness h;
  h.enlist("a", Harness::hello(2));
  EXPECT_TRUE(h.core().deadline().has_value());
  h.close("a");
  EXPECT_FALSE(h.core().view().is_idle()) << "it may come back";
  h.tick(20);
  EXPECT_TRUE(h.core().view().is_idle());
  EXPECT_FALSE(h.core().deadline().has_value());
  protocol::Hello other = Harness::hello(3);
  other.settings.peer_timeout = std::chrono::milliseconds(500);
  h.take();
  h.greet("b", other);
  EXPECT_EQ(h.take(), (Lines{"b < Welcome"}));
  EXPECT_EQ(*h.core().deadline(), h.now() + std::chrono::milliseconds(25));
}

TEST(Core, WelcomeHasTheSettingsOfTheRun) {
  Harness h;
  protocol::Hello first = Harness::hello(2);
  first.settings.on_peer_loss = protocol::LossPolicy::kRetry;
  first.settings.peer_timeout = std::chrono::seconds(3);
  protocol::RunSettings run;
  run.on_peer_loss = protocol::LossPolicy::kRetry;
  run.peer_timeout = run.first_call_timeout = std::chrono::seconds(3);
  h.enlist("a", first);
  EXPECT_EQ(h.last<protocol::Welcome>("a")->settings, run);
  h.enlist("b", Harness::hello(2));
  EXPECT_EQ(h.last<protocol::Welcome>("b")->settings, run) << "inherited";
  first.settings = {};
  first.settings.peer_timeout = std::chrono::seconds(4);
  h.greet("c", first);
  ASSERT_NE(h.last<protocol::Reject>("c"), nullptr);
  EXPECT_TRUE(contains(h.last<protocol::Reject>("c")->text,
                       "peer_timeout is 4 s here and 3 s in this run"));
}

TEST(Core, APeerThatNeverRegistersLeavesNothingBehind) {
  Harness h;
  h.greet("a", Harness::hello(1));
  h.close("a");
  h.tick(20);
  EXPECT_TRUE(h.core().view().is_idle());
}

TEST(Core, AConnectionThatBreaksBeforeRegisterIsResumed) {
  Harness h;
  h.greet("a", Harness::hello(1));
  h.close("a");
  h.take();
  h.accept("a2");
  h.say("a2", h.resume("a", {}));
  EXPECT_EQ(h.take(), (Lines{"a2 < Resumed"}));
  h.say("a2", protocol::Register{"", 1001});
  EXPECT_TRUE(contains(h.story().back(), "EpochStart"));
  // Repeated by a peer that cannot know whether it arrived.
  h.say("a2", protocol::Register{"", 1001});
  EXPECT_EQ(h.take(), Lines{});
}

// ---- Protocol violations ----

TEST(Core, AMemberThatBreaksTheProtocolIsTreatedAsDisconnected) {
  Harness h;
  h.found({"a", "b"});
  h.say("b", protocol::Welcome{});
  EXPECT_EQ(h.take(), (Lines{"b closed"}));
  h.say("b", protocol::Leave{});
  EXPECT_EQ(h.take(), Lines{}) << "nothing is heard on a closed connection";
  h.close("b");
  h.accept("b2");
  h.say("b2", h.resume("b", epoch(1)));
  EXPECT_EQ(h.story(), (Lines{"b2 < Resumed"}));
}

TEST(Core, ReportsOfWhoIsGoneAreNoOffence) {
  Harness h;
  h.found({"a", "b", "c"});
  h.say("c", protocol::Leave{});
  h.take();
  h.say("a", protocol::LinkReport{h.id("c"), protocol::LinkState::kDown, "reset", 1});
  EXPECT_EQ(h.take(), Lines{});
  h.say("a", protocol::LinkReport{h.id("a"), protocol::LinkState::kDown, "", 1});
  EXPECT_EQ(h.take(), (Lines{"a closed"}));
}

// ---- Time ----

TEST(Core, SilenceIsCountedInTicksHoweverLateTheyCome) {
  Harness h;
  h.found({"a", "b"});
  for (int i = 0; i < 9; ++i) h.step(TimePassed{});  // no time has passed
  h.tick_with({"a"}, 19);
  EXPECT_EQ(h.story(), Lines{});
  h.tick_with({"a"}, 1);
  EXPECT_EQ(h.story(),
            (Lines{"b < Kicked peer 1.2 (rank 1, 10.0.0.1:1002) lost: it was silent for 10 s",
                   "b closed", "a < FreezeRequest lost [b]"}));
}

TEST(Core, AKickedPeerLearnsItWhenItComesBack) {
  Harness h;
  h.found({"a", "b"});
  h.close("b");
  h.tick_with({"a"}, 20);
  EXPECT_EQ(h.story(), (Lines{"a < FreezeRequest lost [b]"}));
  h.accept("b2");
  h.say("b2", h.resume("b", epoch(1)));
  EXPECT_EQ(h.story(),
            (Lines{"b2 < Reject kicked: peer 1.2 (rank 1, 10.0.0.1:1002) lost: its connection "
                   "to the master broke and it did not come back within 10 s",
                   "b2 closed"}));
}

// ---- Reconnection ----

TEST(Core, APeerThatIsBackHearsWhatItMissed) {
  Harness h;
  h.found({"a", "b"});
  for (uint32_t i = 0; i < 3; ++i) h.say("a", protocol::Begin{epoch(1), op(i), all_reduce(8)});
  h.say("b", protocol::Begin{epoch(1), op(0), all_reduce(8)});
  h.close("b");  // its Done of 0, its Begin and Done of 1 and its Begin of 2 are lost
  h.say("a", protocol::Done{epoch(1), op(0), 0});
  h.say("a", protocol::Done{epoch(1), op(1), 0});
  h.say("a", protocol::AbortRequest{epoch(1), op(2), Code::kOperationTimeout, "late"});
  EXPECT_EQ(h.take(), (Lines{"a < Verdicts 0: #2 operation timeout"}));
  h.accept("b2");
  protocol::Resume resume = h.resume("b", epoch(1));
  for (uint32_t i = 0; i < 3; ++i) {
    resume.ops.push_back({op(i), i < 2 ? protocol::OpState::kDone : protocol::OpState::kNotDone});
    resume.infos.push_back(all_reduce(8));
  }
  h.say("b2", resume);
  EXPECT_EQ(h.story(), (Lines{"b2 < Resumed", "b2 < Verdicts 0: #2 operation timeout",
                              "a < Verdicts 1: #0 committed #1 committed",
                              "b2 < Verdicts 1: #0 committed #1 committed"}));
}

TEST(Core, ANewConnectionReplacesTheOld) {
  Harness h;
  h.found({"a", "b"});
  h.accept("b2");
  h.say("b2", h.resume("b", epoch(1)));
  EXPECT_EQ(h.story(), (Lines{"b closed", "b2 < Resumed"}));
  h.close("b");  // the end of the old connection concerns no peer
  h.vote("a", epoch(1), 0);
  h.vote("b2", epoch(1), 0);
  EXPECT_EQ(h.story(),
            (Lines{"a < Answer 0 update_topology ok", "b2 < Answer 0 update_topology ok"}));
}

TEST(Core, AnswersThatGotLostAreSaidAgain) {
  Harness h;
  h.found({"a", "b"});
  h.vote("b", epoch(1), 0);
  h.close("b");
  h.vote("a", epoch(1), 0);
  h.take();
  h.accept("b2");
  h.say("b2", h.resume("b", epoch(1)));
  EXPECT_EQ(h.story(), (Lines{"b2 < Resumed", "b2 < Answer 0 update_topology ok"}));
  h.vote("b2", epoch(1), 0);
  EXPECT_EQ(h.story(), Lines{}) << "repeated";
  protocol::Resume resume = h.resume("b", epoch(1));
  resume.joint_answered = 1;
  h.accept("b3");
  h.say("b3", resume);
  EXPECT_EQ(h.story(), (Lines{"b2 closed", "b3 < Resumed"}));
}

TEST(Core, AnEpochThatStartedMeanwhileIsToldBeforeWhatFollowedIt) {
  Harness h;
  h.found({"a", "b"});
  h.enlist("c", Harness::hello(2));
  h.link_all();
  h.vote("b", epoch(1), 0);
  h.close("b");
  h.vote("a", epoch(1), 0);
  h.say("a", protocol::Begin{epoch(2), op(0), all_reduce(8)});
  h.say("a", protocol::AbortRequest{epoch(2), op(0), Code::kSystem, "no memory"});
  h.take();
  h.accept("b2");
  h.say("b2", h.resume("b", epoch(1)));
  EXPECT_EQ(h.story(), (Lines{"b2 < Resumed", "b2 < EpochStart 1.2 [a b c] joined [c]",
                              "b2 < Verdicts 0: #0 system"}));
  h.vote("b2", epoch(1), 0);
  EXPECT_EQ(h.story(), Lines{}) << "of the generation before";
}

TEST(Core, TheSurvivorThatWasAwayIsAskedWhenItIsBack) {
  Harness h;
  h.found({"a", "b", "c"});
  h.close("b");
  h.say("c", protocol::Leave{});
  h.say("a", protocol::StateReport{epoch(1), {}});
  EXPECT_EQ(h.story(), (Lines{"c closed", "a < FreezeRequest lost [c]"}));
  h.accept("b2");
  h.say("b2", h.resume("b", epoch(1)));
  EXPECT_EQ(h.story(), (Lines{"b2 < Resumed", "b2 < FreezeRequest lost [c]"}));
  h.say("b2", protocol::StateReport{epoch(1), {}});
  EXPECT_EQ(h.story(), (Lines{"persist", "a < EpochEnd 1.1 committed none",
                              "b2 < EpochEnd 1.1 committed none"}));
  h.accept("b3");
  h.say("b3", h.resume("b", epoch(1)));
  EXPECT_EQ(h.story(), (Lines{"b2 closed", "b3 < Resumed", "b3 < EpochEnd 1.1 committed none"}));
}

TEST(Core, APlanThatGotLostIsSaidAgain) {
  Harness h;
  h.found({"a", "b"});
  h.vote("b", epoch(1), 0, kSync, offer(0, {0}, protocol::SyncStrategy::kReceiveOnly));
  h.close("b");
  h.vote("a", epoch(1), 0, kSync, offer(1, {1}));
  h.take();
  h.accept("b2");
  h.say("b2", h.resume("b", epoch(1)));
  EXPECT_EQ(h.story(), (Lines{"b2 < Resumed", "b2 < SyncPlan: a > b: 0"}));
}

TEST(Core, ANewcomerThatWaitsMayComeBackToo) {
  Harness h;
  h.found({"a"});
  h.enlist("b", Harness::hello(1));
  h.link_all();
  h.close("b");
  h.vote("a", epoch(1), 0);
  h.enlist("c", Harness::hello(1));
  h.say("c", protocol::Leave{});
  h.take();
  h.accept("b2");
  h.say("b2", h.resume("b", {}));
  EXPECT_EQ(h.take(), (Lines{"b2 < Resumed", "b2 < Forget c"}));
  h.vote("a", epoch(1), 1);
  EXPECT_EQ(h.story().back(), "b2 < EpochStart 1.2 [a b] joined [b]");
}

TEST(Core, ResumesThatCannotBeAreRefused) {
  Harness h;
  h.found({"a"});
  protocol::Resume other_run = h.resume("a", epoch(1));
  other_run.run_id = 8;
  h.accept("x");
  h.say("x", other_run);
  EXPECT_TRUE(contains(h.take().at(0), "x < Reject master lost: the master was started anew"));
  protocol::Resume pending = h.resume("a", epoch(1));
  pending.peer = peer_id(99);
  h.accept("y");
  h.say("y", pending);
  EXPECT_TRUE(contains(h.take().at(0), "y < Reject master lost"));
  protocol::Resume future = h.resume("a", epoch(5));
  h.accept("z");
  h.say("z", future);
  EXPECT_TRUE(
      contains(h.take().at(0), "z < Reject master lost: the journal of the master is older"));
}

// ---- Endings ----

// A member that is away has the whole timeout to come back. The others receive pings meanwhile,
// because firewalls forget idle connections.
TEST(Core, PingsOftenWhateverThePeerTimeout) {
  Harness h;
  protocol::Hello hello = Harness::hello(2);
  hello.settings.peer_timeout = std::chrono::minutes(10);
  for (const char* name : {"a", "b"}) h.enlist(name, hello);
  h.link_all();
  h.close("b");
  h.take();
  constexpr Duration kBeat = std::chrono::seconds(5);
  Duration since_ping{0};
  for (Duration away = kBeat; away < std::chrono::seconds(600); away += kBeat) {
    h.be_stopped(kBeat);
    h.step(TimePassed{});
    since_ping += kBeat;
    EXPECT_LE(since_ping, protocol::kPingIntervalMax);
    for (const std::string& line : h.take()) {
      if (line.find("Ping") != std::string::npos) since_ping = Duration{0};
      EXPECT_EQ(line.find("FreezeRequest"), std::string::npos) << to_seconds(away);
    }
    h.say("a", protocol::Pong{0, 0, epoch(1)});
  }
  h.be_stopped(kBeat);
  h.step(TimePassed{});
  EXPECT_NE(h.last<protocol::FreezeRequest>("a"), nullptr) << "it was away for ten minutes";
}

TEST(Core, VerdictsAreKeptUntilPongsAcknowledgeThem) {
  Harness h;
  h.found({"a", "b"});
  for (const char* name : {"a", "b"}) h.say(name, protocol::Begin{epoch(1), op(0), all_reduce(8)});
  for (const char* name : {"a", "b"}) h.say(name, protocol::Done{epoch(1), op(0), 0});
  h.tick();
  for (const char* name : {"a", "b"}) h.say(name, protocol::Pong{1, 1, epoch(1)});
  h.say("a",
        // Sent before the verdict arrived.
        protocol::AbortRequest{epoch(1), op(0), Code::kSystem, ""});
  h.take();
  h.say("a", protocol::Begin{epoch(1), op(1), all_reduce(8)});
  h.say("a", protocol::AbortRequest{epoch(1), op(1), Code::kSystem, "x"});
  EXPECT_EQ(h.last<protocol::Verdicts>("b")->verdicts[0].unacknowledged, 0u);
  h.say("a", protocol::Ping{1, 9, epoch(1)});
  EXPECT_EQ(h.story().back(), "a closed") << "more than there are";
}

TEST(Core, AResumeThatCannotBeLeavesTheConnectionThatThereIs) {
  Harness h;
  h.found({"a", "b"});
  for (const uint64_t index : {1, 5, 1000}) {
    h.accept("stranger");
    protocol::Resume guess = h.resume("a", epoch(1));
    guess.verdict_index = guess.stable_index = index;
    h.take();
    h.say("stranger", guess);
    EXPECT_EQ(h.take(), (Lines{"stranger closed"}));
  }
  h.accept("stranger");
  protocol::Resume other_sizes = h.resume("a", epoch(1));
  other_sizes.ops = {{op(0), protocol::OpState::kDone, 0}};
  h.take();
  h.say("stranger", other_sizes);
  EXPECT_EQ(h.take(), (Lines{"stranger closed"}));
  h.vote("a", epoch(1), 0);
  h.vote("b", epoch(1), 0);
  EXPECT_EQ(h.last<protocol::Answer>("a")->code, Code::kOk) << "a was not disturbed";
}

// ---- Totals over many peers ----

// All that was sent or made durable can be encoded.
void expect_writable(const Harness& h, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (const auto* end = h.last<protocol::EpochEnd>(name)) {
      std::vector<std::byte> bytes;
      protocol::encode(*end, bytes);
      EXPECT_LE(bytes.size(), protocol::kMessageBytesMax);
    }
  }
  for (const Record& record : h.records()) {
    std::vector<std::byte> bytes;
    journal::append({RunRecorded{"run", record}}, bytes);
  }
}

TEST(Core, ReportsOfOperationsThatNeverWereAddUpToNothing) {
  Harness h;
  h.found({"a", "b", "c"});
  h.say("c", protocol::Leave{});
  protocol::StateReport invented{epoch(1), {}};
  for (const char* name : {"a", "b"}) {
    for (uint32_t i = 0; i < protocol::kOpsOpenMax; ++i) {
      invented.ops.push_back({op(i, name), protocol::OpState::kReturned, 0});
    }
    h.say(name, invented);
    invented.ops.clear();
  }
  const auto* end = h.last<protocol::EpochEnd>("a");
  ASSERT_TRUE(end != nullptr);
  EXPECT_TRUE(end->committed.empty());
  expect_writable(h, {"a", "b"});
}

TEST(Core, AReportOfWhatItsSenderHasBegunCounts) {
  Harness h;
  h.found({"a", "b", "c"});
  for (const char* name : {"a", "b"}) h.say(name, protocol::Begin{epoch(1), op(0), all_reduce(7)});
  h.say("c", protocol::Leave{});
  for (const char* name : {"a", "b"}) {
    h.say(name, protocol::StateReport{epoch(1),
                                      {{op(0), protocol::OpState::kDone, 0},
                                       {op(0), protocol::OpState::kNotDone, 0}}});
  }
  EXPECT_EQ(h.last<protocol::EpochEnd>("a")->committed, std::vector{op(0)}) << "its first word";
}

TEST(Core, AnUpdateThatEndsVeryManyOperationsIsWritable) {
  Harness h;
  h.found({"a", "b"});
  constexpr uint32_t kMany = protocol::kOpsOpenMax;
  for (uint32_t i = 0; i < kMany; ++i) {
    h.say("a", protocol::Begin{epoch(1), op(i), all_reduce(7)});
  }
  h.enlist("c", Harness::hello(2));
  h.link_all();
  h.vote("a", epoch(1), 0);
  h.vote("b", epoch(1), 0);
  ASSERT_TRUE(h.last<protocol::EpochStart>("c") != nullptr);
  EXPECT_EQ(h.last<protocol::Verdicts>("a")->verdicts.back().op, op(kMany - 1));
  expect_writable(h, {"a", "b"});
}

TEST(Core, AMemberThatHasTooManyOperationsOpenIsRemoved) {
  Harness h;
  h.found({"a", "b"});
  for (uint32_t i = 0; i <= protocol::kOpsOpenMax; ++i)
    h.say("a", protocol::Begin{epoch(1), op(i), all_reduce(7)});
  const auto* kicked = h.last<protocol::Kicked>("a");
  ASSERT_TRUE(kicked != nullptr);
  EXPECT_TRUE(contains(kicked->text, "it has more than 65536 operations open")) << kicked->text;
  EXPECT_EQ(h.last<protocol::Kicked>("b"), nullptr);
  h.say("b", protocol::StateReport{epoch(1), {}});
  EXPECT_TRUE(contains(h.last<protocol::EpochEnd>("b")->text, "it has more than 65536"));
}

TEST(Core, AMemberThatBreaksRulesAgainAndAgainIsRemoved) {
  Harness h;
  h.found({"a", "b"});
  for (int times = 1; times <= 3; ++times) {
    EXPECT_EQ(h.last<protocol::Kicked>("a"), nullptr) << times;
    h.say("a", protocol::JointAbort{0, epoch(2)});
    if (times < 3) h.come_back("a", h.resume("a", epoch(1)));
  }
  const auto* kicked = h.last<protocol::Kicked>("a");
  ASSERT_TRUE(kicked != nullptr);
  EXPECT_TRUE(contains(kicked->text, "it broke rules again and again: JointAbort in a future"))
      << kicked->text;
  EXPECT_EQ(h.last<protocol::Kicked>("b"), nullptr);
}

TEST(Core, BreachesOfAnEarlierEpochAreForgiven) {
  Harness h;
  h.found({"a", "b"});
  const auto break_rule = [&h](uint64_t present) {
    h.say("a", protocol::JointAbort{0, epoch(9)});
    h.come_back("a", h.resume("a", epoch(present)));
  };
  for (int times = 0; times < 2; ++times) break_rule(1);
  h.enlist("c", Harness::hello(2));
  h.link_all();
  for (const char* name : {"a", "b"}) h.vote(name, epoch(1), 0);
  ASSERT_TRUE(h.last<protocol::EpochStart>("c") != nullptr);
  for (int times = 0; times < 2; ++times) break_rule(2);
  EXPECT_EQ(h.last<protocol::Kicked>("a"), nullptr);
}

TEST(Core, MoreThanThereIsRoomForEndsTheRunAndNothingElse) {
  Harness h;
  const std::vector<std::string> names = {"a", "b", "c", "f", "g"};
  h.found(names);
  for (const std::string& name : names) {
    for (uint32_t i = 0; i < protocol::kOpsOpenMax; ++i) {
      if (h.last<protocol::Kicked>("a") != nullptr) break;
      h.say(name, protocol::Begin{epoch(1), op(i, name), all_reduce(7, name)});
    }
  }
  for (const std::string& name : names) {
    const auto* kicked = h.last<protocol::Kicked>(name);
    ASSERT_TRUE(kicked != nullptr);
    EXPECT_TRUE(contains(kicked->text, "the run was ended: group 0 has 262144 open operations"))
        << kicked->text;
  }
  EXPECT_TRUE(h.core().view().is_idle());
  h.found({"d", "e"});
  EXPECT_TRUE(h.last<protocol::EpochStart>("d") != nullptr) << "the run may begin again";
}

}  // namespace
}  // namespace pccl::master
