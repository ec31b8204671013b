#include "master/diagnosis/peer_findings.h"

#include "csrc/protocol/drift.h"
#include "master/members/membership.h"
#include "tests/cpp/master/diagnosis/found.h"

namespace pccl::master {
namespace {

using protocol::LinkState;

protocol::LinkReport cannot_reach(PeerId peer) {
  return {peer, LinkState::kUnreachable, "10.0.0.1: connection timed out", 0,
          0,    LinkFault::kNoAnswer};
}

TEST(PeerFindings, AFounderIsAlone) {
  Harness h;
  h.enlist("a", Harness::hello(3));
  h.tick_with({"a"}, 19);
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"}));
  h.tick_with({"a"}, 2);
  const Finding finding = found(h, FindingCode::kAloneWaitingForFounders);
  EXPECT_EQ(finding.severity, Severity::kError);
  EXPECT_EQ(finding.whom, std::vector<std::string>{"peer 1.1"});
  EXPECT_EQ(finding.text,
            "peer 1.1 (10.0.0.1:1001) is not admitted yet: this peer is alone: 1 of the 3 peers "
            "that begin together has come; it has waited for 10.5 s");
  EXPECT_EQ(finding.next, "Start 2 more with the same master and run");
}

TEST(PeerFindings, FoundersThatDoNotReachEachOtherAreOneFinding) {
  Harness h;
  h.enlist("a", Harness::hello(2));
  h.enlist("b", Harness::hello(2));
  h.tick_with({"a", "b"}, 41);
  const Finding finding = found(h, FindingCode::kAloneWaitingForFounders);
  EXPECT_EQ(finding.whom.size(), 2u);
  EXPECT_TRUE(contains(finding.text, "2 peers have come, and 1 of the 2 peers")) << finding.text;
  EXPECT_EQ(finding.next, Membership::kWhatToOpen);
}

// Everybody can observe a run without tokens.
TEST(PeerFindings, ARunWithoutTokensHidesTheWordsAboutAnAddressOfSomebodyElse) {
  for (const bool secured : {false, true}) {
    Harness h(protocol::kSpoken.highest,
              secured ? std::optional(protocol::Key{{1, 2, 3}}) : std::nullopt);
    h.found({"a"}, 0, 1);
    h.accept("c", "1.2.3.4");
    h.say("c", Harness::hello(1));
    h.say("c", protocol::Register{"5.6.7.8", 22});
    h.say("a", cannot_reach(h.id("c")));
    h.say("c", cannot_reach(h.id("a")));
    h.tick_with({"a", "c"}, Links::kTriedTicks);
    const Finding finding = found(h, FindingCode::kNewcomerUnreachable);
    EXPECT_EQ(contains(finding.text, "(5.6.7.8:22): 10.0.0.1: connection timed out"), secured)
        << finding.text;
    EXPECT_EQ(contains(finding.text, "(5.6.7.8:22) (its log has the reason"), !secured)
        << finding.text;
  }
}

TEST(PeerFindings, ANewcomerThatCannotBeReachedIsNamedWithItsPort) {
  Harness h;
  h.found({"a"}, 0, 1);
  h.enlist("c", Harness::hello(1));
  h.say("a", cannot_reach(h.id("c")));
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"})) << "c may reach a";
  h.say("c", cannot_reach(h.id("a")));
  h.tick_with({"a", "c"}, 2);
  const Finding finding = found(h, FindingCode::kNewcomerUnreachable);
  EXPECT_EQ(finding.severity, Severity::kError);
  EXPECT_EQ(finding.whom, std::vector<std::string>{"peer 1.2"});
  EXPECT_EQ(finding.text,
            "peer 1.2 (10.0.0.1:1002) is not admitted yet: peer 1.1 (rank 0, 10.0.0.1:1001) cannot "
            "connect to peer 1.2 (10.0.0.1:1002): 10.0.0.1: connection timed out; peer 1.2 cannot "
            "connect to peer 1.1: 10.0.0.1: connection timed out; it has waited for 1 s");
  EXPECT_TRUE(
      finding.next.starts_with("open TCP port 1002 at 10.0.0.1 for peer 1.2, or TCP port "
                               "1001 at 10.0.0.1 for peer 1.1. One of the two has to"))
      << finding.next;
}

TEST(PeerFindings, ANewcomerWaitsForUpdateTopology) {
  Harness h;
  h.found({"a"}, 0, 1);
  h.enlist("c", Harness::hello(1));
  h.link_all();
  h.tick_with({"a", "c"}, 19);
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"}));
  h.tick_with({"a", "c"}, 2);
  const Finding finding = found(h, FindingCode::kNewcomerWaitsForUpdateTopology);
  EXPECT_EQ(finding.severity, Severity::kError);
  EXPECT_EQ(finding.text,
            "peer 1.2 (10.0.0.1:1002) is not admitted yet: the members have not called "
            "update_topology since this peer can be reached; it has waited for 10.5 s");
  EXPECT_EQ(finding.next, "all members have to call pccl.update_topology()");
  EXPECT_TRUE(contains(finding.text, h.last<protocol::Notice>("c")->text));
}

TEST(PeerFindings, TooFewMembersAreAnErrorOnceACallWaits) {
  Harness h;
  h.found({"a", "b"});
  h.say("a", protocol::LinkReport{h.id("b"), LinkState::kDown, "reset", 1});
  h.close("b");
  h.say("a", protocol::StateReport{epoch(1), {}});
  const Finding before = found(h, FindingCode::kBelowMinPeers);
  EXPECT_EQ(before.severity, Severity::kWarning);
  EXPECT_EQ(before.text, "1 member is left, and min_peers is 2");
  h.vote("a", epoch(1), 0);
  h.tick_with({"a"}, 4);
  const Finding finding = found(h, FindingCode::kBelowMinPeers);
  EXPECT_EQ(finding.severity, Severity::kError);
  EXPECT_EQ(finding.text,
            "update_topology waits for more peers: 1 member is left, and min_peers is 2; it has "
            "waited for 2 s");
  EXPECT_EQ(finding.next, "Start 1 more with the same master and run");
}

TEST(PeerFindings, ASilentMemberIsNamedWithItsTime) {
  Harness h;
  h.found({"a", "b"});
  h.tick_with({"a"}, 8);
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"}));
  h.tick_with({"a"}, 4);
  const Finding finding = found(h, FindingCode::kPeerSilent);
  EXPECT_EQ(finding.severity, Severity::kError);
  EXPECT_EQ(finding.whom, std::vector<std::string>{"peer 1.2"});
  EXPECT_EQ(finding.text,
            "peer 1.2 (rank 1, 10.0.0.1:1002) has been silent for 6 s: it is lost after 10 s "
            "(peer_timeout)");
  EXPECT_TRUE(contains(finding.next, "within 4 s")) << finding.next;
}

TEST(PeerFindings, AMemberThatIsAwayIsNoFindingAtOnce) {
  Harness h;
  h.found({"a", "b"});
  h.close("b");
  h.tick_with({"a"}, 2);
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"})) << "it may come back";
  h.tick_with({"a"}, 2);
  EXPECT_TRUE(contains(found(h, FindingCode::kPeerSilent).text, "has been away for 2 s"));
}

TEST(PeerFindings, ARestartedMasterNamesTheMembersThatAreNotBack) {
  Harness h;
  h.found({"a", "b", "c"});
  h.restart();
  h.tick();
  EXPECT_EQ(codes(h), (Lines{"error master_recovering"}));
  EXPECT_TRUE(contains(found(h, FindingCode::kMasterRecovering).text, "none of them is connected"));
  for (const char* name : {"a", "b"}) h.come_back(name, h.resume(name, epoch(1)));
  h.tick_with({"a", "b"}, 3);
  const Finding finding = found(h, FindingCode::kMasterRecovering);
  EXPECT_EQ(finding.whom, std::vector<std::string>{"peer 1.3"});
  EXPECT_EQ(finding.text,
            "the master was started again 2 s ago, and rank 2 is not back yet: a member that does "
            "not come back within 10 s is lost");
  h.come_back("c", h.resume("c", epoch(1)));
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"}));
}

// "b" takes the step to revision 1 with other bits, and no later one.
TEST(PeerFindings, AMemberThatDriftsIsShownForSomeRevisions) {
  Harness h;
  h.found({"a", "b"});
  const auto sync = [&h](uint32_t revision, uint64_t of_b) {
    h.vote("a", epoch(1), revision, kSync, offer(revision, {1}));
    h.vote("b", epoch(1), revision, kSync, offer(revision, {of_b}));
    if (of_b != 1) h.say("b", protocol::Fetched{revision, Code::kOk, ""});
  };
  sync(0, 1);
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"}));
  sync(1, 2);
  const Finding finding = found(h, FindingCode::kStatesDiffer);
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_EQ(finding.whom, std::vector<std::string>{"peer 1.2"});
  EXPECT_TRUE(finding.text.starts_with("peer 1.2 (rank 1, 10.0.0.1:1002) drifts: "))
      << finding.text;
  EXPECT_EQ(finding.next, protocol::kDriftAdvice);
  for (uint32_t revision = 2; revision <= 17; ++revision) sync(revision, 1);
  EXPECT_EQ(codes(h), (Lines{"warning states_differ"}));
  sync(18, 1);
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"}));
}

}  // namespace
}  // namespace pccl::master
