#include "csrc/base/transitions.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pccl {
namespace {

enum class Light { kRed, kGreen, kAmber };

const char* text(Light light) {
  constexpr const char* kNames[] = {"red", "green", "amber"};
  return kNames[static_cast<size_t>(light)];
}

const Transitions<Light, 3> kLights("a traffic light", text,
                                    {{Light::kRed, Light::kGreen},
                                     {Light::kGreen, Light::kAmber},
                                     {Light::kAmber, Light::kRed}});

TEST(Transitions, TakeTheRowsOfTheTableAndNoOthers) {
  EXPECT_EQ(kLights.step(Light::kRed, Light::kGreen), Light::kGreen);
  EXPECT_TRUE(kLights.allow(Light::kAmber, Light::kRed));
  EXPECT_FALSE(kLights.allow(Light::kRed, Light::kAmber));
  EXPECT_FALSE(kLights.allow(Light::kRed, Light::kRed));
  EXPECT_DEATH(kLights.step(Light::kGreen, Light::kRed), "row");
}

TEST(Transitions, AreKnownByNameAndRow) {
  const auto& all = TransitionTable::all();
  EXPECT_NE(std::find(all.begin(), all.end(), &kLights), all.end());
  EXPECT_STREQ(kLights.machine(), "a traffic light");
  EXPECT_EQ(kLights.size(), 3u);
  EXPECT_EQ(kLights.text(1), "green -> amber");
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
