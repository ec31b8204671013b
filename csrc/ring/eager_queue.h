// EagerQueue: the early messages of one link in both directions. It has the budget for the eager
// data that this peer sends, and keeps the messages that arrived before their operation was posted
// here (eager.h). Credit is kept until its operation is posted, or has ended. Each link has one
// EagerQueue; RingCore owns it. The table shows a chunk whose operation is not posted here yet:
// state, event, effect, next state.
//   arriving       its header is here        LandUnexpected                            landing
//   landing        all bytes are here        -                                         kept
//   kept           OpPosted                  TakeUnexpected, as if it arrived now      gone
//   landing, kept  OpEnded, LinkDown, or     DropUnexpected                            gone
//                  a different digest at the post
// Invariant: a kept chunk that has not fully arrived is landing on exactly one lane.
// Failure: if the other end breaks a rule, the link fails.
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
  // Sets how far a new operation may send (`allowed`). If its credit is here, the credit decides.
  // If not, the operation may send eager data, as far as the budget has room. If chunks of the
  // other end are here, the other end has posted the operation, and the budget does not matter.
  void allow(Operation& operation);
  // The other end has posted the operation, or the operation has ended there.
  void requested(OpKey op) { budget_.requested(op); }

  // ---- Receiving ----
  // Keeps credit of an operation that is not posted here. False if messages of too many operations
  // are kept already.
  bool keep(const protocol::FrameHeader& credit) { return messages_.keep(credit); }
  // Returns why a chunk of an operation that is not posted here breaks a rule; empty if it breaks
  // none. `landing` is set to the landing of the chunk; it stays empty if the chunk is to be
  // discarded.
  std::string judge(const protocol::FrameHeader& header, InFlightChunk& landing);
  // A chunk of the queue has arrived. Returns true if its operation was posted meanwhile: take()
  // must follow. `whole`: that operation; null if it is not posted.
  bool arrived(const UnexpectedId& chunk, bool valid, Operation* whole, Effects& effects);
  // The operation was posted. Returns the chunks that are here, for take().
  std::vector<uint32_t> posted(Operation& whole, Effects& effects);
  // Uses a kept chunk as a chunk of its operation. Returns its chunk id; nothing if it was dropped.
  std::optional<uint64_t> take(Operation& operation, uint32_t index, Effects& effects);
  // Drops all messages of the operation. Returns the digest of its chunks; nothing if it had no
  // chunks.
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
