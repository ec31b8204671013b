// Task: one operation as the control plane gives it to the data plane. It is plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/protocol/absent_ranks.h"
#include "csrc/ring/shape.h"

namespace pccl::ring {

// The bytes that pass directly between this member and another one. Bytes and digest are the same
// at both ends, unless the members disagree: then the digests differ, too.
struct Part {
  PeerId peer{};
  uint64_t to = 0, from = 0;  // bytes; 0: nothing passes
  uint64_t digest_to = 0, digest_from = 0;
  uint64_t handle_to = 0, handle_from = 0;  // kExchange: of their memory, given by the Engine
};

// An operation as the ring needs it. `handle` identifies its memory in the Engine.
struct Task {
  Epoch epoch;
  OpKey op;
  uint64_t digest = 0;
  uint64_t handle = 0;
  Shape shape;
  PeerId upstream{};    // unset: receives nothing
  PeerId downstream{};  // unset: sends nothing
  // kOneShot, kOneShotExchange, kExchange: the parts of all members, by rank, this one included.
  // kDirect has them too, but only their peers matter.
  std::vector<Part> parts{};
  bool keep = false;  // OpProgressed is emitted for it
  // The destination of a transfer asks for it: its credit carries `what`, and the source posts the
  // other end when it gets that credit (Requested). A pulled transfer yields to all other
  // operations on its link.
  bool pulled = false;
  uint32_t what = 0;
  // It only fills the link: it yields to all others, to pulled transfers too.
  bool filler = false;
  // This member, if it is absent from the reduction.
  protocol::AbsentRanks absent = {};
};

// The shape of a part of an exchange that has this shape.
inline Shape shape_of_part(const Shape& exchange, uint64_t bytes, bool sends) {
  return {.pattern = Pattern::kBroadcast,
          .rank = sends ? 0u : 1u,
          .world = 2,
          .count = bytes,
          .block_bytes = {},
          .wan = exchange.wan};
}

// The shape of a leg of an operation that has this shape. `part`: the bytes of a one-shot
// operation that take the leg.
inline Shape shape_of_leg(const Shape& whole, uint32_t from, uint32_t to, uint64_t part = 0) {
  Shape shape = whole;
  shape.leg = {from, to};
  if (row_of(whole.pattern).is_one_shot()) shape.count = part / whole.element_bytes;
  return shape;
}

}  // namespace pccl::ring
