#include "csrc/peer/seen_topology.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::peer {
namespace {

int32_t rank_in(const Topology& topology, PeerId peer) {
  const auto& members = topology.members;
  const auto at = std::find_if(members.begin(), members.end(),
                               [peer](const protocol::Member& one) { return one.peer == peer; });
  return at == members.end() ? -1 : static_cast<int32_t>(at - members.begin());
}

}  // namespace

int32_t SeenTopology::rank_of(PeerId peer) const { return rank_in(topology_, peer); }

std::vector<PeerId> SeenTopology::left() const {
  std::vector<PeerId> left;
  if (!next_) return left;
  for (const protocol::Member& member : topology_.members) {
    if (rank_in(*next_, member.peer) < 0) left.push_back(member.peer);
  }
  return left;
}

void SeenTopology::begin(const Topology& topology, bool reconfigures) {
  PCCL_ASSERT(latest_since() < topology.epoch);
  const Topology& latest = next_ ? *next_ : topology_;
  if (!reconfigures || topology.members != latest.members) next_ = topology;
  if (!reconfigures) show();
}

const Topology* SeenTopology::ask(protocol::LossPolicy policy, bool has_operation_in_flight) {
  if (!next_ || policy != protocol::LossPolicy::kRetry || has_operation_in_flight) return nullptr;
  show();
  return &topology_;
}

void SeenTopology::show() {
  if (next_) topology_ = *std::exchange(next_, {});
}

Topology SeenTopology::show_with_routes(const Topology& present) {
  Topology shown = present;
  shown.epoch = latest_since();
  shown.joined.clear();
  shown.left = left();
  show();
  return shown;
}

std::optional<Topology> SeenTopology::with_routes(const Topology& present) const {
  if (next_) return std::nullopt;
  Topology shown = present;
  shown.epoch = topology_.epoch;
  shown.joined = topology_.joined;
  shown.left = topology_.left;
  return shown;
}

void SeenTopology::check(PeerId self, const Topology& present) const {
  PCCL_ASSERT(rank_of(self) == static_cast<int32_t>(topology_.rank));
  PCCL_ASSERT(present.generation <= since() && latest_since() <= present.epoch);
  PCCL_ASSERT(!next_ || since() < next_->epoch);
  PCCL_ASSERT((next_ ? *next_ : topology_).members == present.members);
}

}  // namespace pccl::peer
