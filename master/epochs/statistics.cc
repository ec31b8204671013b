#include "master/epochs/statistics.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::master {
namespace {

int64_t number_of(Instant at) { return at.since_start / Statistics::kStep; }

}  // namespace

Statistics::Point& Statistics::at(Instant now) {
  const int64_t number = number_of(now);
  if (!points_.empty() && points_.back().number == number) return points_.back();
  PCCL_ASSERT(points_.empty() || points_.back().number < number);
  points_.push_back({.number = number});
  if (points_.size() > kPoints) points_.pop_front();
  return points_.back();
}

void Statistics::committed(Instant now, protocol::OpKind kind, double bytes, Duration took) {
  if (!first_) first_ = now;
  const double seconds = to_seconds(took);
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++totals_.committed.at(static_cast<size_t>(kind));
  ++totals_.took.at(static_cast<size_t>(bound - kBounds.begin()));
  totals_.took_s += seconds;
  totals_.bytes += bytes;
  Point& point = at(now);
  ++point.operations;
  point.bytes += bytes;
}

void Statistics::lost(Instant now, LossCause cause, std::string name) {
  ++totals_.losses.at(static_cast<size_t>(cause));
  ++at(now).losses;
  gone_.push_back({std::move(name), now});
  if (gone_.size() > kGoneKept) gone_.pop_front();
}

void Statistics::began(Instant now, size_t joined) {
  ++totals_.epochs;
  totals_.joins += joined;
  if (joined > 0) at(now).joins += static_cast<uint32_t>(joined);
}

Statistics::Rate Statistics::rate(Instant now) const {
  Rate sum;
  if (!first_) return sum;
  const int64_t oldest = number_of(now) - static_cast<int64_t>(kRatedPoints);
  for (auto point = points_.rbegin(); point != points_.rend() && point->number > oldest; ++point) {
    sum.operations += point->operations;
    sum.bytes += point->bytes;
  }
  // The step of the present has not passed yet.
  const Duration covered = kStep * static_cast<int>(kRatedPoints - 1) + now.since_start % kStep;
  sum.over = std::clamp<Duration>(now - *first_, std::chrono::seconds(1), covered);
  sum.operations /= to_seconds(sum.over);
  sum.bytes /= to_seconds(sum.over);
  return sum;
}

std::vector<Statistics::Point> Statistics::hour(Instant now) const {
  std::vector<Point> all(kPoints);
  const int64_t first = number_of(now) - static_cast<int64_t>(kPoints) + 1;
  for (size_t i = 0; i < kPoints; ++i) all[i].number = first + static_cast<int64_t>(i);
  for (const Point& point : points_) {
    if (point.number >= first) all.at(static_cast<size_t>(point.number - first)) = point;
  }
  return all;
}

std::vector<Statistics::Gone> Statistics::gone(Instant now) const {
  std::vector<Gone> lately;
  for (const Gone& one : gone_) {
    if (now - one.at < kGoneFor) lately.push_back(one);
  }
  return lately;
}

void Statistics::check() const {
  PCCL_ASSERT(points_.size() <= kPoints && gone_.size() <= kGoneKept);
  for (size_t i = 0; i < points_.size(); ++i) {
    const Point& point = points_[i];
    PCCL_ASSERT(point.operations + point.losses + point.joins > 0);
    PCCL_ASSERT(i == 0 || points_[i - 1].number < point.number);
  }
  for (size_t i = 1; i < gone_.size(); ++i) PCCL_ASSERT(gone_[i - 1].at <= gone_[i].at);
}

}  // namespace pccl::master
