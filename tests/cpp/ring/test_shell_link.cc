#include "csrc/ring/shell_link.h"

#include <gtest/gtest.h>

#include "tests/cpp/net/net_test.h"
#include "tests/cpp/ring/raw_peer.h"

namespace pccl::ring {
namespace {

using net::FrameHeader;
using net::FrameType;

constexpr PeerId kSelf{1}, kOther{2};

// A ShellLink on a loop of its own; the other end of its connection is a bare socket.
class ShellLinkTest : public ::testing::Test {
 protected:
  ~ShellLinkTest() override { loop_.stop(); }

  RawPeer connect(PeerId expected, uint64_t machine = 7) {
    const auto [mine, theirs] = net::connected_fds();
    on(loop_, [&, fd = mine] {
      ShellLink::Callbacks callbacks{.on_introduced =
                                         [this](ShellLink& link) {
                                           introduced_ = link.peer();
                                           if (joins_) link.join(engine_);
                                         },
                                     .on_ended =
                                         [this](ShellLink& link, const Status& why) {
                                           ended_ = why.message;
                                           if (link_up()) engine_.link_down(link.peer());
                                         }};
      link_ = std::make_unique<ShellLink>(loop_, net::Socket(fd), Identity{kSelf, kRun, machine},
                                          ShellLink::Target{expected, expected ? 1U : 0U, further_},
                                          "10.0.0.7:48201", std::move(callbacks));
      return 0;
    });
    return RawPeer(theirs);
  }
  bool link_up() const { return introduced_ && joins_; }

  // Waits for the end; "" if there was none.
  std::string ended() {
    net::eventually(loop_, [&] { return !ended_.empty(); });
    return on(loop_, [&] { return ended_; });
  }
  void expect_ended_with(const std::string& why) {
    const std::string said = ended();
    EXPECT_NE(said.find(why), std::string::npos) << said;
    EXPECT_EQ(said.find("10.0.0.7:48201: "), 0u) << said;
  }

