#include "csrc/peer/outbox.h"

#include <gtest/gtest.h>

namespace pccl::peer {
namespace {

using protocol::OpKind;

constexpr Instant kStart{};

protocol::Begin begin_of(OpKind kind, uint32_t sequence = 0) {
  protocol::Begin message;
  message.op.sequence = sequence;
  message.info.kind = kind;
  return message;
}

TEST(Outbox, ABeginIsHeldUntilTheNextMessage) {
  Outbox outbox;
  EXPECT_FALSE(outbox.due(kStart) || outbox.deadline());
  outbox.add(begin_of(OpKind::kAllReduce), kStart);
  EXPECT_FALSE(outbox.due(kStart));
  outbox.add(protocol::Done{}, kStart);
  outbox.check();
  EXPECT_TRUE(outbox.due(kStart));
  const auto messages = outbox.take();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<protocol::Begin>(messages[0]));
  EXPECT_TRUE(outbox.empty() && !outbox.deadline());
}

TEST(Outbox, ItIsHeldForAMillisecondAtMost) {
  Outbox outbox;
  outbox.add(begin_of(OpKind::kBroadcast, 0), kStart);
  outbox.add(begin_of(OpKind::kAllReduce, 1), kStart + Outbox::kHeldMax / 2);
  EXPECT_EQ(outbox.deadline(), kStart + Outbox::kHeldMax) << "of the first one";
  EXPECT_FALSE(outbox.due(kStart + (Outbox::kHeldMax - Duration{1})));
  EXPECT_TRUE(outbox.due(kStart + Outbox::kHeldMax));
  EXPECT_EQ(outbox.take().size(), 2u);
}

TEST(Outbox, ASendBeginsAtOnce) {
  Outbox outbox;
  outbox.add(begin_of(OpKind::kSend), kStart);
  EXPECT_TRUE(outbox.due(kStart));
}

}  // namespace
}  // namespace pccl::peer
