#include "csrc/ring/duplicate_filter.h"

#include <iterator>

#include "csrc/base/assert.h"

namespace pccl::ring {

bool DuplicateFilter::contains(OpKey op) const {
  const auto tag = intervals_.find(op.tag);
  if (tag == intervals_.end()) return false;
  const auto after = tag->second.upper_bound(op.sequence);
  return after != tag->second.begin() && std::prev(after)->second > op.sequence;
}

void DuplicateFilter::add(OpKey op) {
  if (contains(op)) return;
  auto& intervals = intervals_[op.tag];
  auto at = intervals.emplace(op.sequence, op.sequence + 1).first;
  if (at != intervals.begin() && std::prev(at)->second == op.sequence) {
    at = std::prev(intervals.erase(at));
    at->second = op.sequence + 1;
  }
  const auto next = std::next(at);
  if (next == intervals.end() || next->first != at->second) return;
  at->second = next->second;
  intervals.erase(next);
}

void DuplicateFilter::check() const {
  for (const auto& [tag, intervals] : intervals_) {
    PCCL_ASSERT(!intervals.empty());
    bool first = true;
    uint32_t last_end = 0;
    for (const auto& [begin, end] : intervals) {
      PCCL_ASSERT(begin < end && (first || last_end < begin));
      first = false;
      last_end = end;
    }
  }
}

}  // namespace pccl::ring
