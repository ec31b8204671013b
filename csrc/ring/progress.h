// Progress: how far one operation has come on this rank: which units of its schedule are here, have
// been sent, may be sent next. Units of one operation travel on several lanes at once and overtake
// each other; so does what they unlock. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/ring/schedule.h"

namespace pccl::ring {

class Progress {
 public:
  explicit Progress(const Schedule& schedule);

  // ---- What is sent ----
  // From here on what needs nothing from upstream waits until all of the steps before its own has
  // come. No step is far ahead of another then: what is sent is received, reduced and sent on while
  // it is in the cache, which is what counts where the way takes no time.
  void go_in_step() { in_step_ = true; }
  // Whether the first unit, in the order of the schedule, of those whose data is here is of one of
  // the first `steps` steps. Where rounds go one after another a later one may be and wait; but
  // then credit is for all steps, and fewer are those of a head start.
  bool can_send(uint64_t steps) const;
  // That unit: it is on its way. REQUIRES: can_send().
  uint64_t take();
  // How many have not been taken.
  uint64_t units_left() const { return units_.size() - taken_; }
  void sent(uint64_t id);
  // All before it have been sent.
  const Schedule::Cursor& sent_until() const { return sent_until_; }

  // ---- What is received ----
  // False if it has come before, or is coming on another lane.
  bool expects(uint64_t id) const { return (units_[id] & kComing) == 0; }
  void arriving(uint64_t id) { units_[id] |= kComing; }
  void arrived(uint64_t id);
  // All before it have come.
  const Schedule::Cursor& received_until() const { return received_until_; }

  bool finished() const { return sent_until_.at_end && received_until_.at_end; }

 private:
  static constexpr uint8_t kComing = 1, kHere = 2, kSent = 4;
  struct Next {
    uint64_t order = 0;  // in the schedule
    uint64_t id = 0;
    friend bool operator>(const Next& a, const Next& b) { return a.order > b.order; }
  };
  // The first in the order of the schedule of what may be sent, however little credit there is.
  std::optional<Next> next() const;
  std::optional<Next> next_source() const;
  void advance(Schedule::Cursor& cursor, uint8_t mark) const;

  const Schedule& schedule_;
  std::vector<uint8_t> units_;  // by id: what has become of it
  uint64_t taken_ = 0;
  uint64_t source_ = 0;  // the next of what needs nothing from upstream
  Schedule::Sources sources_;
  bool in_step_ = false;
  std::vector<Next> unlocked_;  // a heap: what is here and has not been sent on
  Schedule::Cursor sent_until_, received_until_;
};

}  // namespace pccl::ring
