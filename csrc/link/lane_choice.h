// LaneChoice: which lanes of a link carry chunks one way. Pure: it hears how much each lane carried
// in windows of time in which every lane in use always had something to send.
// Where nothing queues on the way it tries more lanes, where something does, fewer, and keeps what
// pays. Where nothing is lost either the way is free, and more are tried at once, time and again,
// until it queues for the first time. To try costs speed: what brings less is soon given up.
// One that is much slower than the others it leaves out: whoever waits for its chunk waits
// for all. What was tried in vain is tried again, ever more rarely, because networks change.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/protocol/limits.h"

namespace pccl::link {

class LaneChoice {
 public:
  // So many for a way there and back of which nothing is known.
  static uint32_t first(Duration way);
  // In use: so many, as far as they are there; `fixed`: for good, but for those much slower.
  explicit LaneChoice(uint32_t first, bool fixed = false) : fixed_(fixed), wanted_(first) {}

  void set_up(uint32_t lanes) { choose(lanes); }
  // What the way shows: something stands in a queue, much is lost.
  struct Signs {
    bool queued = false, lossy = false;
    bool free() const { return !queued && !lossy; }
  };
  // Bytes per second, of each lane that is up; of those that rest it does not matter.
  void window(std::span<const uint64_t> rates, Signs signs);
  // In a few windows of time in a row, some lane in use had nothing to send now and then, and what
  // the others sent stood in a deep queue. Half of them do.
  void idle_in_a_deep_queue(uint32_t up);
  // It is their buffers that hold up the lanes in use, and next to nothing stands in a queue. Twice
  // as many do; false if there are no more.
  bool held_by_buffers(uint32_t up);
  bool rests(uint32_t lane) const { return ((resting_ >> lane) & 1) != 0; }
  // A bit for each lane that rests. Never all that are up.
  protocol::LaneBits resting() const { return resting_; }
  // So many are in use, if they are there: for the next link to this peer.
  uint32_t wanted() const { return trial_.instead_of > 0 ? trial_.instead_of : wanted_; }

 private:
  // What is being tried: `wanted_` lanes instead of `instead_of`.
  struct Trial {
    uint32_t instead_of = 0;  // 0: nothing is
    uint64_t rate_before = 0;
    uint32_t windows = 0;
    uint64_t rates = 0;  // the sum of those that count
  };
  // Windows until the same is tried again: more after each vain attempt.
  struct Patience {
    uint32_t left, after;
  };

  bool settled(uint32_t lane) const;
  void leave_out_slow(std::span<const uint64_t> rates);
  bool judge(uint64_t rate, Signs signs);  // true: it is over, and its lanes stay
  void take_back_trial(bool in_vain);
  void consider(uint64_t rate, uint32_t usable, Signs signs);
  void remember(uint64_t rate);
  void begin(uint32_t wanted, uint64_t rate);
  void choose(uint32_t up);

  const bool fixed_;
  uint32_t wanted_;
  protocol::LaneBits resting_ = 0;
  protocol::LaneBits slow_ = 0;                               // lanes that are left out
  std::array<uint8_t, protocol::kLanesMax> used_for_{};       // windows, as far as it matters
  std::array<uint8_t, protocol::kLanesMax> slow_windows_{};   // in a row
  std::array<uint16_t, protocol::kLanesMax> left_out_for_{};  // windows
  Trial trial_;
  std::vector<uint64_t> recent_;  // rates of the last windows, since the last trial
  Patience more_{1, 4}, fewer_{48, 48};
  uint32_t without_more_ = 0;                   // windows since more were tried
  uint32_t without_queue_ = 0;                  // windows in a row
  bool has_queued_ = false, has_lost_ = false;  // much, once
  std::vector<uint64_t> sorted_;
};

}  // namespace pccl::link
