#include "csrc/base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace pccl {

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr,
               "pccl: assertion failed: %s (%s:%d). This is a bug in pccl; please report it.\n",
               condition, file, line);
  if (on_assertion_failed != nullptr) on_assertion_failed();
  std::abort();
}

}  // namespace pccl
