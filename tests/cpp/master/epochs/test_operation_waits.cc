#include "master/epochs/operation_waits.h"

#include <gtest/gtest.h>

#include "master/epochs/operations.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using PeerSet = std::set<PeerId>;

struct OperationWaitsTest : testing::Test {
  void begin(PeerId peer, uint32_t sequence) {
    EXPECT_TRUE(table.begin(peer, op(sequence), all_reduce(8)).ok());
  }
  void begin_send_to_b() { EXPECT_TRUE(table.begin(kA, op(0), transfer(kA, kB, 4)).ok()); }
  Operations table{epoch(5), {kA, kB, kC}};
};

TEST_F(OperationWaitsTest, AMemberIsInAnOperationUntilItIsSettled) {
  EXPECT_FALSE(table.waits().is_in_any(kA));
  for (const PeerId peer : {kA, kB, kC}) begin(peer, 0);
  EXPECT_TRUE(table.done(kA, op(0)).ok());
  EXPECT_TRUE(table.waits().is_in_any(kA))
      << "it is done, and does not know yet that the others are";
  EXPECT_TRUE(table.done(kB, op(0)).ok());
  EXPECT_TRUE(table.done(kC, op(0)).ok());
  EXPECT_FALSE(table.waits().is_in_any(kA));
  (void)table.take_settled({});
}

TEST_F(OperationWaitsTest, AMemberHasToRepeatTheOperationsThatItWasIn) {
  begin(kA, 0);
  table = table.reconfigured(epoch(6), {kA, kB, kC});
  EXPECT_TRUE(table.waits().is_to_repeat(kA));
  EXPECT_FALSE(table.waits().is_to_repeat(kB));
  EXPECT_FALSE(table.waits().is_in_any(kA));
  table.not_repeated({op(0)});
  EXPECT_FALSE(table.waits().is_to_repeat(kA)) << "it was committed";
}

TEST_F(OperationWaitsTest, ASendToALostMemberIsNotRepeated) {
  begin_send_to_b();
  EXPECT_TRUE(table.reconfigured(epoch(6), {kA, kB}).waits().is_to_repeat(kA));
  EXPECT_FALSE(table.reconfigured(epoch(6), {kA, kC}).waits().is_to_repeat(kA));
}

TEST_F(OperationWaitsTest, AskingForASendIsACall) {
  EXPECT_TRUE(table.await_send(kB, {epoch(5), "t", 1}).ok());
  EXPECT_TRUE(table.waits().is_in_any(kB));
  EXPECT_FALSE(table.waits().is_in_any(kA));
}

TEST_F(OperationWaitsTest, ThoseWhoWaitAreCountedOverAllOperations) {
  begin(kA, 3);
  begin(kB, 4);
  const auto awaited = table.waits().awaited(kC, {});
  EXPECT_EQ(awaited.by, (PeerSet{kA, kB}));
  EXPECT_EQ(awaited.call, "all_reduce(sum, float32, 8 elements, world size 2) (#3)");
  EXPECT_EQ(table.waits().awaited(kB, {}).by, (PeerSet{kA})) << "not itself";
  EXPECT_EQ(table.waits().awaited(kC, {kB}).by, (PeerSet{kA})) << "without newcomers";
}

TEST_F(OperationWaitsTest, NobodyWaitsForWhomNothingConcerns) {
  begin_send_to_b();
  EXPECT_EQ(table.waits().awaited(kB, {}).by, (PeerSet{kA}));
  EXPECT_EQ(table.waits().awaited(kC, {}).by, PeerSet{});
  EXPECT_EQ(table.waits().awaited(kC, {}).call, "");
}

TEST_F(OperationWaitsTest, ALeaverWaitsForNobody) {
  begin(kA, 0);
  EXPECT_TRUE(table.done(kA, op(0)).ok()) << "as a sender may be, before the others begin";
  ASSERT_EQ(table.waits().all().size(), 1u);
  EXPECT_EQ(table.waits().awaited(kB, {}).by, PeerSet{kA});
  table.leave(kA);
  EXPECT_TRUE(table.take_settled({}).empty()) << "the others can finish it";
  EXPECT_TRUE(table.waits().all().empty());
  EXPECT_EQ(table.waits().awaited(kB, {}).by, PeerSet{});
  begin(kB, 0);
  ASSERT_EQ(table.waits().all().size(), 1u);
  EXPECT_EQ(table.waits().all()[0].waiting, std::vector<uint32_t>{1});
}

TEST_F(OperationWaitsTest, OneThatAllHaveBegunIsUnderWay) {
  begin(kA, 0);
  begin(kB, 0);
  EXPECT_EQ(table.waits().under_way(), "") << "one has not begun it";
  begin(kC, 0);
  EXPECT_NE(table.waits().under_way().find("all_reduce"), std::string::npos);
  for (const PeerId peer : {kA, kB, kC}) EXPECT_TRUE(table.done(peer, op(0)).ok());
  EXPECT_EQ(table.waits().under_way(), "");
  (void)table.take_settled({});
}

}  // namespace
}  // namespace pccl::master
