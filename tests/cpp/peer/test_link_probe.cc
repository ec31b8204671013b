#include "csrc/peer/link_probe.h"

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

// This peer is 1.2, and the other end of the link is 1.3.
class LinkProbeTest : public testing::Test {
 protected:
  explicit LinkProbeTest(Options options = Transcript::default_options()) : t(std::move(options)) {
    t.become_member();
  }
  std::string probe(uint32_t round = 1, uint32_t peer = 3, uint32_t milliseconds = 1000) {
    return t.hear(protocol::Probe{round, peer_id(peer), milliseconds});
  }
  // So much has come on the link by now.
  std::string come(uint64_t bytes, size_t opening = 0, uint32_t peer = 3) {
    return t.on(LinkSampled{peer_id(peer), true, bytes, opening});
  }
  static OpKey here(uint32_t round = 1) {
    return LinkProbe::key_of(peer_id(3), peer_id(2), 1, round);
  }
  static OpKey there(uint32_t round = 1) {
    return LinkProbe::key_of(peer_id(2), peer_id(3), 1, round);
  }
  static std::string report(uint64_t bytes, uint32_t milliseconds, uint32_t round = 1) {
    return "tell ProbeReport " + std::to_string(round) + " with 1.3: " + std::to_string(bytes) +
           " bytes in " + std::to_string(milliseconds) + " ms\n";
  }
  // Waits without a look at the effects, which are looks at the link.
  void pass(double seconds) {
    const std::string lines = t.wait(seconds);
    EXPECT_EQ(lines.find_first_not_of("lok at1.3\n"), std::string::npos) << lines;
  }
  // Both transfers are posted, and the first byte is here.
  void begin(uint32_t round = 1) {
    probe(round);
    come(0);
    come(100);
  }

  const std::string posted =
      "start call 0 as ?#1: 1 of 2, from 1.3, a probe\n"
      "start call 0 as ?#1: 0 of 2, to 1.3, a probe\n";
  const std::string ended = "end ?#1 aborted\nend ?#1 aborted\n";
  Transcript t;
};

TEST_F(LinkProbeTest, BytesAfterAThirdOfTheTimeCount) {
  EXPECT_EQ(probe(), "open lanes to 1.3, to measure\nlook at 1.3\n");
  EXPECT_EQ(come(7), posted);
  pass(0.1);
  EXPECT_EQ(come(7), "") << "nothing of it has come";
  EXPECT_EQ(come(8), "") << "the clock starts";
  EXPECT_EQ(t.wait(0.039), "") << "there is nothing to look for";
  EXPECT_EQ(t.wait(0.002), "look at 1.3\n");
  pass(0.309);
  EXPECT_EQ(come(1'000'000), "");
  pass(0.61);
  EXPECT_EQ(come(7'100'000), "");
  pass(0.04);
  EXPECT_EQ(come(7'300'000), report(6'100'000, 610) + ended);
  EXPECT_EQ(t.wait(5).find("look"), std::string::npos) << "it is over";
  EXPECT_EQ(come(9'000'000), "");
}

// 10 MB/s arrive. What comes after a lost packet counts when that packet is here.
TEST_F(LinkProbeTest, DataBehindALostPacketDoesNotRaiseTheRate) {
  begin();
  pass(0.36);
  come(2'600'000);  // 1 MB waits
  pass(0.10);
  come(2'600'000);
  pass(0.10);
  come(5'600'000);
  pass(0.36);
  come(9'200'000);
  pass(0.10);
  EXPECT_EQ(come(10'200'000), report(3'600'000, 360) + ended);
}

TEST_F(LinkProbeTest, DataBehindALostPacketDoesNotLowerTheRate) {
  begin();
  pass(0.36);
  come(3'600'000);
  pass(0.46);
  come(8'200'000);
  pass(0.12);
  come(8'300'000);  // 1.1 MB waits
  pass(0.10);
  EXPECT_EQ(come(8'300'000), report(4'600'000, 460) + ended);
}

