#include "csrc/peer/connection.h"

#include <gtest/gtest.h>

namespace pccl::peer {
namespace {

using std::chrono::milliseconds;
using Due = Connection::Due;

constexpr Duration kTick = milliseconds(1000) / protocol::kTicksPerTimeout;

class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() {
    context_.effects = &effects_;
    context_.settings.peer_timeout = milliseconds(1000);
  }
  // The result of on_time() after `later`.
  Due after(Duration later) {
    context_.now = context_.now + later;
    effects_.clear();
    return connection_.on_time();
  }
  bool tried() const {
    for (const Effect& effect : effects_) {
      if (std::holds_alternative<ConnectMaster>(effect)) return true;
    }
    return false;
  }

  Context context_;
  Effects effects_;
  TokenChoice tokens_{context_};
  Connection connection_{context_, tokens_};
};

TEST_F(ConnectionTest, PausesDoubleUpToASecond) {
  connection_.open();
  EXPECT_TRUE(tried());
  for (const int pause : {100, 200, 400, 800, 1000, 1000}) {
    connection_.on_closed();
    EXPECT_EQ(*connection_.deadline(), context_.now + milliseconds(pause));
    after(milliseconds(pause - 1));
    EXPECT_FALSE(tried());
    after(milliseconds(1));
    EXPECT_TRUE(tried());
    EXPECT_EQ(connection_.deadline(), std::nullopt);  // the attempt has its own limit
  }
}

// A handshake that hangs does not cost a member its place.
TEST_F(ConnectionTest, AnAttemptLeavesTimeForAnotherOne) {
  connection_.open();
  EXPECT_EQ(std::get<ConnectMaster>(effects_.at(0)).at_most, context_.settings.peer_timeout / 2);
}

TEST_F(ConnectionTest, AnIntroductionEndsTheDoubling) {
  connection_.open();
  connection_.on_closed();
  after(milliseconds(100));
  connection_.on_connected();
  context_.linked = true;
  connection_.welcomed();
  connection_.on_closed();
  EXPECT_EQ(*connection_.deadline(), context_.now + milliseconds(100));
}

// The connection may stay silent for the whole peer timeout, however often pings are sent.
TEST_F(ConnectionTest, PingsOftenWhateverThePeerTimeout) {
  context_.settings.peer_timeout = std::chrono::minutes(10);
  connection_.open();
  connection_.on_connected();
  context_.linked = true;
  connection_.welcomed();
  context_.linked = true;
  Duration since_ping{0}, silent{0};
  for (Due due = Due::kNothing; due != Due::kSilent; silent += std::chrono::seconds(5)) {
    EXPECT_EQ(*connection_.deadline(), context_.now + std::chrono::seconds(5));
    due = after(std::chrono::seconds(5));
    since_ping += std::chrono::seconds(5);
    EXPECT_LE(since_ping, protocol::kPingIntervalMax);
    if (due != Due::kPing) continue;
    context_.send(protocol::Ping{});
    since_ping = Duration{0};
  }
  EXPECT_EQ(silent, std::chrono::minutes(10));
}

TEST_F(ConnectionTest, PingsAfterSomeTicksWithoutTrafficOfItsOwn) {
  connection_.open();
  connection_.on_connected();
  context_.linked = true;
  connection_.welcomed();
  context_.linked = true;
  const auto quiet = [this](int ticks) {
    while (ticks-- > 0) EXPECT_EQ(after(kTick), Due::kNothing);
  };
  quiet(protocol::kTicksPerPing - 1);
  EXPECT_EQ(after(kTick), Due::kPing);
  context_.send(protocol::Ping{});
  quiet(protocol::kTicksPerPing);
  EXPECT_EQ(after(kTick), Due::kPing);
}

TEST_F(ConnectionTest, NoPingBeforeTheIntroduction) {
  connection_.open();
  connection_.on_connected();
  for (int tick = 0; tick < protocol::kTicksPerTimeout - 1; ++tick)
    EXPECT_EQ(after(kTick), Due::kNothing);
  EXPECT_EQ(after(kTick), Due::kSilent);
}

TEST_F(ConnectionTest, AnyMessageEndsTheSilence) {
  connection_.open();
  connection_.on_connected();
  for (int tick = 0; tick < protocol::kTicksPerTimeout - 1; ++tick) after(kTick);
  connection_.received();
  for (int tick = 0; tick < protocol::kTicksPerTimeout - 1; ++tick)
    EXPECT_EQ(after(kTick), Due::kNothing);
  EXPECT_EQ(after(kTick), Due::kSilent);
}

TEST_F(ConnectionTest, ALateTickIsOneTick) {
  connection_.open();
  connection_.on_connected();
  for (int tick = 0; tick < protocol::kTicksPerTimeout - 1; ++tick)
    EXPECT_EQ(after(milliseconds(60000)), Due::kNothing);
}

TEST_F(ConnectionTest, CloseEndsIt) {
  connection_.open();
  connection_.on_connected();
  context_.linked = true;
  effects_.clear();
  connection_.close();
  ASSERT_EQ(effects_.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<CloseMaster>(effects_[0]));
  EXPECT_EQ(connection_.deadline(), std::nullopt);
  context_.send(protocol::Leave{});
  EXPECT_EQ(effects_.size(), 1u);  // no master is connected
}

}  // namespace
}  // namespace pccl::peer
