#include "master/group/awaited_calls.h"

#include "master/group/groups.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using Ranks = std::vector<uint32_t>;

// A group of a, b and c, which has not waited yet.
struct AwaitedCallsTest : testing::Test {
  AwaitedCallsTest() { h.found({"a", "b", "c"}); }
  std::vector<AwaitedCall> calls(uint32_t group = 0) {
    const Groups& groups = h.core().view().groups;
    return awaited_calls(groups, *groups.find({group}));
  }
  Harness h;
};

TEST_F(AwaitedCallsTest, AnOperationNamesItsCallersAndTheAbsentRanks) {
  EXPECT_TRUE(calls().empty());
  h.say("a", protocol::Begin{epoch(1), op(0), all_reduce(1)});
  ASSERT_EQ(calls().size(), 1u);
  EXPECT_EQ(std::get<OpKey>(calls()[0].call), op(0));
  EXPECT_EQ(calls()[0].waiting, std::vector{h.id("a")});
  ASSERT_EQ(calls()[0].absent.size(), 1u);
  EXPECT_EQ(calls()[0].absent[0].ranks, (Ranks{1, 2}));
  for (const char* name : {"b", "c"}) h.say(name, protocol::Begin{epoch(1), op(0), all_reduce(1)});
  EXPECT_TRUE(calls().empty()) << "it is under way";
}

TEST_F(AwaitedCallsTest, TwoSendsThatFaceEachOtherAreMarked) {
  for (const auto& [from, to] : {std::pair("a", "b"), std::pair("b", "a")}) {
    h.say(from, protocol::Begin{epoch(1), op(0, from), transfer(h.id(from), h.id(to))});
  }
  ASSERT_EQ(calls().size(), 2u);
  EXPECT_TRUE(calls()[0].is_facing && calls()[1].is_facing);
}

TEST_F(AwaitedCallsTest, AJointCallOfAllGroupsNamesTheAbsentOfEachGroup) {
  h.found({"d"}, 1);
  h.vote("a", epoch(1), 0);
  ASSERT_EQ(calls().size(), 1u);
  EXPECT_EQ(std::get<protocol::JointKind>(calls()[0].call), protocol::JointKind::kUpdateTopology);
  ASSERT_EQ(calls()[0].absent.size(), 2u);
  EXPECT_EQ(calls()[0].absent[0].ranks, (Ranks{1, 2}));
  EXPECT_EQ(calls()[0].absent[1].group, GroupId{1});
  EXPECT_EQ(calls()[0].absent[1].ranks, Ranks{0});
}

}  // namespace
}  // namespace pccl::master
