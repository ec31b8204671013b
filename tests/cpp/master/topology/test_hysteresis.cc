#include "master/topology/hysteresis.h"

#include <gtest/gtest.h>

namespace pccl::master::topology {
namespace {

TEST(Hysteresis, APlanMustBeFasterByATenth) {
  const Hysteresis hysteresis;
  EXPECT_TRUE(hysteresis.is_worth_it(1, 0.89, 0));
  EXPECT_FALSE(hysteresis.is_worth_it(1, 0.9, 0));
  EXPECT_FALSE(hysteresis.is_worth_it(1, 1.5, 0));
}

TEST(Hysteresis, AChangeMustMakeUpForItsPause) {
  const Hysteresis hysteresis;
  EXPECT_FALSE(hysteresis.is_worth_it(0.01, 0.005, 0.6));
  EXPECT_TRUE(hysteresis.is_worth_it(0.01, 0.005, 0.4));
}

TEST(Hysteresis, AfterADisappointmentItMustBeFasterByAFifth) {
  Hysteresis hysteresis;
  hysteresis.changed(0.5);
  EXPECT_TRUE(hysteresis.is_worth_it(0.55, 0.48, 0)) << "it is as predicted";
  EXPECT_FALSE(hysteresis.is_worth_it(0.7, 0.6, 0));
  EXPECT_TRUE(hysteresis.is_worth_it(0.7, 0.55, 0));
}

}  // namespace
}  // namespace pccl::master::topology
