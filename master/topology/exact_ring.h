// ExactRing: finds the ring with the smallest sum of hops among all rings without a hop slower than
// a given rate. It uses dynamic programming over subsets (Held and Karp), and takes 2^(N-1) * N^2
// steps.
// REQUIRES: 2 to kExactMax members.
#pragma once

#include <optional>
#include <vector>

#include "master/topology/ring_planner.h"

namespace pccl::master::topology {

class ExactRing {
 public:
  explicit ExactRing(const Paths& paths);
  const std::vector<double>& rates() const { return rates_; }
  // Whether there is a ring without a hop that is slower than `rate`.
  bool exists(double rate) const;
  std::optional<Ring> shortest(double rate) const;

 private:
  std::vector<uint32_t> reached_from(double rate) const;  // by member: bits of its sources

  const Paths& paths_;
  std::vector<double> rates_;
};

}  // namespace pccl::master::topology
