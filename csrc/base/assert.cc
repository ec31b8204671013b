#include "csrc/base/assert.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "csrc/base/log.h"

namespace pccl {

void assertion_failed(const char* condition, const char* file, int line) {
  char text[1024];
  const char* const form =
      "pccl: assertion failed: %s (%s:%d). This is a bug in pccl; please report it.\n";
  const int size = std::snprintf(text, sizeof text, form, condition, file, line);
  log_last({text, std::min(static_cast<size_t>(std::max(size, 0)), sizeof text - 1)});
  if (on_assertion_failed != nullptr) on_assertion_failed();
  std::abort();
}

}  // namespace pccl
