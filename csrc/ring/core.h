// RingCore: the state machine that decides which bytes a peer sends and receives next, for all
// operations in flight on this peer.
// It is pure: it sees chunk headers and cursors, never a payload byte, a socket or a clock. The
// Engine owns it, steps it on the peer loop and moves the bytes. The simulator drives the same
// Engine class.
// Invariants (docs/design.md, sections 2, 6 and 7):
//  (1) A chunk leaves only against credit from a neighbour that has posted the same operation with
//      the same digest, or as eager data, for which the neighbour always has room
//      (eager_queue.h).
//  (2) A free, active lane takes the next chunk of the oldest operation that can send. An operation
//      that cannot send does not block another. The last chunks leave on lanes that need at most
//      one round trip for a chunk (PeerLink). On a link within one machine, this rank's own part
//      does not run ahead of the arriving chunks (Progress::go_in_step), unless a pulled transfer
//      is in flight here.
//  (3) Nothing of an epoch leaves on a lane before both ends have sent Open for that epoch on that
//      lane. Frames of older epochs, and of operations that have ended here, are discarded.
//  (4) An operation that ends is drained in the same step: its landings are revoked, the chunk
//      being sent is withdrawn, the saved bytes are restored (abort) or dropped (commit), and
//      OpDrained follows.
//  (5) Data on a link that went down is lost. The operations of that link stay until they are
//      ended, but they send and receive nothing more through that peer, not even on a new link.
//  (6) A member that posts a one-shot operation sends one frame at once to every other member. This
//      frame is its contribution, as eager data. If it has no contribution for that member, or no
//      room for one, the frame is credit. Both kinds of frames show that it has posted the
//      operation, so the receiver may then send its contribution, too. So an operation that all
//      members have posted never waits for an operation that some members have not posted.
//      Contributions go before other chunks.
//  (7) All operations in flight are of the present epoch, and the duplicate filter knows them. It
//      also knows the operations whose eager data counts against the budget of a link. Each kept
//      message belongs to an operation that the filter does not know, or is still arriving for an
//      operation that was posted meanwhile. Such an operation has the digest of the kept message.
//  (8) Every pointer to an operation leads into the table. A lane receives chunks from the upstream
//      and sends chunks to the downstream of an operation.
//  (9) Nothing that may leave is forgotten: on a link with a ready lane, upstream has all the
//      credit that it is owed.
// (10) Each landing chunk of an operation that is not posted here is one of the kept messages.
// (11) A slice of the block that this member owns in a direct all-reduce is combined when all its
//      contributions are here, and only then. Its results may leave from then on. If results are
//      held in scratch (Schedule::holds_results), the other members get credit for a slot again
//      when the result in this slot has left to all of them.
// Failure: a chunk that the schedule does not expect is a protocol error of the link. The core
// answers with FailLink and ignores the link until LinkDown.
// It does not decide whether an operation commits: OpEnded brings that decision from the master.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/protocol/frames.h"
#include "csrc/ring/eager_queue.h"
#include "csrc/ring/events.h"
#include "csrc/ring/op_table.h"
#include "csrc/ring/peer_link.h"
#include "csrc/ring/send_queue.h"

namespace pccl::ring {

class RingCore {
 public:
  void step(const Event& event, Effects& effects);
  size_t operations_open() const { return operations_.size(); }
  // The epoch in which the operation was posted; nothing if it is not in flight.
  std::optional<Epoch> posted(OpKey op);
  const OpTable& operations() const { return operations_; }
  bool lands(LaneId lane) const;  // a chunk is landing on the lane
  bool sends(LaneId lane) const;  // a chunk is being sent on the lane
  // The Open that a lane to this peer sends first; nothing if the peer is not in the epoch.
  std::optional<protocol::FrameHeader> open_frame(PeerId peer) const;
  size_t kept_messages() const;     // messages of operations that are not posted here
  size_t lanes(PeerId peer) const;  // 0: the link is down
  void check() const;               // asserts the invariants of the core and of its parts

 private:
  struct Link : PeerLink {
    explicit Link(PeerId other) : PeerLink(other) {}
    Link(const Link&) = delete;  // its parts hold references to it
    Link& operator=(const Link&) = delete;

    SendQueue queue;
    EagerQueue eager{*this};
  };

  void on(const EpochBegun& event, Effects& effects);
  void on(const LaneUp& event, Effects& effects);
  void on(const LaneWindow& event, Effects& effects);
  void on(const LinkDown& event, Effects& effects);
  void on(const LanesInactive& event, Effects& effects);
  void on(const OpPosted& event, Effects& effects);
  void on(const OpEnded& event, Effects& effects);
  void on(const OpDone& event, Effects& effects);
  void on(const FrameArrived& event, Effects& effects);
  void on(const ChunkArriving& event, Effects& effects);
  void on(const ChunkArrived& event, Effects& effects);
  void on(const ChunkSent& event, Effects& effects);

  void on_open(LaneId lane, Link& link, const protocol::FrameHeader& header, Effects& effects);
  void on_credit(LaneId lane, Link& link, const protocol::FrameHeader& header, Effects& effects);
  void on_done(LaneId lane, Link& link, const protocol::FrameHeader& header, Effects& effects);
  // Returns why a chunk breaks a rule; empty if it breaks none. `landing` becomes the in-flight
  // chunk; it stays empty if the chunk is to be discarded.
  std::string judge(LaneId lane, Link& link, const protocol::FrameHeader& header,
                    InFlightChunk& landing);
  void chunk_arrived(Operation& operation, uint64_t id, Effects& effects);
  void take_unexpected(Link& link, Operation& operation, uint32_t index, Effects& effects);
  // contributed(): a chunk of a leg has arrived. result_left(): a chunk of a leg has left.
  void contributed(Operation& leg, const Chunk& chunk, Effects& effects);
  void result_left(Operation& leg, const Chunk& chunk, Effects& effects);

  Link* find_link(PeerId peer);
  void send_open(Link& link, uint32_t lane, Effects& effects);
  bool shows_post(const Operation& leg) const;
  void grant(Operation& operation, Effects& effects);
  void release(Link& link, OpKey op, uint64_t digest, Effects& effects);
  void enqueue(Operation& operation, Effects& effects);
  void serve(Link& link, Effects& effects);
  void begin_chunks(Operation& operation, Effects& effects);
  void let_all_run_ahead(Effects& effects);
  void announce_if_agreed(Operation& operation, Effects& effects);
  void drain(Operation& operation, const OpEnded& end, Effects& effects);
  void stop_chunks(Operation& operation, Effects& effects);
  void give_back(const Operation& operation, const OpEnded& end, Effects& effects);

  // ---- Invariants: core_check.cc ----
  const Link* find_link(PeerId peer) const;
  void check_operation(const Operation& operation) const;

  Epoch epoch_;
  std::vector<PeerId> members_;
  std::map<PeerId, Link> links_;  // links that are up
  OpTable operations_;
  // In builds without NDEBUG. `unchecked_`: steps since the last check. `objects_`: the number of
  // objects at that check.
  [[maybe_unused]] size_t unchecked_ = 0, objects_ = 0;
};

}  // namespace pccl::ring
