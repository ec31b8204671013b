// StandingStill: since when a run has had a finding that is an error. It sees the run only when
// somebody looks, so it is as exact as the looks are frequent. A plain record.
#pragma once

#include <optional>

#include "csrc/base/clock.h"

namespace pccl::master {

class StandingStill {
 public:
  // After a longer time without a look, an error counts as a new one.
  static constexpr Duration kGapMax = std::chrono::minutes(10);

  // Returns how long the error stands; zero without one, and at the first look at it.
  Duration look(bool error, Instant now) {
    const bool continues = error && since_ && now - last_ <= kGapMax;
    if (!error) since_.reset();
    if (error && !continues) since_ = now;
    last_ = now;
    return since_ ? now - *since_ : Duration{0};
  }

 private:
  std::optional<Instant> since_;
  Instant last_;
};

}  // namespace pccl::master