  Engine engine_{{.on_transferred = [](Epoch, OpKey) {},
                  .on_drained = [](Epoch, OpKey) {},
                  .on_fail_link = [this](PeerId, const std::string& why) { failed_ = why; },
                  .on_failed = [](Epoch, OpKey, const Status&) {}}};
  std::unique_ptr<ShellLink> link_;
  bool joins_ = true;
  bool further_ = false;
  PeerId introduced_;
  std::string ended_, failed_;
  net::Loop loop_{"test"};  // last: its thread ends first
};

TEST_F(ShellLinkTest, AnAcceptorAnswersWhoIntroducesItself) {
  RawPeer other = connect(PeerId{});
  other.say(RawPeer::hello(FrameType::kHello, kOther, kSelf, kRun));
  const auto answer = other.hear();
  ASSERT_TRUE(answer.has_value());
  FrameHeader expected = RawPeer::hello(FrameType::kHelloOk, kSelf, kOther, kRun);
  expected.value = 7;
  EXPECT_EQ(*answer, expected);
  EXPECT_EQ(on(loop_, [&] { return introduced_; }), kOther);
}

TEST_F(ShellLinkTest, ADiallerIntroducesItselfFirst) {
  RawPeer other = connect(kOther);
  const auto hello = other.hear();
  ASSERT_TRUE(hello.has_value());
  EXPECT_EQ(hello->type, FrameType::kHello);
  EXPECT_EQ(hello->digest, kOther.value);
  other.say(RawPeer::hello(FrameType::kHelloOk, kOther, kSelf, kRun));
  EXPECT_TRUE(net::eventually(loop_, [&] { return introduced_ == kOther; }));
}

TEST_F(ShellLinkTest, AFurtherLaneSaysThatItIsOne) {
  further_ = true;
  RawPeer other = connect(kOther);
  EXPECT_EQ(other.hear()->round, 1);
  other.say(RawPeer::hello(FrameType::kHelloOk, kOther, kSelf, kRun));
  expect_ended_with("it speaks of lane 0");
}

TEST_F(ShellLinkTest, AnswersPings) {
  RawPeer other = connect(PeerId{});
  other.say(RawPeer::hello(FrameType::kHello, kOther, kSelf, kRun));
  other.hear();
  FrameHeader ping;
  ping.type = FrameType::kPing;
  ping.value = 1234;
  other.say(ping);
  const auto pong = other.hear();
  ASSERT_TRUE(pong.has_value());
  EXPECT_EQ(pong->type, FrameType::kPong);
  EXPECT_EQ(pong->value, 1234u);
  EXPECT_EQ(on(loop_, [&] { return ended_ + failed_; }), "");
}

TEST_F(ShellLinkTest, PingsEveryOtherTickAndNoticesSilence) {
  RawPeer other = connect(PeerId{});
  other.say(RawPeer::hello(FrameType::kHello, kOther, kSelf, kRun));
  other.hear();
  const auto tick = [&] { return on(loop_, [&] { return link_->tick(); }); };
  EXPECT_TRUE(tick()) << "the introduction was heard";
  for (int ticks = 1; ticks < protocol::kTicksPerLinkSilence; ++ticks) EXPECT_TRUE(tick());
  EXPECT_EQ(other.hear()->type, FrameType::kPing);
  EXPECT_EQ(other.hear()->type, FrameType::kPing);
  FrameHeader pong;
  pong.type = FrameType::kPong;
  other.say(pong);
  const auto heard = [&] { return link_->counters().bytes_received; };
  EXPECT_TRUE(net::eventually(loop_, [&] { return heard() == 2 * protocol::kFrameHeaderBytes; }));
  EXPECT_TRUE(tick()) << "any sign of life";
  for (int ticks = 1; ticks < protocol::kTicksPerLinkSilence; ++ticks) EXPECT_TRUE(tick());
  EXPECT_FALSE(tick());
}

TEST_F(ShellLinkTest, HangsUpOnStrangers) {
  const auto refused = [&](const FrameHeader& first, const std::string& why) {
    ended_.clear();
    RawPeer other = connect(PeerId{});
    other.say(first);
    EXPECT_TRUE(other.hung_up());
    expect_ended_with(why);
  };
  joins_ = false;
  const FrameHeader good = RawPeer::hello(FrameType::kHello, kOther, kSelf, kRun);
  refused(RawPeer::hello(FrameType::kHello, kOther, kSelf, kRun + 1), "another run");
  refused(RawPeer::hello(FrameType::kHello, kOther, PeerId{5}, kRun), "looks for peer 0.5");
  refused(RawPeer::hello(FrameType::kHello, kSelf, kSelf, kRun), "says that it is peer 0.1");
  refused(RawPeer::hello(FrameType::kHello, PeerId{}, kSelf, kRun), "says that it is peer 0.0");
  FrameHeader version = good;
  version.slice = 77;
  refused(version, "version 77");
  FrameHeader no_serial = good;
  no_serial.block = 0;
  refused(no_serial, "connection 0");
  FrameHeader other_type = good;
  other_type.type = FrameType::kHelloOk;
  refused(other_type, "did not introduce itself");
  FrameHeader chunk = good;
  chunk.type = FrameType::kChunk;
  chunk.length = 1000;
  refused(chunk, "did not introduce itself");
  EXPECT_FALSE(introduced_);
}

TEST_F(ShellLinkTest, HangsUpOnNoise) {
  RawPeer other = connect(PeerId{});
  other.say(std::vector<std::byte>(200, std::byte{'G'}));
  EXPECT_TRUE(other.hung_up());
  EXPECT_NE(ended().find("bad frame"), std::string::npos) << ended();
  EXPECT_EQ(link_->fault(), LinkFault::kAnotherProgram);
}

TEST_F(ShellLinkTest, ADiallerWantsWhomItDialled) {
  RawPeer other = connect(kOther);
  other.say(RawPeer::hello(FrameType::kHelloOk, PeerId{8}, kSelf, kRun));
  EXPECT_TRUE(other.hung_up());
  expect_ended_with("says that it is peer 0.8");
  EXPECT_EQ(link_->fault(), LinkFault::kAnotherPeer);
}

TEST_F(ShellLinkTest, HangsUpOnTheSilent) {
  const RawPeer other = connect(PeerId{});
  expect_ended_with("did not introduce itself in time");
  EXPECT_EQ(link_->fault(), LinkFault::kNoAnswer);
}

TEST_F(ShellLinkTest, ALinkThatBreaksSaysSoOnce) {
  {
    RawPeer other = connect(PeerId{});
    other.say(RawPeer::hello(FrameType::kHello, kOther, kSelf, kRun));
    other.hear();
  }
  EXPECT_NE(ended().find("closed the connection"), std::string::npos) << ended();
  EXPECT_EQ(on(loop_, [&] { return link_->counters().bytes_sent; }), 0u) << "it is closed";
}

TEST_F(ShellLinkTest, AClosedLinkIsSilent) {
  RawPeer other = connect(PeerId{});
  on(loop_, [&] { return link_->close(), link_->ping(), link_->withdraw(), link_->revoke(), 0; });
  EXPECT_TRUE(other.hung_up());
  EXPECT_EQ(on(loop_, [&] { return ended_; }), "");
}

// Chunks between one machine's processes carry no checksum; a bad one between machines costs the
// link.
TEST_F(ShellLinkTest, ChecksPayloadsUnlessBothEndsAreOneMachine) {
  Epoch epoch;
  for (const uint64_t their_machine : {7, 8, 0}) {
    ended_.clear();
    ++epoch.value;
    on(loop_, [&] { return engine_.begin_epoch(epoch, {kOther}), 0; });
    RawPeer other = connect(PeerId{});
    FrameHeader hello = RawPeer::hello(FrameType::kHello, kOther, kSelf, kRun);
    hello.value = their_machine;
    other.say(hello);
    EXPECT_EQ(other.hear()->type, FrameType::kHelloOk);
    EXPECT_EQ(other.hear()->type, FrameType::kOpen);
    std::byte memory[64] = {};
    on(loop_, [&] {
      engine_.post(
          {.epoch = epoch,
           .op = {},
           .shape = {.pattern = Pattern::kTransfer, .rank = 1, .world = 2, .block_bytes = {64}},
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
    payload_and_trailer[68] = std::byte{1};  // no checksum, valid
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
}  // namespace pccl::ring
