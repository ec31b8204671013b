// state: the hash of a shared state, which the master and the peers compute in the same way from
// the descriptions of its entries. It covers the bytes of the tensors through their hashes. A pure
// function: any thread may call it.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/protocol/messages.h"

namespace pccl::protocol {

// Returns one number for the content of a state: its keys, dtypes, shapes and hashes, but not its
// revision.
uint64_t state_hash(const std::vector<StateEntry>& entries);

}  // namespace pccl::protocol
