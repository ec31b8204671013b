#include "csrc/peer/verdict_log.h"

#include <gtest/gtest.h>

namespace pccl::peer {
namespace {

using protocol::Outcome;
using protocol::Verdict;

Verdict committed(uint32_t sequence) {
  return {{{}, sequence}, Outcome::kCommitted, Code::kOk, ""};
}
Verdict aborted(uint32_t sequence, std::string why) {
  return {{{}, sequence}, Outcome::kAborted, Code::kMismatch, std::move(why)};
}

// Verdict number `sequence`, before which so many are not acknowledged by all.
Verdict after(uint32_t sequence, uint32_t unacknowledged) {
  Verdict verdict = committed(sequence);
  verdict.unacknowledged = unacknowledged;
  return verdict;
}

TEST(VerdictLog, TakesOnlyWhatComesNext) {
  VerdictLog log;
  EXPECT_TRUE(log.check({{}, 0, {committed(0)}}).ok());
  EXPECT_FALSE(log.check({{}, 1, {committed(0)}}).ok());
  log.add(committed(0));
  EXPECT_FALSE(log.check({{}, 0, {committed(0)}}).ok());
  EXPECT_TRUE(log.check({{}, 1, {committed(1)}}).ok());
  EXPECT_EQ(log.seen(), 1u);
}

TEST(VerdictLog, KeepsForAMasterThatForgotWhatIsNotEverywhere) {
  VerdictLog log;
  for (uint32_t sequence = 0; sequence < 4; ++sequence) log.add(after(sequence, sequence));
  log.add(after(4, 1));
  protocol::Resume resume;
  log.describe(resume);
  EXPECT_EQ(resume.verdict_index, 5u);
  EXPECT_EQ(resume.stable_index, 3u);
  EXPECT_EQ(resume.verdicts, (std::vector<Verdict>{after(3, 3), after(4, 1)}));
  log.add(after(5, 0));
  log.describe(resume);
  EXPECT_EQ(resume.verdicts, std::vector<Verdict>{after(5, 0)}) << "the last one is always kept";
  log.check();
}

TEST(VerdictLog, AResumeStaysInsideOneMessage) {
  VerdictLog log;
  for (uint32_t sequence = 0; sequence < 3000; ++sequence) {
    Verdict verdict = aborted(sequence, std::string(4096, 'x'));
    verdict.unacknowledged = sequence;
    log.add(verdict);
  }
  protocol::Resume resume;
  log.describe(resume);
  size_t bytes = 0;
  for (const Verdict& verdict : resume.verdicts) bytes += verdict.text.size();
  EXPECT_EQ(resume.verdicts.size(), 3000u);
  EXPECT_EQ(bytes, protocol::kMessageBytesMax / 16);
}

TEST(VerdictLog, AMasterThatForgotLearnsWhichOperationsAreYetToBeCalled) {
  VerdictLog log;
  log.keep_early(aborted(7, "why"));
  log.begin_epoch();
  log.keep_early(aborted(9, "why"));
  log.take_early({{}, 9});
  protocol::Resume resume;
  log.describe(resume);
  EXPECT_EQ(resume.uncalled, (std::vector<protocol::Uncalled>{{{{}, 7}, {}, {}}}));
}

TEST(VerdictLog, AnEarlyVerdictIsTakenOnce) {
  VerdictLog log;
  EXPECT_TRUE(log.keep_early(aborted(7, "why")));
  EXPECT_EQ(log.take_early({{}, 6}), std::nullopt);
  EXPECT_EQ(log.take_early({{}, 7}), aborted(7, "why"));
  EXPECT_EQ(log.take_early({{}, 7}), std::nullopt);
}

TEST(VerdictLog, EarlyVerdictsAreBounded) {
  VerdictLog log;
  for (uint32_t sequence = 0; sequence < protocol::kOpsOpenMax; ++sequence)
    ASSERT_TRUE(log.keep_early(aborted(sequence, "")));
  EXPECT_FALSE(log.keep_early(aborted(protocol::kOpsOpenMax, "")));
}

TEST(VerdictLog, AReconfigurationStartsAtZeroAndKeepsWhatIsEarly) {
  VerdictLog log;
  log.add(committed(0));
  log.keep_early(aborted(7, "why"));
  log.begin_epoch();
  EXPECT_EQ(log.seen(), 0u);
  EXPECT_EQ(log.take_early({{}, 7}), aborted(7, "why"));
}

TEST(VerdictLog, ANewGenerationStartsAtZero) {
  VerdictLog log;
  log.add(committed(0));
  log.keep_early(aborted(7, "why"));
  log.begin_generation();
  EXPECT_EQ(log.seen(), 0u);
  EXPECT_EQ(log.take_early({{}, 7}), std::nullopt);
}

}  // namespace
}  // namespace pccl::peer
