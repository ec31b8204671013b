#include "csrc/link/shell/lane_connection.h"

#include <gtest/gtest.h>

#include <optional>

#include "csrc/ring/engine.h"
#include "tests/cpp/net/net_test.h"
#include "tests/cpp/ring/raw_peer.h"

namespace pccl::link::shell_test {
namespace {

using net::FrameHeader;
using net::FrameType;
using ring::kRun;
using ring::RawPeer;

constexpr PeerId kSelf{1}, kOther{2};

// A LaneConnection on a loop of its own. The other end of its connection is a bare socket. The link
// joins the engine as soon as a hello has come.
class LaneConnectionTest : public ::testing::Test {
 protected:
  ~LaneConnectionTest() override { loop_.stop(); }

  RawPeer connect(bool dialled = false) {
    const auto [mine, theirs] = net::connected_fds();
    on(loop_, [&, fd = mine] {
      LaneConnection::Callbacks callbacks{
          .on_hello =
              [this](const std::optional<protocol::LaneHello>& hello) {
                ++first_frames_;
                hello_ = hello;
                if (hello) link_->join(engine_, kOther, hello->machine == 7);
              },
          .on_pong = [this](uint64_t number) { last_pong_ = number; },
          .on_failed =
              [this](const Status& why, LinkFault fault) {
                ended_ += why.message;
                fault_ = fault;
                if (hello_) engine_.link_down(kOther);
              }};
      link_ =
          std::make_unique<LaneConnection>(loop_, net::Socket(fd), dialled, std::move(callbacks));
      return 0;
    });
    return RawPeer(theirs);
  }
  // Waits for the end of the link; returns the reason, or "" if it did not end.
  std::string ended() {
    net::eventually(loop_, [&] { return !ended_.empty(); });
    return on(loop_, [&] { return ended_; });
  }
  bool heard_first_frames(int count) {
    return net::eventually(loop_, [&] { return first_frames_ == count; });
  }

