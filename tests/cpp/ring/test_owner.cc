#include "csrc/ring/owner.h"

#include <gtest/gtest.h>

namespace pccl::ring {
namespace {

TEST(Owner, ASliceIsCombinedWithItsLastContribution) {
  Owner owner(3, 2, false);
  EXPECT_TRUE(owner.owns());
  EXPECT_FALSE(owner.arrived(1));
  EXPECT_FALSE(owner.arrived(0));
  EXPECT_TRUE(owner.arrived(1));
  EXPECT_EQ(owner.combined(), 0u) << "the first slice still lacks one";
  owner.check();
  EXPECT_TRUE(owner.arrived(0));
  EXPECT_EQ(owner.combined(), 2u);
  EXPECT_FALSE(owner.arrived(2));
  EXPECT_TRUE(owner.arrived(2));
  EXPECT_EQ(owner.combined(), 3u);
  EXPECT_EQ(owner.free(), 3u);
  EXPECT_FALSE(owner.left(0)) << "nothing is held";
  owner.check();
}

TEST(Owner, AHeldResultIsFreeOnceAllHaveIt) {
  Owner owner(2, 2, true);
  for (const uint64_t slice : {0u, 1u, 0u, 1u}) owner.arrived(slice);
  EXPECT_EQ(owner.combined(), 2u);
  EXPECT_EQ(owner.free(), 0u);
  EXPECT_FALSE(owner.left(1));
  EXPECT_FALSE(owner.left(0));
  EXPECT_TRUE(owner.left(1));
  EXPECT_EQ(owner.free(), 0u) << "the first is still held";
  owner.check();
  EXPECT_TRUE(owner.left(0));
  EXPECT_EQ(owner.free(), 2u);
  owner.check();
}

TEST(Owner, NoBlockHasNoOwner) {
  const Owner owner;
  EXPECT_FALSE(owner.owns());
  EXPECT_EQ(owner.combined(), 0u);
  owner.check();
}

}  // namespace
}  // namespace pccl::ring
