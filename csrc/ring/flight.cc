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
constexpr double kDraining = 0.9;
// A rate counts for ten to twenty round trips in which no more was allowed. A round trip, for five
// to ten seconds: others may fill the queue for good, or the way be another. Between them, for two
// round trips, so little is under way that our own queue is empty.
constexpr int kRateFor = 10;
constexpr Duration kRoundTripFor = std::chrono::seconds(5);
constexpr int kDrainFor = 2;
constexpr Duration kSpanMin = std::chrono::milliseconds(10);
// By so much a round trip varies where nothing queues.
constexpr Duration kJitter = std::chrono::milliseconds(5);
constexpr uint32_t kLooksToFind = 3;
// A way that carries so much more than when its queue was found is wider by now.
constexpr double kWider = 1.25;
// A look that comes late, because we were busy, says nothing of the next ones.
constexpr Duration kIntervalMax = std::chrono::milliseconds(20);

}  // namespace

Flight::Flight(Duration way) : way_(way), span_(std::max(way, kSpanMin)) {}

void Flight::look(const Look& look) {
  // Nothing was under way for a while: what comes next finds another way than this.
  if (!looks_.empty() && look.at - looks_.back().at > span_) {
    looks_.clear();
    draining_until_ = {};
  }
  interval_ = looks_.empty() ? Duration{0} : std::min(look.at - looks_.back().at, kIntervalMax);
  looks_.push_back(look);
  measure_way(look);
  find_queue(look);
  measure_rate(look);
}

void Flight::measure_way(const Look& look) {
  if (look.round_trip <= Duration{0}) return;
  if (!turned_ || look.at - *turned_ > kRoundTripFor) {
    round_trip_.turn(kFar);
    if (turned_ && looks_.size() > 1) draining_until_ = look.at + kDrainFor * span_;
    turned_ = look.at;
  }
  round_trip_.now = std::min(round_trip_.now, look.round_trip);
}

Duration Flight::least() const {
  const Duration seen = std::min(round_trip_.before, round_trip_.now);
  return seen == kFar ? way_ : std::max(way_, seen);
}

// What a round trip is while little is under way is of the past.
void Flight::find_queue(const Look& look) {
  const bool queued =
      look.under_way > window() / 2 && look.round_trip > least() + std::max(least() / 8, kJitter);
  queued_looks_ = queued ? queued_looks_ + 1 : 0;
  if (queued_looks_ >= kLooksToFind) found_rate_ = std::max(found_rate_, rate());
  if (rate() > kWider * found_rate_) found_rate_ = 0;
}

void Flight::measure_rate(const Look& look) {
  // Acknowledgements come in clumps, and for a round trip there may be more of them than the way
  // carries: what has been found is measured over two.
  const Duration over = found_rate_ > 0 ? 2 * span_ : span_;
  while (looks_.size() > 2 && look.at - looks_[1].at >= over) looks_.pop_front();
  const Look& first = looks_.front();
  const Duration span = look.at - first.at;
  if (span < over / 2) return;
  if (look.held) held_for_ += interval_;
  const double now = static_cast<double>(look.delivered - first.delivered) / to_seconds(span);
  if (held_for_ > kRateFor * span_) {
    rate_.turn(now);
    held_for_ = Duration{0};
  }
  rate_.now = std::max(rate_.now, now);
}

double Flight::rate() const { return std::max(rate_.before, rate_.now); }

// What leaves waits for a look, too, as long as it takes for half of the way where that is short.
uint64_t Flight::window() const {
  double of_the_way = found_rate_ > 0 ? kFound : kSearching;
  if (!looks_.empty() && looks_.back().at < draining_until_) of_the_way = kDraining;
  const double bytes = of_the_way * rate() * to_seconds(least() + interval_);
  return std::max(kWindowMin, static_cast<uint64_t>(bytes));
}

}  // namespace pccl::ring
