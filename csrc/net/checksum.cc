#include "csrc/net/checksum.h"

#define XXH_INLINE_ALL  // no library to ship, and no symbol that another library could override
#include <xxhash.h>

#include "csrc/base/cpu.h"
#include "csrc/net/checksum_wide.h"

namespace pccl::net {
namespace {

// For fewer bytes, the choice of the AVX2 code takes longer than that code saves.
constexpr size_t kWideBytesMin = 1024;

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
  if (bytes.size() >= kWideBytesMin && has_wide_vectors()) {
    add_wide(state_, bytes.data(), bytes.size());
  } else if (!bytes.empty()) {
    XXH3_64bits_update(state(state_), bytes.data(), bytes.size());
  }
}

uint32_t Checksum::value() const {
  return static_cast<uint32_t>(XXH3_64bits_digest(state(state_)));
}

uint32_t checksum(std::span<const std::byte> bytes) {
  const bool wide = bytes.size() >= kWideBytesMin && has_wide_vectors();
  return static_cast<uint32_t>(wide ? hash_wide(bytes.data(), bytes.size())
                                    : XXH3_64bits(bytes.data(), bytes.size()));
}

}  // namespace pccl::net
