// Hysteresis: decides whether a group changes from its present plan to a faster one. A change costs
// the group a pause, and rates are never exact. So a plan must be faster by a tenth. There are
// exceptions:
// - The first plan of a run must be faster by 3 %. The present plan is only the arbitrary order of
//   joining. So a plan that noise makes seem faster is, on average, not worse.
// - A plan must be faster by a fifth after a change that has turned out slower than predicted.
// - A plan must be faster by a fifth, too, if the group has decided before for the same members and
//   a similar size, when the rates of all paths were known. Then only the noise is new. If each
//   rate is wrong by up to a tenth in either direction, one of two equal plans can seem to take
//   only 0.9 / 1.1 = 0.82 of the time of the other. So such noise alone does not make a group
//   change.
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
  static constexpr double kFaster = 0.90;  // limit of the new time, as a part of the present time
  static constexpr double kMuchFaster = 0.80;   // likewise, in the two last cases
  static constexpr double kFirstFaster = 0.97;  // likewise, for the first plan
  static constexpr double kDisappointing =
      1.2;  // a change that takes more of the predicted time is slower
  static constexpr int kOperations = 100;  // the time that they save has to exceed the pause
  static constexpr double kOtherSize =
      2;  // sizes that differ by this factor are different subjects

  // A choice holds for one subject; another subject is a new choice.
  struct Subject {
    std::vector<PeerId> members;  // in rank order
    double bytes = 0;             // size of the operations
    bool all_known = false;       // whether the rates of all paths are known
  };
  // Returns whether to change the plan. Remembers the subject, so that the next question about the
  // same subject needs a larger gain. `now`, `next`: predicted seconds of an operation with the
  // present plan and with the new one, from the present measurements. `pause`: seconds that the
  // change takes.
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
