#include "csrc/ring/flight.h"

#include <algorithm>

namespace pccl::ring {
namespace {

// What connections may do by themselves on any way.
constexpr uint64_t kWindowMin = 4u << 20;
// Of what the way carries in a round trip. A queue is seen a round trip after it has begun, and the
// window has grown by so much meanwhile: half of what is under way is what a queue can be trusted
// to hold.
constexpr double kSearching = 1.4;
constexpr double kFound = 1.25;
// A rate counts for as long as it takes to see a lower one: ten to twenty round trips in which no
// more was allowed. A round trip, for five to ten seconds: others may fill the queue, or the way be
// another.
constexpr int kRateFor = 10;
constexpr Duration kRoundTripFor = std::chrono::seconds(5);
constexpr Duration kSpanMin = std::chrono::milliseconds(10);
// By so much a round trip varies where nothing queues.
constexpr Duration kJitter = std::chrono::milliseconds(5);

}  // namespace

Flight::Flight(Duration way) : way_(way), span_(std::max(way, kSpanMin)) {}

void Flight::look(Instant now, uint64_t acknowledged, Duration round_trip, bool held) {
  // Nothing was under way for a while: what comes next finds another way than this.
  if (!looks_.empty() && now - looks_.back().at > span_) looks_.clear();
  looks_.push_back({now, acknowledged});
  measure_way(now, round_trip);
  measure_rate(now, held);
}

// The least since turned_ also tells of queues that last: those are others', or there is less way
// than there was.
void Flight::measure_way(Instant now, Duration round_trip) {
  if (round_trip <= Duration{0}) return;
  if (!turned_ || now - *turned_ > kRoundTripFor) {
    round_trip_.turn(kFar);
    turned_ = now;
  }
  round_trip_.now = std::min(round_trip_.now, round_trip);
  found_ |= round_trip > least() + std::max(least() / 8, kJitter);
}

Duration Flight::least() const {
  const Duration seen = std::min(round_trip_.before, round_trip_.now);
  return seen == kFar ? way_ : std::max(way_, seen);
}

void Flight::measure_rate(Instant now, bool held) {
  // Acknowledgements come in clumps, and for a round trip there may be more of them than the way
  // carries: what has been found is measured over two.
  const Duration over = found_ ? 2 * span_ : span_;
  while (looks_.size() > 2 && now - looks_[1].at >= over) looks_.pop_front();
  const Look& first = looks_.front();
  const Duration span = now - first.at;
  if (span < over / 2) return;
  if (held) held_for_ += now - looks_[looks_.size() - 2].at;
  const double rate =
      static_cast<double>(looks_.back().acknowledged - first.acknowledged) / to_seconds(span);
  if (held_for_ > kRateFor * span_) {
    rate_.turn(rate);
    held_for_ = Duration{0};
  }
  rate_.now = std::max(rate_.now, rate);
}

uint64_t Flight::window() const {
  const double best = std::max(rate_.before, rate_.now);
  const double bytes = (found_ ? kFound : kSearching) * best * to_seconds(least());
  return std::max(kWindowMin, static_cast<uint64_t>(bytes));
}

}  // namespace pccl::ring
