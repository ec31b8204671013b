#include "master/members/telemetries.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "master/operator/snapshot.h"
#include "master/run_view.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using nlohmann::json;

class TelemetriesTest : public testing::Test {
 protected:
  TelemetriesTest() { h.found({"a", "b"}); }

  // The intervals of the Observe that a peer was sent, in order.
  std::vector<uint32_t> observed(const std::string& name) {
    std::vector<uint32_t> intervals;
    for (const protocol::Message& message : h.sent(name)) {
      if (const auto* observe = std::get_if<protocol::Observe>(&message))
        intervals.push_back(observe->interval_ms);
    }
    return intervals;
  }
  static protocol::Telemetry telemetry(uint64_t seconds, uint64_t waited, uint64_t bytes) {
    protocol::Telemetry made;
    made.all_us = seconds * 1'000'000;
    made.waiting_us = waited * 1'000'000;
    made.bytes_sent = bytes;
    return made;
  }
  json shown(size_t rank) {
    return snapshot(h.core().view(), {h.now(), 0}, 0)["groups"][0]["peers"][rank]["telemetry"];
  }

  Harness h;
};

TEST_F(TelemetriesTest, WhileNobodyWatchesNobodyIsAskedAndNothingIsKept) {
  h.say("a", telemetry(10, 1, 100));
  h.tick_with({"a", "b"}, 10);
  EXPECT_TRUE(observed("a").empty());
  EXPECT_EQ(shown(0), nullptr);
}

TEST_F(TelemetriesTest, EachMemberIsAskedOnceAndToldWhenAllIsOver) {
  for (int i = 0; i < 3; ++i) h.step(Watched{});
  EXPECT_EQ(observed("a"), std::vector<uint32_t>{2000});
  h.say("a", telemetry(10, 1, 100));
  h.tick_with({"a", "b"}, 130);  // more than a minute
  EXPECT_EQ(observed("a"), (std::vector<uint32_t>{2000, 0}));
  EXPECT_EQ(shown(0), nullptr);
}

TEST_F(TelemetriesTest, AMemberThatIsBackIsAskedAgain) {
  h.step(Watched{});
  h.close("a");
  h.come_back("a", h.resume("a", epoch(1)));
  h.tick_with({"a", "b"}, 2);
  EXPECT_EQ(observed("a"), (std::vector<uint32_t>{2000, 2000}));
  EXPECT_EQ(observed("b"), std::vector<uint32_t>{2000});
}

TEST_F(TelemetriesTest, TheShownSharesAreThoseOfTheLastInterval) {
  h.step(Watched{});
  protocol::Telemetry first = telemetry(100, 50, 1000);
  first.scalars = {{"loss", 2.5}};
  first.waits_for = h.id("b");
  h.say("a", first);
  EXPECT_EQ(shown(0)["waiting"], 0.5) << "since it has joined";
  h.say("a", telemetry(104, 51, 5000));
  const json now = shown(0);
  EXPECT_EQ(now["over_s"], 4.0);
  EXPECT_EQ(now["waiting"], 0.25);
  EXPECT_EQ(now["computing"], 0.75);
  EXPECT_EQ(now["sent_per_s"], 1000.0);
  EXPECT_EQ(now["waits_for"], nullptr);
  EXPECT_EQ(shown(1), nullptr);
}

TEST_F(TelemetriesTest, ScalarsAndTheAwaitedMemberAreShown) {
  h.step(Watched{});
  protocol::Telemetry one = telemetry(100, 50, 1000);
  one.scalars = {{"step", 120}, {"loss", 2.5}};
  one.waits_for = h.id("b");
  one.links = {{h.id("b"), 7, 8, 4, 2, 31000}};
  h.say("a", one);
  EXPECT_EQ(shown(0)["scalars"], (json{{"step", 120.0}, {"loss", 2.5}}));
  EXPECT_EQ(shown(0)["waits_for"], "peer 1.2");
  EXPECT_EQ(shown(0)["links"][0]["round_trip_s"], 0.031);
}

TEST_F(TelemetriesTest, ImpossibleNumbersHaveSharesAndRatesInTheirBounds) {
  h.step(Watched{});
  protocol::Telemetry lie = telemetry(1, 1000, ~uint64_t{0});
  lie.joint_us = ~uint64_t{0};
  h.say("a", lie);
  h.say("a", telemetry(0, 0, 0));
  EXPECT_EQ(shown(0)["waiting"], 0.0);
  h.say("a", lie);
  EXPECT_EQ(shown(0)["waiting"], 1.0);
  EXPECT_EQ(shown(0)["computing"], 0.0);
}

}  // namespace
}  // namespace pccl::master
