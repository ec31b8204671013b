// Shares of the owners in a direct all-reduce, for tests.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "csrc/protocol/limits.h"

namespace pccl::ring {

// Random shares: often equal to 0, or all of it.
inline std::vector<uint16_t> random_shares(uint32_t world, std::mt19937_64& random) {
  std::vector<uint16_t> shares(world);
  uint16_t left = protocol::kSharesTotal;
  for (uint16_t& share : shares) {
    if (random() % 3 == 0) continue;
    share = static_cast<uint16_t>(random() % (left + 1u));
    left = static_cast<uint16_t>(left - share);
  }
  shares[random() % world] += left;
  return shares;
}

}  // namespace pccl::ring
