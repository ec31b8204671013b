// one_shot_limit: up to which size a tensor travels at once to every member, in a one-shot
// operation. The master chooses the size for each epoch, within the bounds of limits.h. Each member
// compares the largest part of an operation with it (is_small() in csrc/peer/request.cc). A pure
// function.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "csrc/protocol/limits.h"

namespace pccl::master {

// Maximum bytes that one one-shot operation needs at each member, for the tensors of all members
// together. So the limit for a tensor is smaller in a larger group.
inline constexpr size_t kOneShotScratchBytes = 512u << 10;

// The largest part of a one-shot operation in an epoch with this number of members, in bytes; 0 if
// they are too many. `wanted`: the limit of a small group, at most protocol::kOneShotBytesMax.
inline uint32_t one_shot_limit(size_t members, uint32_t wanted) {
  if (members > protocol::kOneShotMembersMax) return 0;
  const size_t share = kOneShotScratchBytes / std::max<size_t>(members, 1);
  return static_cast<uint32_t>(std::min<size_t>(wanted, share));
}

}  // namespace pccl::master
