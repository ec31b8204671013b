#include "master/group/cycle_text.h"

#include <gtest/gtest.h>

#include "master/group/groups.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

std::string cycle_text_of(Harness& h, const WaitCycle& cycle) {
  return cycle_text(h.core().view().groups.find(GroupId{0})->view(), cycle);
}

TEST(CycleText, NamesEachRankAndItsCall) {
  Harness h;
  h.found({"a", "b"});
  h.say("a", protocol::Begin{epoch(1), op(0), all_reduce(8)});
  h.vote("b", epoch(1), 0);
  EXPECT_EQ(cycle_text_of(h, {{0, op(0), 1}, {1, protocol::JointKind::kUpdateTopology, 0}}),
            "the ranks wait for each other: rank 0 waits in all_reduce(sum, float32, 8 elements, "
            "world size 2) (#0) in epoch 1.1, which rank 1 has not called; rank 1 waits in "
            "update_topology, which rank 0 has not called");
}

TEST(CycleText, ATransferLacksItsOtherSide) {
  Harness h;
  h.found({"a", "b"});
  protocol::OpInfo info = all_reduce(8);
  info.kind = protocol::OpKind::kSend;
  info.root = h.id("a");
  info.receiver = h.id("b");
  h.say("a", protocol::Begin{epoch(1), op(0, "x"), info});
  h.say("b", protocol::Begin{epoch(1), op(0, "y"), info});
  const std::string text = cycle_text_of(h, {{0, op(0, "x"), 1}, {1, op(0, "y"), 0}});
  EXPECT_NE(text.find("rank 0 waits in send("), std::string::npos) << text;
  EXPECT_NE(text.find(", which rank 1 has not received;"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1 waits in recv("), std::string::npos) << text;
  EXPECT_NE(text.find(", which rank 0 has not sent"), std::string::npos) << text;
}

TEST(CycleText, AnOperationThatIsForgottenAndManyRanks) {
  Harness h;
  h.found({"a", "b"});
  WaitCycle cycle;
  for (uint32_t rank = 0; rank < 10; ++rank) cycle.push_back({rank, op(0), (rank + 1) % 10});
  const std::string text = cycle_text_of(h, cycle);
  EXPECT_NE(text.find("rank 7 waits in an operation that has ended"), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 8 waits"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("; and 2 more ranks")) << text;
}

}  // namespace
}  // namespace pccl::master
