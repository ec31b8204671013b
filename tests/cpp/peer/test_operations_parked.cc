// Operations whose data is still to be staged: they take their number at the call.

#include "csrc/peer/operations.h"

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

const std::string kSum = "all_reduce(sum, float32, 8 elements, world size 3)";

OpRequest parked(Handle handle) {
  OpRequest request = Transcript().all_reduce(handle);
  request.parked = true;
  return request;
}

TEST(Parked, IsAnnouncedAtTheCallAndUnparkedByItsData) {
  Transcript t;
  t.become_member();
  const std::string plain = t.call(t.all_reduce(5));
  const std::string said = t.call(parked(6));
  EXPECT_NE(said.find("tell Begin #1"), std::string::npos) << said;
  EXPECT_NE(said.find(", parked\n"), std::string::npos) << said;
  EXPECT_EQ(plain.find(", parked\n"), std::string::npos) << plain;
  EXPECT_EQ(t.on(OpStaged{6, {}}), "unpark #1\n");
  EXPECT_EQ(t.on(OpStaged{6, {}}), "") << "it is no longer parked";
  EXPECT_EQ(t.on(OpStaged{5, {}}), "") << "it never was";
}

TEST(Parked, DataThatCannotBeStagedFailsItForAll) {
  Transcript t;
  t.become_member();
  t.call(parked(5));
  EXPECT_EQ(t.on(OpStaged{5, {Code::kSystem, "the device is lost", {}}}),
            "tell AbortRequest #0, system: " + kSum +
                " (#0) in epoch 1.1 failed on rank 1: the device is lost\n");
  const std::string said =
      t.decide(1, 0, {t.aborted(t.key(0), Code::kSystem, "the device is lost")});
  EXPECT_EQ(said, "end #0 aborted\n");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), t.key(0)}), "finish call 5: system: the device is lost\n");
  EXPECT_EQ(t.on(OpStaged{5, {}}), "") << "it has ended";
}

TEST(Parked, StagedAfterItWasAborted) {
  Transcript t;
  t.become_member();
  t.call(parked(5));
  t.decide(1, 0, {t.aborted(t.key(0), Code::kOperationTimeout, "late")});
  EXPECT_EQ(t.on(OpStaged{5, {}}), "") << "nothing is left to begin";
  t.on(OpDrained{epoch_id(1), t.key(0)});
}

TEST(Parked, StagedWhileItsCallIsHeld) {
  Transcript t;
  t.become_member();
  t.joint(5, protocol::JointKind::kUpdateTopology);
  EXPECT_EQ(t.call(parked(6)), "");
  EXPECT_EQ(t.call(parked(7)), "");
  EXPECT_EQ(t.call(parked(8)), "");
  EXPECT_EQ(t.on(OpStaged{7, {}}), "");
  EXPECT_EQ(t.on(OpStaged{8, {Code::kSystem, "the device is lost", {}}}), "");
  const std::string said = t.hear(protocol::Answer{});
  const auto has = [&](const std::string& line) { return said.find(line) != std::string::npos; };
  EXPECT_TRUE(has("start call 6 as #0: 1 of 3, from 1.1, to 1.3, parked\n")) << said;
  EXPECT_TRUE(has("start call 7 as #1: 1 of 3, from 1.1, to 1.3\n")) << said;
  EXPECT_TRUE(has("tell AbortRequest #2, system: ")) << said;
  EXPECT_FALSE(has("start call 8")) << said;
}

TEST(Parked, StartsAgainAsParkedUnlessItWasStagedMeanwhile) {
  for (const bool meanwhile : {false, true}) {
    Transcript t;
    t.become_member();
    t.call(parked(5));
    t.hear(protocol::FreezeRequest{epoch_id(1), {}});
    t.go_on(1);
    if (meanwhile) {
      EXPECT_EQ(t.on(OpStaged{5, {}}), "") << "it is not on the ring";
    }
    t.on(OpDrained{epoch_id(1), t.key(0)});
    const std::string said = t.reconfigure(2);
    EXPECT_NE(said.find("start call 5 as #0"), std::string::npos) << said;
    EXPECT_EQ(said.find(", parked\n") == std::string::npos, meanwhile) << said;
  }
}

}  // namespace
}  // namespace pccl::peer
