// little_endian: whole numbers as little-endian bytes, the form on the wire and in files. Plain
// functions; any thread may call them.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

namespace pccl {

static_assert(std::endian::native == std::endian::little,
              "numbers are copied as they lie in memory");

template <std::integral T>
void store_little_endian(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

template <std::integral T>
T load_little_endian(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace pccl
