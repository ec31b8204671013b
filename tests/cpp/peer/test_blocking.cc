#include "csrc/peer/blocking.h"

#include <gtest/gtest.h>

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

// A member with threads that wait for its calls.
class Blocks : public testing::Test {
 protected:
  Blocks() { t.become_member(); }

  // A wait that has begun so many seconds ago.
  ThreadWait wait(Handle handle, double since = 1, bool bounded = false) const {
    return {handle,
            Instant{t.now().since_start -
                    std::chrono::duration_cast<Duration>(std::chrono::duration<double>(since))},
            bounded};
  }
  std::string see(std::vector<ThreadWait> threads, bool callbacks = false, bool all = true) {
    return t.on(WaitsSeen{std::move(threads), all, callbacks});
  }

  Transcript t;
  const std::string kNone = "tell Blocked\n";
};

TEST_F(Blocks, AWaitOfASecondIsReportedOnce) {
  t.call(t.all_reduce(2));
  EXPECT_EQ(see({wait(2, 0.999)}), "");
  EXPECT_EQ(see({wait(2)}), "tell Blocked for certain #0\n");
  EXPECT_EQ(see({wait(2, 5)}), "") << "the master knows it";
}

TEST_F(Blocks, TheCoreLooksOnlyWhileCallsAreOpen) {
  t.wait(3);
  EXPECT_EQ(t.looks(), 0);
  t.call(t.all_reduce(2));
  t.wait(0.99);
  EXPECT_EQ(t.looks(), 0) << "no wait can have lasted for a second";
  t.wait(1.02);
  EXPECT_EQ(t.looks(), 5);
  t.decide(1, 0, {t.aborted(t.key(0), Code::kOperationTimeout, "late")});
  t.on(OpDrained{epoch_id(1), t.key(0)});
  t.wait(3);
  EXPECT_EQ(t.looks(), 5);
}

TEST_F(Blocks, TheEndOfTheOperationWithdrawsTheReport) {
  t.call(t.all_reduce(2));
  see({wait(2)});
  const std::string end = t.decide(1, 0, {t.aborted(t.key(0), Code::kOperationTimeout, "late")});
  EXPECT_NE(end.find(kNone), std::string::npos) << end;
  EXPECT_EQ(see({wait(2)}), "") << "the thread has not noticed yet";
}

TEST_F(Blocks, TheEndOfTheWaitWithdrawsTheReport) {
  t.call(t.all_reduce(2));
  see({wait(2)});
  EXPECT_EQ(see({wait(0)}), kNone);
  EXPECT_EQ(see({wait(0)}), "");
}

TEST_F(Blocks, ACallWithdrawsTheReportBeforeItsBegin) {
  t.call(t.all_reduce(2, "a"));
  see({wait(2)});
  EXPECT_EQ(t.call(t.all_reduce(3, "b")).find(kNone), 0u);
  see({wait(2)});
  EXPECT_EQ(t.joint(4, protocol::JointKind::kArePeersPending).find(kNone), 0u);
}

TEST_F(Blocks, AJointCallCounts) {
  t.joint(2, protocol::JointKind::kUpdateTopology);
  EXPECT_EQ(see({wait(kInJointCall)}), "tell Blocked for certain joint\n");
  protocol::Answer answer;
  answer.kind = protocol::JointKind::kUpdateTopology;
  EXPECT_NE(t.hear(answer).find(kNone), std::string::npos);
  EXPECT_EQ(see({wait(kInJointCall)}), "") << "it has ended";
}

TEST_F(Blocks, OnlyAnApplicationThatCannotContinueBlocksForCertain) {
  t.call(t.all_reduce(2));
  EXPECT_EQ(see({wait(2, 1, true)}), "tell Blocked #0\n") << "the wait has a limit";
  EXPECT_EQ(see({wait(2)}), "tell Blocked for certain #0\n");
  EXPECT_EQ(see({wait(2)}, true), "tell Blocked #0\n") << "a callback will run";
  EXPECT_EQ(see({wait(2), wait(0)}), "tell Blocked #0, several threads\n") << "one computes";
  EXPECT_EQ(see({wait(2), wait(2, 0.5)}), "") << "one does not wait for long";
  EXPECT_EQ(see({wait(2), wait(2)}), "tell Blocked for certain #0, several threads\n");
  EXPECT_EQ(see({wait(2)}, false, false), "tell Blocked #0, several threads\n")
      << "there are threads without a record";
}

TEST_F(Blocks, SeveralThreadsWaitForSeveralCalls) {
  t.call(t.all_reduce(2, "a"));
  t.call(t.all_reduce(3, "b"));
  const std::string both = see({wait(3), wait(2)});
  EXPECT_NE(both.find(" a#0"), std::string::npos) << both;
  EXPECT_NE(both.find(" b#0"), std::string::npos) << both;
}

TEST_F(Blocks, AReceiveFromAnySourceIsUnknownToTheMaster) {
  OpRequest any = t.kind(2, protocol::OpKind::kRecv, kAnySource);
  t.call(any);
  EXPECT_EQ(see({wait(2)}), "");
  t.call(t.all_reduce(3));
  EXPECT_EQ(see({wait(2), wait(3)}), "") << "the first thread may continue";
}

TEST_F(Blocks, AnOperationThatIsToBeAbortedDoesNotBlock) {
  t.call(t.all_reduce(2, "", std::chrono::seconds(3)));
  see({wait(2)});
  const std::string timeout = t.wait(3);
  EXPECT_LT(timeout.find("tell AbortRequest"), timeout.find(kNone)) << timeout;
  EXPECT_EQ(see({wait(2)}), "");
}

TEST_F(Blocks, TheReportIsRepeatedOnANewConnection) {
  t.call(t.all_reduce(2));
  see({wait(2)});
  t.on(MasterClosed{{Code::kSystem, "gone", {}}});
  t.wait(1);
  EXPECT_EQ(t.on(MasterConnected{}).find("Blocked"), std::string::npos);
  EXPECT_NE(t.hear(protocol::Resumed{1}).find("tell Blocked for certain #0\n"), std::string::npos);
}

TEST_F(Blocks, AnOperationThatBeginsAgainIsReportedAgain) {
  t.call(t.all_reduce(2));
  see({wait(2)});
  EXPECT_EQ(t.hear(protocol::FreezeRequest{epoch_id(1), {}}).find("Blocked"), std::string::npos)
      << "the report is void with the epoch";
  EXPECT_EQ(see({wait(2)}), "");
  t.go_on(1);
  EXPECT_EQ(see({wait(2)}), "") << "it is being drained";
  t.on(OpDrained{epoch_id(1), t.key(0)});
  t.reconfigure(2);
  EXPECT_EQ(see({wait(2)}), "tell Blocked for certain #0\n");
}

}  // namespace
}  // namespace pccl::peer
