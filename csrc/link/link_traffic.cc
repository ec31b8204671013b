#include "csrc/link/link_traffic.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace pccl::link {
namespace {

constexpr int kRoundTripsPerWindow = 4;
constexpr Duration kWindowMin = std::chrono::milliseconds(100);
// By so much a round trip varies even where nothing queues: hosts are busy, and acknowledge late.
constexpr Duration kJitter = std::chrono::milliseconds(5);
// In a row, in which a lane was idle: one may be the end of a call.
constexpr int kIdleWindows = 3;
// What stands in a queue for so many times the way: with half of it the way is full as well.
constexpr int kDeep = 2;
// What stands in a queue for a smaller part of the way leaves room for as many lanes again.
constexpr int kShallow = 4;
constexpr uint64_t kSegmentsPerLoss = 1000;

}  // namespace

LinkTraffic::LinkTraffic(Duration way, uint32_t lanes, bool fixed)
    : way_(way),
      window_length_(std::max(kRoundTripsPerWindow * way, kWindowMin)),
      choice_(lanes, fixed) {}

void LinkTraffic::add(Carrier& lane) {
  lanes_.push_back(&lane);
  choice_.set_up(static_cast<uint32_t>(lanes_.size()));
  window_.reset();
}

bool LinkTraffic::used(const Carrier& lane) const {
  const auto at = std::find(lanes_.begin(), lanes_.end(), &lane);
  return at != lanes_.end() && !choice_.rests(static_cast<uint32_t>(at - lanes_.begin()));
}

bool LinkTraffic::chunk_sent(const Carrier& lane, Instant now) {
  if (!used(lane)) return false;
  if (buffers_hold(now) && choice_.held_by_buffers(static_cast<uint32_t>(lanes_.size()))) {
    window_.reset();
    return true;
  }
  if (lane.idle()) {
    window_.reset();
    return lane_idle(now);
  }
  if (!window_) window_ = look(now, true);
  if (now - window_->at < window_length_) return false;
  const Look before = *std::exchange(window_, std::nullopt);
  const bool all_busy = std::none_of(lanes_.begin(), lanes_.end(), [this](const Carrier* one) {
    return used(*one) && one->idle();
  });
  if (!all_busy) return false;
  window_ = look(now, false);
  if (before.finding_speed) return false;
  window_over(before, *window_);
  idle_windows_ = 0;
  return true;
}

// The lanes in use for most of the time in which they have anything to send, and next to nothing
// queues. It takes a few round trips of such time on each to say so, however many calls those are;
// lanes that rest add nothing.
bool LinkTraffic::buffers_hold(Instant now) {
  if (now - looked_at_ < window_length_) return false;
  looked_at_ = now;
  const Look is = look(now, false);
  Duration busy = -busy_before_, held = -held_before_;
  for (const PathInfo& path : is.paths) {
    busy += path.busy;
    held += path.held;
  }
  const int in_use = static_cast<int>(lanes_.size()) - std::popcount(choice_.resting());
  if (busy < in_use * window_length_) return false;
  busy_before_ += busy;
  held_before_ += held;
  return held * 2 > busy && queue(is) * kShallow < way_;
}

bool LinkTraffic::lane_idle(Instant now) {
  if (now - idle_at_ < window_length_) return false;
  idle_windows_ = now - idle_at_ < 2 * window_length_ ? idle_windows_ + 1 : 0;
  idle_at_ = now;
  if (idle_windows_ < kIdleWindows) return false;
  idle_windows_ = 0;
  const Look is = look(now, false);
  if (queue(is) > kDeep * std::max(way_, kJitter) && can_grow(is))
    choice_.idle_in_a_deep_queue(static_cast<uint32_t>(lanes_.size()));
  return true;
}

LinkTraffic::Look LinkTraffic::look(Instant now, bool finding_speed) const {
  Look look{.at = now, .paths = {}, .finding_speed = finding_speed};
  for (const Carrier* lane : lanes_) look.paths.push_back(lane->path());
  return look;
}

// Counts what has arrived: what has left may still be under way, or stand in a queue.
void LinkTraffic::window_over(const Look& before, const Look& after) {
  const double seconds = to_seconds(after.at - before.at);
  std::vector<uint64_t> rates;
  for (size_t index = 0; index < lanes_.size(); ++index) {
    const PathInfo &was = before.paths[index], &is = after.paths[index];
    const auto segments = static_cast<double>(is.segments_arrived - was.segments_arrived);
    rates.push_back(static_cast<uint64_t>(segments * is.segment_bytes / seconds));
  }
  const LaneChoice::Signs signs{.queued = queue(after) > std::max(way_ / 8, kJitter),
                                .lossy = loses(before, after)};
  choice_.window(rates, signs);
}

// More than a long way loses as a matter of course.
bool LinkTraffic::loses(const Look& before, const Look& after) {
  uint32_t sent = 0, again = 0;
  for (size_t index = 0; index < after.paths.size(); ++index) {
    sent += after.paths[index].segments - before.paths[index].segments;
    again += after.paths[index].segments_again - before.paths[index].segments_again;
  }
  return uint64_t{again} * kSegmentsPerLoss > sent;
}

// Whether their buffers let them have twice as much under way.
bool LinkTraffic::can_grow(const Look& look) const {
  int balance = 0;
  for (size_t index = 0; index < lanes_.size(); ++index) {
    const Carrier& lane = *lanes_[index];
    if (used(lane)) balance += 2 * look.paths[index].window <= lane.buffers() ? 1 : -1;
  }
  return balance > 0;
}

// By how much lanes in use take longer than they could, half of them; on which of the two ways it
// does not say. The greatest of the least round trips counts: a system that paces a connection's
// first window dates what follows too late, and believes in half of the way.
Duration LinkTraffic::queue(const Look& look) const {
  std::vector<Duration> ways;
  Duration least{0};
  for (size_t index = 0; index < lanes_.size(); ++index) {
    if (!used(*lanes_[index])) continue;
    ways.push_back(look.paths[index].smoothed);
    least = std::max(least, look.paths[index].least);
  }
  std::sort(ways.begin(), ways.end());
  return ways[ways.size() / 2] - least;
}

}  // namespace pccl::link
