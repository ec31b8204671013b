#include "master/diagnosis/wait_findings.h"

#include "tests/cpp/master/diagnosis/found.h"

namespace pccl::master {
namespace {

struct WaitFindingsTest : testing::Test {
  WaitFindingsTest() { h.found({"a", "b", "c"}); }
  void begin(const std::string& name, OpKey key, const protocol::OpInfo& info) {
    h.say(name, protocol::Begin{epoch(1), key, info});
  }
  void wait(int ticks) { h.tick_with({"a", "b", "c"}, ticks); }
  Harness h;
};

TEST_F(WaitFindingsTest, ARankThatHasNotCalledIsNamedInTheWordsOfTheNotice) {
  begin("a", op(0), all_reduce(1));
  begin("b", op(0), all_reduce(1));
  wait(22);
  const Finding finding = found(h, FindingCode::kRankHasNotCalled);
  EXPECT_EQ(finding.severity, Severity::kError);
  EXPECT_EQ(finding.whom, std::vector<std::string>{"peer 1.3"});
  EXPECT_EQ(finding.text,
            "ranks 0 and 1 wait: all_reduce(sum, float32, 1 element, world size 2) (#0) in epoch "
            "1.1 has waited for 11 s for rank 2, which has not called anything since it was "
            "admitted, 11 s ago");
  EXPECT_TRUE(contains(finding.next, "the process of peer 1.3 (rank 2, 10.0.0.1:1003)"))
      << finding.next;
  const auto* notice = h.last<protocol::Notice>("a");
  ASSERT_NE(notice, nullptr);
  const std::string same = notice->text.substr(notice->text.find("for rank 2"), 40);
  EXPECT_TRUE(contains(finding.text, same)) << notice->text;
}

TEST_F(WaitFindingsTest, RanksInDifferentCallsAreNamed) {
  begin("a", op(0), all_reduce(1));
  begin("c", op(0), all_reduce(1));
  h.vote("b", epoch(1), 0);
  wait(22);
  const auto all = diagnose(h.core().view());
  ASSERT_EQ(all.size(), 2u) << "both sides wait";
  for (const Finding& one : all) {
    EXPECT_EQ(one.code, FindingCode::kDifferentCalls);
    EXPECT_TRUE(contains(one.text, "and waits in turn (all ranks must make the same calls"))
        << one.text;
  }
  EXPECT_EQ(all[0].whom, std::vector<std::string>{"peer 1.2"});
}

TEST_F(WaitFindingsTest, TwoSendsThatFaceEachOtherAreDifferentCalls) {
  for (const auto& [from, to] : {std::pair("a", "b"), std::pair("b", "a")}) {
    begin(from, op(0, from), transfer(h.id(from), h.id(to)));
  }
  wait(22);
  const auto all = diagnose(h.core().view());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].code, FindingCode::kDifferentCalls);
  EXPECT_TRUE(contains(all[0].text, "both send and neither receives")) << all[0].text;
}

TEST_F(WaitFindingsTest, ACallThatWaitsForOperationsUnderWayIsANote) {
  for (const char* name : {"a", "b", "c"}) begin(name, op(0), all_reduce(1));
  for (const char* name : {"a", "b", "c"})
    h.vote(name, epoch(1), 0, protocol::JointKind::kOptimizeTopology);
  wait(22);
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong", "note operations_in_flight"}));
  const Finding finding = found(h, FindingCode::kOperationsInFlight);
  EXPECT_TRUE(contains(finding.text, "optimize_topology has waited for 11 s for all_reduce("))
      << finding.text;
}

TEST_F(WaitFindingsTest, TheEndOfAWaitEndsItsFinding) {
  begin("a", op(0), all_reduce(1));
  wait(22);
  EXPECT_EQ(codes(h), (Lines{"error rank_has_not_called"}));
  begin("b", op(0), all_reduce(1));
  begin("c", op(0), all_reduce(1));
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"}));
}

}  // namespace
}  // namespace pccl::master
