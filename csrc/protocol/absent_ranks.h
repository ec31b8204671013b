// AbsentRanks: the ranks that are absent from one reduction. An absent member has not received the
// shared state yet: it takes part with zeros, and an average does not count it. A plain value, for
// peers and frames (PROTOCOL.md, section 6).
// The ranks are bits, counted from the last rank, because newcomers have the last ranks. So only
// the last kMax ranks of a group can be absent. When a member leaves, no other member gets farther
// from the last rank.
#pragma once

#include <bit>
#include <cstdint>

#include "csrc/base/assert.h"

namespace pccl::protocol {

struct AbsentRanks {
  static constexpr uint32_t kMax = 64;

  uint64_t bits = 0;

  static bool can_have(uint32_t rank, uint32_t world) { return world - rank <= kMax; }
  // REQUIRES: can_have(rank, world)
  static AbsentRanks of(uint32_t rank, uint32_t world) {
    PCCL_ASSERT(rank < world && can_have(rank, world));
    return {uint64_t{1} << (world - 1 - rank)};
  }
  bool contains(uint32_t rank, uint32_t world) const {
    return can_have(rank, world) && (bits & of(rank, world).bits) != 0;
  }
  // Whether all absent ranks are ranks of a group of this size.
  bool fit(uint32_t world) const { return world >= kMax || bits >> world == 0; }
  bool any() const { return bits != 0; }
  uint32_t count() const { return static_cast<uint32_t>(std::popcount(bits)); }
  void add(AbsentRanks others) { bits |= others.bits; }
  bool operator==(const AbsentRanks&) const = default;
};

}  // namespace pccl::protocol
