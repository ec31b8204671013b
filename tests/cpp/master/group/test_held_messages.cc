#include "master/group/held_messages.h"

#include <gtest/gtest.h>

#include "csrc/protocol/limits.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

class HeldMessagesTest : public testing::Test {
 protected:
  ~HeldMessagesTest() override {
    held.check();
    EXPECT_EQ(context.held_bytes, held.bytes());
  }
  Status hold(PeerId peer, protocol::Message message) { return held.hold(peer, message); }
  Context context;
  HeldMessages held{context};
};

TEST_F(HeldMessagesTest, AreTakenInTheirOrder) {
  EXPECT_TRUE(hold(kB, protocol::Done{epoch(1), op(0), 0}).ok());
  EXPECT_TRUE(hold(kB, protocol::Done{epoch(1), op(1), 0}).ok());
  EXPECT_TRUE(hold(kA, protocol::Done{epoch(1), op(0), 0}).ok());
  EXPECT_GT(context.held_bytes, 0u);
  EXPECT_EQ(held.senders(), (std::vector{kA, kB}));
  const auto taken = held.take();
  ASSERT_EQ(taken.size(), 3u);
  EXPECT_EQ(taken[0].peer, kA);
  EXPECT_EQ(taken[2].message, (protocol::Message{protocol::Done{epoch(1), op(1), 0}}));
  EXPECT_TRUE(held.empty());
}

TEST_F(HeldMessagesTest, AForgottenSenderCountsForNothing) {
  EXPECT_TRUE(hold(kA, protocol::Done{epoch(1), op(0), 0}).ok());
  held.forget(kA);
  held.forget(kB);
  EXPECT_TRUE(held.take().empty());
}

TEST_F(HeldMessagesTest, AVoteThatIsRepeatedIsHeldOnceAndASecondOneIsRefused) {
  protocol::Vote vote;
  vote.kind = kPending;
  EXPECT_TRUE(hold(kA, vote).ok());
  EXPECT_TRUE(hold(kA, vote).ok());
  EXPECT_EQ(held.take().size(), 1u);
  EXPECT_TRUE(hold(kA, vote).ok());
  vote.kind = kSync;
  EXPECT_EQ(hold(kA, vote).code, Code::kProtocol);
}

TEST_F(HeldMessagesTest, AreBoundedForAllGroupsTogether) {
  EXPECT_TRUE(hold(kB, protocol::Done{epoch(1), op(0), 0}).ok());
  context.held_bytes += protocol::kHeldBytesMax;  // of other groups
  EXPECT_EQ(hold(kB, protocol::Done{epoch(1), op(0), 0}).code, Code::kProtocol);
  context.held_bytes -= protocol::kHeldBytesMax;
}

}  // namespace
}  // namespace pccl::master
