#include "csrc/link/lane_counts.h"

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/link/lane_controller.h"

namespace pccl::link {
namespace {

// The lanes that all links together get for LanesWanted, as a multiple of lanes_max.
constexpr size_t kNeighboursOfAll = 4;

}  // namespace

void LaneCounts::learnt(PeerId peer, uint32_t lanes) {
  PCCL_ASSERT(lanes > 0);
  learnt_[peer] = lanes;
}

uint32_t LaneCounts::open(Duration rtt) const {
  // The process can afford lanes_max for each of two neighbours; more neighbours share the same
  // number of lanes.
  const size_t neighbours = std::max<size_t>(neighbours_.size(), 2);
  const auto most =
      static_cast<uint32_t>(std::max(size_t{2} * options_.lanes_max / neighbours, size_t{1}));
  if (options_.lanes > 0) return std::min(options_.lanes, most);
  return rtt < options_.wan_rtt_min ? 1 : most;
}

uint32_t LaneCounts::at_first(PeerId peer, Duration rtt) const {
  if (options_.lanes > 0) return options_.lanes;
  const auto known = learnt_.find(peer);
  return known != learnt_.end() ? known->second : LaneController::first(rtt);
}

// All links together get at most kNeighboursOfAll times lanes_max, but each link at least one lane.
uint32_t LaneCounts::wanted(PeerId peer, Duration rtt, bool measured, size_t links) const {
  PCCL_ASSERT(links > 0);
  const auto share =
      static_cast<uint32_t>(std::max(kNeighboursOfAll * options_.lanes_max / links, size_t{1}));
  return std::min({measured ? share : at_first(peer, rtt), open(rtt), share});
}

}  // namespace pccl::link
