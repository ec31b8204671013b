// LaneCounts: decides how many lanes a link opens, and how many of them are active at first. It is
// pure, and LinkCore owns it. `lanes_max` of the options bounds the lanes of all links together,
// because each lane uses a descriptor of the process.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "csrc/link/events.h"

namespace pccl::link {

class LaneCounts {
 public:
  explicit LaneCounts(const Options& options) : options_(options) {}
  void set_neighbours(std::vector<PeerId> peers) { neighbours_ = std::move(peers); }
  void learnt(PeerId peer, uint32_t lanes);  // the number that pays on links to this peer
  const std::vector<PeerId>& neighbours() const { return neighbours_; }

  // Each returns a number of lanes. open(): a link to a neighbour opens this number by itself; any
  // other link has one lane. at_first(): this number is active at the start. wanted(): a link opens
  // this number for a LanesWanted. `links`: the number of links that are up.
  uint32_t open(Duration rtt) const;
  uint32_t at_first(PeerId peer, Duration rtt) const;
  uint32_t wanted(PeerId peer, Duration rtt, bool measured, size_t links) const;

 private:
  const Options options_;
  std::vector<PeerId> neighbours_;
  std::map<PeerId, uint32_t> learnt_;
};

}  // namespace pccl::link
