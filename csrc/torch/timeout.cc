#include "csrc/torch/timeout.h"

#include <cstdio>

#include "csrc/base/clock.h"
#include "csrc/torch/errors.h"

namespace pccl::torch_layer {

std::chrono::milliseconds checked_timeout(std::chrono::duration<double> given) {
  using Milliseconds = std::chrono::milliseconds;
  constexpr Milliseconds kLongest = std::chrono::duration_cast<Milliseconds>(kForever);
  const bool overflowed = given < std::chrono::duration<double>(Duration::min());
  if (overflowed || given >= kLongest) return kLongest;
  if (given > given.zero()) return std::chrono::ceil<Milliseconds>(given);
  char text[64];
  std::snprintf(text, sizeof text, "timeout is %g s; it must be above 0", given.count());
  raise_value_error(text);
}

}  // namespace pccl::torch_layer
