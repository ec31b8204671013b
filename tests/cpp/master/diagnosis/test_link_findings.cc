#include "master/diagnosis/link_findings.h"

#include "tests/cpp/master/diagnosis/found.h"

namespace pccl::master {
namespace {

struct LinkFindingsTest : testing::Test {
  LinkFindingsTest() { h.found({"a", "b", "c", "d"}); }
  // Each member reports this rate of its links to all others, in MB/s.
  void rate(const std::string& from, const std::string& to, uint64_t mb) {
    h.say(from, protocol::LinkRates{{{h.id(to), mb * 1'000'000}}});
  }
  void rate_all(uint64_t mb) {
    for (const char* from : {"a", "b", "c", "d"}) {
      for (const char* to : {"a", "b", "c", "d"}) {
        if (std::string(from) != to) rate(from, to, mb);
      }
    }
  }
  Harness h;
};

TEST_F(LinkFindingsTest, ALinkThatStaysDownIsNamedWithItsTime) {
  h.say("a", protocol::LinkReport{h.id("b"), protocol::LinkState::kDown, "reset", 1});
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"})) << "it may be made again at once";
  h.tick_with({"a", "b", "c", "d"}, 4);
  const Finding finding = found(h, FindingCode::kLinkDown);
  EXPECT_EQ(finding.severity, Severity::kError);
  EXPECT_EQ(finding.whom, (std::vector<std::string>{"peer 1.1", "peer 1.2"}));
  EXPECT_EQ(finding.text,
            "the link between peer 1.1 (rank 0, 10.0.0.1:1001) and peer 1.2 (rank 1, "
            "10.0.0.1:1002) is down: reset; that has lasted for 2 s");
  EXPECT_TRUE(contains(finding.next, "is lost after 5 s")) << finding.next;
}

TEST_F(LinkFindingsTest, ALinkOfLessThanHalfTheMedianIsANote) {
  rate("a", "b", 100);
  rate("b", "c", 40);
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"})) << "two rates have no median";
  rate("c", "d", 100);
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong", "note slow_link"}));
  const Finding finding = found(h, FindingCode::kSlowLink);
  EXPECT_EQ(finding.text,
            "the link from peer 1.2 (rank 1, 10.0.0.1:1002) to peer 1.3 (rank 2, 10.0.0.1:1003) "
            "carries 40 MB/s, less than half of the median of the ring, which is 100 MB/s");
  rate("b", "c", 51);
  rate("b", "c", 51);
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"}));
}

TEST_F(LinkFindingsTest, APlanIsOutdatedIfAnotherRingIsMuchFaster) {
  rate_all(100);
  EXPECT_EQ(codes(h), (Lines{"note nothing_wrong"}));
  rate_all(10);
  for (const auto& [from, to] :
       {std::pair("a", "c"), std::pair("c", "b"), std::pair("b", "d"), std::pair("d", "a")})
    rate(from, to, 200);
  const Finding finding = found(h, FindingCode::kPlanOutdated);
  EXPECT_EQ(finding.severity, Severity::kNote);
  EXPECT_TRUE(
      finding.text.starts_with("another ring is predicted to be faster: an all-reduce would"))
      << finding.text;
}

}  // namespace
}  // namespace pccl::master
