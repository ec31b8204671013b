#include "master/group/announced_ballots.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

using protocol::Settled;

constexpr GroupId kOwn{0}, kOther{1}, kThird{2};

Settled ballot(GroupId group, uint32_t number) { return {group, {}, {}, number}; }

auto has_number(uint32_t number) {
  return [number](const Settled& settled) { return settled.number == number; };
}

TEST(AnnouncedBallots, TheAnswerIsTheOneOfTheOpenBallot) {
  AnnouncedBallots announced(kOwn);
  announced.add({ballot(kOwn, 4), ballot(kOther, 7)}, true);
  announced.add({ballot(kOwn, 5), ballot(kOther, 8)}, false);
  announced.check();
  EXPECT_EQ(announced.answer(kOther, has_number(7)), true);
  EXPECT_EQ(announced.answer(kOther, has_number(8)), false);
  EXPECT_EQ(announced.answer(kOther, has_number(9)), std::nullopt);
  EXPECT_EQ(announced.answer(kThird, has_number(7)), std::nullopt);
}

TEST(AnnouncedBallots, TheBallotOfTheOwnGroupIsNoNews) {
  AnnouncedBallots announced(kOwn);
  announced.add({ballot(kOwn, 4)}, true);
  EXPECT_TRUE(announced.empty());
  EXPECT_EQ(announced.answer(kOwn, has_number(4)), std::nullopt);
}

TEST(AnnouncedBallots, ARepeatedReportChangesNothing) {
  AnnouncedBallots announced(kOwn);
  for (int i = 0; i < 2; ++i) announced.add({ballot(kThird, 1), ballot(kOther, 7)}, true);
  announced.check();
  EXPECT_EQ(announced.groups(), (std::vector<GroupId>{kOther, kThird}));
}

}  // namespace
}  // namespace pccl::master
