// EagerQueue: the early messages of one link in both directions: the budget of this peer for eager
// data, and the messages that arrived before their operation was posted here (eager.h). Credit is
// kept until its operation is posted, or has ended. Each link has one; RingCore owns it. States of
// a chunk whose operation is not posted here yet:
//   arriving       its header is here        LandUnexpected                            landing
//   landing        all bytes are here        -                                         kept
//   kept           OpPosted                  TakeUnexpected, as if it arrived now      gone
//   landing, kept  OpEnded, LinkDown, or     DropUnexpected                            gone
//                  a different digest at the post
// Invariant: a kept chunk that has not fully arrived is landing on exactly one lane.
// Failure: the other end breaks a rule: the link fails.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/protocol/frames.h"
#include "csrc/ring/eager.h"
#include "csrc/ring/events.h"
#include "csrc/ring/op_table.h"
#include "csrc/ring/peer_link.h"

namespace pccl::ring {

class EagerQueue {
 public:
  explicit EagerQueue(PeerLink& link) : link_(link) {}  // REQUIRES: the link outlives this
  void begin_epoch(Effects& effects);

  // ---- Sending ----
  // Lets a new operation send as far as its credit allows. If no credit has come, it may send eager
  // data: as far as the budget has room, or all of it if the other end has posted the operation
  // already, because its own data is here.
  void allow(Operation& operation);
  // The other end has posted the operation, or the operation has ended there.
  void requested(OpKey op) { budget_.requested(op); }

  // ---- Receiving ----
  // Keeps credit of an operation that is not posted here. False if it is of one operation too many.
  bool keep(const protocol::FrameHeader& credit) { return messages_.keep(credit); }
  // Why a chunk of an operation that is not posted here breaks a rule; empty if it breaks none.
  // `landing` becomes its landing; it stays empty if the chunk is to be discarded.
  std::string judge(const protocol::FrameHeader& header, InFlightChunk& landing);
  // A chunk of the queue is here. True: take() must follow, because its operation was posted
  // meanwhile. `whole`: that operation, or null.
  bool arrived(const UnexpectedId& chunk, bool valid, Operation* whole, Effects& effects);
  // The operation was posted. Returns the chunks that are here, for take().
  std::vector<uint32_t> posted(Operation& whole, Effects& effects);
  // Uses a kept chunk as a chunk of its operation. Returns its chunk id; nothing if it was dropped.
  std::optional<uint64_t> take(Operation& operation, uint32_t index, Effects& effects);
  // All chunks of the operation. Returns their digest; nothing if there were none.
  std::optional<uint64_t> drop(OpKey op, Effects& effects);
  void drop_all(Effects& effects);

  size_t size() const { return messages_.size(); }  // operations with early messages
  size_t kept() const;                              // chunks
  // Asserts the invariants. Returns the number of kept chunks that are landing.
  long check(const OpTable& operations) const;

 private:
  PeerLink& link_;
  EagerBudget budget_;
  UnexpectedMessages messages_;
};

}  // namespace pccl::ring
