// Latecomers: the last calls of one peer group that all members have made, operations and joint
// calls, and for each of them the member that made it last. The diagnosis finds a slow peer by it.
// A plain record of constant size: no decision of the master depends on it. Group's PresentEpoch
// owns one.
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
  static constexpr size_t kCalls = 20;
  // The others notice that a member is late if they wait for it alone for so long.
  static constexpr Duration kNoticed = std::chrono::milliseconds(1);
  // A member is slow if it was last in more than half of the calls in which the others noticed the
  // last one, and if they have waited for it alone for this time in all, and for this part of their
  // time.
  static constexpr Duration kCostMin = std::chrono::seconds(1);
  static constexpr int kCostPart = 5;  // a fifth

  struct Begins {  // of one call
    PeerId last;   // the member that made it last
    Instant first_at, before_last_at, last_at;
  };
  // All members have made a call. An operation has committed, too.
  void count(Instant now, const Begins& begins) {
    calls_.push_back({begins, now});
    if (calls_.size() > kCalls) calls_.pop_front();
  }

  struct Slow {
    PeerId who;
    size_t times = 0;  // in so many of the last kCalls calls it was last, and the others noticed
    Duration cost{0};  // the others have waited for it alone for this time
    Duration over{0};  // from the beginning of these calls to the end of the last one
  };
  // Nothing: no member is slow, or there were too few calls.
  std::optional<Slow> slow() const {
    if (calls_.size() < kCalls) return std::nullopt;
    std::map<PeerId, Slow> by_member;
    size_t noticed = 0;
    Instant first = calls_.front().begins.first_at;
    for (const Call& one : calls_) {
      first = std::min(first, one.begins.first_at);
      const Duration cost = one.begins.last_at - one.begins.before_last_at;
      if (cost < kNoticed) continue;
      ++noticed;
      Slow& slow = by_member[one.begins.last];
      slow.who = one.begins.last;
      ++slow.times;
      slow.cost += cost;
    }
    for (auto& [member, slow] : by_member) {
      slow.over = calls_.back().at - first;
      if (2 * slow.times > noticed && slow.cost >= kCostMin && slow.cost * kCostPart >= slow.over)
        return slow;
    }
    return std::nullopt;
  }

 private:
  struct Call {
    Begins begins;
    Instant at;
  };
  std::deque<Call> calls_;  // in the order of their ends
};

}  // namespace pccl::master
