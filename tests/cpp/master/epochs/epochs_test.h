// EpochsTest: the epochs of one group without a MasterCore. All peers are linked with each other. A
// record is durable when the test calls persisted().
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "master/epochs/epochs.h"
#include "master/members/connections.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {

class EpochsTest : public testing::Test {
 protected:
  EpochsTest() {
    context.effects = &effects;
    context.options.incarnation = kIncarnation;
  }
  void enlist(uint32_t number) {
    const PeerId peer = peer_id(number);
    connections.accept({number}, "10.0.0.1", false);
    connections.admit({number}, peer, {0}, ConnectionPhase::kRegistered);
    membership.welcome(peer, {});
    for (const PeerId dialler :
         membership.register_peer(peer, {"h", static_cast<uint16_t>(number)})) {
      membership.links.report(dialler, {peer, protocol::LinkState::kUp, "", 1, rtt});
    }
  }
  void found(uint32_t size) {
    for (uint32_t number = 1; number <= size; ++number) enlist(number);
    min_peers = size;
    advance();
    EXPECT_EQ(epochs.phase(), Epochs::Phase::kStarting);
    EXPECT_EQ(persisted(context.tokens), Epochs::Turn::kStarted);
    EXPECT_EQ(epochs.phase(), Epochs::Phase::kActive);
    effects.clear();
  }
  Epochs::Turn advance(bool may_end = true, bool may_change = true) {
    quorum = {min_peers, min_peers};
    return epochs.advance(may_end, may_change);
  }
  // The record with this token is durable.
  Epochs::Turn persisted(uint64_t token) {
    context.persisting.erase(token);
    return epochs.persisted(token);
  }
  void lose(uint32_t number) {
    const protocol::Member member = membership.member(peer_id(number));
    membership.remove(peer_id(number), "");
    epochs.lose(member, "peer " + std::to_string(number) + " lost");
  }
  void begin(uint32_t number, uint32_t sequence) {
    EXPECT_TRUE(
        present.begin(peer_id(number), {present.number(), op(sequence), all_reduce(8)}).ok());
  }
  void done(uint32_t number, uint32_t sequence, uint64_t seen = 0) {
    EXPECT_TRUE(present.done(peer_id(number), {present.number(), op(sequence), seen}).ok());
  }
  void report(uint32_t number, std::vector<protocol::OpReport> ops) {
    EXPECT_TRUE(epochs.report(peer_id(number), {present.number(), std::move(ops)}).ok());
  }
  // Messages since the last call: "1 Ask", "2 Ask".
  Lines said() {
    Lines lines;
    for (const Effect& effect : effects) {
      if (const auto* send = std::get_if<Send>(&effect)) {
        lines.push_back(std::to_string(send->connection.value) + " " +
                        protocol::name(send->message));
      } else if (std::holds_alternative<Persist>(effect)) {
        lines.push_back("persist");
      }
    }
    effects.clear();
    return lines;
  }
  const MembershipRecord& record() {
    for (const Effect& effect : effects) {
      if (const auto* persist = std::get_if<Persist>(&effect)) {
        last_record = std::get<MembershipRecord>(persist->record);
      }
    }
    return last_record;
  }

  // The operations that a record commits in the epoch that ends with it.
  static std::vector<OpKey> committed(const MembershipRecord& record) {
    const EpochRecord& ended = record.current.end ? record.current : record.previous;
    std::vector<OpKey> ops;
    for (const protocol::Verdict& verdict : ended.verdicts) {
      if (verdict.outcome == protocol::Outcome::kCommitted) ops.push_back(verdict.op);
    }
    if (ended.end) ops.insert(ops.end(), ended.end->committed.begin(), ended.end->committed.end());
    return ops;
  }

  uint32_t min_peers = 2;
  uint32_t rtt = 0;  // of all links, in microseconds
  MembershipRecord last_record;
  Effects effects;
  Context context;
  Connections connections{context};
  Membership membership;
  Quorum quorum;
  PresentEpoch present{{0}, context, connections, membership};
  Epochs epochs{{0}, context, connections, quorum, membership, present};
};

}  // namespace pccl::master
