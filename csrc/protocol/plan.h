// plan: the pattern of large all-reduces, and the result of optimize_topology, as a part of the
// schema (messages.h). Plain values: any thread may use them.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace pccl::protocol {

// A range of sizes of all-reduces, in bytes: `from` is included, and `to` is not.
struct DirectSizes {
  uint64_t from = 0;
  uint64_t to = std::numeric_limits<uint64_t>::max();
  bool contain(uint64_t bytes) const { return from <= bytes && bytes < to; }
  bool operator==(const DirectSizes&) const = default;
};

// Two ranks, the lower one first.
struct RankPair {
  uint32_t low = 0, high = 0;
  auto operator<=>(const RankPair&) const = default;
};

// The plan of a group after optimize_topology, and the results of the call.
struct TopologyPlan {
  uint64_t epoch = 0;    // the plan holds in the epoch with this Epoch::value
  bool adopted = false;  // the call has begun this epoch, because the plan is better
  std::vector<uint32_t> ring;
  std::vector<uint16_t> shares;
  DirectSizes direct;
  // Predicted times of an all-reduce of 1 GiB, in microseconds. `before_us`: with the plan before.
  // `after_us`: with this plan. 0: unknown.
  uint64_t before_us = 0, after_us = 0;
  // Rates from each rank to each rank, in bytes per second. A row has the rates of one sender, and
  // the row of rank 0 is the first. 0: unknown.
  std::vector<uint64_t> rates;
  std::vector<RankPair> measured;  // pairs that this call has measured
  std::vector<RankPair> missing;   // pairs that were never measured
  std::string note;                // tasks of the call that were not done, and why
  bool operator==(const TopologyPlan&) const = default;
};

}  // namespace pccl::protocol
