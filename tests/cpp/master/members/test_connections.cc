#include "master/members/connections.h"

#include <gtest/gtest.h>

#include "csrc/protocol/codec.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

constexpr ConnectionId kConnection{1}, kOtherConnection{2};

class ConnectionsTest : public testing::Test {
 protected:
  ConnectionsTest() { context.effects = &effects; }
  void open(ConnectionId id, PeerId peer, ConnectionPhase phase = ConnectionPhase::kMember) {
    connections.accept(id, "10.0.0.1", false);
    connections.admit(id, peer, {0}, phase);
  }
  bool allows(ConnectionId id, const protocol::Message& message) {
    return connections.check(id, message).ok();
  }
  // Messages sent and connections closed since the last call: "1 Ping", "2 closed".
  std::vector<std::string> done() {
    std::vector<std::string> lines;
    for (const Effect& effect : effects) {
      if (const auto* send = std::get_if<Send>(&effect)) {
        lines.push_back(std::to_string(send->connection.value) + " " +
                        protocol::name(send->message));
      } else if (const auto* close = std::get_if<Close>(&effect)) {
        lines.push_back(std::to_string(close->connection.value) + " closed");
      }
    }
    effects.clear();
    return lines;
  }

  Effects effects;
  Context context;
  Connections connections{context};
};

TEST_F(ConnectionsTest, EachPhaseHasItsOwnVocabulary) {
  connections.accept(kConnection, "10.0.0.1", false);
  EXPECT_TRUE(allows(kConnection, protocol::Hello{}));
  EXPECT_TRUE(allows(kConnection, protocol::Resume{}));
  EXPECT_FALSE(allows(kConnection, protocol::Register{}));
  EXPECT_FALSE(allows(kConnection, protocol::Ping{}));
  connections.admit(kConnection, kA, {0}, ConnectionPhase::kWelcomed);
  EXPECT_FALSE(allows(kConnection, protocol::Hello{}));
  EXPECT_TRUE(allows(kConnection, protocol::Register{}));
  EXPECT_FALSE(allows(kConnection, protocol::LinkReport{}));
  connections.enter(kA, ConnectionPhase::kRegistered);
  EXPECT_FALSE(allows(kConnection, protocol::Begin{}));
  EXPECT_TRUE(allows(kConnection, protocol::LinkReport{}));
  EXPECT_FALSE(allows(kConnection, protocol::Vote{}));
  connections.enter(kA, ConnectionPhase::kMember);
  EXPECT_TRUE(allows(kConnection, protocol::Vote{}));
  EXPECT_TRUE(allows(kConnection, protocol::Begin{}));
  for (const protocol::Message& masters : std::vector<protocol::Message>{
           protocol::Welcome{}, protocol::EpochStart{}, protocol::Verdicts{}, protocol::Kicked{}}) {
    EXPECT_FALSE(allows(kConnection, masters)) << protocol::name(masters);
  }
}

TEST_F(ConnectionsTest, APeerHasOneConnection) {
  open(kConnection, kA);
  open(kOtherConnection, kA);
  EXPECT_EQ(done(), (Lines{"1 closed"}));
  EXPECT_EQ(connections.find(kConnection), nullptr);
  connections.send(kA, protocol::Leave{});
  EXPECT_EQ(done(), (Lines{"2 Leave"}));
  connections.close(kA);
  EXPECT_FALSE(connections.connected(kA));
  connections.send(kA, protocol::Leave{});
  EXPECT_EQ(done(), (Lines{"2 closed"}));
}

TEST_F(ConnectionsTest, SilenceIsCountedInTicks) {
  open(kConnection, kA);
  open(kOtherConnection, kB);
  for (int tick = 1; tick < protocol::kTicksPerTimeout; ++tick) {
    EXPECT_TRUE(connections.beat().empty()) << tick;
    EXPECT_TRUE(allows(kOtherConnection, protocol::Ping{}));
  }
  EXPECT_EQ(connections.beat(), std::vector{kConnection});
}

TEST_F(ConnectionsTest, PingsWhoWasNotSpokenToForSomeTicks) {
  open(kConnection, kA);
  open(kOtherConnection, kB);
  for (int tick = 1; tick < protocol::kTicksPerPing; ++tick) connections.beat();
  connections.send(kB, protocol::Pong{});
  EXPECT_EQ(done(), (Lines{"2 Pong"}));
  connections.beat();
  EXPECT_EQ(done(), (Lines{"1 Ping"}));
  for (int tick = 1; tick < protocol::kTicksPerPing - 1; ++tick) connections.beat();
  EXPECT_EQ(done(), Lines{});
  connections.beat();
  EXPECT_EQ(done(), (Lines{"2 Ping"}));
}

TEST_F(ConnectionsTest, TheNextPongConfirmsImportantMessages) {
  open(kConnection, kA);
  EXPECT_TRUE(connections.confirmed());
  connections.send(kA, protocol::Forget{});
  EXPECT_TRUE(connections.confirmed()) << "links are said again when they matter";
  connections.send(kA, protocol::Verdicts{});
  EXPECT_FALSE(connections.confirmed());
  done();
  connections.beat();
  EXPECT_EQ(done(), (Lines{"1 Ping"})) << "at once";
  EXPECT_FALSE(connections.confirmed());
  EXPECT_TRUE(connections.confirm(kConnection, 1).ok());
  EXPECT_TRUE(connections.confirmed());
  connections.send(kA, protocol::Answer{});
  done();
  connections.request_confirmations();
  connections.request_confirmations();
  EXPECT_EQ(done(), (Lines{"1 Ping"})) << "once";
  EXPECT_FALSE(connections.confirm(kConnection, 3).ok()) << "a Pong to a Ping that was never sent";
  EXPECT_TRUE(connections.confirm(kConnection, 2).ok());
  EXPECT_FALSE(connections.confirm(kConnection, 1).ok()) << "Pongs come in order";
  EXPECT_TRUE(connections.confirmed());
}

}  // namespace
}  // namespace pccl::master
