#include "csrc/link/path_monitor.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::link {
namespace {

constexpr int kRoundTripsPerInterval = 4;
constexpr Duration kIntervalMin = std::chrono::milliseconds(100);
// An RTT varies by this much even if nothing queues: hosts are busy, and acknowledge late.
constexpr Duration kJitter = std::chrono::milliseconds(5);
// The monitor acts after this number of intervals in a row with an idle lane. A single such
// interval may be the end of a call.
constexpr int kIdleIntervals = 3;
// A queue is deep if its delay exceeds the RTT by this factor. Half of such a queue still keeps the
// path busy.
constexpr int kDeep = 2;
// A queue is shallow if its delay is below the RTT divided by this number. The path then has room
// for twice as many lanes.
constexpr int kShallow = 4;
constexpr uint64_t kSegmentsPerLoss = 1000;
// A rate is known after this number of intervals. A single interval may be an exception.
constexpr size_t kIntervalsForRate = 3;
// The unsent bytes of the lanes last for this time: until then, the sender must be woken up. A
// sender that shares its core is woken up much sooner.
constexpr Duration kUnsentTime = std::chrono::milliseconds(20);
constexpr uint64_t kUnsentMin = 16u << 10;

}  // namespace

PathMonitor::PathMonitor(Duration rtt, uint32_t lanes, bool fixed)
    : rtt_(rtt),
      interval_length_(std::max(kRoundTripsPerInterval * rtt, kIntervalMin)),
      controller_(lanes, fixed) {}

void PathMonitor::add(Carrier& lane) {
  PCCL_ASSERT(std::find(lanes_.begin(), lanes_.end(), &lane) == lanes_.end());
  lanes_.push_back(&lane);
  controller_.set_up(static_cast<uint32_t>(lanes_.size()));
  interval_.reset();
}

bool PathMonitor::used(const Carrier& lane) const {
  const auto at = std::find(lanes_.begin(), lanes_.end(), &lane);
  return at != lanes_.end() && !controller_.is_inactive(static_cast<uint32_t>(at - lanes_.begin()));
}

bool PathMonitor::chunk_sent(const Carrier& lane, Instant now) {
  const bool over = chunk_left(lane, now);
#ifndef NDEBUG
  check();
#endif
  return over;
}

bool PathMonitor::chunk_left(const Carrier& lane, Instant now) {
  if (!used(lane)) return false;
  PCCL_DCHECK(now >= sampled_at_ && now >= idle_at_ && (!interval_ || now >= interval_->at));
  if (buffers_hold(now) && controller_.held_by_buffers(static_cast<uint32_t>(lanes_.size()))) {
    interval_.reset();
    return true;
  }
  if (lane.idle()) {
    interval_.reset();
    return lane_idle(now);
  }
  if (!interval_) interval_ = sample(now, true);
  if (now - interval_->at < interval_length_) return false;
  const Sample before = *std::exchange(interval_, std::nullopt);
  const bool all_busy = std::none_of(lanes_.begin(), lanes_.end(), [this](const Carrier* one) {
    return used(*one) && one->idle();
  });
  if (!all_busy) return false;
  interval_ = sample(now, false);
  if (before.finding_speed) return false;
  interval_over(before, *interval_);
  idle_intervals_ = 0;
  return true;
}

// Returns true if the buffers of the active lanes were the limit for most of the time that they had
// data to send, and the queue is shallow. It needs `interval_length_` of such time for each active
// lane; several calls may add up to it. Inactive lanes add nothing.
bool PathMonitor::buffers_hold(Instant now) {
  if (now - sampled_at_ < interval_length_) return false;
  sampled_at_ = now;
  const Sample now_sample = sample(now, false);
  Duration busy = -busy_before_, held = -held_before_;
  for (const PathInfo& path : now_sample.paths) {
    busy += path.busy;
    held += path.held;
  }
  const int in_use = static_cast<int>(lanes_.size()) - std::popcount(controller_.inactive());
  PCCL_ASSERT(in_use > 0);
  if (busy < in_use * interval_length_) return false;
  busy_before_ += busy;
  held_before_ += held;
  return held * 2 > busy && queue(now_sample) * kShallow < rtt_;
}

bool PathMonitor::lane_idle(Instant now) {
  if (now - idle_at_ < interval_length_) return false;
  idle_intervals_ = now - idle_at_ < 2 * interval_length_ ? idle_intervals_ + 1 : 0;
  idle_at_ = now;
  if (idle_intervals_ < kIdleIntervals) return false;
  idle_intervals_ = 0;
  const Sample now_sample = sample(now, false);
  if (queue(now_sample) > kDeep * std::max(rtt_, kJitter) && can_grow(now_sample))
    controller_.idle_in_a_deep_queue(static_cast<uint32_t>(lanes_.size()));
  return true;
}

