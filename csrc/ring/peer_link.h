// PeerLink: the lanes of one link, with the chunks in flight on them, and the choice of the lane
// for the next frame. Plain data that belongs to RingCore. RingCore and its parts change it.
// Invariants:
//  (1) A lane carries one chunk at a time in each direction.
//  (2) No chunk and no kept message lands on two lanes.
//  (3) Chunks are in flight only on lanes on which both ends have opened this epoch. The other end
//      may have opened a later epoch since then.
//  (4) While operations of a higher priority move, a chunk of a lower one leaves only if no other
//      chunk is leaving. So the higher ones find a free lane. After kPersistence such chunks and no
//      move of a higher priority, all lanes are for all.
//  (5) The copies of contributions that may wait in a lane have less than protocol::kEagerBytes
//      bytes plus one contribution. If a lane has no room, a contribution leaves without a copy, as
//      other chunks do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/protocol/limits.h"
#include "csrc/ring/events.h"
#include "csrc/ring/op_table.h"

namespace pccl::ring {

struct InFlightChunk {             // an in-flight chunk on a lane
  Operation* operation = nullptr;  // null: no chunk of a posted operation
  uint64_t chunk = 0;
  // set instead of `operation` for a message of an operation that is not posted here yet
  std::optional<UnexpectedId> unexpected{};
  bool any() const { return operation != nullptr || unexpected; }
};

struct PeerLink {
  struct Lane {
    Epoch open_sent;      // the last Open sent
    Epoch open_received;  // the last Open received; may be newer than ours
    InFlightChunk landing, sending;
    uint64_t window = 0;  // bytes, see LaneWindow
    // `copied`: the sum of eager_cost() of the contributions that were copied into the lane and may
    // still wait there. `copied_before`: the part of `copied` that was there before the chunk being
    // sent.
    uint64_t copied = 0, copied_before = 0;

    bool has_room_for_copy() const { return copied < protocol::kEagerBytes; }
  };

  explicit PeerLink(PeerId other) : peer(other) {}

  bool ready(const Lane& lane) const {
    return !failed && epoch && lane.open_sent == epoch && lane.open_received == epoch;
  }
  bool is_inactive(uint32_t lane) const { return ((inactive >> lane) & 1) != 0; }
  // A lane for a small frame; nothing if no lane is ready.
  std::optional<uint32_t> free_lane() const { return free_lane(false); }
  // A lane for a contribution. If the lane has room for a copy, the contribution is copied into the
  // lane. If it has no room, the lane is not sending a chunk, and sends the contribution as its
  // chunk.
  std::optional<uint32_t> lane_for_contribution() const { return free_lane(true); }
  // A lane for the next chunk of `operation`. `bytes_left`: the bytes that all operations still
  // have to send on this link.
  std::optional<uint32_t> lane_for_chunk(const Operation& operation, uint64_t bytes_left) const;
  // The lower priority waits for its turn (invariant 4).
  bool holds_back(const Operation& operation) const;
  // A chunk of the operation begins to leave.
  void leaves(const Operation& operation);
  // A chunk of the operation is here.
  void arrived(const Operation& operation);
  void fail(std::string why, Effects& effects);
  // Revokes the landings for which `test` is true.
  void revoke(auto&& test, Effects& effects) {
    for (uint32_t index = 0; index < lanes.size(); ++index) {
      InFlightChunk& landing = lanes[index].landing;
      if (!landing.any() || !test(landing)) continue;
      landing = {};
      effects.push_back(Revoke{{peer, index}});
    }
  }
  // Withdraws the chunks of the operation that are being sent.
  void withdraw(const Operation& operation, Effects& effects);
  // Number of lanes on which this kept message is landing.
  long landing_lanes(const UnexpectedId& message) const;
  void check(const OpTable& operations) const;  // asserts the invariants

  const PeerId peer;
  Epoch epoch;                // the present epoch of this peer
  bool failed = false;        // FailLink was emitted: the link is ignored until LinkDown
  bool same_machine = false;  // the peer is on this machine
  std::vector<Lane> lanes;
  protocol::LaneBits inactive = 0;
  uint32_t next = 0;  // the lane to try first

 private:
  static constexpr uint32_t kPersistence = 8;  // chunks

  std::optional<uint32_t> free_lane(bool for_contribution) const;

  int8_t moving_ = protocol::kPriorityMin;  // the highest priority that moves here
  uint32_t lower_ = 0;                      // chunks of lower ones that have left since it moved
};

}  // namespace pccl::ring
