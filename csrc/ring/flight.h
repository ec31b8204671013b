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

  struct Look {
    Instant at;
    uint64_t delivered = 0;  // bytes, since the link is up
    uint64_t under_way = 0;  // bytes
    Duration round_trip{0};  // as it is now; 0: nothing is under way
    bool held = false;       // what could have been sent has waited for the window
  };
  // At the beginning, and every so often while anything is under way.
  void look(const Look& look);
  uint64_t window() const;

 private:
  // The best of the span of time that is over and of the one of now.
  template <typename T>
  struct Lately {
    T before, now;
    void turn(T first) { before = std::exchange(now, first); }
  };

  void measure_way(const Look& look);
  void measure_rate(const Look& look);
  void find_queue(const Look& look);
  Duration least() const;
  double rate() const;

  static constexpr Duration kFar = Duration::max();

  const Duration way_;
  const Duration span_;                      // over which a rate is measured
  std::deque<Look> looks_;                   // those of the last span or two, and one before
  Duration interval_{0};                     // between the last two of them
  Lately<double> rate_{0, 0};                // the greatest: bytes per second
  Duration held_for_{0};                     // since it turned: a rate counts until then
  Lately<Duration> round_trip_{kFar, kFar};  // the least
  std::optional<Instant> turned_;            // when it did
  Instant draining_until_{};                 // so that there is none of our own in it
  uint32_t queued_looks_ = 0;                // in a row
  double found_rate_ = 0;                    // when a queue was found: the way is full. 0: not yet
};

}  // namespace pccl::ring
