// Eager data: chunks that leave before the neighbour has granted credit. Credit takes half a round
// trip to arrive, and data could travel meanwhile. The first steps of an operation on a wan path
// therefore leave at once, and so do the contributions of a one-shot operation on every path.
// Each link has one object of each class; RingCore owns them. They are pure: they see headers,
// never payload bytes.
//  - EagerBudget: limits the eager data that this peer sends on the link.
//  - UnexpectedMessages: the unexpected-message queue: credit and eager chunks that arrived before
//    their operation was posted here.
// Invariants:
//  (1) The other end always has room for all eager data, so no lane waits for room (docs/design.md,
//      section 2: I3 and I5).
//  (2) The bytes in use are a sum over all operations (EagerBudget), or over all chunks that count
//      (UnexpectedMessages). They are at most protocol::kEagerBytes.
//  (3) The sender counts at least as many bytes as the receiver. At the sender, a chunk counts as
//      soon as its operation is posted there, so before the chunk arrives. At the receiver, it no
//      longer counts once the receiver posts or ends the operation, so before the sender learns of
//      that. So an honest sender never exceeds the limit of the receiver. The receiver keeps at
//      most protocol::kEagerBytes, plus one chunk for each lane: a chunk that was arriving when the
//      receiver posted its operation.
//  (4) UnexpectedMessages keeps messages of at most kOpsOpenMax operations: an honest neighbour has
//      never posted more than kOpsOpenMax operations that this peer has not posted. All chunks of
//      an operation have the same digest. The index of a chunk is below `begun`.
// Failure: UnexpectedMessages refuses a message when the other end broke a limit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "csrc/base/ids.h"
#include "csrc/protocol/frames.h"
#include "csrc/protocol/limits.h"

namespace pccl::ring {

// Returns the number of bytes that one chunk counts as in the budget of a link.
constexpr uint64_t eager_cost(uint64_t chunk_bytes) {
  return std::max(chunk_bytes, protocol::kKeptBytesMin);
}

class EagerBudget {
 public:
  // Returns the bytes left in the budget for an operation. Eager data counts until the other end
  // has posted its operation or has announced its end; if neither happens, until the epoch is over.
  uint64_t room(bool one_shot) const {
    const uint64_t most = one_shot ? protocol::kEagerBytes : protocol::kEagerBytesLarge;
    return most - std::min(most, used_);
  }
  // Counts `bytes` bytes for the operation. The caller sends at most this number of bytes of it as
  // eager data. REQUIRES: bytes <= room(true), called once for each operation.
  void leaves(OpKey op, uint64_t bytes);
  // The other end has posted the operation, or the operation has ended there. The other end now
  // keeps no eager data of the operation, except chunks that are still arriving.
  void requested(OpKey op);
  // The operations whose eager data counts, with their bytes.
  const std::map<OpKey, uint64_t>& unasked() const { return unasked_; }
  void check() const;  // asserts the invariants

 private:
  uint64_t used_ = 0;
  std::map<OpKey, uint64_t> unasked_;
};

class UnexpectedMessages {
 public:
  struct Chunk {
    protocol::FrameHeader header;
    bool here = false;
    bool counted = true;  // it counts against the sender's budget
  };
  struct Kept {
    uint64_t digest = 0;
    std::map<uint32_t, Chunk> chunks;  // by index, in the order in which they began to arrive
    uint32_t begun = 0;                // number of chunks that have begun to arrive, kept or not
    bool voided = false;               // the sender marked one of its chunks void
    struct Credit {
      uint64_t digest = 0, steps = 0;
    };
    std::optional<Credit> credit = {};  // the latest credit
  };

  // A chunk begins to arrive. Returns its index; nothing if the other end has exceeded its budget,
  // or has sent chunks of too many operations that are not posted here.
  std::optional<uint32_t> arriving(const protocol::FrameHeader& header);
  // Keeps credit. False if the other end has sent messages of too many operations.
  bool keep(const protocol::FrameHeader& credit);
  // Null if nothing of the operation is kept.
  Kept* find(OpKey op);
  // The operation was posted here. From now on, no chunk of the operation counts against the
  // budget.
  void requested(OpKey op);
  // REQUIRES: the chunk is in the queue.
  void take(OpKey op, uint32_t index);
  void drop(OpKey op);
  size_t size() const { return kept_.size(); }  // operations
  OpKey first() const { return kept_.begin()->first; }
  const std::map<OpKey, Kept>& all() const { return kept_; }
  void check() const;  // asserts the invariants

 private:
  bool is_full_for(OpKey op) const {
    return kept_.size() >= protocol::kOpsOpenMax && !kept_.contains(op);
  }

  uint64_t used_ = 0;
  std::map<OpKey, Kept> kept_;
};

}  // namespace pccl::ring
