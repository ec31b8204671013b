#include "csrc/peer/reporter.h"

#include <gtest/gtest.h>

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

// A member of three. It is asked for its links to its neighbours, and answers at once.
class Reports : public testing::Test {
 protected:
  Reports() { t.become_member(); }

  std::string observe(uint32_t interval_ms) { return t.hear(protocol::Observe{interval_ms}); }

  Transcript t;
  const std::string kSample = "sample the links to 1.3 1.1\n";
  const std::string kTold = "tell Telemetry\n";
};

TEST_F(Reports, NothingIsSentBeforeSomebodyWatches) {
  EXPECT_EQ(t.wait(30).find("sample"), std::string::npos);
  EXPECT_EQ(t.on(TelemetrySampled{}), "");
}

TEST_F(Reports, OneSampleForEachIntervalUntilNobodyWatches) {
  EXPECT_EQ(observe(2000), "");
  EXPECT_EQ(t.wait(0), kSample);
  EXPECT_EQ(t.on(TelemetrySampled{}), kTold);
  EXPECT_EQ(t.wait(1.9).find("sample"), std::string::npos);
  EXPECT_NE(t.wait(0.2).find(kSample), std::string::npos);
  observe(0);
  EXPECT_EQ(t.on(TelemetrySampled{}), "") << "it has crossed the Observe";
  EXPECT_EQ(t.wait(10).find("sample"), std::string::npos);
}

TEST_F(Reports, AnIntervalHasALowerBound) {
  observe(1);
  EXPECT_EQ(t.wait(0), kSample);
  EXPECT_EQ(t.wait(0.4).find("sample"), std::string::npos);
  EXPECT_NE(t.wait(0.2).find(kSample), std::string::npos);
}

TEST_F(Reports, ARepeatedObserveCausesNoFurtherSample) {
  observe(2000);
  EXPECT_EQ(t.wait(0), kSample);
  observe(2000);
  EXPECT_EQ(t.wait(0).find("sample"), std::string::npos);
}

TEST_F(Reports, ARestartedMasterIsToldNothingBeforeItAsks) {
  observe(2000);
  t.on(MasterClosed{{Code::kMasterLost, "reset", {}}});
  t.wait(1);
  t.on(MasterConnected{});
  t.hear(protocol::Resumed{2, std::nullopt, {peer_id(1), peer_id(2), peer_id(3)}});
  EXPECT_EQ(t.wait(5).find("sample"), std::string::npos);
}

}  // namespace
}  // namespace pccl::peer
