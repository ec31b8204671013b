#include "master/topology/hysteresis.h"

#include <gtest/gtest.h>

namespace pccl::master::topology {
namespace {

const Hysteresis::Subject kGuessed{{{1}, {2}, {3}}, 1e6, false};
const Hysteresis::Subject kKnown{{{1}, {2}, {3}}, 1e6, true};

bool choose(const Hysteresis::Subject& subject, double now, double next, double pause = 0) {
  return Hysteresis().choose(subject, now, next, pause);
}

TEST(Hysteresis, TheFirstPlanMustBeFasterByThreePercent) {
  EXPECT_TRUE(choose(kKnown, 1, 0.96));
  EXPECT_FALSE(choose(kKnown, 1, 0.97));
  EXPECT_FALSE(choose(kKnown, 1, 1.5));
}

TEST(Hysteresis, ALaterPlanMustBeFasterByATenth) {
  for (const double next : {0.89, 0.91}) {
    Hysteresis hysteresis;
    hysteresis.choose(kGuessed, 1, 0.98, 0);
    EXPECT_EQ(hysteresis.choose(kGuessed, 1, next, 0), next < 0.9);
  }
}

TEST(Hysteresis, AChangeMustMakeUpForItsPause) {
  EXPECT_FALSE(choose(kKnown, 0.01, 0.005, 0.6));
  EXPECT_TRUE(choose(kKnown, 0.01, 0.005, 0.4));
}

TEST(Hysteresis, AfterADisappointmentItMustBeFasterByAFifth) {
  Hysteresis hysteresis;
  EXPECT_TRUE(hysteresis.choose(kGuessed, 1, 0.5, 0));
  EXPECT_TRUE(hysteresis.choose(kGuessed, 0.55, 0.48, 0)) << "it is as predicted";
  EXPECT_FALSE(hysteresis.choose(kGuessed, 0.7, 0.6, 0));
  EXPECT_TRUE(hysteresis.choose(kGuessed, 0.7, 0.55, 0));
}

TEST(Hysteresis, ASecondChoiceOfTheSameNeedsAFifth) {
  Hysteresis hysteresis;
  EXPECT_FALSE(hysteresis.choose(kGuessed, 1, 0.98, 0));
  EXPECT_FALSE(hysteresis.choose(kKnown, 1, 0.95, 0));
  EXPECT_FALSE(hysteresis.choose(kKnown, 1, 0.85, 0)) << "nothing is new";
  EXPECT_FALSE(hysteresis.choose(kKnown, 1.1, 0.9, 0)) << "the noise of equal plans";
  EXPECT_TRUE(hysteresis.choose(kKnown, 1, 0.79, 0));
}

TEST(Hysteresis, ANewPlanNeedsATenth) {
  auto others = kKnown, larger = kKnown;
  others.members.pop_back();
  larger.bytes *= 2;
  for (const auto& subject : {others, larger}) {
    Hysteresis hysteresis;
    EXPECT_FALSE(hysteresis.choose(kKnown, 1, 0.98, 0));
    EXPECT_TRUE(hysteresis.choose(subject, 1, 0.89, 0));
  }
  Hysteresis hysteresis;
  EXPECT_FALSE(hysteresis.choose(kGuessed, 1, 0.98, 0));
  EXPECT_TRUE(hysteresis.choose(kKnown, 1, 0.89, 0)) << "all is known for the first time";
}

}  // namespace
}  // namespace pccl::master::topology