PathMonitor::Sample PathMonitor::sample(Instant now, bool finding_speed) const {
  Sample sample{.at = now, .paths = {}, .finding_speed = finding_speed};
  for (const Carrier* lane : lanes_) sample.paths.push_back(lane->path());
  return sample;
}

// Counts the segments that have arrived. Sent segments may still be in flight, or stand in a queue.
void PathMonitor::interval_over(const Sample& before, const Sample& after) {
  PCCL_ASSERT(after.at > before.at);
  PCCL_ASSERT(before.paths.size() == lanes_.size() && after.paths.size() == lanes_.size());
  const double seconds = to_seconds(after.at - before.at);
  std::vector<uint64_t> rates;
  for (size_t index = 0; index < lanes_.size(); ++index) {
    const PathInfo &path_before = before.paths[index], &path_after = after.paths[index];
    const auto segments =
        static_cast<double>(path_after.segments_arrived - path_before.segments_arrived);
    rates.push_back(static_cast<uint64_t>(segments * path_after.segment_bytes / seconds));
  }
  const LaneController::CongestionSignal signal{
      .queued = queue(after) > std::max(rtt_ / 8, kJitter), .lossy = loses(before, after)};
  note_rate(before, after, std::accumulate(rates.begin(), rates.end(), uint64_t{0}));
  controller_.interval(rates, signal);
}

// An interval does not count if the buffers were the limit for most of the time: the network can
// then carry more.
void PathMonitor::note_rate(const Sample& before, const Sample& after, uint64_t rate) {
  Duration busy{0}, held{0};
  for (size_t index = 0; index < after.paths.size(); ++index) {
    busy += after.paths[index].busy - before.paths[index].busy;
    held += after.paths[index].held - before.paths[index].held;
  }
  if (rate == 0 || held * 2 > busy) return;
  if (rates_.size() == kIntervalsForRate) rates_.erase(rates_.begin());
  rates_.push_back(rate);
  highest_rate_ = std::max(highest_rate_, this->rate());
}

// Depends on the highest rate so far. If it depended on the present rate, a limit that slows a lane
// down would lower the rate, and then the limit itself.
uint64_t PathMonitor::unsent_max() const {
  if (highest_rate_ == 0) return 0;
  const double bytes = static_cast<double>(highest_rate_) * to_seconds(kUnsentTime);
  return std::max(static_cast<uint64_t>(bytes) / lanes_.size(), kUnsentMin);
}

uint64_t PathMonitor::rate() const {
  if (rates_.size() < kIntervalsForRate) return 0;
  std::vector<uint64_t> sorted = rates_;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}

// Whether more packets were lost than is common on a wan path.
bool PathMonitor::loses(const Sample& before, const Sample& after) {
  PCCL_ASSERT(before.paths.size() == after.paths.size());
  uint32_t sent = 0, again = 0;
  for (size_t index = 0; index < after.paths.size(); ++index) {
    sent += after.paths[index].segments - before.paths[index].segments;
    again += after.paths[index].segments_again - before.paths[index].segments_again;
  }
  return uint64_t{again} * kSegmentsPerLoss > sent;
}

// Whether the buffers of most active lanes allow twice as many bytes in flight.
bool PathMonitor::can_grow(const Sample& sample) const {
  PCCL_ASSERT(sample.paths.size() == lanes_.size());
  int balance = 0;
  for (size_t index = 0; index < lanes_.size(); ++index) {
    const Carrier& lane = *lanes_[index];
    if (used(lane)) balance += 2 * sample.paths[index].window <= lane.buffers() ? 1 : -1;
  }
  return balance > 0;
}

// Returns the queueing delay: the median RTT of the active lanes, minus the RTT without a queue. It
// does not show the direction of the queue. Each active lane has a minimum RTT; the RTT without a
// queue is the largest of these. The reason: a system that paces the first window of a connection
// sets the later timestamps too late, and one lane's minimum can then be half of the real RTT.
Duration PathMonitor::queue(const Sample& sample) const {
  PCCL_ASSERT(sample.paths.size() == lanes_.size());
  std::vector<Duration> rtts;
  Duration least{0};
  for (size_t index = 0; index < lanes_.size(); ++index) {
    if (!used(*lanes_[index])) continue;
    rtts.push_back(sample.paths[index].smoothed);
    least = std::max(least, sample.paths[index].least);
  }
  PCCL_ASSERT(!rtts.empty());
  std::sort(rtts.begin(), rtts.end());
  return rtts[rtts.size() / 2] - least;
}

void PathMonitor::check() const {
  controller_.check();
  const auto up = static_cast<int>(lanes_.size());
  PCCL_ASSERT(lanes_.empty() || std::popcount(controller_.inactive()) < up);
  PCCL_ASSERT(!interval_ || interval_->paths.size() == lanes_.size());
  PCCL_ASSERT(idle_intervals_ < kIdleIntervals);
  PCCL_ASSERT(rates_.size() <= kIntervalsForRate);
}

}  // namespace pccl::link
