#include "csrc/memory/pool_buffer.h"

#include <gtest/gtest.h>

namespace pccl::memory {
namespace {

TEST(PoolBuffer, GivesItsMemoryBack) {
  Pool pool;
  std::byte* where = nullptr;
  {
    const PoolBuffer buffer(pool, 5000);
    ASSERT_EQ(buffer.bytes().size(), 5000u);
    where = buffer.bytes().data();
  }
  EXPECT_EQ(PoolBuffer(pool, 5000).bytes().data(), where);
}

TEST(ScratchBuffer, GrowsAndGivesTheSmallerOneBack) {
  Pool pool;
  ScratchBuffer scratch(pool);
  EXPECT_TRUE(scratch.bytes().empty());
  ASSERT_TRUE(scratch.fit(5000));
  std::byte* const small = scratch.bytes().data();
  ASSERT_TRUE(scratch.fit(100));
  EXPECT_EQ(scratch.bytes().data(), small) << "it is large enough";
  EXPECT_EQ(scratch.bytes().size(), 5000u);
  ASSERT_TRUE(scratch.fit(100'000));
  EXPECT_EQ(scratch.bytes().size(), 100'000u);
  EXPECT_EQ(PoolBuffer(pool, 5000).bytes().data(), small);
}

}  // namespace
}  // namespace pccl::memory
