// trunk_guess: guesses, from the rates of simultaneous probes, which shared paths limit the
// members. A trunk, such as an ocean cable or the uplink of a site, is shared by all pairs of
// members on its two sides. A probe of one pair alone does not show the trunk. But the probes of
// one round of the tournament run together, and the sum of the rates that cross from one side to
// the other shows the rate of the trunk.
//
// The sides are guessed from the RTTs: a set of members that are near to each other, and far from
// all others, may be at one end of a trunk. The assumed rate of the trunk is the highest sum of the
// rates of its probes in one round. It is too low if no round has many pairs that cross. But some
// round has at least as many crossing pairs as the mean of all rounds. So if all paths and uplinks
// have the same rate, the assumed rate is at least the rate at which all members of the smaller
// side can send. Therefore equal hosts without a trunk never seem to have one. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "master/topology/pattern_time.h"

namespace pccl::master::topology {

// The result of a probe. Probes with the same round ran at the same time.
struct Probed {
  uint32_t from = 0, to = 0;
  double rate = 0;  // bytes per second
  uint32_t round = 0;
};

// The trunks that would limit direct all-reduces with equal shares, the slowest first. A trunk that
// would not limit them has no effect on a plan. `rtt`: of each pair, in any unit. REQUIRES: two
// members or more.
std::vector<Network::Trunk> guessed_trunks(const Network& network, const CostTable& rtt,
                                           const std::vector<Probed>& probes);

}  // namespace pccl::master::topology