TEST_F(LinkProbeTest, ALateLookCountsWhatHasComeByThen) {
  begin();
  t.wait(0.5);
  EXPECT_EQ(come(1'000), "");
  t.wait(2);
  EXPECT_EQ(come(21'000), report(20'000, 2000) + ended);
}

TEST_F(LinkProbeTest, OneLookAtTheEndCountsTheWholeTime) {
  begin();
  t.wait(2);
  EXPECT_EQ(come(20'000), report(20'000, 2000) + ended);
}

TEST_F(LinkProbeTest, TheLanesAreOpenBeforeAnythingIsSent) {
  probe();
  pass(0.1);
  EXPECT_EQ(come(0, 3), "");
  pass(0.1);
  EXPECT_EQ(come(0, 1), "");
  EXPECT_EQ(come(0, 0), posted);
}

TEST_F(LinkProbeTest, LanesThatDoNotOpenAreNotAwaited) {
  probe();
  pass(0.99);
  EXPECT_EQ(come(0, 3), "");
  pass(0.02);
  EXPECT_EQ(come(0, 3), posted);
}

TEST_F(LinkProbeTest, NothingComes) {
  probe();
  come(0);
  pass(1.99);
  EXPECT_EQ(come(0), "");
  pass(0.02);
  EXPECT_EQ(come(0), report(0, 0) + ended);
}

TEST_F(LinkProbeTest, ALongProbeDoesNotWaitForLong) {
  probe(1, 3, protocol::kProbeBudgetMax);
  t.wait(5.1);
  t.hear(protocol::Ping{1, 0, {}});
  EXPECT_EQ(come(0, 3), posted);
  t.wait(5);
  EXPECT_EQ(come(0), report(0, 0) + ended);
}

TEST_F(LinkProbeTest, AnotherLinkToTheSamePeerIsNotMeasured) {
  begin();
  t.wait(0.4);
  come(1'000);
  t.wait(0.1);
  EXPECT_EQ(come(50), report(0, 0) + ended);
}

TEST_F(LinkProbeTest, ItStopsComing) {
  begin();
  t.wait(0.4);
  come(5'000);
  t.wait(0.58);
  come(5'000);
  t.wait(0.1);
  EXPECT_EQ(come(5'000), report(0, 0) + ended);
}

TEST_F(LinkProbeTest, BytesBeforeAStopCount) {
  begin();
  pass(0.4);
  come(1'000'000);
  pass(0.18);
  come(4'000'000);
  pass(0.32);
  come(4'000'000);
  pass(0.11);
  EXPECT_EQ(come(4'000'000), report(3'000'000, 500) + ended);
}

TEST_F(LinkProbeTest, WithoutALinkItFails) {
  probe();
  EXPECT_EQ(t.on(LinkSampled{peer_id(3), false, 0, 0}), report(0, 0));
  begin(2);
  EXPECT_EQ(t.on(LinkSampled{peer_id(3), false, 0, 0}),
            report(0, 0, 2) + "end ?#2 aborted\nend ?#2 aborted\n");
}

TEST_F(LinkProbeTest, APeerThatIsNoMemberIsNotMeasured) {
  EXPECT_EQ(probe(1, 9), "tell ProbeReport 1 with 1.9: 0 bytes in 0 ms\n");
  t.lose(1, 3);
  EXPECT_EQ(probe(2), report(0, 0, 2)) << "the epoch is over";
}

TEST(ProbeMessage, IsRefusedIfItMakesNoSense) {
  for (const auto& [peer, milliseconds] :
       {std::pair(2u, 10u), {3u, 0u}, {3u, protocol::kProbeBudgetMax + 1}}) {
    Transcript t;
    t.become_member();
    const std::string story = t.hear(protocol::Probe{1, peer_id(peer), milliseconds});
    EXPECT_NE(story.find("broke the protocol"), std::string::npos) << story;
  }
  Transcript t;
  t.become_member();
  const std::string story =
      t.hear(protocol::Probe{1, peer_id(3), 10, protocol::kProbeBytesMin - 1});
  EXPECT_NE(story.find("broke the protocol"), std::string::npos) << story;
}

TEST_F(LinkProbeTest, ARepeatedProbeChangesNothing) {
  begin(5);
  EXPECT_EQ(probe(5), "");
  EXPECT_EQ(probe(4), "");
  t.wait(2);
  EXPECT_NE(come(20'000).find("ProbeReport 5"), std::string::npos);
  EXPECT_EQ(probe(5), "") << "it is over";
}

TEST_F(LinkProbeTest, ALaterProbeEndsTheOneBefore) {
  begin(1);
  EXPECT_EQ(probe(2, 1), ended + "open lanes to 1.1, to measure\nlook at 1.1\n")
      << "and there is no report";
  EXPECT_EQ(come(5'000), "") << "of the other link";
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), here()}), "");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), there()}), "") << "it has crossed the end";
}

TEST_F(LinkProbeTest, TheEndOfTheEpochEndsIt) {
  begin();
  EXPECT_NE(t.lose(1, 3).find(ended), std::string::npos);
  EXPECT_EQ(t.wait(3).find("look"), std::string::npos);
}

TEST_F(LinkProbeTest, ItGoesOnWhenTheEpochIsFrozen) {
  begin();
  t.hear(protocol::FreezeRequest{epoch_id(1), {}});
  t.wait(2);
  EXPECT_EQ(come(20'000), report(20'000, 2000) + ended);
}

TEST_F(LinkProbeTest, ANewEpochHasRoundsOfItsOwn) {
  begin(7);
  t.go_on(1);
  t.reconfigure(2);
  EXPECT_EQ(probe(1), "open lanes to 1.3, to measure\nlook at 1.3\n");
}

TEST_F(LinkProbeTest, LeavingWaitsUntilItIsDrained) {
  begin();
  EXPECT_EQ(t.on(LeaveCalled{}), "tell Leave\nclose\n" + ended);
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), here()}), "");
  EXPECT_NE(t.on(OpDrained{epoch_id(1), there()}).find("gone"), std::string::npos);
}

