// ring_planner: the order of the ring with the fastest all-reduce.
//
// Each hop of a ring carries the same bytes, and all hops work at once. So the slowest hop limits
// the rate. After that, the last bytes still travel around the ring:
//
//   seconds = f * bytes / (rate of the slowest hop) + f * (sum over the hops), f = 2 (N - 1) / N
//
// Up to kExactMax members the result is the best order there is. With more members it is the best
// order that a local search has found (tour_search.h). Pure functions of their arguments: the same
// paths, bytes and effort give the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "master/topology/tour_search.h"

namespace pccl::master::topology {

// The known rates and delays of the paths between members, by direction.
struct Paths {
  explicit Paths(size_t members) : rate(members), hop(members) {}
  size_t members() const { return rate.places(); }

  CostTable rate;  // bytes per second; above 0
  CostTable hop;   // seconds that a chunk takes from one member to the next
};

struct Effort {
  size_t kicks = 20000;  // of each local search
  uint64_t seed = 1;
};

// An order and its predicted speed.
struct Ring {
  Tour order;              // begins with member 0
  double slowest = 0;      // bytes per second of its slowest hop
  double hop_seconds = 0;  // sum over its hops
};

constexpr size_t kExactMax = 16;

// The different rates of all hops, the highest first.
std::vector<double> rates_of(const Paths& paths);
Ring ring_of(const Paths& paths, Tour order);
// The predicted time of an all-reduce of `bytes` bytes.
double seconds(const Ring& ring, double bytes);
// REQUIRES: one member or more.
Ring fastest_ring(const Paths& paths, double bytes, const Effort& effort = {});

// An upper bound for the slowest hop of any ring: the highest rate for which the hops of this rate
// or more give each member a next member of its own, and lead from each member to all others.
// REQUIRES: two members or more.
double slowest_hop_bound(const Paths& paths);

}  // namespace pccl::master::topology
