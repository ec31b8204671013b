// HeadStart: chunks that leave before the neighbour has asked for them. On a long way its credit
// takes half of the time that the data then does, so the first steps of an operation go at once;
// what arrives before the operation was posted there is kept. Two halves, each link has one of
// each: HeadStart says what may leave unasked, never more than the other end keeps whatever
// happens, so that nobody waits for room (deadlock-freedom I3, I5); EarlyChunks is what came too
// early. Pure: it sees headers, no bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "csrc/base/ids.h"
#include "csrc/net/framing.h"
#include "csrc/protocol/limits.h"

namespace pccl::ring {

// Of a link's kHeadStartBytes.
constexpr uint64_t head_start_cost(uint64_t chunk_bytes) {
  return std::max(chunk_bytes, protocol::kKeptBytesMin);
}

class HeadStart {
 public:
  // What it is not asked for stays with the other end, perhaps until the epoch is over.
  uint64_t room() const { return protocol::kHeadStartBytes - used_; }
  // At most so much of it leaves unasked. REQUIRES: bytes <= room(), once for each operation.
  void leaves(OpKey op, uint64_t bytes);
  // The other end has posted it, and keeps nothing of it any more but what is just arriving.
  void asked(OpKey op);

 private:
  uint64_t used_ = 0;
  std::map<OpKey, uint64_t> unasked_;
};

class EarlyChunks {
 public:
  struct Chunk {
    net::FrameHeader header;
    bool here = false;
    bool counted = true;  // among what the other end may send unasked
  };
  struct Kept {
    uint64_t digest = 0;
    std::map<uint32_t, Chunk> chunks;  // by the order in which they began to arrive
    uint32_t begun = 0;                // so many, those that are not kept any more included
    bool voided = false;               // one of them was
  };

  // A chunk begins to arrive: its index; nothing if the other end was not allowed to send it, or
  // has sent too many operations' that were not posted here.
  std::optional<uint32_t> arriving(const net::FrameHeader& header);
  // Null: nothing of it is kept.
  Kept* find(OpKey op);
  // It was posted here, and the other end counts nothing of it any more.
  void asked(OpKey op);
  // REQUIRES: it is there.
  void take(OpKey op, uint32_t index);
  void drop(OpKey op);
  bool empty() const { return kept_.empty(); }
  OpKey first() const { return kept_.begin()->first; }

 private:
  uint64_t used_ = 0;
  std::map<OpKey, Kept> kept_;
};

}  // namespace pccl::ring
