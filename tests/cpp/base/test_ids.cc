#include "csrc/base/ids.h"

#include <gtest/gtest.h>

namespace pccl {
namespace {

TEST(Ids, AreOrderedByValueAndFalseWhenZero) {
  EXPECT_LT(PeerId{1}, PeerId{2});
  EXPECT_FALSE(PeerId{});
  EXPECT_TRUE(Epoch{1});
  EXPECT_LT((OpKey{TagId{1}, 9}), (OpKey{TagId{2}, 0}));
  EXPECT_LT((OpKey{TagId{1}, 0}), (OpKey{TagId{1}, 1}));
}

TEST(Ids, SayIncarnationAndCounter) {
  EXPECT_EQ(text(PeerId{(uint64_t{0x65a1} << 32) | 3}), "65a1.3");
  EXPECT_EQ(text(Epoch{(uint64_t{2} << 32) | 17}), "2.17");
}

// The id of a tag is part of the protocol: all peers must compute the same value.
TEST(Ids, TagsHashAsFnv1a) {
  EXPECT_EQ(tag_id(""), TagId{0});
  EXPECT_EQ(tag_id("a"), TagId{0xaf63dc4c8601ec8c});
  EXPECT_EQ(tag_id("foobar"), TagId{0x85944171f73967e8});
  EXPECT_NE(tag_id("layer.1"), tag_id("layer.2"));
}

}  // namespace
}  // namespace pccl
