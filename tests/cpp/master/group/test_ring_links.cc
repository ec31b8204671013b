#include "master/group/ring_links.h"

#include "master/group/groups.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

TEST(RingLinks, AreInTheOrderOfTheRingWithTheirSpeed) {
  Harness h;
  h.found({"a", "b", "c"});
  const GroupView& view = h.core().view().groups.find({0})->view();
  h.say("a", protocol::LinkRates{{{h.id("b"), 5000}}});
  const auto links = ring_links(view);
  ASSERT_EQ(links.size(), 3u);
  EXPECT_EQ(links[0].from, h.id("a"));
  EXPECT_EQ(links[0].to, h.id("b"));
  EXPECT_EQ(links[0].rate, 5000u);
  EXPECT_EQ(links[1].rate, 0u);
  EXPECT_EQ(links[2].to, h.id("a"));
}

TEST(RingLinks, LeaveOutTheLost) {
  Harness h;
  h.found({"a", "b", "c"});
  const GroupView& view = h.core().view().groups.find({0})->view();
  h.say("b", protocol::Leave{});
  const auto links = ring_links(view);
  ASSERT_EQ(links.size(), 1u);
  EXPECT_EQ(links[0].from, h.id("c"));
}

TEST(RingLinks, AMemberAloneHasNone) {
  Harness h;
  h.found({"a"});
  EXPECT_TRUE(ring_links(h.core().view().groups.find({0})->view()).empty());
}

}  // namespace
}  // namespace pccl::master
