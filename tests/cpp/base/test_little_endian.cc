#include "csrc/base/little_endian.h"

#include <gtest/gtest.h>

#include <array>

namespace pccl {
namespace {

TEST(LittleEndian, TheLowestByteComesFirst) {
  std::array<std::byte, 8> bytes{};
  store_little_endian(bytes.data(), uint32_t{0x04030201});
  store_little_endian(bytes.data() + 4, int16_t{-2});
  const std::array<int, 8> expected = {1, 2, 3, 4, 0xfe, 0xff, 0, 0};
  for (size_t at = 0; at < bytes.size(); ++at)
    EXPECT_EQ(std::to_integer<int>(bytes[at]), expected[at]) << at;
}

TEST(LittleEndian, AnyPlaceInMemoryWillDo) {
  std::array<std::byte, 16> bytes{};
  for (size_t at = 0; at < 8; ++at) {
    store_little_endian(bytes.data() + at, uint64_t{0x0807060504030201} + at);
    EXPECT_EQ(load_little_endian<uint64_t>(bytes.data() + at), uint64_t{0x0807060504030201} + at);
  }
  EXPECT_EQ(load_little_endian<int8_t>(bytes.data()), 1);
}

}  // namespace
}  // namespace pccl
