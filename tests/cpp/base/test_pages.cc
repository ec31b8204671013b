#include "csrc/base/pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace pccl {
namespace {

TEST(Pages, AreZeroStartOnAHugePageAndCanBeWritten) {
  for (const size_t count : {1, 2, 7}) {
    const size_t bytes = count * kHugePageBytes;
    std::byte* const memory = map_pages(bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % kHugePageBytes, 0u);
    for (size_t at = 0; at < bytes; at += 4096) {
      EXPECT_EQ(memory[at], std::byte{0});
      memory[at] = std::byte{1};
    }
    unmap_pages(memory, bytes);
  }
}

TEST(Pages, GoBackInAnyOrderAndInPart) {
  std::byte* const memory = map_pages(3 * kHugePageBytes);
  ASSERT_NE(memory, nullptr);
  unmap_pages(memory + kHugePageBytes, kHugePageBytes);
  memory[0] = memory[2 * kHugePageBytes] = std::byte{7};
  unmap_pages(memory, kHugePageBytes);
  EXPECT_EQ(memory[2 * kHugePageBytes], std::byte{7});
  unmap_pages(memory + 2 * kHugePageBytes, kHugePageBytes);
}

TEST(Pages, SaysNoToMoreThanThereIs) {
  EXPECT_EQ(map_pages(size_t{1} << 60), nullptr);
  EXPECT_EQ(map_pages(SIZE_MAX / kHugePageBytes * kHugePageBytes), nullptr);
}

}  // namespace
}  // namespace pccl
