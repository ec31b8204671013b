#include "master/members/links.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::LinkReport;
using protocol::LinkState;

bool always(PeerId, PeerId) { return true; }

using News = Links::News;

class LinksTest : public testing::Test {
 protected:
  News say(PeerId from, PeerId to, LinkState state, uint32_t serial = 1,
           const std::string& text = "") {
    return links.report(from, {to, state, text, serial});
  }
  Links links;
};

TEST_F(LinksTest, IsUpWhenEitherSideSaysSo) {
  links.add(kB, kA);
  EXPECT_FALSE(links.linked(kA, kB));
  EXPECT_EQ(say(kB, kA, LinkState::kUp), News::kNone) << "it may have been up for long";
  EXPECT_TRUE(links.linked(kA, kB));
  EXPECT_TRUE(links.linked(kB, kA));
  EXPECT_EQ(links.up_count(), 1u);
  EXPECT_EQ(say(kA, kB, LinkState::kUp), News::kNone) << "it is known";
  EXPECT_EQ(links.up_count(), 1u);
}

TEST_F(LinksTest, TheOtherSideDialsOnceTheFirstCannotReachIt) {
  links.add(kA, kB);
  EXPECT_TRUE(links.dials(kA, kB)) << "the lower id is first";
  EXPECT_FALSE(links.dials(kB, kA));
  EXPECT_EQ(say(kA, kB, LinkState::kUnreachable, 0), News::kDead);
  EXPECT_TRUE(links.dials(kA, kB)) << "it goes on trying";
  EXPECT_TRUE(links.dials(kB, kA));
  links.tick(always);
  ASSERT_EQ(links.dead(1).size(), 1u);
  EXPECT_FALSE(links.dead(1)[0].both_unreachable) << "one side has yet to try";
  EXPECT_EQ(say(kB, kA, LinkState::kUnreachable, 0), News::kDead);
  EXPECT_TRUE(links.dead(1)[0].both_unreachable);
  EXPECT_EQ(say(kB, kA, LinkState::kUp, 3), News::kMade) << "what was said before is void";
  EXPECT_TRUE(links.dead(0).empty());
}

TEST_F(LinksTest, ASerialNumberFarAboveTheLastOneIsIgnored) {
  links.add(kA, kB);
  const uint32_t most = protocol::kSerialStepMax;
  for (const LinkState state : {LinkState::kUp, LinkState::kDown, LinkState::kUnreachable}) {
    EXPECT_EQ(say(kA, kB, state, most + 1), News::kNone);
    EXPECT_EQ(say(kA, kB, state, UINT32_MAX), News::kNone);
    EXPECT_EQ(links.dead_serial(kA, kB), 0u);
    EXPECT_FALSE(links.view(kA, kB).dead());
  }
  EXPECT_FALSE(links.linked(kA, kB));
  EXPECT_EQ(say(kA, kB, LinkState::kDown, most), News::kDead);
  EXPECT_EQ(links.dead_serial(kA, kB), most);
  say(kA, kB, LinkState::kUp, 2 * most);
  EXPECT_TRUE(links.linked(kA, kB));
}

TEST_F(LinksTest, NoSerialNumberWraps) {
  links.add(kA, kB);
  const uint32_t step = protocol::kSerialStepMax;
  for (uint32_t serial = step; serial < 15 * step; serial += step)
    say(kA, kB, LinkState::kDown, serial);
  EXPECT_EQ(links.dead_serial(kA, kB), protocol::kSerialMax);
}

TEST_F(LinksTest, TheSideThatMadeTheLastConnectionDialsFirst) {
  links.add(kA, kB);
  say(kB, kA, LinkState::kUp, 1);  // odd: made by the peer with the higher id
  EXPECT_TRUE(links.dials(kB, kA));
  EXPECT_FALSE(links.dials(kA, kB));
  say(kA, kB, LinkState::kDown, 1);
  EXPECT_TRUE(links.dials(kB, kA));
  EXPECT_FALSE(links.dials(kA, kB));
  say(kA, kB, LinkState::kUp, 4);
  EXPECT_TRUE(links.dials(kA, kB));
  EXPECT_FALSE(links.dials(kB, kA));
}

// The attempts of one side failed while the other side's succeeded; the two reports cross.
TEST_F(LinksTest, AnAttemptThatFailedSaysNothingOfALinkThatWasMadeMeanwhile) {
  links.add(kA, kB);
  say(kB, kA, LinkState::kUp, 1);
  EXPECT_EQ(say(kA, kB, LinkState::kUnreachable, 0), News::kNone);
  EXPECT_TRUE(links.linked(kA, kB));
  EXPECT_EQ(say(kA, kB, LinkState::kUnreachable, 1), News::kDead) << "it knows that this is dead";
  EXPECT_FALSE(links.linked(kA, kB));
}