  ring::Engine engine_{{.on_event = [](const ring::DataEvent&) {},
                        .on_fail_link = [this](PeerId, const std::string& why) { failed_ = why; }}};
  std::unique_ptr<LaneConnection> link_;
  int first_frames_ = 0;
  std::optional<protocol::LaneHello> hello_;
  uint64_t last_pong_ = 0;
  LinkFault fault_ = LinkFault::kOther;
  std::string ended_, failed_;
  net::Loop loop_{"test"};  // last member, so that its thread ends first
};

TEST_F(LaneConnectionTest, SaysThatTheSystemRefusesACongestionControl) {
  const RawPeer other = connect();
  const auto tuned = [&](const std::string& congestion) {
    return on(loop_, [&] { return link_->tune(net::PathClass::kLocal, congestion); });
  };
  EXPECT_TRUE(
      tuned("nonsense")
          .starts_with("127.0.0.1: the system refuses congestion control nonsense, and keeps "))
      << tuned("nonsense");
  EXPECT_EQ(tuned(""), "");
}

TEST_F(LaneConnectionTest, PassesOnTheHelloOfTheSideThatHasToSayIt) {
  RawPeer dialler = connect();
  FrameHeader said = RawPeer::hello(FrameType::kHello, kOther, kSelf, kRun);
  said.value = 8;
  dialler.say(said);
  ASSERT_TRUE(heard_first_frames(1));
  const protocol::LaneHello expected{
      .run_id = kRun, .self = kOther, .other = kSelf, .machine = 8, .serial = 1};
  EXPECT_EQ(hello_, expected);
  on(loop_, [&] { return engine_.link_down(kOther), link_->close(), 0; });
  RawPeer acceptor = connect(true);
  acceptor.say(RawPeer::hello(FrameType::kHelloOk, kOther, kSelf, kRun));
  ASSERT_TRUE(heard_first_frames(2));
  EXPECT_TRUE(hello_.has_value());
  on(loop_, [&] { return engine_.link_down(kOther), 0; });
}

TEST_F(LaneConnectionTest, PassesOnThatAnotherFrameCame) {
  FrameHeader chunk = RawPeer::hello(FrameType::kChunk, kOther, kSelf, kRun);
  chunk.length = 1000;
  FrameHeader third_kind = RawPeer::hello(FrameType::kHello, kOther, kSelf, kRun);
  third_kind.round = 2;
  int count = 0;
  for (const FrameHeader& first :
       {chunk, third_kind, RawPeer::hello(FrameType::kHelloOk, kOther, kSelf, kRun)}) {
    RawPeer other = connect();
    other.say(first);
    EXPECT_TRUE(heard_first_frames(++count));
    EXPECT_FALSE(hello_.has_value());
  }
}

TEST_F(LaneConnectionTest, SaysItsHello) {
  RawPeer other = connect(true);
  protocol::LaneHello hello{
      .run_id = kRun, .self = kSelf, .other = kOther, .machine = 7, .serial = 3, .further = true};
  on(loop_, [&] { return link_->send_hello(false, hello), 0; });
  const auto heard = other.hear();
  ASSERT_TRUE(heard.has_value());
  EXPECT_EQ(net::hello_in(FrameType::kHello, *heard), hello);
  on(loop_, [&] { return link_->send_hello(true, hello), 0; });
  EXPECT_EQ(other.hear()->type, FrameType::kHelloOk);
}

TEST_F(LaneConnectionTest, AnswersPingsAndPassesOnPongs) {
  RawPeer other = connect();
  other.say(RawPeer::hello(FrameType::kHello, kOther, kSelf, kRun));
  FrameHeader ping;
  ping.type = FrameType::kPing;
  ping.value = 1234;
  other.say(ping);
  const auto pong = other.hear();
  ASSERT_TRUE(pong.has_value());
  EXPECT_EQ(pong->type, FrameType::kPong);
  EXPECT_EQ(pong->value, 1234u);
  other.say(*pong);
  EXPECT_TRUE(net::eventually(loop_, [&] { return last_pong_ == 1234; }));
  EXPECT_TRUE(on(loop_, [&] { return link_->take_received(); }));
  EXPECT_FALSE(on(loop_, [&] { return link_->take_received(); })) << "since the last time";
  EXPECT_EQ(on(loop_, [&] { return ended_ + failed_; }), "");
}

TEST_F(LaneConnectionTest, HangsUpOnNoise) {
  RawPeer other = connect();
  other.say(std::vector<std::byte>(200, std::byte{'G'}));
  EXPECT_TRUE(other.hung_up());
  EXPECT_NE(ended().find("bad frame"), std::string::npos) << ended();
  EXPECT_EQ(fault_, LinkFault::kAnotherProgram);
}

TEST_F(LaneConnectionTest, ALinkThatBreaksSaysSoOnce) {
  {
    RawPeer other = connect();
    other.say(RawPeer::hello(FrameType::kHello, kOther, kSelf, kRun));
    heard_first_frames(1);
  }
  const std::string why = ended();
  EXPECT_NE(why.find("closed the connection"), std::string::npos) << why;
  EXPECT_EQ(why.find("closed", why.find("closed") + 1), std::string::npos) << why;
  EXPECT_EQ(on(loop_, [&] { return link_->counters().bytes_sent; }), 0u) << "it is closed";
}

TEST_F(LaneConnectionTest, AClosedLinkIsSilent) {
  RawPeer other = connect();
  on(loop_, [&] {
    return link_->close(), link_->send(FrameHeader{}), link_->withdraw(), link_->revoke(), 0;
  });
  EXPECT_TRUE(other.hung_up());
  EXPECT_EQ(on(loop_, [&] { return ended_; }), "");
}

// Chunks between processes of one machine carry no checksum. Between machines, a wrong checksum
// costs the link.
TEST_F(LaneConnectionTest, ChecksPayloadsUnlessBothEndsAreOneMachine) {
  Epoch epoch;
  for (const uint64_t their_machine : {7, 8, 0}) {
    ended_.clear();
    ++epoch.value;
    on(loop_, [&] { return engine_.begin_epoch(epoch, {kOther}), 0; });
    hello_.reset();
    RawPeer other = connect();
    FrameHeader hello = RawPeer::hello(FrameType::kHello, kOther, kSelf, kRun);
    hello.value = their_machine;
    other.say(hello);
    EXPECT_EQ(other.hear()->type, FrameType::kOpen);
    std::byte memory[64] = {};
    on(loop_, [&] {
      engine_.post({.epoch = epoch,
                    .op = {},
                    .shape = {.pattern = ring::Pattern::kTransfer,
                              .rank = 1,
                              .world = 2,
                              .block_bytes = {64}},
                    .upstream = kOther},
                   {.spans = {memory}, .dtype = DType::kBytes});
      return 0;
    });
    FrameHeader frame;
    frame.type = FrameType::kOpen;
    frame.epoch = epoch;
    other.say(frame);
    EXPECT_EQ(other.hear()->type, FrameType::kCredit);
    frame.type = FrameType::kChunk;
    frame.length = 64;
    other.say(frame);
    std::byte payload_and_trailer[72] = {};
    payload_and_trailer[68] = std::byte{1};  // no checksum, marked valid
    other.say(payload_and_trailer);
    if (their_machine == 7) {
      EXPECT_TRUE(net::eventually(loop_, [&] { return engine_.counters().bytes_received >= 64; }));
      EXPECT_EQ(on(loop_, [&] { return ended_; }), "");
    } else {
      EXPECT_NE(ended().find("checksum"), std::string::npos) << ended();
    }
    on(loop_, [&] { return engine_.end({}), engine_.link_down(kOther), link_->close(), 0; });
  }
}

}  // namespace
}  // namespace pccl::link::shell_test
