// Task: one operation as the control plane gives it to the data plane. It is plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/ring/shape.h"

namespace pccl::ring {

// An operation as the ring needs it. `handle` identifies its memory in the Engine.
struct Task {
  Epoch epoch;
  OpKey op;
  uint64_t digest = 0;
  uint64_t handle = 0;
  Shape shape;
  PeerId upstream{};              // unset: receives nothing
  PeerId downstream{};            // unset: sends nothing
  std::vector<PeerId> members{};  // kOneShot: all members, by ring index
  bool keep = false;              // OpProgressed is emitted for it
  bool parked = false;            // its data is still to be staged: OpStaged follows
};

}  // namespace pccl::ring
