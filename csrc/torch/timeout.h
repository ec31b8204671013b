// timeout: the meaning of a user's timeout. Any thread may call it.
// torch converts a timedelta to a C++ duration before pccl sees it. The sum of its parts overflows
// beyond 292,000 years, as timedelta.max does, and is then negative. A nanosecond count, as pccl
// uses it, overflows beyond 292 years. Therefore a large negative value is an overflow, which means
// "for ever", and a small one is a mistake.
// Failure: ValueError, which shows the value.
#pragma once

#include <chrono>

namespace pccl::torch_layer {

// Returns the timeout in whole milliseconds, as torch counts it: at least one, at most kForever.
// Raises ValueError if it is zero or negative. A caller that has another meaning for one value,
// such as c10d::kUnsetTimeout, handles that value first.
std::chrono::milliseconds checked_timeout(std::chrono::duration<double> given);

}  // namespace pccl::torch_layer
