// No other header is included: its inline functions would have AVX2 instructions, too, and the
// linker could use them in place of the same functions of other files, which run on every machine.
#include "csrc/net/checksum_wide.h"

// The prefetch crosses the ends of pages, where the processor's own prefetch stops.
#define XXH_PREFETCH_DIST 4096
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pccl::net {

void add_wide(void* state, const void* bytes, size_t size) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state), bytes, size);
}

uint64_t hash_wide(const void* bytes, size_t size) { return XXH3_64bits(bytes, size); }

}  // namespace pccl::net
