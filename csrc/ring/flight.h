// Flight: how many bytes of a far link may be under way at once, over all its lanes together. Each
// lane's own congestion control knows nothing of the others: together they find the speed of the
// way by doubling until its queue overflows, lose thousands of segments at once and stand still
// while they repair that; later they fill the queue, which delays what comes the other way.
// A little more than what a way carries in one round trip is enough to fill it (as BBR has it,
// Cardwell et al., ACM Queue 14-5, 2016): so much is allowed, and while that lets the rate grow it
// grows, too. Where it is the lanes that set the pace it changes nothing. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "csrc/base/clock.h"

namespace pccl::ring {

class Flight {
 public:
  // `way`: there and back, where nothing queues.
  explicit Flight(Duration way);

  // Now, and every so often while anything is under way. `acknowledged`: bytes since the link is
  // up; `round_trip`: as it is now; `held`: what could have been sent had to wait for the window
  // since the last look.
  void look(Instant now, uint64_t acknowledged, Duration round_trip, bool held);
  uint64_t window() const;

 private:
  // The best of two spans of time, the one that is over and the one of now: nothing counts for
  // ever.
  template <typename T>
  struct Lately {
    T before, now;
    void turn(T first) { before = std::exchange(now, first); }
  };
  struct Look {
    Instant at;
    uint64_t acknowledged = 0;
  };

  void measure_rate(Instant now, bool held);
  void measure_way(Instant now, Duration round_trip);
  Duration least() const;

  const Duration way_;
  const Duration span_;                      // over which a rate is measured
  std::deque<Look> looks_;                   // those of the last span, and one before
  Lately<double> rate_{0, 0};                // the greatest: bytes per second
  Duration held_for_{0};                     // since rate_ turned
  Lately<Duration> round_trip_{kFar, kFar};  // the least
  std::optional<Instant> turned_;            // round_trip_
  bool found_ = false;                       // a queue: the way is full

  static constexpr Duration kFar = Duration::max();
};

}  // namespace pccl::ring
