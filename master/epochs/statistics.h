// Statistics: what one peer group has done: totals since it began, for /metrics, and the course of
// the last hour, for rates and charts. A plain record of bounded size: no decision of the master
// depends on it, and an operation costs it a few additions. Group's PresentEpoch owns one.
// A master that is started again begins with empty statistics.
// Invariants:
// 1. The points are in the order of their times, at most kPoints, and each counts something.
// 2. At most kGoneKept gone members are kept, in the order of their times.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/protocol/op_info.h"
#include "master/members/loss_cause.h"

namespace pccl::master {

class Statistics {
 public:
  static constexpr Duration kStep = std::chrono::seconds(5);
  static constexpr size_t kPoints = 720;      // an hour
  static constexpr size_t kRatedPoints = 12;  // a minute
  static constexpr size_t kKinds = static_cast<size_t>(protocol::OpKind::kAllToAll) + 1;
  // The upper bounds of the histogram of the times of committed operations, in seconds.
  static constexpr std::array kBounds = {0.001, 0.003, 0.01, 0.03, 0.1,   0.3,
                                         1.0,   3.0,   10.0, 30.0, 100.0, 300.0};
  static constexpr size_t kGoneKept = 64;
  static constexpr Duration kGoneFor = std::chrono::minutes(10);

  struct Totals {
    uint64_t epochs = 0;
    uint64_t joins = 0;  // of members, founders included
    std::array<uint64_t, kLossCauses> losses{};
    std::array<uint64_t, kKinds> committed{}, aborted{};  // operations
    // Of committed operations, from the first call of a member to the decision: how many took at
    // most each of kBounds, and more than the bound before; the last number: longer than all.
    std::array<uint64_t, kBounds.size() + 1> took{};
    double took_s = 0;
    double bytes = 0;  // of the tensors of one rank, of committed operations
  };
  struct Point {
    int64_t number = -1;  // of its step
    uint32_t operations = 0, losses = 0, joins = 0;
    double bytes = 0;
  };
  struct Gone {
    std::string name;
    Instant at;
  };

  // `bytes`: of the tensor of one rank.
  void committed(Instant now, protocol::OpKind kind, double bytes, Duration took);
  void aborted(protocol::OpKind kind) { ++totals_.aborted.at(static_cast<size_t>(kind)); }
  void lost(Instant now, LossCause cause, std::string name);
  void began(Instant now, size_t joined);  // an epoch

  const Totals& totals() const { return totals_; }
  // The mean over the last minute, or since the first operation if that is less. Rates of less than
  // a second count as over a second.
  struct Rate {
    double operations = 0, bytes = 0;  // per second
    Duration over{0};                  // none: nothing was committed yet
  };
  Rate rate(Instant now) const;
  // The last hour, the oldest point first: kPoints points, and the last one is the present step.
  std::vector<Point> hour(Instant now) const;
  // The members that were lost or have left in the last kGoneFor.
  std::vector<Gone> gone(Instant now) const;

  void check() const;  // asserts the invariants

 private:
  Point& at(Instant now);

  Totals totals_;
  std::deque<Point> points_;
  std::deque<Gone> gone_;
  std::optional<Instant> first_;  // the first committed operation
};

}  // namespace pccl::master