TEST_F(LinksTest, IsDownWhenEitherSideSaysSoUntilItIsMadeAnew) {
  links.add(kA, kB);
  say(kA, kB, LinkState::kUp, 1);
  EXPECT_EQ(say(kB, kA, LinkState::kDown, 1, "reset"), News::kDead);
  EXPECT_FALSE(links.linked(kA, kB));
  EXPECT_EQ(links.dead_serial(kA, kB), 1u);
  EXPECT_EQ(links.up_count(), 0u);
  EXPECT_EQ(links.view(kB, kA).text, "reset");
  EXPECT_FALSE(links.view(kA, kB).dead());
  EXPECT_EQ(say(kA, kB, LinkState::kUp, 1), News::kNone) << "the dialler has not noticed";
  EXPECT_FALSE(links.linked(kA, kB));
  EXPECT_EQ(say(kA, kB, LinkState::kUp, 2), News::kMade);
  EXPECT_TRUE(links.linked(kA, kB));
  EXPECT_FALSE(links.view(kB, kA).dead());
  EXPECT_EQ(say(kB, kA, LinkState::kDown, 1, "late"), News::kNone) << "of the one before";
  EXPECT_TRUE(links.linked(kA, kB));
}

TEST_F(LinksTest, RemembersHowLongTheWayIs) {
  links.add(kA, kB);
  EXPECT_EQ(links.rtt(kA, kB), 0u);
  links.report(kA, {kB, LinkState::kUp, "", 1, 90'000});
  EXPECT_EQ(links.rtt(kB, kA), 90'000u);
  links.report(kB, {kA, LinkState::kDown, "reset", 1});
  EXPECT_EQ(links.rtt(kA, kB), 90'000u) << "until it is measured again";
  links.report(kA, {kB, LinkState::kUp, "", 2, 70'000});
  EXPECT_EQ(links.rtt(kA, kB), 70'000u);
  EXPECT_EQ(links.rtt(kA, peer_id(9)), 0u);
}

// The report of its end was lost.
TEST_F(LinksTest, ANewConnectionTellsThatTheOldOneHasEnded) {
  links.add(kA, kB);
  say(kA, kB, LinkState::kUp, 1);
  EXPECT_EQ(say(kA, kB, LinkState::kUp, 3), News::kMade);
  EXPECT_EQ(say(kB, kA, LinkState::kDown, 2), News::kNone);
  // The acceptor saw this connection end before the dialler could report it as up.
  EXPECT_EQ(say(kB, kA, LinkState::kDown, 4), News::kDead);
  EXPECT_EQ(say(kA, kB, LinkState::kUp, 4), News::kNone);
  EXPECT_FALSE(links.linked(kA, kB));
}

// This master was restarted, and the first report that it receives is about the newer connection.
TEST_F(LinksTest, AReportAboutAnOlderConnectionShowsThatTheFirstKnownOneIsNew) {
  links.add(kA, kB);
  EXPECT_EQ(say(kA, kB, LinkState::kUp, 3), News::kNone) << "it may have been up for long";
  EXPECT_EQ(say(kB, kA, LinkState::kDown, 2), News::kMade);
  EXPECT_EQ(say(kB, kA, LinkState::kDown, 2), News::kNone) << "it is known";
  EXPECT_TRUE(links.linked(kA, kB));
}

TEST_F(LinksTest, CountsTheTicksForWhichALinkIsDown) {
  links.add(kA, kB);
  links.add(kA, kC);
  say(kA, kB, LinkState::kUp);
  say(kA, kC, LinkState::kUp);
  say(kA, kC, LinkState::kDown, 1, "reset");
  links.tick(always);
  links.tick([](PeerId a, PeerId b) { return !(a == kA && b == kC); });
  EXPECT_TRUE(links.dead(2).empty());
  EXPECT_EQ(links.down_ticks(kC, kA), 1);
  links.tick(always);
  ASSERT_EQ(links.dead(2).size(), 1u);
  EXPECT_EQ(links.dead(2)[0].text, "reset");
  EXPECT_EQ(links.dead_count(kA, {kB, kC}), 1u);
  EXPECT_EQ(links.dead_count(kA, {kB}), 0u);
  say(kA, kC, LinkState::kUp, 2);
  EXPECT_TRUE(links.dead(1).empty());
  EXPECT_EQ(links.down_ticks(kA, kC), 0);
  EXPECT_EQ(links.down_ticks(kB, kC), 0) << "there is no such link";
}

// An attempt at an address of somebody else may fail at once or after some time.
TEST_F(LinksTest, AFailureThatIsNotDisclosedIsShownAtAFixedTime) {
  for (const int failed_after : {0, 3, 11}) {
    Links own;
    own.add(kA, kB);
    own.dialled(kA, kB, Disclosure::kFailure);
    own.report(kB, {kA, LinkState::kUnreachable, "", 0});
    for (int tick = 0; tick < Links::kTriedTicks; ++tick) {
      if (tick == failed_after) own.report(kA, {kB, LinkState::kUnreachable, "refused", 0});
      EXPECT_FALSE(own.view(kA, kB).shows_failure()) << tick;
      EXPECT_FALSE(own.dials(kB, kA)) << tick;
      own.dialled(kA, kB, Disclosure::kFailure);
      own.tick(always);
      own.check();
    }
    EXPECT_TRUE(own.view(kA, kB).unreachable());
    EXPECT_TRUE(own.view(kA, kB).shows_failure());
    EXPECT_TRUE(own.dials(kB, kA));
    ASSERT_EQ(own.dead(0).size(), 1u);
    EXPECT_TRUE(own.dead(0)[0].both_unreachable);
    EXPECT_EQ(own.dead(0)[0].ticks, 0) << "they do not show when it failed";
    own.tick(always);
    EXPECT_EQ(own.dead(0)[0].ticks, 1);
    own.report(kA, {kB, LinkState::kUp, "", 2});
    EXPECT_EQ(own.view(kA, kB).disclosure, Disclosure::kFull) << "until the next Dial";
  }
}

// The other side only sees that its connections are closed.
TEST_F(LinksTest, TheEndThatFindsAPathNarrowReportsWhyItsLinkIsDead) {
  links.add(kA, kB);
  for (const auto& [one, other] : {std::pair(kA, kB), std::pair(kB, kA)}) {
    links.report(one, {other, LinkState::kUnreachable, "large ones do not arrive", 0, 0,
                       LinkFault::kOnlySmallPackets});
    links.report(other, {one, LinkState::kUnreachable, "closed", 0});
    ASSERT_EQ(links.dead(0).size(), 1u);
    EXPECT_EQ(links.dead(0)[0].text, "large ones do not arrive");
  }
}

TEST_F(LinksTest, KnowsNothingOfWhoIsGone) {
  links.add(kA, kB);
  say(kA, kB, LinkState::kUp);
  links.forget(kB);
  EXPECT_EQ(links.up_count(), 0u);
  EXPECT_EQ(say(kA, kB, LinkState::kUp, 2), News::kNone);
  EXPECT_FALSE(links.linked(kA, kB));
  EXPECT_EQ(links.view(kA, kB).state, Links::View::State::kUnknown);
}

TEST(Links, EachDirectionHasARateOfItsOwn) {
  Links links;
  links.add({1}, {2});
  links.add({2}, {3});
  EXPECT_EQ(links.rate({1}, {2}), 0u) << "unknown";
  EXPECT_TRUE(links.measured({2}, {{{{1}, 70}, {{3}, 80}, {{9}, 90}}}).ok()) << "9 is gone";
  EXPECT_TRUE(links.measured({1}, {{{{2}, 60}}}).ok());
  EXPECT_EQ(links.rate({1}, {2}), 60u);
  EXPECT_EQ(links.rate({2}, {1}), 70u);
  EXPECT_EQ(links.rate({2}, {3}), 80u);
  EXPECT_EQ(links.rate({3}, {2}), 0u);
  EXPECT_EQ(links.rate({2}, {9}), 0u);
}

TEST(Links, ARateOfNothingOrToItselfChangesNothing) {
  Links links;
  links.add({1}, {2});
  EXPECT_EQ(links.measured({1}, {{{{2}, 60}, {{2}, 0}}}).code, Code::kProtocol);
  EXPECT_EQ(links.measured({1}, {{{{2}, 60}, {{1}, 5}}}).code, Code::kProtocol);
  EXPECT_EQ(links.rate({1}, {2}), 0u);
}

// Two measurements of one path differ a little, although nothing has changed.
TEST(Links, SmallDifferencesOfRatesAreAveraged) {
  Links links;
  links.add({1}, {2});
  const auto measured = [&](uint64_t rate) {
    EXPECT_TRUE(links.measured({1}, {{{{2}, rate}}}).ok());
    return links.rate({1}, {2});
  };
  EXPECT_EQ(measured(1000), 1000u);
  EXPECT_EQ(measured(1200), 1100u);
  EXPECT_EQ(measured(1000), 1050u);
  EXPECT_EQ(measured(500), 500u) << "that is a change";
  links.probed({1}, {2}, {550, 3});
  EXPECT_EQ(links.rate({1}, {2}), 525u) << "a probe is not exact either";
  EXPECT_EQ(links.probe({1}, {2}).rate, 550u);
  EXPECT_EQ(links.probe({1}, {2}).round, 3u);
  EXPECT_EQ(links.probe({2}, {1}).rate, 0u);
  links.probed({1}, {2}, {800, 4});
  EXPECT_EQ(links.rate({1}, {2}), 800u);
  links.probed({1}, {9}, {550, 4});
  EXPECT_EQ(links.rate({1}, {9}), 0u);
  links.probed_again({1}, {2}, 900);
  EXPECT_EQ(links.rate({1}, {2}), 900u);
  links.probed_again({1}, {2}, 850);
  EXPECT_EQ(links.rate({1}, {2}), 900u) << "it has carried that";
  EXPECT_EQ(links.probe({1}, {2}).rate, 800u) << "the one that ran together with others";
  EXPECT_EQ(links.probe({1}, {2}).round, 4u);
  links.probed_again({1}, {9}, 900);
  EXPECT_EQ(links.rate({1}, {9}), 0u);
}

}  // namespace
}  // namespace pccl::master
