// pattern_time: predicts the time of an all-reduce around a ring and in the direct pattern. The
// comparison of both patterns matters, not the exact seconds.
// Pure functions and plain values.
//
// A large all-reduce is as slow as its busiest path, uplink or trunk. Around the ring, each hop
// carries 2(N-1)/N of the tensor. In the direct pattern, the path from i to j carries the shares of
// both. The hops of the last slice are added: 2(N-1) hops around the ring, or 2 hops in the direct
// pattern. One more hop is added for the message that all are done.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "master/topology/ring_planner.h"

namespace pccl::master::topology {

// The known rates and delays of the network between members. Rates are in bytes per second.
struct Network {
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  explicit Network(Paths between)
      : paths(std::move(between)),
        out(paths.members(), kUnlimited),
        in(paths.members(), kUnlimited) {}

  Paths paths;
  std::vector<double> out, in;  // of each member, over all its paths together
  // All data from the members of one side to the members of the other shares this rate.
  struct Trunk {
    std::vector<bool> from, to;  // by member
    double rate = kUnlimited;
  };
  std::vector<Trunk> trunks;
};

// Seconds that an all-reduce of `bytes` bytes takes. `shares`: by member; their sum is
// protocol::kSharesTotal. REQUIRES: two members or more.
double ring_seconds(const Network& network, const Tour& order, double bytes);
double direct_seconds(const Network& network, const std::vector<uint16_t>& shares, double bytes);

}  // namespace pccl::master::topology
