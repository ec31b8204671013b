#include "csrc/link/lane_choice.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::link {
namespace {

// A window is a few round trips: in two a connection finds its speed.
constexpr uint32_t kWindowsToSettle = 2;
constexpr uint32_t kWindowsToJudge = 2;
constexpr uint32_t kWindowsToCompare = 3;
// After connections have found their speed, all at once, and lost much: until they carry again what
// they can.
constexpr uint32_t kWindowsToRecover = 8;
constexpr uint32_t kPatienceMax = 256;
// Of fewer, each loss takes a good part of what they have under way.
constexpr uint32_t kFewest = 4;
// It may be the other direction that queues, and not for ever: more are tried all the same.
constexpr uint32_t kQueuedForLong = 64;
// One flow with the buffers of a stock host carries a tenth of an ocean, wherever it was measured,
// and more the shorter the way: what a loss takes it has again in so many round trips. More lanes
// than a way needs cost processor time, and fill its queue.
constexpr Duration kWayOfALane = std::chrono::milliseconds(4);
constexpr uint32_t kMostAtFirst = 16;
// Flows that share a path differ by a factor of two or so as a matter of course.
constexpr uint64_t kSlowFactor = 4;
constexpr uint8_t kSlowWindows = 2;
constexpr uint16_t kLeftOutFor = 64;

}  // namespace

uint32_t LaneChoice::first(Duration way) {
  return static_cast<uint32_t>(std::clamp<int64_t>(way / kWayOfALane, kFewest, kMostAtFirst));
}

void LaneChoice::window(std::span<const uint64_t> rates, Signs signs) {
  PCCL_ASSERT(!rates.empty() && rates.size() <= protocol::kLanesMax);
  const auto up = static_cast<uint32_t>(rates.size());
  uint64_t rate = 0;
  for (uint32_t lane = 0; lane < up; ++lane) rate += rests(lane) ? 0 : rates[lane];
  const protocol::LaneBits slow_before = slow_;
  leave_out_slow(rates);
  if (fixed_) return choose(up);
  if (signs.lossy && !std::exchange(has_lost_, true))
    more_.left = std::max(more_.left, kWindowsToRecover);
  if (slow_ == slow_before) {
    const auto usable = up - static_cast<uint32_t>(std::popcount(slow_));
    const bool go_on = trial_.instead_of == 0 || (judge(rate, signs) && signs.free());
    if (go_on) consider(rate, usable, signs);
  } else if (trial_.instead_of > 0) {  // it was about other lanes
    take_back_trial(false);
  }
  choose(up);
}

// It is not they that hold up the link: whether half of them carry as much needs no trial.
void LaneChoice::idle_in_a_deep_queue(uint32_t up) {
  if (fixed_) return;
  if (trial_.instead_of > 0) take_back_trial(false);  // no window would ever judge it
  const uint32_t used = std::min(wanted_, up);
  if (used <= kFewest) return choose(up);
  wanted_ = std::max(used / 2, kFewest);
  recent_.clear();
  choose(up);
}

// That further ones carry as much as they do is known, and needs no trial.
bool LaneChoice::held_by_buffers(uint32_t up) {
  if (fixed_ || wanted_ >= up) return false;
  if (trial_.instead_of > wanted_) take_back_trial(false);
  trial_ = {};  // one of more has shown what it was for
  wanted_ = std::min(2 * wanted_, up);
  recent_.clear();
  choose(up);
  return true;
}

bool LaneChoice::settled(uint32_t lane) const { return used_for_[lane] >= kWindowsToSettle; }

void LaneChoice::leave_out_slow(std::span<const uint64_t> rates) {
  sorted_.clear();
  for (uint32_t lane = 0; lane < rates.size(); ++lane) {
    if (rests(lane)) continue;
    if (used_for_[lane] < kWindowsToSettle) ++used_for_[lane];
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
      slow_windows_[lane] = kSlowWindows - 1;  // one window is enough to be left out again
      continue;
    }
    if (rests(lane) || !settled(lane)) continue;
    if (rates[lane] * kSlowFactor >= middle) {
      slow_windows_[lane] = 0;
    } else if (++slow_windows_[lane] >= kSlowWindows) {
      slow_ |= bit;
      left_out_for_[lane] = 0;
    }
  }
}

