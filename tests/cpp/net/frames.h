// frames: the two kinds of frame that tests send; `value` tells them apart. Each chunk has a
// content of its own, so that a test knows what must arrive.
#pragma once

#include <cstring>
#include <span>
#include <vector>

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

// The content of chunk `number`.
inline std::vector<std::byte> content(uint64_t number, size_t size) {
  std::vector<std::byte> bytes(size + 8);
  for (size_t at = 0; at < size; at += 8) {
    const uint64_t word = (number << 32 | at) * 0x9e3779b97f4a7c15;
    std::memcpy(bytes.data() + at, &word, 8);
  }
  bytes.resize(size);
  return bytes;
}

// Compares whole ranges, because a sanitizer checks each access of a byte loop.
inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace pccl::net
