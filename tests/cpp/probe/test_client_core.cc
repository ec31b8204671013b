#include "csrc/probe/client_core.h"

#include "tests/cpp/probe/core_test.h"

namespace pccl::probe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ClientCoreTest : public CoreTest {
 protected:
  Core& core() override { return client_; }

  static Plan plan() {
    return {.streams = {1, 2},
            .directions = {Direction::kThere, Direction::kBack},
            .milliseconds = 1000,
            .congestion = "reno"};
  }
  static std::string over(Ending ending, const std::string& why) {
    return Shown{}(Over{ending, why}) + "\n";
  }
  static std::string lost(const std::string& why) { return over(Ending::kLost, why); }
  void introduce() {
    on(Started{});
    on(Opened{1});
  }
  // The server has answered the hello, and all pings after `rtt`.
  std::string get_ready(Duration rtt = milliseconds(20)) {
    if (client_.state() == ClientCore::State::kConnecting) introduce();
    EXPECT_EQ(hear_hello(1, FrameType::kHelloOk, false), "");
    std::string lines = on(AboutReceived{1, "{}"});
    for (size_t i = 0; i < ClientCore::kPings; ++i) {
      EXPECT_EQ(lines, "send 1 ping\n");
      now_ = now_ + (i == 3 ? seconds(2) : rtt);  // one is late
      lines = hear(1, FrameType::kPong);
    }
    return lines;
  }
  std::string answer_trial(uint32_t streams, Direction direction) {
    return hear(1, frame_of(Trial{.streams = streams,
                                  .milliseconds = 1000,
                                  .direction = direction,
                                  .wan = true,
                                  .congestion = "reno"}));
  }
  std::string join(Id id) {
    on(Opened{id});
    return hear_hello(id, FrameType::kHelloOk, true);
  }
  void begin() {
    get_ready();
    answer_trial(1, Direction::kThere);
    join(2);
    EXPECT_EQ(client_.state(), ClientCore::State::kMeasuring);
  }
  std::string hear_result(TrialResult result) { return hear(1, frame_of(result)); }

  ClientCore client_{plan(), kSession, kMachine};
};

TEST_F(ClientCoreTest, AWholeMeasurement) {
  EXPECT_EQ(on(Started{}), "dial 1\n");
  EXPECT_EQ(on(Opened{1}), "send 1 hello\n");
  EXPECT_EQ(get_ready(), "ready, 20 ms, {}\nsend 1 trial of 1\n") << "the median";
  now_ = {};
  EXPECT_EQ(answer_trial(1, Direction::kThere), "dial 2\n");
  EXPECT_EQ(on(Opened{2}), "send 2 hello, further\n");
  EXPECT_EQ(hear_hello(2, FrameType::kHelloOk, true),
            "carry 2 wan local reno\ncount from 500 to 1000, send on 2\n");
  EXPECT_EQ(wait(seconds(2)), "") << "it sends until the result is here";
  EXPECT_EQ(hear_result({.bytes = 9}), "measured there of 1: 9\nclose 2\nsend 1 trial of 1\n");
  now_ = {};
  EXPECT_EQ(answer_trial(1, Direction::kBack), "dial 3\n");
  EXPECT_EQ(on(Failed{2}), "") << "of the trial before";
  EXPECT_EQ(join(3), "carry 3 wan local reno\ncount from 500 to 1000, send on\n");
  EXPECT_EQ(hear_result({}), "measured back of 1: 0\nclose 3\nsend 1 trial of 2\n");
  EXPECT_EQ(answer_trial(2, Direction::kThere), "dial 4\ndial 5\n");
  EXPECT_EQ(join(5), "carry 5 wan local reno\n");
  join(4);
  hear_result({.bytes = 1});
  answer_trial(2, Direction::kBack);
  join(6);
  join(7);
  EXPECT_EQ(hear_result({}), "measured back of 2: 0\nclose 6\nclose 7\n" + over(Ending::kDone, ""));
  EXPECT_EQ(on(Failed{1}), "") << "it is over";
  EXPECT_EQ(client_.deadline(), std::nullopt);
}

TEST_F(ClientCoreTest, ANearPathIsNotWan) {
  get_ready(std::chrono::microseconds(100));
  EXPECT_EQ(hear(1, frame_of(Trial{.direction = Direction::kThere, .congestion = "reno"})),
            "dial 2\n");
}

