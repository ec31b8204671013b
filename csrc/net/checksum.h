// Checksum: a 32-bit checksum of a byte sequence that comes in pieces (the low half of XXH3-64).
// A plain value that allocates nothing.
// It detects accidental changes by a network or by memory. It does not protect against deliberate
// changes.
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
  // The checksum of all bytes since reset().
  uint32_t value() const;

 private:
  static constexpr size_t kStateBytes = 576;
  alignas(64) std::byte state_[kStateBytes];
};

// The checksum of `bytes` alone, equal to value() of a Checksum that was given the same bytes.
uint32_t checksum(std::span<const std::byte> bytes);

}  // namespace pccl::net
