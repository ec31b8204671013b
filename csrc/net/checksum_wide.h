// checksum_wide: XXH3 with AVX2 instructions. It has a file of its own, because the compiler may
// use these instructions everywhere in the file. Only Checksum calls it. The results are the same
// as without AVX2. Any thread may call these functions. REQUIRES: has_wide_vectors().
#pragma once

#include <cstddef>
#include <cstdint>

namespace pccl::net {

// Adds bytes to an XXH3_state_t of 64 bits.
void add_wide(void* state, const void* bytes, size_t size);
// The hash of these bytes alone.
uint64_t hash_wide(const void* bytes, size_t size);

}  // namespace pccl::net
