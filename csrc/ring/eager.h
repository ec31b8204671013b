// Eager data: chunks that leave before the neighbour has granted credit. On a wan path, credit
// takes half a round trip to arrive, and data could travel meanwhile. The first steps of an
// operation therefore leave at once.
// Each link has one of each class; RingCore owns them. They are pure: they see headers, never
// payload bytes.
//  - EagerBudget: the limit of this peer's own eager data.
//  - UnexpectedChunks: the unexpected-message queue for eager data: chunks that arrived before
//    their operation was posted here.
// Invariants:
//  (1) Eager data never exceeds the room that the other end has in every case, so no lane waits for
//      room (docs/design.md, section 2: I3 and I5).
//  (2) The bytes in use are the sum over all operations, or over all chunks that count. They are at
//      most kEagerBytes.
//  (3) UnexpectedChunks keeps chunks of at most kOpsOpenMax operations. Each chunk has the digest
//      of its operation and an index below the number of chunks so far.
// Failure: UnexpectedChunks::arriving() returns nothing when the other end broke a limit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "csrc/base/ids.h"
#include "csrc/protocol/frames.h"
#include "csrc/protocol/limits.h"

namespace pccl::ring {

// The part of a link's kEagerBytes that one chunk uses.
constexpr uint64_t eager_cost(uint64_t chunk_bytes) {
  return std::max(chunk_bytes, protocol::kKeptBytesMin);
}

class EagerBudget {
 public:
  // Bytes left in the budget. Eager data for an operation that the other end never posts stays in
  // use, perhaps until the epoch is over.
  uint64_t room() const { return protocol::kEagerBytes - used_; }
  // At most `bytes` bytes of the operation leave as eager data. REQUIRES: bytes <= room(), once for
  // each operation.
  void leaves(OpKey op, uint64_t bytes);
  // The other end has posted the operation. It now keeps none of the eager data of the operation,
  // except chunks that are still arriving.
  void requested(OpKey op);
  // The operations whose eager data counts, with their bytes.
  const std::map<OpKey, uint64_t>& unasked() const { return unasked_; }
  void check() const;  // asserts the invariants

 private:
  uint64_t used_ = 0;
  std::map<OpKey, uint64_t> unasked_;
};

class UnexpectedChunks {
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
  };

  // A chunk begins to arrive: returns its index. Nothing if the other end exceeded its budget, or
  // has sent chunks of too many operations that are not posted here.
  std::optional<uint32_t> arriving(const protocol::FrameHeader& header);
  // Null if nothing of the operation is kept.
  Kept* find(OpKey op);
  // The operation was posted here. From now on the other end counts none of its chunks against the
  // budget.
  void requested(OpKey op);
  // REQUIRES: the chunk is in the queue.
  void take(OpKey op, uint32_t index);
  void drop(OpKey op);
  bool empty() const { return kept_.empty(); }
  OpKey first() const { return kept_.begin()->first; }
  const std::map<OpKey, Kept>& all() const { return kept_; }
  void check() const;  // asserts the invariants

 private:
  uint64_t used_ = 0;
  std::map<OpKey, Kept> kept_;
};

}  // namespace pccl::ring
