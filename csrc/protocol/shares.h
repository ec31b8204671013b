// shares: how the members of an epoch divide an all-reduce among themselves in the direct pattern
// (PROTOCOL.md, section 6). A list has one share per rank. Pure functions for any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pccl::protocol {

// Returns shares that differ by one at most; the lower ranks have the larger ones. REQUIRES: 1 <=
// members <= kMembersMax.
std::vector<uint16_t> equal_shares(size_t members);

// Whether there is one share per member, and their sum is kSharesTotal.
bool are_shares(const std::vector<uint16_t>& shares, size_t members);

}  // namespace pccl::protocol
