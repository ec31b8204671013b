// ring_links: the links of the ring of a group with their measured speed, as facts for texts about
// them. A pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/base/ids.h"
#include "master/group/group_view.h"

namespace pccl::master {

struct RingLink {
  PeerId from, to;
  uint64_t rate = 0;  // in bytes per second; 0: unknown
  uint32_t rtt = 0;   // in microseconds; 0: unknown
};

// In the order of the ring of the present epoch. Members that are lost are left out with their
// links. Empty if there is no epoch, or only one member.
std::vector<RingLink> ring_links(const GroupView& view);

}  // namespace pccl::master
