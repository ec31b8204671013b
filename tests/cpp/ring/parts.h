// Parts of one-shot operations and exchanges, for tests.
#pragma once

#include <vector>

#include "csrc/ring/task.h"

namespace pccl::ring {

// The parts of an operation in which `bytes` bytes pass between all members.
inline std::vector<Part> parts_among(const std::vector<PeerId>& members, uint64_t bytes,
                                     uint64_t digest) {
  std::vector<Part> parts;
  for (const PeerId peer : members) {
    parts.push_back(
        {.peer = peer, .to = bytes, .from = bytes, .digest_to = digest, .digest_from = digest});
  }
  return parts;
}

}  // namespace pccl::ring
