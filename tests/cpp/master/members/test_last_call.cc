#include "master/members/last_call.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

const Instant kCalled{std::chrono::seconds(10)};
const Instant kNow{std::chrono::seconds(22)};

TEST(LastCall, SaysInWhichCallAMemberWaits) {
  EXPECT_EQ(last_call_text({protocol::JointKind::kUpdateTopology, kCalled}, {true, true}, kNow),
            "has been in update_topology for 12 s");
  const LastCall call = last_call(kA, op(3, "t"), all_reduce(1, "t"), kCalled);
  EXPECT_EQ(last_call_text(call, {true, true}, kNow), "has been in all_reduce (t, #3) for 12 s");
}

TEST(LastCall, SaysWhatAMemberCalledLast) {
  EXPECT_EQ(last_call_text(last_call(kA, op(3), all_reduce(1), kCalled), {true, false}, kNow),
            "has not called anything for 12 s, since all_reduce (#3)");
  EXPECT_EQ(last_call_text({LastCall::Nothing{}, kCalled}, {true, false}, kNow),
            "has not called anything since it was admitted, 12 s ago");
  EXPECT_EQ(last_call_text({LastCall::Unknown{}, {}}, {true, false}, kNow),
            "has not called anything since the master was started again");
}

TEST(LastCall, CountsFromTheEndOfTheLastCall) {
  LastCall call = last_call(kA, op(3), all_reduce(1), kCalled);
  call.ended = kCalled + std::chrono::seconds(5);
  EXPECT_EQ(last_call_text(call, {true, false}, kNow),
            "has not called anything for 7 s, since all_reduce (#3)");
  EXPECT_EQ(last_call_text(call, {true, true}, kNow), "has been in all_reduce (#3) for 12 s");
}

TEST(LastCall, ACallThatWasJustGivenUpIsWhatTheMemberDid) {
  LastCall call = last_call(kA, op(3), all_reduce(1), kCalled);
  call.end(Code::kOperationTimeout, kCalled + std::chrono::seconds(10));
  EXPECT_EQ(last_call_text(call, {true, false}, kNow),
            "was in all_reduce (#3) for 10 s and gave it up 2 s ago");
  EXPECT_EQ(last_call_text(call, {true, false}, kNow + std::chrono::seconds(8)),
            "has not called anything for 10 s, since all_reduce (#3)");
  call.end(Code::kPeerLost, kCalled + std::chrono::seconds(10));
  EXPECT_EQ(last_call_text(call, {true, false}, kNow),
            "has not called anything for 2 s, since all_reduce (#3)")
      << "it did not wait: a loss has ended the call";
}

TEST(LastCall, AReceiveFromAnySourceIsACallToo) {
  LastCall call{LastCall::AnySend{}, kCalled};
  EXPECT_EQ(last_call_text(call, {true, true}, kNow), "waits for a send from any rank");
  call.end(Code::kOperationTimeout, kNow);
  EXPECT_EQ(last_call_text(call, {true, false}, kNow),
            "was in recv from any rank for 12 s and gave it up 0 ms ago");
}

TEST(LastCall, SaysThatAMemberIsNotConnected) {
  EXPECT_EQ(last_call_text({protocol::JointKind::kUpdateTopology, kCalled}, {false, true}, kNow),
            "has lost its connection to the master");
}

TEST(LastCall, ATransferIsARecvAtItsReceiver) {
  protocol::OpInfo info;
  info.kind = protocol::OpKind::kSend;
  info.root = kA;
  info.receiver = kB;
  const auto text = [&](PeerId peer) {
    return last_call_text(last_call(peer, op(0), info, kCalled), {true, true}, kNow);
  };
  EXPECT_EQ(text(kA), "has been in send (#0) for 12 s");
  EXPECT_EQ(text(kB), "has been in recv (#0) for 12 s");
}

}  // namespace
}  // namespace pccl::master
