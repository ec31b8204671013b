// Hysteresis: whether a plan is so much faster than the present one that a group changes to it. A
// change costs the group a pause, and rates are never exact. So a plan must be faster by a tenth;
// after a change that has turned out slower than predicted, by a fifth. Plain values.
#pragma once

#include "csrc/base/clock.h"

namespace pccl::master::topology {

class Hysteresis {
 public:
  static constexpr double kFaster = 0.90;        // of the present time
  static constexpr double kMuchFaster = 0.80;    // likewise, after a disappointment
  static constexpr double kDisappointing = 1.2;  // of the predicted time
  static constexpr int kOperations = 100;        // that should make up for the change

  // `now`, `next`: predicted seconds of an operation with the present plan and with the new one, by
  // what is known at this time. `pause`: seconds that the change takes.
  bool is_worth_it(double now, double next, double pause) const {
    const bool disappointed = expected_ > 0 && now > kDisappointing * expected_;
    const double needed = disappointed ? kMuchFaster : kFaster;
    return next < needed * now && kOperations * (now - next) > pause;
  }
  // The group has changed to a plan that is predicted to take so many seconds.
  void changed(double expected) { expected_ = expected; }

 private:
  double expected_ = 0;
};

}  // namespace pccl::master::topology
