#include "master/text_format.h"

#include <gtest/gtest.h>

#include "csrc/protocol/limits.h"

namespace pccl::master {
namespace {

TEST(Words, ListsOfRanksEndAfterEight) {
  EXPECT_EQ(ranks_text({2}), "rank 2");
  EXPECT_EQ(ranks_text({0, 1}), "ranks 0 and 1");
  EXPECT_EQ(ranks_text({0, 1, 3}), "ranks 0, 1 and 3");
  EXPECT_EQ(ranks_text({0, 1, 2, 3, 4, 5, 6, 7}), "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
  EXPECT_EQ(ranks_text({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

TEST(Words, CountsAndAddresses) {
  EXPECT_EQ(count_text(1, "member"), "1 member");
  EXPECT_EQ(count_text(0, "member"), "0 members");
  EXPECT_EQ(address_text("10.0.0.7", 48201), "10.0.0.7:48201");
  EXPECT_EQ(address_text("fe80::1", 1), "[fe80::1]:1");
}

TEST(Words, AFaultIsSaidByItsKind) {
  EXPECT_EQ(fault_text(LinkFault::kOther), "");
  EXPECT_EQ(fault_text(LinkFault::kRefused), ": connection refused");
  EXPECT_EQ(fault_text(LinkFault::kAnotherPeer), ": another peer answers");
  EXPECT_EQ(fault_text(LinkFault::kOnlySmallPackets), ": only small packets arrive");
}

TEST(Words, CutsBetweenCharacters) {
  EXPECT_EQ(cut("short"), "short");
  std::string text(protocol::kTextBytesMax - 1, 'a');
  text += "\xc3\xa4";  // two bytes, of which only one would fit
  EXPECT_EQ(cut(text), std::string(protocol::kTextBytesMax - 1, 'a'));
}

}  // namespace
}  // namespace pccl::master
