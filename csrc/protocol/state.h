// State: what master and peers compute alike of a shared state, from what its entries look like.
// The bytes of the tensors are in it by their hashes.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/protocol/messages.h"

namespace pccl::protocol {

// One number for the content of a state: over keys, types, shapes and hashes, not the revision.
uint64_t state_hash(const std::vector<StateEntry>& entries);

}  // namespace pccl::protocol
