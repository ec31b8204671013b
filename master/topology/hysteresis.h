// Hysteresis: decides whether a group changes from its present plan to a faster one. A change costs
// the group a pause, and rates are never exact. So a plan must be faster by a tenth. There are
// exceptions:
// - The first plan of a run must be faster by 3 %. The order of joining is arbitrary, so noise
//   makes no plan worse than it on average.
// - A plan must be faster by a fifth after a change that has turned out slower than predicted.
// - Likewise if a plan of the same members was chosen before, when the rates of all paths were
//   known. Nothing is new then but the noise. If each rate is wrong by up to a tenth either way,
//   the better of two equal plans seems to take down to 0.9 / 1.1 = 0.82 of the time of the other:
//   no such noise alone makes a group change.
// Plain values.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/ids.h"

namespace pccl::master::topology {

class Hysteresis {
 public:
  static constexpr double kFaster = 0.90;        // of the present time
  static constexpr double kMuchFaster = 0.80;    // likewise, in the two last cases
  static constexpr double kFirstFaster = 0.97;   // likewise, for the first plan
  static constexpr double kDisappointing = 1.2;  // of the predicted time
  static constexpr int kOperations = 100;        // that should make up for the change
  static constexpr double kOtherSize = 2;        // sizes that differ by this factor are news

  // A choice holds for one subject; another subject is a new choice.
  struct Subject {
    std::vector<PeerId> members;  // in rank order
    double bytes = 0;             // of the operations
    bool all_known = false;       // the rates of all paths
  };
  // Whether to change. Remembers the subject: the next question about it is a second one. `now`,
  // `next`: predicted seconds of an operation with the present plan and with the new one, from the
  // present measurements. `pause`: seconds that the change takes.
  bool choose(const Subject& subject, double now, double next, double pause) {
    const bool worth_it = is_worth_it(subject, now, next, pause);
    if (worth_it) expected_ = next;
    chosen_ = subject;
    return worth_it;
  }

 private:
  bool is_worth_it(const Subject& subject, double now, double next, double pause) const {
    const bool disappointed = expected_ > 0 && now > kDisappointing * expected_;
    double needed = kFaster;
    if (chosen_.members.empty()) needed = kFirstFaster;
    if (disappointed || was_chosen(subject)) needed = kMuchFaster;
    return next < needed * now && kOperations * (now - next) > pause;
  }
  bool was_chosen(const Subject& subject) const {
    const auto [less, more] = std::minmax(chosen_.bytes, subject.bytes);
    return chosen_.all_known && chosen_.members == subject.members && more < kOtherSize * less;
  }

  double expected_ = 0;
  Subject chosen_;
};

}  // namespace pccl::master::topology
