#include "csrc/link/lane_state.h"

#include <gtest/gtest.h>

namespace pccl::link {
namespace {

using Phase = LaneState::Phase;

TEST(LaneState, IsSilentUntilItsHelloHasCome) {
  LaneState accepted, dialled;
  dialled.dialled = true;
  dialled.peer = PeerId{3};
  EXPECT_FALSE(accepted.is_silent() || dialled.is_silent()) << "they are connecting";
  accepted.enter(Phase::kHandshaking);
  dialled.enter(Phase::kHandshaking);
  EXPECT_TRUE(accepted.is_silent() && dialled.is_silent());
  accepted.peer = PeerId{3};
  EXPECT_FALSE(accepted.is_silent()) << "it crosses an attempt";
  dialled.enter(Phase::kUp);
  EXPECT_FALSE(dialled.is_silent());
}

TEST(LaneState, PhasesHaveNames) {
  for (const Phase phase : {Phase::kConnecting, Phase::kHandshaking, Phase::kUp, Phase::kGone})
    EXPECT_STRNE(text(phase), "unknown");
}

TEST(LaneStateDeathTest, ALaneThatIsGoneDoesNotComeBack) {
  LaneState lane;
  lane.enter(Phase::kGone);
  EXPECT_DEATH(lane.enter(Phase::kUp), "");
}

}  // namespace
}  // namespace pccl::link
