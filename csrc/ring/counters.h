// EngineCounters: the bytes that an Engine has moved and holds. A plain value.
#pragma once

#include <cstdint>

namespace pccl::ring {

struct EngineCounters {
  uint64_t bytes_received = 0, bytes_sent = 0, operations_open = 0, bytes_held = 0;
};

}  // namespace pccl::ring