bool LaneChoice::judge(uint64_t rate, Signs signs) {
  const bool was_for_more = wanted_ > trial_.instead_of;
  const uint32_t windows = ++trial_.windows;
  // Beyond doubt, though they may not have found their speed.
  const bool hopeless = was_for_more ? signs.lossy && rate < trial_.rate_before
                                     : windows > 1 && rate * 10 < trial_.rate_before * 9;
  const bool clear =
      was_for_more && signs.free() && windows > 1 && rate * 4 > trial_.rate_before * 5;
  if (windows <= kWindowsToSettle && !clear && !hopeless) return false;
  trial_.rates += rate;
  if (windows < kWindowsToSettle + kWindowsToJudge && !clear && !hopeless) return false;
  const uint64_t now = trial_.rates / kWindowsToJudge;
  // More must bring a twentieth; fewer may cost next to nothing.
  const bool pays = clear || (was_for_more ? now * 20 > trial_.rate_before * 21
                                           : now * 100 > trial_.rate_before * 97);
  if (hopeless || !pays) {
    take_back_trial(true);
    return false;
  }
  (was_for_more ? more_ : fewer_) = was_for_more ? Patience{1, 4} : Patience{4, 8};
  trial_ = {};
  return true;
}

void LaneChoice::take_back_trial(bool in_vain) {
  Patience& patience = wanted_ > trial_.instead_of ? more_ : fewer_;
  patience.left = patience.after;
  if (in_vain) patience.after = std::min(2 * patience.after, kPatienceMax);
  wanted_ = trial_.instead_of;
  trial_ = {};
}

void LaneChoice::consider(uint64_t rate, uint32_t usable, Signs signs) {
  const uint32_t used = std::min(wanted_, usable);
  if (more_.left > 0) --more_.left;
  if (fewer_.left > 0) --fewer_.left;
  ++without_more_;
  has_queued_ |= signs.queued;
  without_queue_ = signs.queued ? 0 : without_queue_ + 1;
  remember(rate);
  const uint32_t needed = signs.free() && !has_queued_ ? 1 : kWindowsToCompare;
  if (recent_.size() < needed) return;
  const bool free = without_queue_ >= needed;  // not only because the other side tries something
  if ((free || without_more_ >= kQueuedForLong) && more_.left == 0 && used < usable) {
    const uint64_t sum = std::accumulate(recent_.begin(), recent_.end(), uint64_t{0});
    const uint32_t further = free ? used : std::max(used / 4, 1u);
    begin(std::min(used + further, usable), sum / recent_.size());
  } else if (signs.queued && fewer_.left == 0 && used > kFewest) {
    // Against the best of them, or the link would lose a lane whenever chance is kind to fewer.
    begin(std::max(used - used / 4, kFewest), *std::max_element(recent_.begin(), recent_.end()));
  }
}

// What was before lanes gained speed is nothing to compare with.
void LaneChoice::remember(uint64_t rate) {
  if (!recent_.empty() && rate * 4 > recent_.back() * 5) recent_.clear();
  recent_.push_back(rate);
  if (recent_.size() > kWindowsToCompare) recent_.erase(recent_.begin());
}

void LaneChoice::begin(uint32_t wanted, uint64_t rate) {
  if (wanted > wanted_) without_more_ = 0;
  recent_.clear();
  trial_ = {wanted_, rate, 0, 0};
  wanted_ = wanted;
}

void LaneChoice::choose(uint32_t up) {
  PCCL_ASSERT(up <= protocol::kLanesMax);
  resting_ = 0;
  uint32_t used = 0;
  for (uint32_t lane = 0; lane < up; ++lane) {
    const protocol::LaneBits bit = protocol::LaneBits{1} << lane;
    const bool use = (slow_ & bit) == 0 && used < wanted_;
    used += use ? 1 : 0;
    resting_ |= use ? 0 : bit;
    if (!use) used_for_[lane] = 0;
  }
}

}  // namespace pccl::link
