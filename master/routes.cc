#include "master/routes.h"

#include <algorithm>

#include "csrc/protocol/shares.h"

namespace pccl::master {
namespace {

void for_each_pair(const std::vector<PeerId>& members, auto&& visit) {
  for (size_t rank = 0; rank < members.size(); ++rank) {
    for (size_t other = 0; other < rank; ++other) visit(members[other], members[rank]);
  }
}

}  // namespace

bool is_mesh(const Links& links, const std::vector<PeerId>& members) {
  bool all = true;
  for_each_pair(members, [&](PeerId a, PeerId b) { all = all && links.linked(a, b); });
  return all;
}

uint32_t longest_rtt_in_ring(const Links& links, const std::vector<PeerId>& members) {
  uint32_t longest = 0;
  for (size_t index = 0; index < members.size(); ++index) {
    const PeerId next = members[(index + 1) % members.size()];
    longest = std::max(longest, links.rtt(members[index], next));
  }
  return longest;
}

uint32_t longest_rtt_in_mesh(const Links& links, const std::vector<PeerId>& members) {
  uint32_t longest = 0;
  for_each_pair(members, [&](PeerId a, PeerId b) { longest = std::max(longest, links.rtt(a, b)); });
  return longest;
}

std::vector<uint16_t> shares_of(const std::vector<uint16_t>& wanted, size_t members) {
  return protocol::are_shares(wanted, members) ? wanted : protocol::equal_shares(members);
}

}  // namespace pccl::master