TEST_F(LinkProbeTest, NoMemory) {
  probe();
  come(0);
  EXPECT_EQ(t.on(OpFailed{epoch_id(1), here(), {Code::kSystem, "no memory", {}}}),
            report(0, 0) + ended);
  EXPECT_EQ(t.on(OpFailed{epoch_id(1), there(), {Code::kSystem, "no memory", {}}}), "");
}

TEST_F(LinkProbeTest, AVeryFastLinkIsMeasuredInLessTime) {
  begin();
  t.wait(0.2);
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), there()}), "end ?#1 committed\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), here()}), "end ?#1 committed\nlook at 1.3\n");
  EXPECT_EQ(come(20'000), report(20'000, 200));
}

TEST_F(LinkProbeTest, AllMayBeHereWhileABeginIsSought) {
  begin();
  t.wait(0.5);
  t.on(OpTransferred{epoch_id(1), there()});
  t.on(OpTransferred{epoch_id(1), here()});
  EXPECT_EQ(come(20'000), report(20'000, 500));
}

TEST_F(LinkProbeTest, AllMayBeHereAtTheFirstLook) {
  probe();
  come(0);
  t.wait(0.01);
  t.on(OpTransferred{epoch_id(1), here()});
  EXPECT_EQ(come(20'000), report(20'000, 10));
}

// ---- All has come before its time ----

TEST_F(LinkProbeTest, TheOtherDirectionGoesOnUntilItsTimeIsOver) {
  begin();
  pass(0.2);
  t.on(OpTransferred{epoch_id(1), here()});
  EXPECT_EQ(come(20'000), report(20'000, 200));
  EXPECT_EQ(t.wait(0.79), "");
  EXPECT_EQ(come(30'000), "") << "it was reported";
  EXPECT_EQ(t.wait(0.02), "end ?#1 aborted\n");
  EXPECT_EQ(t.wait(5).find("look"), std::string::npos);
}

TEST_F(LinkProbeTest, TheOtherDirectionGoesOnUntilAllIsSent) {
  begin();
  pass(0.2);
  t.on(OpTransferred{epoch_id(1), here()});
  come(20'000);
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), there()}), "end ?#1 committed\n");
  EXPECT_EQ(t.wait(5).find("end"), std::string::npos);
}

