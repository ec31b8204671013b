// SeenTopology: the group as the application sees it, and the latest members, which the application
// may not have seen yet. The ranks in its calls are ranks of the topology that it sees. The
// application sees the members of a new generation at once. With policy retry, the members also
// change in epochs that the application has not asked for. It sees such a change when it asks for
// its rank or for the world size while none of its operations is in flight: until then, each rank
// that it has passed to a call keeps its meaning. SeenTopology belongs to Membership.
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
  // `since`: the first epoch with the members that the application sees. `latest_since`: the first
  // epoch with the latest members.
  Epoch since() const { return topology_.epoch; }
  Epoch latest_since() const { return next_ ? next_->epoch : topology_.epoch; }
  int32_t rank_of(PeerId peer) const;  // as the application sees it; -1: none
  // The members that the application still sees although they have left.
  std::vector<PeerId> left() const;

  // An epoch begins. `reconfigures`: the generation continues.
  void begin(const Topology& topology, bool reconfigures);
  // The application asks for its rank. Returns the topology that it sees from now on, or null if
  // that has not changed.
  const Topology* ask(protocol::LossPolicy policy, bool has_operation_in_flight);
  // An update_topology has returned without a new epoch. From now on the application sees the
  // latest members, with the ring order and the shares of the present epoch.
  Topology show_with_routes(const Topology& present);
  // The members that the application sees, with the ring order and the shares of `present`. Nothing
  // if `present` has other members.
  std::optional<Topology> with_routes(const Topology& present) const;

  void check(PeerId self, const Topology& present) const;  // asserts the invariants

 private:
  void show();

  Topology topology_;
  std::optional<Topology> next_;  // the latest members, if they were not seen yet
};

}  // namespace pccl::peer
