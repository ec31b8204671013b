#include "csrc/link/lane_controller.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::link {
namespace {

// A lane has reached its full rate when it was in use for this number of intervals. An interval is
// a few round trips.
constexpr uint32_t kIntervalsToSettle = 2;
constexpr uint32_t kIntervalsToJudge = 2;
constexpr uint32_t kIntervalsToCompare = 3;
// Back-off after the first heavy loss: all connections reached their full rate at the same time and
// lost much, and need this many intervals to recover.
constexpr uint32_t kIntervalsToRecover = 8;
constexpr uint32_t kBackOffMax = 256;
// The controller chooses at least this number of lanes. With fewer lanes, each loss costs a large
// part of the bytes in flight.
constexpr uint32_t kFewest = 4;
// After this number of intervals, more lanes are tried although the path queues: the queue may be
// in the other direction, and may not last for ever.
constexpr uint32_t kQueuedForLong = 64;
// The number of active lanes at the start is the RTT divided by this time, but at least kFewest and
// at most kMostAtFirst. In all measurements, one flow with the buffers of a stock host carried a
// tenth of the capacity of a path across an ocean. One flow carries more on a shorter path, because
// its recovery from a loss takes a number of round trips. More lanes than a path needs cost
// processor time, and fill the queue of the path.
constexpr Duration kRttPerLane = std::chrono::milliseconds(4);
constexpr uint32_t kMostAtFirst = 16;
// A lane is slow if its rate is below the median rate divided by this factor. Flows that share a
// path commonly differ by a factor of about two.
constexpr uint64_t kSlowFactor = 4;
constexpr uint8_t kSlowIntervals = 2;
constexpr uint16_t kLeftOutFor = 64;

}  // namespace

uint32_t LaneController::first(Duration rtt) {
  return static_cast<uint32_t>(std::clamp<int64_t>(rtt / kRttPerLane, kFewest, kMostAtFirst));
}

void LaneController::interval(std::span<const uint64_t> rates, CongestionSignal signal) {
  PCCL_ASSERT(!rates.empty() && rates.size() <= protocol::kLanesMax);
  const auto up = static_cast<uint32_t>(rates.size());
  uint64_t rate = 0;
  for (uint32_t lane = 0; lane < up; ++lane) rate += is_inactive(lane) ? 0 : rates[lane];
  const protocol::LaneBits slow_before = slow_;
  leave_out_slow(rates);
  if (fixed_) return choose(up);
  if (signal.lossy && !std::exchange(has_lost_, true))
    more_.left = std::max(more_.left, kIntervalsToRecover);
  if (slow_ == slow_before) {
    const auto usable = up - static_cast<uint32_t>(std::popcount(slow_));
    const bool considers = trial_.instead_of == 0 || (judge(rate, signal) && signal.free());
    if (considers) consider(rate, usable, signal);
  } else if (trial_.instead_of > 0) {  // the trial was about other lanes
    take_back_trial(false);
  }
  choose(up);
}

// The lanes do not limit the link, so half of them carry as much. This needs no trial.
void LaneController::idle_in_a_deep_queue(uint32_t up) {
  if (fixed_) return;
  if (trial_.instead_of > 0) take_back_trial(false);  // no interval would ever judge it
  PCCL_ASSERT(up > 0);
  const uint32_t used = std::min(wanted_, up);
  if (used <= kFewest) return choose(up);
  wanted_ = std::max(used / 2, kFewest);
  recent_.clear();
  choose(up);
}

// Further lanes are known to carry as much as the active lanes do. This needs no trial.
bool LaneController::held_by_buffers(uint32_t up) {
  if (fixed_ || wanted_ >= up) return false;
  if (trial_.instead_of > wanted_) take_back_trial(false);
  trial_ = {};  // if a trial of more lanes was under way, it has succeeded
  wanted_ = std::min(2 * wanted_, up);
  recent_.clear();
  choose(up);
  return true;
}

bool LaneController::settled(uint32_t lane) const { return used_for_[lane] >= kIntervalsToSettle; }

void LaneController::leave_out_slow(std::span<const uint64_t> rates) {
  sorted_.clear();
  for (uint32_t lane = 0; lane < rates.size(); ++lane) {
    if (is_inactive(lane)) continue;
    if (used_for_[lane] < kIntervalsToSettle) ++used_for_[lane];
    if (settled(lane)) sorted_.push_back(rates[lane]);
  }
  if (sorted_.empty()) return;
  std::sort(sorted_.begin(), sorted_.end());
  const uint64_t middle = sorted_[sorted_.size() / 2];
  for (uint32_t lane = 0; lane < rates.size(); ++lane) {
    const protocol::LaneBits bit = protocol::LaneBits{1} << lane;
    if ((slow_ & bit) != 0) {
      if (++left_out_for_[lane] < kLeftOutFor) continue;
      slow_ &= ~bit;
      // one slow interval is enough to exclude the lane again
      slow_intervals_[lane] = kSlowIntervals - 1;
      continue;
    }
    if (is_inactive(lane) || !settled(lane)) continue;
    if (rates[lane] * kSlowFactor >= middle) {
      slow_intervals_[lane] = 0;
    } else if (++slow_intervals_[lane] >= kSlowIntervals) {
      slow_ |= bit;
      left_out_for_[lane] = 0;
    }
  }
}

