#include "master/group/wait_cycle.h"

#include <algorithm>
#include <bitset>
#include <deque>
#include <map>
#include <optional>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::master {
namespace {

// Sets of ranks, because a member could report many waits that each lack many ranks.
using RankSet = std::bitset<protocol::kMembersMax>;

struct RankWait {
  WaitedCall call;
  RankSet missing;
};
using RankWaits = std::vector<RankWait>;       // of one rank
using ByRank = std::map<uint32_t, RankWaits>;  // by rank

// A rank does not wait for its own call.
RankWaits waits_of(const BlockedRank& one) {
  RankWaits waits;
  for (const BlockedRank::Wait& wait : one.waits) {
    waits.push_back({wait.call, {}});
    for (const uint32_t rank : wait.missing) {
      PCCL_ASSERT(rank < protocol::kMembersMax);
      if (rank != one.rank) waits.back().missing.set(rank);
    }
  }
  return waits;
}

RankSet ranks_of(const ByRank& blocked) {
  RankSet ranks;
  for (const auto& [rank, waits] : blocked) ranks.set(rank);
  return ranks;
}

// Removes the ranks that can continue, until the others are all stuck.
void keep_stuck(ByRank& blocked) {
  for (RankSet stuck = ranks_of(blocked);; stuck = ranks_of(blocked)) {
    const auto can_continue = [&stuck](const auto& at) {
      const auto may_end = [&stuck](const RankWait& wait) { return (wait.missing & stuck).none(); };
      return at.second.empty() || std::any_of(at.second.begin(), at.second.end(), may_end);
    };
    if (std::erase_if(blocked, can_continue) == 0) return;
  }
}

// The shortest cycle through this rank, by a breadth-first search.
std::optional<WaitCycle> cycle_through(uint32_t start, const ByRank& stuck) {
  std::map<uint32_t, WaitLink> reached_by;
  RankSet open = ranks_of(stuck);
  std::deque<uint32_t> next{start};
  while (!next.empty() && open.test(start)) {
    const uint32_t rank = next.front();
    next.pop_front();
    for (const RankWait& wait : stuck.at(rank)) {
      const RankSet found = wait.missing & open;
      for (uint32_t other = 0; found.any() && other < found.size(); ++other) {
        if (!found.test(other)) continue;
        reached_by.emplace(other, WaitLink{rank, wait.call, other});
        next.push_back(other);
      }
      open &= ~found;
    }
  }
  if (open.test(start)) return std::nullopt;
  WaitCycle cycle;
  uint32_t rank = start;
  do {
    cycle.push_back(reached_by.at(rank));
    rank = cycle.back().rank;
  } while (rank != start);
  std::reverse(cycle.begin(), cycle.end());
  return cycle;
}

WaitCycle shortest_cycle(const ByRank& stuck) {
  WaitCycle shortest;
  for (const auto& [rank, waits] : stuck) {
    auto cycle = cycle_through(rank, stuck);
    if (cycle && (shortest.empty() || cycle->size() < shortest.size())) shortest = *cycle;
  }
  PCCL_ASSERT(shortest.size() > 1);  // each stuck rank waits for another stuck one
  return shortest;
}

}  // namespace

std::vector<WaitCycle> wait_cycles(const std::vector<BlockedRank>& blocked) {
  ByRank stuck;
  for (const BlockedRank& one : blocked) {
    PCCL_ASSERT(one.rank < protocol::kMembersMax);
    const bool fresh = stuck.emplace(one.rank, waits_of(one)).second;
    PCCL_ASSERT(fresh);
  }
  std::vector<WaitCycle> cycles;
  for (keep_stuck(stuck); !stuck.empty(); keep_stuck(stuck)) {
    cycles.push_back(shortest_cycle(stuck));
    for (const WaitLink& link : cycles.back()) stuck.erase(link.rank);
  }
  return cycles;
}

}  // namespace pccl::master
