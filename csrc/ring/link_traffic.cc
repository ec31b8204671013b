#include "csrc/ring/link_traffic.h"

#include <algorithm>
#include <utility>

namespace pccl::ring {
namespace {

constexpr int kRoundTripsPerWindow = 4;
constexpr Duration kWindowMin = std::chrono::milliseconds(100);
// By so much a round trip varies even where nothing queues: hosts are busy, and acknowledge late.
constexpr Duration kJitter = std::chrono::milliseconds(5);
constexpr uint64_t kSegmentsPerLoss = 1000;
constexpr int kLooksPerRoundTrip = 16;
constexpr Duration kLookMin = std::chrono::milliseconds(2);
constexpr Duration kLookMax = std::chrono::milliseconds(10);

}  // namespace

LinkTraffic::LinkTraffic(Duration way, uint32_t lanes, bool fixed)
    : way_(way), choice_(lanes, fixed), flight_(way) {}

void LinkTraffic::add(Carrier& lane) {
  lanes_.push_back(&lane);
  seen_.push_back({lane.bytes_sent(), lane.path().segments_delivered, 0});
  choice_.set_up(static_cast<uint32_t>(lanes_.size()));
  window_.reset();
}

bool LinkTraffic::used(const Carrier& lane) const {
  const auto at = std::find(lanes_.begin(), lanes_.end(), &lane);
  return at != lanes_.end() && !choice_.rests(static_cast<uint32_t>(at - lanes_.begin()));
}

bool LinkTraffic::chunk_sent(const Carrier& lane, Instant now) {
  if (!used(lane)) return false;
  if (lane.idle() && !held_) {
    window_.reset();
    return false;
  }
  if (!window_) window_ = begin_window(now, true);
  if (now - window_->at < std::max(kRoundTripsPerWindow * way_, kWindowMin)) return false;
  const Window before = *std::exchange(window_, std::nullopt);
  const bool all_busy = std::none_of(lanes_.begin(), lanes_.end(), [this](const Carrier* one) {
    return used(*one) && one->idle();
  });
  if (!all_busy && !held_) return false;
  window_ = begin_window(now, false);
  if (before.finding_speed) return false;
  window_over(before, *window_);
  return true;
}

LinkTraffic::Window LinkTraffic::begin_window(Instant now, bool finding_speed) const {
  Window window{.at = now, .sent = {}, .finding_speed = finding_speed};
  for (const Carrier* lane : lanes_) {
    window.sent.push_back(lane->bytes_sent());
    const PathInfo path = lane->path();
    window.segments += path.segments;
    window.again += path.segments_again;
  }
  return window;
}

void LinkTraffic::window_over(const Window& before, const Window& after) {
  const double seconds = to_seconds(after.at - before.at);
  std::vector<uint64_t> rates;
  for (size_t index = 0; index < lanes_.size(); ++index) {
    const auto bytes = static_cast<double>(after.sent[index] - before.sent[index]);
    rates.push_back(static_cast<uint64_t>(bytes / seconds));
  }
  // Where the window is what holds it up, more lanes are no help, whatever it holds up.
  const bool held = std::exchange(held_in_window_, false);
  choice_.window(rates, {held || queues(), loses(before, after)});
}

// More than a long way loses as a matter of course.
bool LinkTraffic::loses(const Window& before, const Window& after) {
  const uint32_t sent = after.segments - before.segments;
  const uint32_t again = after.again - before.again;
  return uint64_t{again} * kSegmentsPerLoss > sent;
}

uint64_t LinkTraffic::look(Instant now) {
  ways_.clear();
  under_way_ = 0;
  for (size_t index = 0; index < lanes_.size(); ++index) look_at(*lanes_[index], seen_[index]);
  // Half of those that have something under way take longer.
  const auto middle = ways_.begin() + static_cast<ptrdiff_t>(ways_.size() / 2);
  if (!ways_.empty()) std::nth_element(ways_.begin(), middle, ways_.end());
  const Duration way = ways_.empty() ? Duration{0} : *middle;
  flight_.look({now, delivered_, under_way_, way, std::exchange(held_, false)});
  const uint64_t window = flight_.window();
  return window - std::min(window, under_way_);
}

// One that had nothing under way, and was given nothing, is as it was.
void LinkTraffic::look_at(const Carrier& lane, Seen& seen) {
  const uint64_t sent = lane.bytes_sent();
  if (seen.under_way == 0 && sent == seen.sent) return;
  const PathInfo path = lane.path();
  const uint32_t delivered = path.segments_delivered - seen.delivered;  // it wraps around
  delivered_ += uint64_t{delivered} * path.segment_bytes;
  seen = {sent, path.segments_delivered, uint64_t{path.segments_under_way} * path.segment_bytes};
  if (seen.under_way == 0) return;
  under_way_ += seen.under_way;
  ways_.push_back(path.smoothed);
}

Duration LinkTraffic::look_every() const {
  return std::clamp(way_ / kLooksPerRoundTrip, kLookMin, kLookMax);
}

// Whether lanes in use take longer than they could, most of them; on which of the two ways it does
// not say. The greatest of the least round trips counts: a system that paces a connection's first
// window dates what follows too late, and believes in half of the way.
bool LinkTraffic::queues() const {
  std::vector<Duration> ways;
  Duration least{0};
  for (const Carrier* lane : lanes_) {
    if (!used(*lane)) continue;
    const PathInfo path = lane->path();
    ways.push_back(path.smoothed);
    least = std::max(least, path.least);
  }
  std::sort(ways.begin(), ways.end());
  return ways[ways.size() / 2] > least + std::max(least / 8, kJitter);
}

}  // namespace pccl::ring