bool LaneController::judge(uint64_t rate, CongestionSignal signal) {
  PCCL_ASSERT(trial_.instead_of > 0 && trial_.instead_of != wanted_);
  const bool was_for_more = wanted_ > trial_.instead_of;
  const uint32_t intervals = ++trial_.intervals;
  // In these two cases the result is clear, even if the lanes have not reached their full rate yet.
  const bool given_up = was_for_more ? signal.lossy && rate < trial_.rate_before
                                     : intervals > 1 && rate * 10 < trial_.rate_before * 9;
  const bool clear =
      was_for_more && signal.free() && intervals > 1 && rate * 4 > trial_.rate_before * 5;
  if (intervals <= kIntervalsToSettle && !clear && !given_up) return false;
  trial_.rates += rate;
  if (intervals < kIntervalsToSettle + kIntervalsToJudge && !clear && !given_up) return false;
  const uint64_t now = trial_.rates / kIntervalsToJudge;
  // More lanes must bring more than 5 %; fewer lanes may cost less than 3 %.
  const bool pays = clear || (was_for_more ? now * 20 > trial_.rate_before * 21
                                           : now * 100 > trial_.rate_before * 97);
  if (given_up || !pays) {
    take_back_trial(true);
    return false;
  }
  (was_for_more ? more_ : fewer_) = was_for_more ? BackOff{1, 4} : BackOff{4, 8};
  trial_ = {};
  return true;
}

void LaneController::take_back_trial(bool in_vain) {
  PCCL_ASSERT(trial_.instead_of > 0 && trial_.instead_of != wanted_);
  BackOff& back_off = wanted_ > trial_.instead_of ? more_ : fewer_;
  back_off.left = back_off.after;
  if (in_vain) back_off.after = std::min(2 * back_off.after, kBackOffMax);
  wanted_ = trial_.instead_of;
  trial_ = {};
}

void LaneController::consider(uint64_t rate, uint32_t usable, CongestionSignal signal) {
  PCCL_ASSERT(usable > 0 && trial_.instead_of == 0);
  const uint32_t used = std::min(wanted_, usable);
  if (more_.left > 0) --more_.left;
  if (fewer_.left > 0) --fewer_.left;
  ++without_more_;
  has_queued_ |= signal.queued;
  without_queue_ = signal.queued ? 0 : without_queue_ + 1;
  remember(rate);
  const uint32_t needed = signal.free() && !has_queued_ ? 1 : kIntervalsToCompare;
  if (recent_.size() < needed) return;
  const bool free = without_queue_ >= needed;  // not only during a trial of the other side
  if ((free || without_more_ >= kQueuedForLong) && more_.left == 0 && used < usable) {
    const uint64_t sum = std::accumulate(recent_.begin(), recent_.end(), uint64_t{0});
    const uint32_t further = free ? used : std::max(used / 4, 1u);
    begin(std::min(used + further, usable), sum / recent_.size());
  } else if (signal.queued && fewer_.left == 0 && used > kFewest) {
    // Fewer lanes are compared with the best interval. With the mean, the link would lose a lane
    // whenever chance favours fewer lanes.
    begin(std::max(used - used / 4, kFewest), *std::max_element(recent_.begin(), recent_.end()));
  }
}

// If the lanes gained speed, earlier intervals are no basis for a comparison.
void LaneController::remember(uint64_t rate) {
  if (!recent_.empty() && rate * 4 > recent_.back() * 5) recent_.clear();
  recent_.push_back(rate);
  if (recent_.size() > kIntervalsToCompare) recent_.erase(recent_.begin());
}

void LaneController::begin(uint32_t wanted, uint64_t rate) {
  PCCL_ASSERT(wanted > 0 && wanted != wanted_ && trial_.instead_of == 0 && !fixed_);
  if (wanted > wanted_) without_more_ = 0;
  recent_.clear();
  trial_ = {wanted_, rate, 0, 0};
  wanted_ = wanted;
}

void LaneController::choose(uint32_t up) {
  PCCL_ASSERT(up <= protocol::kLanesMax);
  inactive_ = 0;
  uint32_t used = 0;
  for (uint32_t lane = 0; lane < up; ++lane) {
    const protocol::LaneBits bit = protocol::LaneBits{1} << lane;
    const bool use = (slow_ & bit) == 0 && used < wanted_;
    used += use ? 1 : 0;
    inactive_ |= use ? 0 : bit;
    if (!use) used_for_[lane] = 0;
  }
  PCCL_ASSERT(up == 0 || used > 0);
}

void LaneController::check() const {
  PCCL_ASSERT(wanted_ > 0 && wanted() > 0);
  PCCL_ASSERT((slow_ & ~inactive_) == 0);
  for (uint32_t lane = 0; lane < protocol::kLanesMax; ++lane) {
    PCCL_ASSERT(used_for_[lane] <= kIntervalsToSettle);
    PCCL_ASSERT(used_for_[lane] == 0 || !is_inactive(lane));
  }
  PCCL_ASSERT(trial_.instead_of == 0 || (!fixed_ && trial_.instead_of != wanted_));
  PCCL_ASSERT(trial_.intervals < kIntervalsToSettle + kIntervalsToJudge);
  PCCL_ASSERT(recent_.size() <= kIntervalsToCompare);
  PCCL_ASSERT(more_.after <= kBackOffMax && fewer_.after <= kBackOffMax);
}

}  // namespace pccl::link