TEST_F(LinkProbeTest, AnotherProbeOrTheEndOfTheEpochEndsTheOtherDirection) {
  for (const bool probed : {true, false}) {
    begin(probed ? 1 : 3);
    pass(0.2);
    t.on(OpTransferred{epoch_id(1), here(probed ? 1 : 3)});
    come(20'000);
    const std::string story = probed ? probe(2) : t.lose(1, 3);
    EXPECT_NE(story.find("aborted"), std::string::npos) << story;
    EXPECT_EQ(story.find("Report 1 "), std::string::npos) << story;
    if (probed) come(0), come(100);
  }
}

TEST_F(LinkProbeTest, AFailureAfterTheReportIsNotReported) {
  begin();
  pass(0.2);
  t.on(OpTransferred{epoch_id(1), here()});
  come(20'000);
  EXPECT_EQ(t.on(OpFailed{epoch_id(1), there(), {Code::kSystem, "no memory", {}}}),
            "end ?#1 aborted\n");
}

// The path comes up to its rate with the first bytes. The last two thirds show 40 MB/s.
TEST_F(LinkProbeTest, TheLastTwoThirdsOfTheBytesCount) {
  begin();
  pass(0.2);
  come(2'000'000);
  pass(0.1);
  come(4'000'000);
  pass(0.2);
  t.on(OpTransferred{epoch_id(1), here()});
  EXPECT_EQ(come(12'000'000), report(8'000'000, 200));
}

// ---- The transfers ----

ring::Task task_of(uint32_t milliseconds, const Options& options, bool receives,
                   uint64_t bytes_max = 0) {
  Transcript t(options);
  t.become_far_member();
  t.hear(protocol::Probe{1, peer_id(3), milliseconds, bytes_max});
  Effects effects;
  t.core().step(LinkSampled{peer_id(3), true, 0, 0}, t.now(), effects);
  for (const Effect& effect : effects) {
    const auto* const start = std::get_if<StartOp>(&effect);
    if (start != nullptr && static_cast<bool>(start->task.upstream) == receives) return start->task;
  }
  return {};
}

TEST(ProbeTransfer, YieldsToAllAndHasABound) {
  const Options options = Transcript::default_options();
  const ring::Task task = task_of(500, options, true);
  EXPECT_TRUE(task.filler);
  EXPECT_TRUE(task.shape.wan);
  EXPECT_GT(task.shape.count, uint64_t{500} * 12'500'000) << "enough for 100 Gbit/s";
  EXPECT_LE(task_of(protocol::kProbeBudgetMax, options, true).shape.count, options.probe_bytes_max);
  EXPECT_EQ(task.digest, task_of(500, options, false).digest);
  EXPECT_NE(task.digest, task_of(501, options, false).digest) << "the ends would not agree";
}

TEST(ProbeTransfer, CarriesNoMoreThanItsLimit) {
  const Options options = Transcript::default_options();
  for (const uint64_t limit : {protocol::kProbeBytesMin, 3 * protocol::kProbeBytesMin + 1,
                               50 * protocol::kProbeBytesMin}) {
    const ring::Task task = task_of(500, options, true, limit);
    EXPECT_LE(task.shape.count, limit);
    EXPECT_GT(task.shape.count, limit / 2) << "nearly all of it is used";
    EXPECT_EQ(task.digest, task_of(500, options, false, limit).digest);
    const Result<ring::Memory> memory = probe_memory(task);
    ASSERT_TRUE(memory.ok());
    uint64_t bytes = 0;
    for (const auto& span : memory.value().spans) bytes += span.size();
    EXPECT_EQ(bytes, task.shape.count);
  }
}

TEST(ProbeTransfer, HasAFewMegabytesOfMemory) {
  const Options options = Transcript::default_options();
  const Result<ring::Memory> memory = probe_memory(task_of(500, options, false));
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory.value().spans.size(), 1500u);
  for (const auto& span : memory.value().spans) {
    EXPECT_EQ(span.data(), memory.value().own.get());
    EXPECT_EQ(span.size(), options.piece_bytes);
  }
  std::array<size_t, 256> counts{};
  for (const std::byte byte : memory.value().spans[0]) ++counts[static_cast<uint8_t>(byte)];
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  EXPECT_LT(*most - *least, options.piece_bytes / 256 / 10) << "it cannot be compressed";
}

}  // namespace
}  // namespace pccl::peer
