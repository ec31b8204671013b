// Task: one operation as the control plane gives it to the data plane. It is plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/protocol/absent_ranks.h"
#include "csrc/ring/shape.h"

namespace pccl::ring {

// The bytes that pass directly between this member and another one. Both ends have the same number
// of bytes and the same digest. If the two members disagree about the bytes, their digests differ,
// too.
struct Part {
  PeerId peer{};
  uint64_t to = 0, from = 0;  // bytes sent to the peer, and received from it
  uint64_t digest_to = 0, digest_from = 0;
  uint64_t handle_to = 0, handle_from = 0;  // kExchange: of the memory; the Engine sets them
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
  // From kPriorityMin to kPriorityMax. Ready work of a higher priority leaves first. This decides
  // only when it leaves, so members may differ.
  int8_t priority = 0;
  // The destination of a pulled transfer asks the source for it: the credit of the destination
  // carries `what`. When the source gets this credit (Requested), it posts its end of the transfer.
  // A pulled transfer yields to all other operations on its link.
  bool pulled = false;
  uint32_t what = 0;
  // A filler: it yields to all other operations on its link, also to pulled transfers.
  bool filler = false;
  // This member, if it is absent from the reduction.
  protocol::AbsentRanks absent = {};
};

// Returns the shape of one part of an exchange. `exchange`: the shape of the whole exchange.
inline Shape shape_of_part(const Shape& exchange, uint64_t bytes, bool sends) {
  return {.pattern = Pattern::kBroadcast,
          .rank = sends ? 0u : 1u,
          .world = 2,
          .count = bytes,
          .block_bytes = {},
          .wan = exchange.wan};
}

// Returns the shape of one leg. `whole`: the shape of the whole operation. `part`: in a one-shot
// operation, the bytes that travel on the leg.
inline Shape shape_of_leg(const Shape& whole, uint32_t from, uint32_t to, uint64_t part = 0) {
  Shape shape = whole;
  shape.leg = {from, to};
  if (row_of(whole.pattern).is_one_shot()) shape.count = part / whole.element_bytes;
  return shape;
}

}  // namespace pccl::ring
