#include "master/diagnosis/refusal_findings.h"

#include "tests/cpp/master/diagnosis/found.h"

namespace pccl::master {
namespace {

struct RefusalFindingsTest : testing::Test {
  RefusalFindingsTest() { h.found({"a", "b"}); }
  void sync(uint32_t number, uint64_t revision) {
    for (const char* name : {"a", "b"}) h.vote(name, epoch(1), number, kSync, offer(revision, {7}));
  }
  Harness h;
};

TEST_F(RefusalFindingsTest, APeerWithOtherTermsIsNamedForTenMinutes) {
  protocol::Hello hello = Harness::hello(2);
  hello.name = "tokyo";
  hello.settings.peer_timeout = std::chrono::seconds(3);
  h.greet("x", hello);
  h.tick_with({"a", "b"}, 4);
  const Finding finding = found(h, FindingCode::kVersionOrTermsRefused);
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_EQ(finding.whom, std::vector<std::string>{"tokyo"});
  EXPECT_TRUE(finding.text.starts_with("2 s ago: refused a peer at 10.0.0.1: ")) << finding.text;
  EXPECT_TRUE(contains(finding.text, h.last<protocol::Reject>("x")->text));
  h.tick_with({"a", "b"}, 1200);
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"}));
}

TEST_F(RefusalFindingsTest, APeerOfAnotherVersionIsNamed) {
  protocol::Hello hello = Harness::hello(2);
  hello.versions = {9000, 9001};
  h.greet("x", hello);
  const Finding finding = found(h, FindingCode::kVersionOrTermsRefused);
  EXPECT_EQ(finding.whom, std::vector<std::string>{"a peer at 10.0.0.1"});
  EXPECT_TRUE(contains(finding.next, "one version of pccl")) << finding.next;
}

TEST_F(RefusalFindingsTest, APeerThatTheShellHasTurnedAwayIsNamed) {
  h.step(TurnedAway{"10.0.0.9", {Code::kProtocol, "it speaks version 1"}});
  EXPECT_EQ(found(h, FindingCode::kVersionOrTermsRefused).text,
            "0 ms ago: refused a peer at 10.0.0.9: it speaks version 1");
}

TEST_F(RefusalFindingsTest, TwoLaunchesInOneRunAreASplitWorld) {
  protocol::Hello hello = Harness::hello(2, 1);
  hello.launch = "torchrun of tokyo";
  h.greet("x", hello);
  const Finding finding = found(h, FindingCode::kSplitWorld);
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_TRUE(contains(finding.text, "peers of another launch")) << finding.text;
}

TEST_F(RefusalFindingsTest, ARefusedStateStandsUntilTheNextSuccess) {
  sync(0, 1);
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"}));
  sync(1, 9);
  const Finding finding = found(h, FindingCode::kStateRefused);
  EXPECT_EQ(finding.severity, Severity::kError);
  EXPECT_EQ(finding.text, "0 ms ago: sync_shared_state: " + h.last<protocol::Answer>("a")->text);
  sync(2, 2);
  EXPECT_EQ(h.last<protocol::Answer>("a")->text, "");
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"}));
}

TEST_F(RefusalFindingsTest, ACallThatTimesOutIsNoRefusal) {
  h.vote("a", epoch(1), 0, kSync, offer(1, {7}));
  h.say("a", protocol::JointAbort{0, epoch(1)});
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"}));
}

}  // namespace
}  // namespace pccl::master
