// encoding: how the elements of a chunk are written on the wire. The bytes in memory and the bytes
// on the wire are two numbers: code that moves bytes uses wire_bytes(), code that touches tensors
// uses the bytes in memory. A new encoding is a new enumerator here, and a case where encoded bytes
// are read or written (csrc/ring/buffers.cc). Plain values.
#pragma once

#include <cstdint>

namespace pccl::memory {

// kPlain: the elements as they are in memory, little-endian.
enum class Encoding : uint8_t { kPlain };

// Bytes on the wire of elements that have `bytes` bytes in memory.
constexpr uint32_t wire_bytes(Encoding encoding, uint32_t bytes) {
  switch (encoding) {
    case Encoding::kPlain: break;
  }
  return bytes;
}

}  // namespace pccl::memory
