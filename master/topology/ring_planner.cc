#include "master/topology/ring_planner.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "csrc/base/assert.h"
#include "master/topology/exact_ring.h"

namespace pccl::master::topology {
namespace {

// The best ring so far.
class Best {
 public:
  explicit Best(double bytes) : bytes_(bytes) {}
  void take(Ring ring) {
    const double needed = seconds(ring, bytes_);
    if (needed >= least_) return;
    least_ = needed;
    ring_ = std::move(ring);
  }
  // Whether a ring with the slowest hop of `rate` and with this sum of hops would be better.
  bool beaten_by(const Ring& rate, double hop_seconds) const {
    return seconds({rate.order, rate.slowest, hop_seconds}, bytes_) < least_;
  }
  const Ring& ring() const { return ring_; }

 private:
  double bytes_;
  double least_ = std::numeric_limits<double>::infinity();
  Ring ring_;
};

// A lower rate allows a ring with shorter hops. `fast` and `slow` are indices of rates whose best
// rings are known; searches the rates between them, unless no ring there can be better.
void look_between(const ExactRing& exact, Best& best, size_t fast, const Ring& of_fast, size_t slow,
                  const Ring& of_slow) {
  if (slow - fast < 2 || of_fast.hop_seconds <= of_slow.hop_seconds) return;
  Ring bound = of_fast;
  bound.slowest = exact.rates()[fast + 1];
  if (!best.beaten_by(bound, of_slow.hop_seconds)) return;
  const size_t middle = fast + (slow - fast) / 2;
  const Ring ring = *exact.shortest(exact.rates()[middle]);
  best.take(ring);
  look_between(exact, best, fast, of_fast, middle, ring);
  look_between(exact, best, middle, ring, slow, of_slow);
}

Ring exact_ring(const Paths& paths, double bytes) {
  const ExactRing exact(paths);
  const std::vector<double>& rates = exact.rates();
  const auto first = std::partition_point(rates.begin(), rates.end(),
                                          [&](double rate) { return !exact.exists(rate); });
  const auto fast = static_cast<size_t>(first - rates.begin()), slow = rates.size() - 1;
  Best best(bytes);
  const Ring of_fast = *exact.shortest(rates[fast]), of_slow = *exact.shortest(rates[slow]);
  best.take(of_fast);
  best.take(of_slow);
  look_between(exact, best, fast, of_fast, slow, of_slow);
  return best.ring();
}

// ---- The bound ----------------------------------------------------------------------------------

// Whether hops of this rate or more give each member a next member of its own (a perfect matching,
// by augmenting paths).
bool has_assignment(const Paths& paths, double rate) {
  const auto members = static_cast<uint32_t>(paths.members());
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> giver(members, kNone), seen(members, kNone);
  const std::function<bool(uint32_t, uint32_t)> give = [&](uint32_t from, uint32_t round) {
    for (const bool only_free : {true, false}) {
      for (uint32_t to = 0; to < members; ++to) {
        if (to == from || paths.rate.at(from, to) < rate) continue;
        if (only_free ? giver[to] != kNone : seen[to] == round) continue;
        seen[to] = round;
        if (giver[to] != kNone && !give(giver[to], round)) continue;
        giver[to] = from;
        return true;
      }
    }
    return false;
  };
  for (uint32_t from = 0; from < members; ++from) {
    if (!give(from, from)) return false;
  }
  return true;
}

// Whether hops of this rate or more lead from each member to all others.
bool is_connected(const Paths& paths, double rate) {
  const auto members = static_cast<uint32_t>(paths.members());
  for (const bool forwards : {true, false}) {
    std::vector<bool> reached(members);
    std::vector<uint32_t> left = {0};
    size_t count = 1;
    reached[0] = true;
    while (!left.empty()) {
      const uint32_t at = left.back();
      left.pop_back();
      for (uint32_t other = 0; other < members; ++other) {
        const double hop = forwards ? paths.rate.at(at, other) : paths.rate.at(other, at);
        if (reached[other] || hop < rate) continue;
        reached[other] = true;
        left.push_back(other);
        ++count;
      }
    }
    if (count < members) return false;
  }
  return true;
}

// The index of the highest rate that the slowest hop of a ring may have.
size_t bound_of(const Paths& paths, const std::vector<double>& rates) {
  const auto first = std::partition_point(rates.begin(), rates.end(), [&](double rate) {
    return !is_connected(paths, rate) || !has_assignment(paths, rate);
  });
  PCCL_ASSERT(first != rates.end());
  return static_cast<size_t>(first - rates.begin());
}

// ---- Many members -------------------------------------------------------------------------------

// Looks for a ring of this rate or more with short hops: a slower hop costs more than all hops of a
// ring together.
Ring search(const Paths& paths, double rate, const Effort& effort, const Tour* start) {
  const auto members = static_cast<uint32_t>(paths.members());
  CostTable costs = paths.hop;
  double most = 0;
  for (uint32_t from = 0; from < members; ++from) {
    for (uint32_t to = 0; to < members; ++to) {
      if (from != to) most = std::max(most, costs.at(from, to));
    }
  }
  const double penalty = most * members + 1e-9;
  for (uint32_t from = 0; from < members; ++from) {
    for (uint32_t to = 0; to < members; ++to) {
      if (from != to && paths.rate.at(from, to) < rate) costs.at(from, to) += penalty;
    }
  }
  TourSearch tours(costs, effort.seed);
  start != nullptr ? tours.begin(*start) : tours.begin_greedy();
  tours.kick(effort.kicks);
  return ring_of(paths, tours.tour());
}

// A search that finds no ring of a rate does not prove that there is none. So this bisects the
// rates between the bound and the fastest ring found, until the two meet.
Ring searched_ring(const Paths& paths, double bytes, const Effort& effort) {
  const std::vector<double> rates = rates_of(paths);
  const auto index = [&](double rate) {
    const auto at = std::lower_bound(rates.begin(), rates.end(), rate, std::greater<>());
    return static_cast<size_t>(at - rates.begin());
  };
  Best best(bytes);
  size_t bound = bound_of(paths, rates);
  Ring ring = search(paths, rates[bound], effort, nullptr);
  best.take(ring);
  size_t found = index(ring.slowest);
  Ring fastest = ring;
  while (bound < found) {
    const size_t middle = bound + (found - bound) / 2;
    ring = search(paths, rates[middle], effort, &fastest.order);
    best.take(ring);
    const size_t reached = index(ring.slowest);
    if (reached < found) {
      found = reached;
      fastest = ring;
    }
    if (reached > middle) bound = middle + 1;
  }
  ring = search(paths, fastest.slowest, effort, nullptr);
  best.take(ring);
  // A ring with shorter hops may be faster although its slowest hop has a lower rate.
  best.take(search(paths, 0, effort, nullptr));
  for (double share = 0.9; share > 0.3; share -= 0.2)
    best.take(search(paths, fastest.slowest * share, effort, nullptr));
  return best.ring();
}

}  // namespace

std::vector<double> rates_of(const Paths& paths) {
  std::vector<double> rates;
  for (uint32_t from = 0; from < paths.members(); ++from) {
    for (uint32_t to = 0; to < paths.members(); ++to) {
      if (from != to) rates.push_back(paths.rate.at(from, to));
    }
  }
  std::sort(rates.begin(), rates.end(), std::greater<>());
  rates.erase(std::unique(rates.begin(), rates.end()), rates.end());
  return rates;
}

Ring ring_of(const Paths& paths, Tour order) {
  PCCL_ASSERT(order.size() == paths.members());
  Ring ring;
  std::rotate(order.begin(), std::find(order.begin(), order.end(), 0u), order.end());
  ring.slowest = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < order.size() && order.size() > 1; ++i) {
    const uint32_t from = order[i], to = order[(i + 1) % order.size()];
    ring.slowest = std::min(ring.slowest, paths.rate.at(from, to));
    ring.hop_seconds += paths.hop.at(from, to);
  }
  ring.order = std::move(order);
  return ring;
}

double seconds(const Ring& ring, double bytes) {
  const auto members = static_cast<double>(ring.order.size());
  const double carried = 2 * (members - 1) / members;
  return carried * (bytes / ring.slowest + ring.hop_seconds);
}

double slowest_hop_bound(const Paths& paths) {
  PCCL_ASSERT(paths.members() >= 2);
  const std::vector<double> rates = rates_of(paths);
  return rates[bound_of(paths, rates)];
}

Ring fastest_ring(const Paths& paths, double bytes, const Effort& effort) {
  PCCL_ASSERT(paths.members() >= 1);
  if (paths.members() <= 2) {
    Tour order(paths.members());
    std::iota(order.begin(), order.end(), 0);
    return ring_of(paths, std::move(order));
  }
  if (paths.members() <= kExactMax) return exact_ring(paths, bytes);
  return searched_ring(paths, bytes, effort);
}

}  // namespace pccl::master::topology
