#include "master/epochs/resume.h"

#include <gtest/gtest.h>

#include "csrc/protocol/codec.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::Resume;

// Two epochs. Epoch 1 ended by a loss after three verdicts; epoch 2 is active and has one.
class ResumeTest : public testing::Test {
 protected:
  ResumeTest() {
    announced.previous.epoch = epoch(1);
    announced.previous.verdicts = VerdictLog({kA, kB});
    announced.previous.verdicts.append({committed(0), committed(1), committed(2)});
    announced.previous.end = protocol::EpochEnd{epoch(1), {}, {}, "lost", {}, {}};
    announced.current.epoch = epoch(2);
    announced.current.verdicts = VerdictLog({kA, kB});
    announced.current.verdicts.append({committed(0)});
    announced.start.epoch = epoch(2);
    announced.start.joined = {kB};
  }
  Lines missed_by(const Resume& resume) {
    auto messages = missed(announced, resume);
    if (!messages.ok()) return {"refused"};
    Lines names;
    for (const auto& message : messages.value()) {
      std::string line = protocol::name(message);
      if (const auto* verdicts = std::get_if<protocol::Verdicts>(&message)) {
        line += " " + std::to_string(verdicts->first_index) + "+" +
                std::to_string(verdicts->verdicts.size());
      }
      names.push_back(line);
    }
    return names;
  }
  static Resume resume(PeerId peer, Epoch epoch, uint64_t verdict_index, bool ended = false) {
    Resume resume;
    resume.peer = peer;
    resume.epoch = epoch;
    resume.verdict_index = verdict_index;
    resume.ended = ended;
    return resume;
  }
  Announced announced;
};

TEST_F(ResumeTest, InStepItMissesTheVerdictsSince) {
  EXPECT_EQ(missed_by(resume(kA, epoch(2), 1)), Lines{});
  EXPECT_EQ(missed_by(resume(kA, epoch(2), 0)), (Lines{"Verdicts 0+1"}));
}

TEST_F(ResumeTest, OneEpochBehindItMissesTheRestOfThatOneToo) {
  EXPECT_EQ(missed_by(resume(kA, epoch(1), 1)),
            (Lines{"Verdicts 1+2", "EpochEnd", "EpochStart", "Verdicts 0+1"}));
  EXPECT_EQ(missed_by(resume(kA, epoch(1), 3, true)), (Lines{"EpochStart", "Verdicts 0+1"}));
}

TEST_F(ResumeTest, ANewcomerMayHaveMissedItsAdmission) {
  EXPECT_EQ(missed_by(resume(kB, {}, 0)), (Lines{"EpochStart", "Verdicts 0+1"}));
  EXPECT_EQ(missed_by(resume(kA, {}, 0)), (Lines{"refused"})) << "it was a member before";
}

TEST_F(ResumeTest, IsAskedAgainOrToldTheEnd) {
  announced.freeze = protocol::FreezeRequest{epoch(2), {}};
  EXPECT_EQ(missed_by(resume(kA, epoch(2), 1)), (Lines{"FreezeRequest"}));
  announced.freeze.reset();
  announced.current.end = protocol::EpochEnd{epoch(2), {}, {}, "lost", {}, {}};
  EXPECT_EQ(missed_by(resume(kA, epoch(2), 1)), (Lines{"EpochEnd"}));
  EXPECT_EQ(missed_by(resume(kA, epoch(2), 1, true)), Lines{});
}

TEST_F(ResumeTest, RefusesWhatCannotBe) {
  EXPECT_EQ(missed_by(resume(kA, epoch(2), 2)), (Lines{"refused"})) << "verdicts never told";
  EXPECT_EQ(missed_by(resume(kA, epoch(2), 1, true)), (Lines{"refused"})) << "an end never told";
  EXPECT_EQ(missed_by(resume(kA, epoch(3), 0)), (Lines{"refused"})) << "an epoch to come";
  EXPECT_EQ(missed_by(resume(kA, epoch(9), 0)), (Lines{"refused"}));
  Resume odd = resume(kA, epoch(2), 1);
  odd.ops.push_back({});
  EXPECT_EQ(missed_by(odd), (Lines{"refused"})) << "an operation without a description";
  announced.current.verdicts.acknowledge(kA, 1);
  announced.current.verdicts.acknowledge(kB, 1);
  EXPECT_EQ(missed_by(resume(kA, epoch(2), 0)), (Lines{"refused"})) << "it had acknowledged more";
}

}  // namespace
}  // namespace pccl::master
