// SeenTopology: the group as the application sees it, and its latest members, which the application
// may have yet to see. Ranks in its calls are ranks of the topology that it sees. With policy
// retry, the members also change in epochs that it has not asked for. It sees such a change when it
// asks for its rank or for the size while no operation of it is in flight: until then each rank
// that it has passed to a call keeps its meaning. It belongs to Membership.
// Invariants:
//   1. This peer is in both topologies, and a topology that was not seen yet is the later one.
//   2. The latest members are the members of the present epoch.
#pragma once

#include <optional>
#include <vector>

#include "csrc/peer/events.h"

namespace pccl::peer {

class SeenTopology {
 public:
  const Topology& topology() const { return topology_; }
  // The first epoch with the members that the application sees, and the first with the latest ones.
  Epoch since() const { return topology_.epoch; }
  Epoch latest_since() const { return next_ ? next_->epoch : topology_.epoch; }
  int32_t rank_of(PeerId peer) const;  // as the application sees it; -1: none
  // The members that the application sees and that have left.
  std::vector<PeerId> left() const;

  void change(const Topology& topology);  // an epoch begins with other members
  // The application sees the latest members from now on. Null if it sees them already.
  const Topology* show();
  // The same, with the routes of the present epoch, for an update_topology that begins no epoch.
  Topology show_with_routes(const Topology& present);
  // The seen topology with the routes of the present epoch; nothing if the members have changed.
  std::optional<Topology> with_routes(const Topology& present) const;

  void check(PeerId self, const Topology& present) const;  // asserts the invariants

 private:
  Topology topology_;
  std::optional<Topology> next_;  // the latest members, if they were not seen yet
};

}  // namespace pccl::peer
