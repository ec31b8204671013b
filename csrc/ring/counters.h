// EngineCounters: the bytes that an Engine has moved and holds. A plain value. Bytes received and
// sent are those on the wire; the bytes of the tensors that they stand for are more if these were
// quantized. A chunk that was cut in the middle counts only in the bytes on the wire.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/base/ids.h"

namespace pccl::ring {

// One look at a link. If it is not up, the rest means nothing.
struct LinkSample {
  PeerId peer;
  bool up = false;
  // Payload that has landed here since the link came up, of all operations together.
  uint64_t bytes_received = 0;
  size_t opening = 0;  // lanes that this peer is opening
};

struct EngineCounters {
  uint64_t bytes_received = 0, bytes_sent = 0;
  uint64_t tensor_bytes_received = 0, tensor_bytes_sent = 0;
  uint64_t operations_open = 0, bytes_held = 0;
};

}  // namespace pccl::ring
