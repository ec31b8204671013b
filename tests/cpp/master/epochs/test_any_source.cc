#include "master/epochs/any_source.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

protocol::OpInfo send_to(PeerId receiver, PeerId sender, const std::string& tag = "") {
  protocol::OpInfo info;
  info.kind = protocol::OpKind::kSend;
  info.root = sender;
  info.receiver = receiver;
  info.tag = tag;
  return info;
}

struct AnySourceTest : testing::Test {
  // "tag#sequence of sender > receiver", one for each answer since the last call.
  std::string answers() {
    std::string out;
    for (const auto& [receiver, answer] : sends.take_answers()) {
      EXPECT_EQ(answer.epoch, epoch(5));
      out += (out.empty() ? "" : ", ") + answer.tag + "#" + std::to_string(answer.sequence) +
             " of " + std::to_string(answer.sender.value) + " > " + std::to_string(receiver.value);
    }
    sends.check();
    return out;
  }
  std::string ask(PeerId receiver, uint32_t count, const std::string& tag = "") {
    EXPECT_TRUE(sends.await(receiver, {epoch(5), tag, count}).ok());
    return answers();
  }
  std::string begin(PeerId receiver, PeerId sender, uint32_t sequence,
                    const std::string& tag = "") {
    sends.begun(epoch(5), key(receiver, sender, sequence, tag), send_to(receiver, sender, tag));
    return answers();
  }
  static OpKey key(PeerId receiver, PeerId sender, uint32_t sequence, const std::string& tag = "") {
    return op(sequence, std::to_string(sender.value) + ">" + std::to_string(receiver.value) + tag);
  }
  AnySource sends;
};

TEST_F(AnySourceTest, TheOldestSendsAreTheAnswer) {
  begin(kA, kC, 0);
  begin(kA, kB, 0);
  begin(kA, kC, 1);
  EXPECT_EQ(ask(kA, 2), "#0 of 3 > 1, #0 of 2 > 1");
}

TEST_F(AnySourceTest, AQuestionWaitsForSends) {
  EXPECT_EQ(ask(kA, 2), "");
  EXPECT_EQ(begin(kA, kC, 0), "#0 of 3 > 1");
  EXPECT_EQ(begin(kA, kB, 0), "#0 of 2 > 1");
  EXPECT_EQ(begin(kA, kB, 1), "") << "two were wanted";
}

TEST_F(AnySourceTest, AQuestionEndsWhenNoSendCanCome) {
  begin(kA, kC, 0);
  EXPECT_EQ(ask(kA, 2), "#0 of 3 > 1");
  EXPECT_EQ(ask(kB, 1, "t"), "");
  sends.end_questions(epoch(5), kA);
  EXPECT_EQ(answers(), "#0 of 0 > 1") << "no sender, and only for this receiver";
  EXPECT_FALSE(sends.asks(kA));
  EXPECT_TRUE(sends.asks(kB));
  sends.end_questions(epoch(5), kA);
  EXPECT_EQ(answers(), "") << "it asks no more";
}

TEST_F(AnySourceTest, TagsAndReceiversAreApart) {
  ask(kA, 1, "x");
  EXPECT_EQ(begin(kA, kC, 0), "");
  EXPECT_EQ(begin(kB, kC, 0, "x"), "");
  EXPECT_EQ(begin(kA, kC, 0, "x"), "x#0 of 3 > 1");
}

TEST_F(AnySourceTest, ANewQuestionReplacesTheOldOne) {
  ask(kA, 2);
  ask(kA, 0);
  EXPECT_EQ(begin(kA, kC, 0), "") << "nothing is wanted any more";
  EXPECT_EQ(ask(kA, 1), "#0 of 3 > 1");
  EXPECT_EQ(ask(kA, 1), "#0 of 3 > 1") << "nobody has taken it";
}

TEST_F(AnySourceTest, ATakenSendIsNoAnswer) {
  begin(kA, kC, 0);
  begin(kA, kC, 1);
  sends.taken(key(kA, kC, 0));
  sends.taken(key(kA, kC, 0));
  EXPECT_EQ(ask(kA, 2), "#1 of 3 > 1");
}

