#include "master/topology/exact_ring.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::master::topology {

ExactRing::ExactRing(const Paths& paths) : paths_(paths), rates_(rates_of(paths)) {
  PCCL_ASSERT(paths.members() >= 2 && paths.members() <= kExactMax);
}

std::vector<uint32_t> ExactRing::reached_from(double rate) const {
  const auto members = static_cast<uint32_t>(paths_.members());
  std::vector<uint32_t> sources(members);
  for (uint32_t from = 0; from < members; ++from) {
    for (uint32_t to = 0; to < members; ++to) {
      if (from != to && paths_.rate.at(from, to) >= rate) sources[to] |= 1u << from;
    }
  }
  return sources;
}

// `ends[set]`, for each set of members without the last member: a bit for each possible end of a
// path that begins at the last member and then visits exactly the set.
bool ExactRing::exists(double rate) const {
  const std::vector<uint32_t> sources = reached_from(rate);
  const auto last = static_cast<uint32_t>(sources.size() - 1);
  const uint32_t all = (1u << last) - 1;
  std::vector<uint32_t> ends(all + 1);
  for (uint32_t set = 1; set <= all; ++set) {
    for (uint32_t left = set; left != 0; left &= left - 1) {
      const auto end = static_cast<uint32_t>(std::countr_zero(left));
      const uint32_t before = set & ~(1u << end);
      const uint32_t starts = before == 0 ? 1u << last : ends[before];
      if ((sources[end] & starts) != 0) ends[set] |= 1u << end;
    }
  }
  return (ends[all] & sources[last]) != 0;
}

std::optional<Ring> ExactRing::shortest(double rate) const {
  const std::vector<uint32_t> sources = reached_from(rate);
  const auto last = static_cast<uint32_t>(sources.size() - 1);
  const uint32_t all = (1u << last) - 1;
  constexpr double kNone = std::numeric_limits<double>::infinity();
  // By set and end: `length`: of the shortest path; `before`: the member before the end of this
  // path.
  std::vector<double> length(size_t{all + 1} * last, kNone);
  std::vector<uint8_t> before(length.size());
  const auto at = [last](uint32_t set, uint32_t end) { return size_t{set} * last + end; };
  for (uint32_t set = 1; set <= all; ++set) {
    for (uint32_t left = set; left != 0; left &= left - 1) {
      const auto end = static_cast<uint32_t>(std::countr_zero(left));
      const uint32_t rest = set & ~(1u << end);
      double& best = length[at(set, end)];
      if (rest == 0) {
        if ((sources[end] >> last & 1) != 0) best = paths_.hop.at(last, end);
        continue;
      }
      for (uint32_t from = rest & sources[end]; from != 0; from &= from - 1) {
        const auto via = static_cast<uint32_t>(std::countr_zero(from));
        const double sum = length[at(rest, via)] + paths_.hop.at(via, end);
        if (sum >= best) continue;
        best = sum;
        before[at(set, end)] = static_cast<uint8_t>(via);
      }
    }
  }
  double best = kNone;
  uint32_t end = 0;
  for (uint32_t from = sources[last]; from != 0; from &= from - 1) {
    const auto via = static_cast<uint32_t>(std::countr_zero(from));
    const double sum = length[at(all, via)] + paths_.hop.at(via, last);
    if (sum >= best) continue;
    best = sum;
    end = via;
  }
  if (best == kNone) return std::nullopt;
  Tour order = {last};
  for (uint32_t set = all; set != 0;) {
    order.push_back(end);
    const uint32_t via = before[at(set, end)];
    set &= ~(1u << end);
    end = via;
  }
  std::reverse(order.begin(), order.end());
  return ring_of(paths_, std::move(order));
}

}  // namespace pccl::master::topology
