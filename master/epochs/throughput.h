// Throughput: the committed operations of one peer group, and their bytes, in the last minute. A
// plain record of constant size: no decision of the master depends on it. Group's PresentEpoch owns
// one.
// Invariant: the slots are in the order of their times, and each is younger than a minute when it
// counts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "csrc/base/clock.h"

namespace pccl::master {

class Throughput {
 public:
  static constexpr size_t kSlots = 12;
  static constexpr Duration kSlot = std::chrono::seconds(5);

  // `bytes`: of the tensor of one rank.
  void count(Instant now, uint64_t operations, double bytes) {
    if (operations == 0) return;
    if (!began_) began_ = now;
    Slot& slot = slots_[static_cast<size_t>(number(now)) % kSlots];
    if (slot.number != number(now)) slot = {number(now), 0, 0};
    slot.operations += static_cast<double>(operations);
    slot.bytes += bytes;
  }
  // The mean over the last minute, or since the first operation if that is less. Rates of less than
  // a second count as over a second.
  struct Rate {
    double operations = 0, bytes = 0;  // per second
    Duration over{0};                  // none: nothing was committed yet
  };
  Rate rate(Instant now) const {
    Rate sum;
    if (!began_) return sum;
    for (const Slot& slot : slots_) {
      if (slot.number < 0 || slot.number + static_cast<int64_t>(kSlots) <= number(now)) continue;
      sum.operations += slot.operations;
      sum.bytes += slot.bytes;
    }
    // The slot of the present has not passed yet.
    const Duration covered = kSlot * static_cast<int>(kSlots - 1) + now.since_start % kSlot;
    sum.over = std::clamp<Duration>(now - *began_, std::chrono::seconds(1), covered);
    sum.operations /= to_seconds(sum.over);
    sum.bytes /= to_seconds(sum.over);
    return sum;
  }

 private:
  struct Slot {
    int64_t number = -1;  // none
    double operations = 0, bytes = 0;
  };
  static int64_t number(Instant at) { return at.since_start / kSlot; }

  std::array<Slot, kSlots> slots_;
  std::optional<Instant> began_;
};

}  // namespace pccl::master
