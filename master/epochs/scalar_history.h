// ScalarHistory: the numbers that the programs of one peer group have reported (`pccl.report`), by
// name, for charts such as the curve of the loss. Peers that report the same name within a step of
// two seconds give one point, with their mean. A plain record of bounded size: no decision of the
// master depends on it. Group's PresentEpoch owns one.
// Invariants:
// 1. There are at most kNames names, with at most kPoints points each, in the order of their times.
// 2. A name gives way to a new one only if it got no point for kIdle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "csrc/base/assert.h"
#include "csrc/base/clock.h"
#include "csrc/protocol/limits.h"

namespace pccl::master {

class ScalarHistory {
 public:
  static constexpr size_t kNames = protocol::kScalarsMax;
  static constexpr size_t kPoints = 512;
  static constexpr Duration kStep = std::chrono::seconds(2);
  static constexpr Duration kIdle = std::chrono::minutes(1);

  struct Point {
    Instant at;  // of the first report
    double mean = 0;
    uint32_t reports = 0;
  };

  void add(Instant now, const std::string& name, double value) {
    if (!all_.contains(name) && !make_room(now)) return;
    std::deque<Point>& points = all_[name];
    if (points.empty() || now - points.back().at >= kStep) points.push_back({now, 0, 0});
    if (points.size() > kPoints) points.pop_front();
    Point& point = points.back();
    ++point.reports;
    point.mean += (value - point.mean) / point.reports;
  }
  const std::map<std::string, std::deque<Point>>& all() const { return all_; }

  void check() const {  // asserts the invariants
    PCCL_ASSERT(all_.size() <= kNames);
    for (const auto& [name, points] : all_)
      PCCL_ASSERT(!points.empty() && points.size() <= kPoints);
  }

 private:
  bool make_room(Instant now) {
    if (all_.size() < kNames) return true;
    for (auto at = all_.begin(); at != all_.end(); ++at) {
      if (now - at->second.back().at < kIdle) continue;
      all_.erase(at);
      return true;
    }
    return false;
  }

  std::map<std::string, std::deque<Point>> all_;
};

}  // namespace pccl::master
