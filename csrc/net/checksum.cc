#include "csrc/net/checksum.h"

#define XXH_INLINE_ALL  // no library to ship, and no symbol that another library could override
#include <xxhash.h>

namespace pccl::net {
namespace {

XXH3_state_t* state(std::byte* bytes) { return reinterpret_cast<XXH3_state_t*>(bytes); }
const XXH3_state_t* state(const std::byte* bytes) {
  return reinterpret_cast<const XXH3_state_t*>(bytes);
}

}  // namespace

void Checksum::reset() {
  static_assert(sizeof(XXH3_state_t) <= kStateBytes && alignof(XXH3_state_t) <= 64);
  XXH3_64bits_reset(state(state_));
}

void Checksum::add(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_64bits_update(state(state_), bytes.data(), bytes.size());
}

uint32_t Checksum::value() const {
  return static_cast<uint32_t>(XXH3_64bits_digest(state(state_)));
}

uint32_t checksum(std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(XXH3_64bits(bytes.data(), bytes.size()));
}

}  // namespace pccl::net
