#include "master/epochs/present_epoch.h"

#include "tests/cpp/master/epochs/epochs_test.h"

namespace pccl::master {
namespace {

using PresentEpochTest = EpochsTest;

TEST_F(PresentEpochTest, MessagesThatCrossTheEndAreVoidAndTheFutureIsForbidden) {
  found(2);
  const auto forbidden = [](const Status& status) { return status.code == Code::kProtocol; };
  EXPECT_TRUE(forbidden(present.begin(peer_id(1), {epoch(2), op(0), all_reduce(8)})));
  EXPECT_TRUE(forbidden(present.done(peer_id(1), {epoch(2), op(0), 0})));
  EXPECT_TRUE(forbidden(epochs.report(peer_id(1), {epoch(1), {}}))) << "nobody asked";
  EXPECT_TRUE(forbidden(present.acknowledge(peer_id(1), epoch(1), 1))) << "there is no verdict yet";
  lose(2);
  EXPECT_TRUE(present.begin(peer_id(1), {epoch(1), op(0), all_reduce(8)}).ok());
  EXPECT_TRUE(present.done(peer_id(1), {epoch(1), op(0), 0}).ok());
  EXPECT_TRUE(present.abort(peer_id(1), {epoch(1), op(0), Code::kSystem, ""}).ok());
  EXPECT_TRUE(present.acknowledge(peer_id(1), {}, 0).ok());
}

TEST_F(PresentEpochTest, AMemberThatAcknowledgesNothingIsUnresponsive) {
  found(2);
  for (uint32_t i = 0; i <= protocol::kOpsOpenMax; ++i) {
    begin(1, i);
    begin(2, i);
    done(1, i, i == 0 ? 0 : i);
    done(2, i);
    present.flush();
  }
  EXPECT_EQ(present.unresponsive_members(), std::vector{peer_id(2)});
}

}  // namespace
}  // namespace pccl::master
