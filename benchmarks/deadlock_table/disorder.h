// The random part of the deadlock simulator: an event with a fixed probability (Chance), and a GPU
// that skips calls of its list (CallOrder).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>

#include "benchmarks/deadlock_table/world.h"

namespace pccl::deadlock_table {

using Random = std::mt19937_64;

// Trials that succeed with a fixed probability. The distance to the next success is drawn, not each
// trial: so a rare event costs nothing until it happens, and many trials can be skipped at once.
class Chance {
 public:
  Chance(double probability, Random& random)
      : scale_(1 / std::log1p(-probability)), random_(random), failures_(draw()) {}

  bool succeeds() {
    if (failures_ > 0) {
      --failures_;
      return false;
    }
    failures_ = draw();
    return true;
  }
  // Whether one of so many trials succeeds. If not, they are over; if so, none of them is.
  bool succeeds_within(uint64_t trials) {
    if (failures_ < trials) return true;
    failures_ -= trials;
    return false;
  }

 private:
  // A geometric distribution. std::geometric_distribution may differ between libraries.
  uint64_t draw() {
    const double uniform = static_cast<double>((random_() >> 11) + 1) * 0x1p-53;  // (0, 1]
    return static_cast<uint64_t>(std::min(std::log(uniform) * scale_, 0x1p60));
  }

  double scale_;
  Random& random_;
  uint64_t failures_;  // before the next success
};

// The list of a GPU, from which it takes one call after another. Each time it skips calls with the
// probability of disorder, and skipped ones stay in front.
class CallOrder {
 public:
  explicit CallOrder(const Calls& planned) : planned_(&planned) {}

  void begin_again() { skipped_.clear(), next_ = 0; }
  size_t left() const { return skipped_.size() + planned_->size() - next_; }
  // REQUIRES: left() > 0
  Call take(Chance& disorder) {
    size_t i = 0;
    while (i + 1 < left() && disorder.succeeds()) ++i;
    if (i >= skipped_.size()) {
      const size_t end = next_ + i - skipped_.size();
      while (next_ < end) skipped_.push_back((*planned_)[next_++]);
      return (*planned_)[next_++];
    }
    const Call call = skipped_[i];
    skipped_.erase(skipped_.begin() + static_cast<ptrdiff_t>(i));
    return call;
  }

 private:
  const Calls* planned_;
  size_t next_ = 0;  // in planned_
  Calls skipped_;
};

}  // namespace pccl::deadlock_table
