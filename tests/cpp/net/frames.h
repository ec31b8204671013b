// frames: the two kinds of frame that the tests of this layer send; `value` tells them apart.
#pragma once

#include "csrc/net/framing.h"

namespace pccl::net {

inline FrameHeader control(uint64_t value) {
  FrameHeader header;
  header.type = FrameType::kCredit;
  header.value = value;
  return header;
}

inline FrameHeader chunk(uint64_t value, size_t length) {
  FrameHeader header;
  header.type = FrameType::kChunk;
  header.length = static_cast<uint32_t>(length);
  header.value = value;
  return header;
}

}  // namespace pccl::net
