#include "csrc/link/serials.h"

#include <gtest/gtest.h>

#include "csrc/protocol/limits.h"

namespace pccl::link {
namespace {

constexpr PeerId kDialler{3}, kAcceptor{4};

TEST(Serials, GrowPastAllThatIsKnownOfThePeer) {
  Serials serials;
  EXPECT_EQ(serials.next(kDialler, 0, true), 1u);
  EXPECT_EQ(serials.next(kDialler, 0, true), 3u);
  EXPECT_EQ(serials.next(kDialler, 100, true), 101u);
  EXPECT_EQ(serials.last(kDialler, 0), 101u);
  EXPECT_EQ(serials.last(kDialler, 200), 200u);
}

TEST(Serials, OneCountDoesNotUseUpTheNumbersOfOthers) {
  Serials serials;
  serials.next(kDialler, protocol::kSerialMax, false);
  EXPECT_EQ(serials.next(kAcceptor, 0, false), 4u) << "the second connection that we have made";
}

TEST(Serials, RefuseNumbersThatThePeerCannotMean) {
  EXPECT_EQ(Serials::refusal(3, 1, true), "");
  EXPECT_EQ(Serials::refusal(0, 1, false), "it speaks of connection 0");
  EXPECT_EQ(Serials::refusal(2, 1, true), "it speaks of connection 2");
  EXPECT_EQ(Serials::refusal(1 + protocol::kSerialStepMax, 1, true), "");
  EXPECT_NE(Serials::refusal(3 + protocol::kSerialStepMax, 1, true), "");
}

TEST(Serials, ACompletedProofUsesUpItsNumberAndEarlierOnes) {
  Serials serials;
  const auto shown = [](uint32_t serial, bool further = false) {
    return protocol::LaneIntroduction{{kDialler, kAcceptor, 1, 1}, serial, further};
  };
  EXPECT_FALSE(serials.is_used(shown(1)));
  serials.completed(kDialler, 5);
  serials.completed(kDialler, 3);
  EXPECT_TRUE(serials.is_used(shown(5)));
  EXPECT_FALSE(serials.is_used(shown(7)));
  EXPECT_FALSE(serials.is_used(shown(5, true))) << "a further lane has the number of its link";
  serials.forget(kDialler);
  EXPECT_FALSE(serials.is_used(shown(5)));
}

}  // namespace
}  // namespace pccl::link
