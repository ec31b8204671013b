// LaneController is the lane controller: it decides which lanes of a link carry chunks in one
// direction. It is pure. PathMonitor owns it and feeds it on the peer loop: its input is the rate
// of each lane, in intervals of time during which every active lane always had data to send.
// Rules:
//   1. If nothing queues on the path, more lanes are tried. If something queues, fewer lanes are
//      tried. A change that pays is kept.
//   2. If nothing is lost either, the path is free. More lanes are then tried without delay, again
//      and again, until the path queues for the first time.
//   3. If the link carries less during a trial, the trial is soon rejected.
//   4. A lane that is much slower than the others is excluded: a receiver must wait for the chunk
//      on that lane, although all other chunks are here.
//   5. A rejected trial is repeated after a growing back-off, because networks change.
// Invariants:
//   1. An excluded lane is inactive. An inactive lane has 0 intervals in use (`used_for_`).
//   2. A trial changes the number of lanes. If that number is fixed, there is no trial.
//   3. A change of the number of lanes begins a new comparison.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/clock.h"
#include "csrc/protocol/limits.h"

namespace pccl::link {

class LaneController {
 public:
  // Number of active lanes at the start, for a path of which only the RTT is known.
  static uint32_t first(Duration rtt);
  // `first`: number of active lanes; if fewer lanes are up, all of them are active. `fixed`: the
  // number never changes, but much slower lanes are still excluded.
  explicit LaneController(uint32_t first, bool fixed = false) : fixed_(fixed), wanted_(first) {
    PCCL_ASSERT(first > 0);
  }

  void set_up(uint32_t lanes) { choose(lanes); }
  // The congestion signals of a path: something queues, or many packets are lost.
  struct CongestionSignal {
    bool queued = false, lossy = false;
    bool free() const { return !queued && !lossy; }
  };
  // `rates`: bytes per second of each lane that is up. The rate of an inactive lane does not
  // matter.
  void interval(std::span<const uint64_t> rates, CongestionSignal signal);
  // In a few intervals in a row, some active lane had nothing to send at times, and the data of the
  // others stood in a deep queue. Halves the number of active lanes.
  void idle_in_a_deep_queue(uint32_t up);
  // The buffers of the active lanes limit them, and almost nothing is queued. Doubles the number of
  // active lanes; false if that is not possible.
  bool held_by_buffers(uint32_t up);
  bool is_inactive(uint32_t lane) const {
    PCCL_DCHECK(lane < protocol::kLanesMax);
    return ((inactive_ >> lane) & 1) != 0;
  }
  // One bit for each inactive lane. At least one lane that is up is active.
  protocol::LaneBits inactive() const { return inactive_; }
  // Number of active lanes, for the next link to this peer. A trial under way does not count.
  uint32_t wanted() const { return trial_.instead_of > 0 ? trial_.instead_of : wanted_; }

  // Asserts the invariants.
  void check() const;

 private:
  // The trial under way: `wanted_` lanes instead of `instead_of`.
  struct Trial {
    uint32_t instead_of = 0;  // 0: no trial
    uint64_t rate_before = 0;
    uint32_t intervals = 0;
    uint64_t rates = 0;  // sum over the intervals that count
  };
  // Back-off. `left`: intervals until the same change may be tried again. `after`: the value that
  // `left` gets when a trial ends without success; each rejected trial doubles it.
  struct BackOff {
    uint32_t left, after;
  };

  bool settled(uint32_t lane) const;
  void leave_out_slow(std::span<const uint64_t> rates);
  // Returns true if the trial is over and its number of lanes stays.
  bool judge(uint64_t rate, CongestionSignal signal);
  void take_back_trial(bool in_vain);
  void consider(uint64_t rate, uint32_t usable, CongestionSignal signal);
  void remember(uint64_t rate);
  void begin(uint32_t wanted, uint64_t rate);
  void choose(uint32_t up);

  const bool fixed_;
  uint32_t wanted_;
  protocol::LaneBits inactive_ = 0;
  protocol::LaneBits slow_ = 0;  // excluded lanes
  // By lane: the intervals in use, counted up to kIntervalsToSettle.
  std::array<uint8_t, protocol::kLanesMax> used_for_{};
  std::array<uint8_t, protocol::kLanesMax> slow_intervals_{};  // slow intervals in a row
  std::array<uint16_t, protocol::kLanesMax> left_out_for_{};   // intervals since the exclusion
  Trial trial_;
  std::vector<uint64_t> recent_;  // rates of the latest intervals since the last trial
  BackOff more_{1, 4}, fewer_{48, 48};
  uint32_t without_more_ = 0;                   // intervals since the last trial of more lanes
  uint32_t without_queue_ = 0;                  // intervals in a row without a queue
  bool has_queued_ = false, has_lost_ = false;  // a queue was seen; heavy loss was seen
  std::vector<uint64_t> sorted_;
};

}  // namespace pccl::link
