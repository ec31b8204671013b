#include "master/epochs/decision_mac.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

const protocol::Key kKey{{1, 2, 3, 4}};

protocol::Verdict verdict(uint32_t sequence) {
  return {op(sequence), protocol::Outcome::kCommitted, Code::kOk, ""};
}

TEST(DecisionMac, EveryFieldCountsButTheText) {
  const uint64_t mac = mac_of(kKey, epoch(1), 5, verdict(0));
  EXPECT_EQ(mac, mac_of(kKey, epoch(1), 5, verdict(0)));
  EXPECT_NE(mac, mac_of({{1, 5, 3, 4}}, epoch(1), 5, verdict(0)));
  EXPECT_NE(mac, mac_of(kKey, epoch(2), 5, verdict(0)));
  EXPECT_NE(mac, mac_of(kKey, epoch(1), 6, verdict(0)));
  EXPECT_NE(mac, mac_of(kKey, epoch(1), 5, verdict(1)));
  protocol::Verdict other = verdict(0);
  other.unacknowledged = 1;
  EXPECT_NE(mac, mac_of(kKey, epoch(1), 5, other));
  other = verdict(0);
  other.text = "left out by a member with many verdicts";
  EXPECT_EQ(mac, mac_of(kKey, epoch(1), 5, other));
}

TEST(DecisionMac, AnAnswerBelongsToItsGeneration) {
  protocol::Answer answer;
  answer.number = 3;
  const uint64_t mac = mac_of(kKey, epoch(1), answer);
  EXPECT_NE(mac, mac_of(kKey, epoch(2), answer));
  answer.text = "another";
  EXPECT_NE(mac, mac_of(kKey, epoch(1), answer));
}

// A member that has received verdicts 0 to 4; the last one has `unacknowledged` before it.
protocol::Resume resume(uint32_t unacknowledged) {
  protocol::Resume resume;
  resume.epoch = epoch(1);
  resume.verdict_index = 5;
  resume.stable_index = 4 - unacknowledged;
  for (uint64_t index = resume.stable_index; index < 5; ++index) {
    protocol::Verdict one = verdict(static_cast<uint32_t>(index));
    one.unacknowledged = index == 4 ? unacknowledged : 0;
    one.mac = mac_of(kKey, epoch(1), index, one);
    resume.verdicts.push_back(one);
  }
  return resume;
}

TEST(DecisionMac, AResumeHasToShowWhatItClaims) {
  const auto accepts = [](const protocol::Resume& shown) {
    return check_decisions(kKey, epoch(1), shown).ok();
  };
  EXPECT_TRUE(accepts(resume(0)));
  EXPECT_TRUE(accepts(resume(3)));
  protocol::Resume changed = resume(3);
  changed.verdicts[1].outcome = protocol::Outcome::kAborted;
  EXPECT_FALSE(accepts(changed));
  changed = resume(3);
  std::swap(changed.verdicts[0], changed.verdicts[1]);
  EXPECT_FALSE(accepts(changed)) << "each has its number";
  changed = resume(3);
  changed.verdicts.erase(changed.verdicts.begin());
  ++changed.stable_index;
  EXPECT_FALSE(accepts(changed)) << "a member may need the one that is missing";
  changed = resume(0);
  changed.verdicts.clear();
  changed.stable_index = 5;
  EXPECT_FALSE(accepts(changed)) << "the last one proves how many there are";
  changed = resume(0);
  changed.last_answer = protocol::Answer{};
  EXPECT_FALSE(accepts(changed));
}

// The key is in the journal, so a restarted master knows the decisions of the one before it.
TEST(DecisionMac, ARestartedMasterBelievesNoInventedVerdict) {
  Harness h;
  h.found({"a", "b"});
  h.restart();
  protocol::Resume liar = h.resume("a", epoch(1));
  liar.verdict_index = 1;
  liar.verdicts = {verdict(0)};
  h.accept("a");
  h.say("a", liar);
  EXPECT_EQ(h.story(), Lines{"a closed"});
  EXPECT_TRUE(contains(h.warnings().at(0), "which no master of this run has made"));
}

}  // namespace
}  // namespace pccl::master