TEST_F(AnySourceTest, QuestionsAreForgotten) {
  ask(kA, 1);
  ask(kA, 1, "x");
  ask(kB, 1);
  sends.forget_questions(kA);
  EXPECT_EQ(begin(kA, kC, 0) + begin(kA, kC, 0, "x"), "");
  EXPECT_EQ(begin(kB, kC, 0), "#0 of 3 > 2");
}

TEST_F(AnySourceTest, QuestionsHaveBounds) {
  EXPECT_EQ(sends.await(kA, {epoch(5), "", protocol::kAwaitedSendsMax + 1}).code, Code::kProtocol);
  for (size_t i = 0; i < protocol::kAwaitedTagsMax; ++i) ask(kA, 1, std::to_string(i));
  EXPECT_EQ(sends.await(kA, {epoch(5), "one more", 1}).code, Code::kProtocol);
  ask(kB, 1, "one more");
  ask(kA, 2, "0");
  ask(kA, 0, "0");
  ask(kA, 1, "one more");
}

// ---- In the core ----

struct AnySourceCoreTest : testing::Test {
  AnySourceCoreTest() { h.found({"a", "b", "c"}); }
  void begin(const std::string& name, const std::string& sender, const std::string& receiver,
             uint32_t sequence = 0, uint32_t in_epoch = 1) {
    protocol::OpInfo info = send_to(h.id(receiver), h.id(sender));
    info.world_size = 3;
    h.say(name, protocol::Begin{epoch(in_epoch), op(sequence, sender + ">" + receiver), info});
  }
  void ask(const std::string& name, uint32_t count = 1, uint32_t in_epoch = 1) {
    h.say(name, protocol::AwaitSend{epoch(in_epoch), "", count});
  }
  Harness h;
};

TEST_F(AnySourceCoreTest, AReceiverHearsOfASendThatItHasNotBegun) {
  begin("c", "c", "a");
  begin("a", "c", "a");
  ask("a");
  EXPECT_EQ(h.take(), Lines{}) << "a receive that names its source has taken it";
  begin("b", "b", "a");
  EXPECT_EQ(h.take(), Lines{"a < SendBegun #0 of b"});
}

TEST_F(AnySourceCoreTest, ASendThatWasGivenUpIsNoAnswer) {
  begin("c", "c", "a");
  h.say("c", protocol::AbortRequest{epoch(1), op(0, "c>a"), Code::kOperationTimeout, "late"});
  h.take();
  ask("a");
  EXPECT_EQ(h.take(), Lines{});
}

TEST_F(AnySourceCoreTest, AReceiverThatResumesAsksAgain) {
  ask("a");
  h.close("a");
  h.come_back("a", h.resume("a", epoch(1)));
  h.take();
  begin("c", "c", "a");
  EXPECT_EQ(h.take(), Lines{});
  ask("a");
  EXPECT_EQ(h.take(), Lines{"a < SendBegun #0 of c"});
}

TEST_F(AnySourceCoreTest, AfterAVoteOnlyASendThatIsKnownMayBeTaken) {
  ask("a");
  h.vote("a", epoch(1), 0);
  begin("c", "c", "a");
  h.take();
  begin("a", "c", "a");
  EXPECT_EQ(h.take(), Lines{});
  begin("a", "b", "a");
  EXPECT_EQ(h.take().back(), "a closed");
}

// The receiver has taken a send that ended when the group began to drain. Its Begin says that it
// knows the end.
TEST_F(AnySourceCoreTest, WhileTheGroupDrainsASendCanBeTakenThatHasEnded) {
  begin("a", "a", "b", 0);
  begin("b", "a", "b", 0);  // the group drains until it is done
  begin("c", "c", "a");
  h.enlist("d", Harness::hello(3));
  h.link_all();
  for (const char* name : {"a", "b", "c"}) h.vote(name, epoch(1), 0);
  h.take();
  begin("a", "c", "a");
  EXPECT_EQ(h.take(), Lines{});
  h.say("b", protocol::Done{epoch(1), op(0, "a>b"), 1});
  EXPECT_EQ(h.last<protocol::EpochStart>("a")->epoch, epoch(2));
}

TEST_F(AnySourceCoreTest, AnotherEpochIsNoReasonToAnswer) {
  h.say("a", protocol::AwaitSend{epoch(9), "", 1});
  EXPECT_EQ(h.take().back(), "a closed");
}

}  // namespace
}  // namespace pccl::master
