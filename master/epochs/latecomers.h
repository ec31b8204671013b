// Latecomers: the last operations of one peer group that all members have called, and for each of
// them the member that called it last. The diagnosis finds a slow peer by it. A plain record of
// constant size: no decision of the master depends on it. Group's PresentEpoch owns one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "csrc/base/clock.h"
#include "csrc/base/ids.h"

namespace pccl::master {

class Latecomers {
 public:
  static constexpr size_t kOperations = 20;
  // A member is slow if it was last in more than half of these operations, and if the others have
  // waited for it alone for this time in all, and for this part of their time.
  static constexpr Duration kCostMin = std::chrono::seconds(1);
  static constexpr int kCostPart = 5;  // a fifth

  struct Begins {  // of one operation
    PeerId last;   // the member that began it last
    Instant first_at, before_last_at, last_at;
  };
  // An operation with these calls has committed.
  void count(Instant now, const Begins& begins) {
    operations_.push_back({begins, now});
    if (operations_.size() > kOperations) operations_.pop_front();
  }

  struct Slow {
    PeerId who;
    size_t times = 0;  // in so many of the last kOperations operations it was last
    Duration cost{0};  // the others have waited for it alone for this time
    Duration over{0};  // from the first call of these operations to the end of the last one
  };
  // Nothing: no member is slow, or there were too few operations.
  std::optional<Slow> slow() const {
    if (operations_.size() < kOperations) return std::nullopt;
    std::map<PeerId, Slow> by_member;
    Instant first = operations_.front().begins.first_at;
    for (const Committed& one : operations_) {
      Slow& slow = by_member[one.begins.last];
      slow.who = one.begins.last;
      ++slow.times;
      slow.cost += one.begins.last_at - one.begins.before_last_at;
      first = std::min(first, one.begins.first_at);
    }
    for (auto& [member, slow] : by_member) {
      slow.over = operations_.back().at - first;
      if (2 * slow.times > kOperations && slow.cost >= kCostMin &&
          slow.cost * kCostPart >= slow.over)
        return slow;
    }
    return std::nullopt;
  }

 private:
  struct Committed {
    Begins begins;
    Instant at;
  };
  std::deque<Committed> operations_;  // in the order of their ends
};

}  // namespace pccl::master
