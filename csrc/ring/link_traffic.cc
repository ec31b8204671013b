#include "csrc/ring/link_traffic.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace pccl::ring {
namespace {

constexpr int kRoundTripsPerWindow = 4;
constexpr double kOursFrom = 0.85;
constexpr Duration kWindowMin = std::chrono::milliseconds(100);
// By so much a round trip varies even where nothing queues: hosts are busy, and acknowledge late.
constexpr Duration kJitter = std::chrono::milliseconds(5);

}  // namespace

LinkTraffic::LinkTraffic(Duration way, const Learnt& first, bool fixed)
    : way_(way),
      fixed_(fixed),
      choice_(fixed ? protocol::kLanesMax : first.lanes),
      pacer_(first.pacer) {}

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
  if (lane.idle()) {
    window_.reset();
    return false;
  }
  if (!is_paced_) glance(now);
  if (!window_) window_ = look(now, true);
  if (now - window_->at < std::max(kRoundTripsPerWindow * way_, kWindowMin)) return false;
  const Look before = *std::exchange(window_, std::nullopt);
  const bool all_busy = std::none_of(lanes_.begin(), lanes_.end(), [this](const Carrier* one) {
    return used(*one) && one->idle();
  });
  if (!all_busy) return false;
  window_ = look(now, false);
  if (before.finding_speed) return false;
  window_over(before, *window_);
  return true;
}

LinkTraffic::Look LinkTraffic::look(Instant now, bool finding_speed) const {
  Look look{.at = now, .sent = {}, .received = 0, .finding_speed = finding_speed};
  for (const Carrier* lane : lanes_) {
    look.sent.push_back(lane->bytes_sent());
    look.received += lane->bytes_received();
  }
  return look;
}

void LinkTraffic::window_over(const Look& before, const Look& after) {
  const double seconds = to_seconds(after.at - before.at);
  std::vector<uint64_t> rates;
  uint64_t rate = 0;
  for (size_t index = 0; index < lanes_.size(); ++index) {
    const auto bytes = static_cast<double>(after.sent[index] - before.sent[index]);
    rates.push_back(static_cast<uint64_t>(bytes / seconds));
    rate += rates.back();
  }
  const bool queued = queues();
  // What comes to us fills a queue, too, and delays what is acknowledged the same way.
  const auto coming = static_cast<double>(after.received - before.received) / seconds;
  const bool ours = static_cast<double>(rate) > kOursFrom * coming;
  if (!queued || ours) pacer_.window(rate, queued);
  if (!fixed_) choice_.window(rates, queued);
  pace();
}

// Until something has queued for the first time: connections that find their speed double it with
// every round trip, and overshoot by as much, so a whole window would be too late.
void LinkTraffic::glance(Instant now) {
  if (now - glanced_.at < way_) return;
  uint64_t sent = 0;
  for (const Carrier* lane : lanes_) sent += lane->bytes_sent();
  const Duration since = now - glanced_.at;
  const uint64_t sent_since = sent - glanced_.sent;
  glanced_ = {now, sent};
  if (since > 2 * way_ || !queues()) return;
  pacer_.window(static_cast<uint64_t>(static_cast<double>(sent_since) / to_seconds(since)), true);
  pace();
}

// Whether lanes in use take longer than they could, most of them.
bool LinkTraffic::queues() const {
  std::vector<Duration> ways;
  Duration least{0};  // the greatest: after losses, systems have been seen to believe in half of it
  for (const Carrier* lane : lanes_) {
    if (!used(*lane)) continue;
    const net::Socket::RoundTrip way = lane->round_trip();
    ways.push_back(way.smoothed);
    least = std::max(least, way.least);
  }
  std::sort(ways.begin(), ways.end());
  return ways[ways.size() / 2] > least + std::max(least / 8, kJitter);
}

// Not from the first byte on: with its first window paced, a system dates what follows too late,
// believes in half of the round trip, takes that for a queue, and grows slowly from there.
void LinkTraffic::pace() {
  is_paced_ = is_paced_ || pacer_.limit() > 0;
  if (!is_paced_) return;
  const auto resting = static_cast<uint64_t>(std::popcount(choice_.resting()));
  const uint64_t each = pacer_.limit() / (lanes_.size() - resting);
  for (Carrier* lane : lanes_) lane->pace(each);
}

}  // namespace pccl::ring
