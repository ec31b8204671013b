// EventLoop: the virtual clock and event queue of the simulator. One queue holds all future events,
// ordered by (instant, order of insertion), so a run is a function of its seed. Time jumps from one
// event to the next and costs nothing. The World owns it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "csrc/base/clock.h"

namespace pccl::sim {

class EventLoop {
 public:
  Instant now() const { return now_; }
  uint64_t steps() const { return steps_; }

  void at(Instant when, std::function<void()> what) {
    queue_.emplace(std::pair{std::max(when, now_), ++asked_}, std::move(what));
  }
  void after(Duration delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }

  // Runs the next event. Returns false if there is none up to `until`; now() is then `until`.
  bool run_one(Instant until) {
    if (queue_.empty() || queue_.begin()->first.first > until) {
      now_ = std::max(now_, until);
      return false;
    }
    auto entry = queue_.extract(queue_.begin());
    now_ = entry.key().first;
    ++steps_;
    entry.mapped()();
    return true;
  }

 private:
  Instant now_;
  uint64_t asked_ = 0;
  uint64_t steps_ = 0;
  std::map<std::pair<Instant, uint64_t>, std::function<void()>> queue_;
};

// Fifo: actions that run elsewhere, each after a delay, in the order in which they were posted. It
// models a thread's inbox or one direction of a TCP connection.
class Fifo {
 public:
  explicit Fifo(EventLoop& event_loop) : event_loop_(event_loop) {}
  void post(Duration delay, std::function<void()> what) {
    last_ = std::max(last_, event_loop_.now() + delay);
    event_loop_.at(last_, std::move(what));
  }

 private:
  EventLoop& event_loop_;
  Instant last_;
};

}  // namespace pccl::sim
