// RingCore: what its check() and the Engine compare with their own tables.
#include "tests/cpp/ring/core_test.h"

namespace pccl::ring {
namespace {

TEST_F(Core, CountsItsLanesAndWhatIsInFlightOnThem) {
  EXPECT_EQ(core_.lanes(kDown), 0u);
  begin_on_two_lanes();
  EXPECT_EQ(core_.lanes(kDown), 2u);
  EXPECT_FALSE(core_.sends({kDown, 0}));
  credit(kDown, 0, 1);
  EXPECT_TRUE(core_.sends({kDown, 0}));
  EXPECT_FALSE(core_.sends({kUp, 0}) || core_.sends({kUp, 1}) || core_.sends({kStranger, 0}));
  EXPECT_FALSE(core_.lands({kUp, 0}));
  core_.check();
  step(LinkDown{kDown});
  EXPECT_FALSE(core_.sends({kDown, 0}));
  core_.check();
}

TEST_F(Core, CountsTheMessagesOfOperationsThatAreNotPosted) {
  begin();
  EXPECT_EQ(core_.kept_messages(), 0u);
  step(ChunkArriving{{kUp}, pairwise_chunk(0, 0)});
  EXPECT_TRUE(core_.lands({kUp, 0}));
  EXPECT_EQ(core_.kept_messages(), 1u);
  core_.check();
  step(ChunkArrived{{kUp}});
  EXPECT_EQ(core_.kept_messages(), 1u);
  step(OpEnded{{TagId{}, 0}});
  EXPECT_EQ(core_.kept_messages(), 0u);
  core_.check();
}

}  // namespace
}  // namespace pccl::ring
