#include "master/group/ring_links.h"

#include "csrc/base/assert.h"
#include "master/epochs/present_epoch.h"
#include "master/members/membership.h"

namespace pccl::master {

std::vector<RingLink> ring_links(const GroupView& view) {
  const protocol::EpochStart& start = view.present.start();
  const size_t count = start.ring.size();
  const Membership& membership = view.membership;
  std::vector<RingLink> all;
  for (size_t i = 0; i < count && count > 1; ++i) {
    const PeerId from = start.members.at(start.ring[i]).peer;
    const PeerId to = start.members.at(start.ring[(i + 1) % count]).peer;
    PCCL_ASSERT(from != to);
    if (!membership.is_member(from) || !membership.is_member(to)) continue;
    all.push_back({from, to, membership.links.rate(from, to), membership.links.rtt(from, to)});
  }
  return all;
}

}  // namespace pccl::master
