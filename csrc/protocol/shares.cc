#include "csrc/protocol/shares.h"

#include <numeric>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::protocol {

std::vector<uint16_t> equal_shares(size_t members) {
  PCCL_ASSERT(members >= 1 && members <= kMembersMax);
  std::vector<uint16_t> shares(members, static_cast<uint16_t>(kSharesTotal / members));
  for (size_t rank = 0; rank < kSharesTotal % members; ++rank) ++shares[rank];
  return shares;
}

bool are_shares(const std::vector<uint16_t>& shares, size_t members) {
  return shares.size() == members &&
         std::accumulate(shares.begin(), shares.end(), uint64_t{0}) == kSharesTotal;
}

}  // namespace pccl::protocol
