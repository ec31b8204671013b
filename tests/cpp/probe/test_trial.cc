#include "csrc/probe/trial.h"

#include <gtest/gtest.h>

#include "csrc/net/framing.h"
#include "csrc/protocol/limits.h"

namespace pccl::probe {
namespace {

using protocol::FrameHeader;
using std::chrono::milliseconds;

const Trial kLargest{.streams = 128,
                     .milliseconds = 60'000,
                     .direction = Direction::kBoth,
                     .wan = true,
                     .congestion = "a-name_of_15_ab"};

FrameHeader through_the_wire(const FrameHeader& header) {
  return net::decode_header(net::encode_header(header)).value();
}

TEST(Trial, ComesBackFromItsFrame) {
  for (const Direction direction : {Direction::kThere, Direction::kBack, Direction::kBoth}) {
    Trial trial = kLargest;
    trial.direction = direction;
    EXPECT_EQ(trial_in(through_the_wire(frame_of(trial))), trial);
    EXPECT_EQ(direction_named(name_of(direction)), direction);
  }
  EXPECT_EQ(trial_in(frame_of(Trial{.milliseconds = 200})), Trial{.milliseconds = 200});
  EXPECT_EQ(direction_named("up"), std::nullopt);
}

TEST(Trial, ATrialOutOfBoundsIsNone) {
  const FrameHeader good = frame_of(kLargest);
  std::vector<FrameHeader> bad(9, good);
  bad[0].block = 0;
  bad[1].block = 129;
  bad[2].slice = 199;
  bad[3].slice = 60'001;
  bad[4].slice = UINT32_MAX;
  bad[5].round = 3;
  bad[6].round = 8;
  bad[7].op.tag.value |= 0x80;
  bad[8].type = protocol::FrameType::kPing;
  for (size_t i = 0; i < bad.size(); ++i) EXPECT_FALSE(trial_in(bad[i])) << i;
  for (const char* name : {"../x", "CUBIC", "a b", "sixteen_letters_"}) {
    Trial trial = kLargest;
    trial.congestion = name;
    EXPECT_FALSE(is_valid(trial)) << name;
  }
}

TEST(Trial, ASecondOrHalfOfItIsNotCounted) {
  EXPECT_EQ(kLargest.warm_up(), milliseconds(1000));
  EXPECT_EQ(Trial{.milliseconds = 500}.warm_up(), milliseconds(250));
}

TEST(Trial, AResultAndARefusalComeBack) {
  const TrialResult result{1'000'000'000'000, 3, 990};
  const FrameHeader said = through_the_wire(frame_of(result));
  EXPECT_EQ(result_in(said), result);
  EXPECT_EQ(refusal_in(said), Refusal::kNone);
  FrameHeader refusal = through_the_wire(frame_of(Refusal::kTooLong));
  EXPECT_EQ(refusal_in(refusal), Refusal::kTooLong);
  refusal.round = 999;
  EXPECT_EQ(refusal_in(refusal), Refusal::kOutOfPlace) << "of a later version";
}

}  // namespace
}  // namespace pccl::probe
