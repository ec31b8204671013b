// Checksum: 32 bits over a sequence of bytes that comes in pieces (the low half of XXH3-64). Tells
// whether a network or a memory changed something by accident; no defence against somebody who
// means to. A plain value, no allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pccl::net {

class Checksum {
 public:
  Checksum() { reset(); }
  void reset();
  void add(std::span<const std::byte> bytes);
  // Of all bytes since reset().
  uint32_t value() const;

 private:
  static constexpr size_t kStateBytes = 576;
  alignas(64) std::byte state_[kStateBytes];
};

// Of `bytes` alone; what a Checksum says that was given them.
uint32_t checksum(std::span<const std::byte> bytes);

}  // namespace pccl::net
