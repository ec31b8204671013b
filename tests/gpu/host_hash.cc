// The CPU's state hash with a C interface, so that the GPU checks can call it without the package.

#include "csrc/memory/state_hash.h"

extern "C" __attribute__((visibility("default"))) uint64_t pccl_host_hash(const void* data,
                                                                          size_t bytes) {
  return pccl::memory::state_hash(static_cast<const std::byte*>(data), bytes);
}
