#include "csrc/probe/server_core.h"

#include "tests/cpp/probe/core_test.h"

namespace pccl::probe {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

class ServerCoreTest : public CoreTest {
 protected:
  Core& core() override { return server_; }

  std::string greet(Id id, uint64_t session = kSession) {
    return hear_hello(id, FrameType::kHello, false, session);
  }
  std::string join(Id id, uint64_t session = kSession) {
    return hear_hello(id, FrameType::kHello, true, session);
  }
  std::string ask(uint32_t streams, Direction direction = Direction::kBoth, bool wan = false) {
    return hear(1,
                frame_of(Trial{
                    .streams = streams, .direction = direction, .wan = wan, .congestion = "reno"}));
  }
  void admit() { EXPECT_EQ(greet(1), "send 1 hello ok\nsend about 1\nnote 1: measures\n"); }
  // Connection 1 has asked for a trial of two streams, and 2 and 3 have joined.
  void begin() {
    admit();
    ask(2);
    join(2);
    join(3);
    EXPECT_EQ(server_.state(), ServerCore::State::kMeasuring);
  }
  // The effects of the end of a session without open connections.
  static std::string ended(const std::string& why, const std::string& trials = "0 measurements") {
    return "note 1: " + why + ", after " + trials + "\nsend 1 refusal: " + why + "\n";
  }

