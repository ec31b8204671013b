#include "csrc/ring/pacer.h"

#include <algorithm>

namespace pccl::ring {
namespace {

// In percent. What stands in the queue has to flow off, so a little less than went through.
constexpr uint64_t kLower = 94;
// So much more, twice that the next time, and so on.
constexpr uint64_t kRaise = 2, kRaiseMax = 8;
// A limit that binds nothing is not raised further.
constexpr uint64_t kAboveRate = 120;
// A queue that stands after so many steps down is made by others, who would take what we leave.
constexpr uint32_t kLoweredMax = 5;
// Others hold us up, too: in a ring all go as fast as the slowest. That is no reason to go slower.
constexpr uint64_t kOfBest = 80, kBestFades = 990;
constexpr uint32_t kReleasedFor = 32;

}  // namespace

void Pacer::window(uint64_t rate, bool queued) {
  best_ = std::max(rate, best_ * kBestFades / 1000);
  if (released_for_ > 0) {
    --released_for_;
    return;
  }
  if (!queued) {
    lowered_ = 0;
    limit_ = std::min(limit_ + limit_ * raise_ / 100, std::max(limit_, rate * kAboveRate / 100));
    raise_ = std::min(2 * raise_, kRaiseMax);
    return;
  }
  raise_ = limit_ == 0 ? kRaiseMax : kRaise;
  if (++lowered_ > kLoweredMax) {
    limit_ = 0;
    lowered_ = 0;
    released_for_ = kReleasedFor;
    return;
  }
  const uint64_t through = limit_ == 0 ? rate : std::min(rate, limit_);
  limit_ = std::max({through * kLower / 100, best_ * kOfBest / 100, uint64_t{1}});
}

}  // namespace pccl::ring
