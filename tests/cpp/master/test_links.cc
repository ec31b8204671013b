#include "master/links.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::LinkReport;
using protocol::LinkState;

bool always(PeerId, PeerId) { return true; }

class LinksTest : public testing::Test {
 protected:
  void say(PeerId from, PeerId to, LinkState state, const std::string& text = "") {
    EXPECT_TRUE(links.report(from, {to, state, text}));
  }
  Links links;
};

TEST_F(LinksTest, IsUpWhenTheDiallerSaysSo) {
  links.add(kB, kA);
  EXPECT_EQ(links.dialler(kA, kB), kB);
  say(kA, kB, LinkState::kUp);
  EXPECT_FALSE(links.linked(kA, kB)) << "the acceptor cannot know";
  say(kB, kA, LinkState::kUp);
  EXPECT_TRUE(links.linked(kA, kB));
  EXPECT_TRUE(links.linked(kB, kA));
  EXPECT_EQ(links.up_count(), 1u);
}

TEST_F(LinksTest, IsDownWhenEitherSideSaysSoUntilItIsDialledAgain) {
  links.add(kA, kB);
  say(kA, kB, LinkState::kUp);
  say(kB, kA, LinkState::kDown, "reset");
  EXPECT_FALSE(links.linked(kA, kB));
  EXPECT_EQ(links.up_count(), 0u);
  EXPECT_EQ(links.view(kB, kA).text, "reset");
  EXPECT_FALSE(links.view(kA, kB).dead());
  say(kA, kB, LinkState::kUp);
  EXPECT_TRUE(links.linked(kA, kB));
  EXPECT_FALSE(links.view(kB, kA).dead());
}

TEST_F(LinksTest, CountsTheTicksForWhichALinkIsDown) {
  links.add(kA, kB);
  links.add(kA, kC);
  say(kA, kB, LinkState::kUp);
  say(kA, kC, LinkState::kUp);
  say(kA, kC, LinkState::kDown, "reset");
  links.tick(always);
  links.tick([](PeerId a, PeerId b) { return !(a == kA && b == kC); });
  EXPECT_TRUE(links.dead(2).empty());
  links.tick(always);
  ASSERT_EQ(links.dead(2).size(), 1u);
  EXPECT_EQ(links.dead(2)[0].text, "reset");
  EXPECT_EQ(links.dead_count(kA, {kB, kC}), 1u);
  EXPECT_EQ(links.dead_count(kA, {kB}), 0u);
  say(kA, kC, LinkState::kUp);
  EXPECT_TRUE(links.dead(1).empty());
}

TEST_F(LinksTest, KnowsNothingOfWhoIsGone) {
  links.add(kA, kB);
  say(kA, kB, LinkState::kUp);
  links.forget(kB);
  EXPECT_EQ(links.up_count(), 0u);
  EXPECT_FALSE(links.report(kA, {kB, LinkState::kUp, ""}));
  EXPECT_FALSE(links.linked(kA, kB));
  EXPECT_EQ(links.view(kA, kB).state, Links::View::State::kUnknown);
}

}  // namespace
}  // namespace pccl::master
