#include "master/text_format.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

TEST(TextFormat, ListsOfRanksEndAfterEight) {
  EXPECT_EQ(ranks_text({2}, {}), "rank 2");
  EXPECT_EQ(ranks_text({0, 1}, {}), "ranks 0 and 1");
  EXPECT_EQ(ranks_text({0, 1, 3}, {}), "ranks 0, 1 and 3");
  EXPECT_EQ(ranks_text({0, 1, 2, 3, 4, 5, 6, 7}, {}), "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
  EXPECT_EQ(ranks_text({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {}),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

TEST(TextFormat, NamesTheRanksThatHaveAName) {
  const RankNames names = {"tokyo-1", "", "osaka"};
  EXPECT_EQ(ranks_text({0}, names), "rank 0 (tokyo-1)");
  EXPECT_EQ(ranks_text({0, 1, 2, 3}, names), "ranks 0 (tokyo-1), 1, 2 (osaka) and 3");
}

TEST(TextFormat, SaysWhoCameAndWhoWent) {
  EXPECT_EQ(change_text(2, 0), ": 2 joined");
  EXPECT_EQ(change_text(0, 1), ": 1 gone");
  EXPECT_EQ(change_text(1, 2), ": 1 joined, 2 gone");
  EXPECT_EQ(change_text(0, 0), "");
}

TEST(TextFormat, NamesAGroupOnlyIfItIsNotTheFirst) {
  EXPECT_EQ(group_text(GroupId{0}), "");
  EXPECT_EQ(group_text(GroupId{3}), " of peer group 3");
}

TEST(TextFormat, SaysHowManyAreMissing) {
  EXPECT_EQ(shortage_text(1, 2), "1 member is left, and min_peers is 2");
  EXPECT_EQ(shortage_text(2, 3), "2 members are left, and min_peers is 3");
}

TEST(TextFormat, NamesAFaultByItsKind) {
  EXPECT_EQ(fault_text(LinkFault::kOther), " (its log has the reason, with PCCL_LOG=info)");
  EXPECT_EQ(fault_text(LinkFault::kRefused), ": connection refused");
  EXPECT_EQ(fault_text(LinkFault::kAnotherPeer), ": another peer answers");
  EXPECT_EQ(fault_text(LinkFault::kOnlySmallPackets), ": only small packets arrive");
}

}  // namespace
}  // namespace pccl::master