  ServerCore server_{kMachine};
};

TEST_F(ServerCoreTest, AWholeSession) {
  admit();
  FrameHeader ping;
  ping.value = 9;
  EXPECT_EQ(hear(1, ping), "send 1 pong 9\n");
  EXPECT_EQ(ask(2, Direction::kBoth, true), "send 1 trial of 2\n");
  EXPECT_EQ(join(2), "carry 2 wan local reno\nsend 2 hello ok, further\n");
  EXPECT_EQ(join(3),
            "carry 3 wan local reno\nsend 3 hello ok, further\n"
            "count from 500 to 1000, send on 2 3\n");
  EXPECT_EQ(wait(milliseconds(999)), "");
  EXPECT_EQ(wait(milliseconds(1)), "end count, tell 1, lost 0\n");
  EXPECT_EQ(on(Failed{2}), "") << "the client closes the connections of a trial that is over";
  EXPECT_EQ(ask(1, Direction::kThere), "close 3\nsend 1 trial of 1\n");
  EXPECT_EQ(join(4),
            "carry 4 local reno\nsend 4 hello ok, further\ncount from 1500 to 2000, send on\n");
  wait(seconds(1));
  EXPECT_EQ(on(Failed{1, {Code::kSystem, "reset", {}}}),
            "close 4\nnote 1: has ended, after 2 measurements\n");
  EXPECT_EQ(server_.state(), ServerCore::State::kFree);
  EXPECT_EQ(server_.deadline(), std::nullopt);
  EXPECT_EQ(greet(5), "send 5 hello ok\nsend about 5\nnote 5: measures\n");
}

TEST_F(ServerCoreTest, ASecondClientIsToldThatItIsBusy) {
  admit();
  EXPECT_EQ(greet(2, 78), "send 2 refusal: came while another client measured\n");
  EXPECT_EQ(greet(2, 78), "") << "it was told";
  EXPECT_EQ(wait(ServerCore::kLeaving), "close 2\n");
  greet(3, 78);
  EXPECT_EQ(on(Failed{3}), "");
  EXPECT_EQ(wait(seconds(2)), "") << "it has gone by itself";
}

TEST_F(ServerCoreTest, ManyWhoAreRefusedMakeRoom) {
  admit();
  for (Id id = 2; id < 2 + ServerCore::kLeavingMax; ++id) greet(id);
  EXPECT_EQ(greet(100), "send 100 refusal: came while another client measured\nclose 2\n");
}

TEST_F(ServerCoreTest, StrangersAreClosed) {
  EXPECT_EQ(hear(1, FrameType::kPing), "close 1\n");
  EXPECT_EQ(hear(2, frame_of(Trial{})), "close 2\n");
  EXPECT_EQ(hear_hello(3, FrameType::kHelloOk, false), "close 3\n");
  EXPECT_EQ(greet(4, 0), "close 4\n") << "no number of a session";
  EXPECT_EQ(join(5), "close 5\n") << "there is no session";
  protocol::LaneHello hello{.run_id = kSession, .self = PeerId{1}, .other = PeerId{2}};
  EXPECT_EQ(hear(6, net::hello_frame(FrameType::kHello, hello)), "close 6\n") << "a peer of a run";
  hello = {.run_id = kSession, .versions = {1000, 1001}};
  EXPECT_EQ(hear(7, net::hello_frame(FrameType::kHello, hello)),
            "send 7 refusal: speaks another version of the protocol\n");
  EXPECT_EQ(server_.state(), ServerCore::State::kFree);
}

TEST_F(ServerCoreTest, StreamsAreThoseOfTheClient) {
  admit();
  EXPECT_EQ(join(2), "close 2\n") << "none is wanted yet";
  ask(1);
  EXPECT_EQ(join(3, kSession + 1), "close 3\n") << "not its session";
  EXPECT_NE(join(4), "close 4\n");
  EXPECT_EQ(join(5), "close 5\n") << "one more than it asked for";
}

TEST_F(ServerCoreTest, AStreamThatFailsBeforeTheTrialMayBeReplaced) {
  admit();
  ask(2);
  join(2);
  on(Failed{2});
  join(3);
  EXPECT_EQ(server_.state(), ServerCore::State::kOpening);
  join(4);
  EXPECT_EQ(server_.state(), ServerCore::State::kMeasuring);
}

TEST_F(ServerCoreTest, AClientThatVanishesInATrialEndsIt) {
  begin();
  EXPECT_EQ(on(Failed{1, {Code::kSystem, "reset", {}}}),
            "end count, tell 0, lost 0\nclose 2\nclose 3\n"
            "note 1: is gone: reset, after 0 measurements\n");
}

TEST_F(ServerCoreTest, LostStreamsAreCounted) {
  begin();
  EXPECT_EQ(on(Failed{2}), "");
  EXPECT_EQ(hear(3, FrameType::kPing), "close 3\n") << "it carries data alone";
  EXPECT_EQ(wait(seconds(1)), "end count, tell 1, lost 2\n");
}

TEST_F(ServerCoreTest, TheRequestsOfAClientAreBounded) {
  admit();
  FrameHeader trial = frame_of(Trial{});
  trial.block = 129;
  EXPECT_EQ(hear(1, trial), ended("asked for a measurement out of bounds"));
  EXPECT_EQ(hear(1, frame_of(Trial{})), "") << "it was refused";
  EXPECT_EQ(wait(seconds(1)), "close 1\n");
}

TEST_F(ServerCoreTest, AClientSpeaksInTurn) {
  for (const FrameType type : {FrameType::kHello, FrameType::kTrialResult, FrameType::kPong}) {
    admit();
    EXPECT_EQ(hear(1, type), ended("spoke out of turn"));
    wait(seconds(1));
  }
  begin();
  EXPECT_EQ(hear(1, FrameType::kPing),
            "end count, tell 0, lost 0\nclose 2\nclose 3\n" + ended("spoke out of turn"));
}

TEST_F(ServerCoreTest, SilenceEndsASession) {
  admit();
  EXPECT_EQ(wait(milliseconds(14'999)), "");
  EXPECT_EQ(wait(milliseconds(1)), ended("said nothing for too long"));
  wait(seconds(1));
  begin();
  EXPECT_EQ(wait(seconds(15)), "end count, tell 1, lost 0\n");
  EXPECT_EQ(wait(seconds(1)),
            "close 2\nclose 3\n" + ended("said nothing for too long", "1 measurement"));
}

TEST_F(ServerCoreTest, MissingStreamsEndASession) {
  admit();
  ask(2);
  join(2);
  EXPECT_EQ(wait(seconds(15)), "close 2\n" + ended("opened too few connections in time"));
}

TEST_F(ServerCoreTest, NoSessionIsLongerThanAnHour) {
  admit();
  for (int i = 0; i < 360 && server_.state() != ServerCore::State::kFree; ++i) {
    EXPECT_EQ(wait(seconds(10)), i < 359 ? "" : ended("was here for an hour, which is enough"));
    if (i < 359) hear(1, FrameType::kPing);
  }
  EXPECT_EQ(server_.state(), ServerCore::State::kFree);
}

TEST_F(ServerCoreTest, ACongestionControlThatIsRefusedEndsTheSession) {
  begin();
  const std::string why = "asked for a congestion control that the system refuses";
  EXPECT_EQ(on(TuneRefused{3}), "end count, tell 0, lost 0\nclose 2\nclose 3\n" + ended(why));
  EXPECT_EQ(on(TuneRefused{2}), "") << "it is no connection of a session";
}

TEST_F(ServerCoreTest, OtherMachinesAreNotLocal) {
  admit();
  ask(1);
  const protocol::LaneHello hello{.run_id = kSession, .machine = kMachine + 1, .further = true};
  EXPECT_EQ(hear(2, net::hello_frame(FrameType::kHello, hello)).substr(0, 13), "carry 2 reno\n");
}

}  // namespace
}  // namespace pccl::probe
