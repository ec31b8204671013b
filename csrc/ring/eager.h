// Eager data: chunks that leave before the neighbour has granted credit. Credit takes half a round
// trip to arrive, and data could travel meanwhile. The first steps of an operation on a wan path
// therefore leave at once, and so do the contributions of a one-shot operation on every path.
// Each link has one of each class; RingCore owns them. They are pure: they see headers, never
// payload bytes.
//  - EagerBudget: the limit of this peer's own eager data.
//  - UnexpectedMessages: the unexpected-message queue: credit and eager chunks that arrived before
//    their operation was posted here.
// Invariants:
//  (1) Eager data never exceeds the room that the other end has in every case, so no lane waits for
//      room (docs/design.md, section 2: I3 and I5).
//  (2) The bytes in use are the sum over all operations, or over all chunks that count. They are at
//      most protocol::kEagerBytes.
//  (3) The sender counts at least as much as the receiver. A chunk counts from the post of its
//      operation at the sender, hence before it arrives. It no longer counts at the receiver when
//      the receiver posts or ends the operation, hence before the sender learns of that. So an
//      honest sender never exceeds the limit of the receiver. The receiver keeps at most
//      protocol::kEagerBytes, and one chunk more for each lane, which was arriving at the post.
//  (4) UnexpectedMessages keeps messages of at most kOpsOpenMax operations: no honest neighbour has
//      posted that many more than this peer. Each chunk has the digest of the chunks of its
//      operation and an index below the number of chunks so far.
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

// The part of a link's eager data that one chunk uses.
constexpr uint64_t eager_cost(uint64_t chunk_bytes) {
  return std::max(chunk_bytes, protocol::kKeptBytesMin);
}

class EagerBudget {
 public:
  // Bytes left in the budget for an operation. Eager data of an operation that the other end has
  // never posted and never announced as ended stays in use until the epoch is over.
  uint64_t room(bool one_shot) const {
    const uint64_t most = one_shot ? protocol::kEagerBytes : protocol::kEagerBytesLarge;
    return most - std::min(most, used_);
  }
  // At most `bytes` bytes of the operation leave as eager data. REQUIRES: bytes <= room(true), once
  // for each operation.
  void leaves(OpKey op, uint64_t bytes);
  // The other end has posted the operation, or the operation has ended there. It now keeps none of
  // the eager data of the operation, except chunks that are still arriving.
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
    std::map<uint32_t, Chunk> chunks;  // by order of arrival
    uint32_t begun = 0;                // number of chunks so far, those no longer kept included
    bool voided = false;               // the sender marked one of its chunks void
    struct Credit {
      uint64_t digest = 0, steps = 0;
    };
    std::optional<Credit> credit = {};  // the latest
  };

  // A chunk begins to arrive: returns its index. Nothing if the other end exceeded its budget, or
  // has sent chunks of too many operations that are not posted here.
  std::optional<uint32_t> arriving(const protocol::FrameHeader& header);
  // Keeps credit. False if the other end has sent messages of too many operations.
  bool keep(const protocol::FrameHeader& credit);
  // Null if nothing of the operation is kept.
  Kept* find(OpKey op);
  // The operation was posted here. From now on the other end counts none of its chunks against the
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
