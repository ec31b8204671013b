#include "csrc/base/transitions.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cpp/base/table_faults.h"

namespace pccl {
namespace {

enum class Light { kRed, kGreen, kAmber };

const char* text(Light light) {
  constexpr const char* kNames[] = {"red", "green", "amber"};
  return kNames[static_cast<size_t>(light)];
}

const Transitions<Light, 3> kLights("a traffic light", text,
                                    {{Light::kRed, Light::kGreen, "a minute has passed"},
                                     {Light::kGreen, Light::kAmber, "somebody waits", "Beep"},
                                     {Light::kAmber, Light::kRed, "three seconds have passed"}});
const Transitions<Light, 2> kBarrier("a barrier", text,
                                     {{Light::kGreen, Light::kRed, "a train comes"},
                                      {Light::kRed, Light::kGreen, "the train has passed"}});
const Transitions<Light, 4> kUnsound("a broken light", text,
                                     {{Light::kRed, Light::kGreen, "a minute has passed"},
                                      {Light::kGreen, Light::kRed, ""},
                                      {Light::kRed, Light::kGreen, "somebody waits"},
                                      {Light::kAmber, Light::kRed, "three seconds have passed"}});

TEST(Transitions, TakeTheRowsOfTheTableAndNoOthers) {
  EXPECT_EQ(kLights.step(Light::kRed, Light::kGreen), Light::kGreen);
  EXPECT_TRUE(kLights.allow(Light::kAmber, Light::kRed));
  EXPECT_FALSE(kLights.allow(Light::kRed, Light::kAmber));
  EXPECT_FALSE(kLights.allow(Light::kRed, Light::kRed));
  EXPECT_DEATH(kLights.step(Light::kGreen, Light::kRed), "row");
}

TEST(Transitions, AreKnownByNameAndRow) {
  const auto all = TransitionTable::all();
  EXPECT_NE(std::find(all.begin(), all.end(), &kLights), all.end());
  EXPECT_STREQ(kLights.machine(), "a traffic light");
  EXPECT_EQ(kLights.size(), 3u);
  EXPECT_EQ(kLights.text(1), "green -> amber");
}

TEST(Transitions, SayWhatMakesAStepAndWhatFollows) {
  const TransitionTable::RowText row = kLights.row(1);
  EXPECT_STREQ(row.from, "green");
  EXPECT_STREQ(row.to, "amber");
  EXPECT_STREQ(row.event, "somebody waits");
  EXPECT_STREQ(row.effect, "Beep");
  EXPECT_STREQ(kLights.row(0).effect, "") << "a step need not have an effect";
}

TEST(Transitions, AreSortedByMachine) {
  const auto all = TransitionTable::all();
  const auto barrier = std::find(all.begin(), all.end(), &kBarrier);
  const auto lights = std::find(all.begin(), all.end(), &kLights);
  ASSERT_NE(barrier, all.end());
  EXPECT_LT(barrier, lights) << "although the lights were there first";
}

TEST(Transitions, AreSoundIfEachStepIsThereOnceWithAnEventAndLeadsOn) {
  EXPECT_EQ(faults_of(kLights), "");
  EXPECT_EQ(faults_of(kBarrier), "");
  EXPECT_EQ(faults_of(kUnsound),
            "\"green -> red\" has no event\n"
            "has two rows \"red -> green\"\n"
            "\"amber\" cannot be reached\n");
}

TEST(Transitions, TellAnObserver) {
  struct Watch : TransitionTable::Observer {
    void stepped(const TransitionTable& table, size_t row) override {
      seen += std::string(table.machine()) + ": " + table.text(row) + "\n";
    }
    std::string seen;
  } watch;
  TransitionTable::observer = &watch;
  kLights.step(Light::kRed, Light::kGreen);
  TransitionTable::observer = nullptr;
  kLights.step(Light::kGreen, Light::kAmber);
  EXPECT_EQ(watch.seen, "a traffic light: red -> green\n");
}

}  // namespace
}  // namespace pccl