TEST_F(ClientCoreTest, NobodyAnswers) {
  const auto end = [](const Failed& event) {
    ClientCore client(plan(), kSession, kMachine);
    Effects effects;
    client.step(event, {}, effects);
    return std::get<Over>(effects.at(0)).ending;
  };
  const Status why{Code::kSystem, "", {}}, proof{Code::kAuthentication, "", {}};
  EXPECT_EQ(end({1, why, false, LinkFault::kRefused}), Ending::kRefused);
  EXPECT_EQ(end({1, why, false, LinkFault::kNoAnswer}), Ending::kNoAnswer);
  EXPECT_EQ(end({1, why, false, LinkFault::kUnknownName}), Ending::kNoConnect);
  EXPECT_EQ(end({1, why}), Ending::kNoProbe);
  EXPECT_EQ(end({1, proof}), Ending::kToken);
}

TEST_F(ClientCoreTest, AnotherProgramIsNoServer) {
  introduce();
  EXPECT_EQ(hear_hello(1, FrameType::kHelloOk, false, kSession + 1),
            over(Ending::kNoProbe, "answered with another frame than a hello"));
}

TEST_F(ClientCoreTest, DataBeforeAHelloIsNoServer) {
  introduce();
  EXPECT_EQ(on(AboutReceived{1, "{}"}), over(Ending::kNoProbe, "sent data before a hello"));
}

TEST_F(ClientCoreTest, ASilentServer) {
  introduce();
  EXPECT_EQ(wait(seconds(5)), over(Ending::kNoProbe, "said nothing for 5 s"));
}

TEST_F(ClientCoreTest, AServerThatFallsSilentLater) {
  begin();
  EXPECT_EQ(wait(seconds(15)), "");
  EXPECT_EQ(wait(seconds(1)), lost("said nothing for 15 s"));
}

TEST_F(ClientCoreTest, ABusyServer) {
  introduce();
  EXPECT_EQ(hear(1, frame_of(Refusal::kBusy)), over(Ending::kBusy, ""));
}

TEST_F(ClientCoreTest, AServerThatAsksForAToken) {
  introduce();
  EXPECT_EQ(hear(1, frame_of(Refusal::kToken)),
            over(Ending::kToken, "admits only clients with a token"));
}

TEST_F(ClientCoreTest, ARefusalInATrial) {
  begin();
  EXPECT_EQ(hear(1, frame_of(Refusal::kStreams)),
            lost("says that this client opened too few connections in time"));
}

TEST_F(ClientCoreTest, AResultOutOfTurn) {
  get_ready();
  EXPECT_EQ(hear_result({}), lost("spoke out of turn"));
}

TEST_F(ClientCoreTest, AnotherTrialThanTheOneAskedFor) {
  get_ready();
  EXPECT_EQ(answer_trial(128, Direction::kThere), lost("spoke out of turn"));
}

TEST_F(ClientCoreTest, AStreamThatIsRefused) {
  get_ready();
  answer_trial(1, Direction::kThere);
  EXPECT_EQ(on(Failed{2, {Code::kSystem, "reset", {}}}),
            lost("takes no further connection: reset"));
}

TEST_F(ClientCoreTest, LostStreamsEndTheMeasurement) {
  begin();
  EXPECT_EQ(on(Failed{2}), "");
  EXPECT_EQ(hear_result({}), lost("lost 1 of 1 connections in a measurement"));
}

TEST_F(ClientCoreTest, StreamsLostAtTheServer) {
  begin();
  EXPECT_EQ(hear_result({.lost = 1}), lost("lost 1 of 1 connections in a measurement"));
}

TEST_F(ClientCoreTest, AFrameOnAStream) {
  begin();
  EXPECT_EQ(hear(2, FrameType::kPing), lost("spoke out of turn"));
}

TEST_F(ClientCoreTest, ACongestionControlThatThisSystemRefuses) {
  begin();
  EXPECT_EQ(on(TuneRefused{2}),
            lost("cannot be measured, since this system refuses the congestion control reno"));
}

TEST_F(ClientCoreTest, TheServerGoesAway) {
  begin();
  EXPECT_EQ(on(Failed{1, {Code::kSystem, "closed the connection", {}}}),
            lost("closed the connection"));
}

}  // namespace
}  // namespace pccl::probe
