// EngineCounters: the bytes that an Engine has moved and holds. A plain value. `bytes_received` and
// `bytes_sent` count bytes on the wire. `tensor_bytes_...` count the bytes of the tensors in
// memory: more than on the wire if the tensors were quantized. A chunk that arrived only in part
// counts only in `bytes_received`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/base/ids.h"

namespace pccl::ring {

// A sample of a link. If the link is not up, the other numbers mean nothing.
struct LinkSample {
  PeerId peer;
  bool up = false;
  // Payload bytes that have landed here since the link came up, of all operations together.
  uint64_t bytes_received = 0;
  size_t opening = 0;  // lanes that this peer is opening
};

struct EngineCounters {
  uint64_t bytes_received = 0, bytes_sent = 0;
  uint64_t tensor_bytes_received = 0, tensor_bytes_sent = 0;
  uint64_t operations_open = 0, bytes_held = 0;
};

}  // namespace pccl::ring
