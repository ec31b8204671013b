#include "master/operator/snapshot.h"

#include <nlohmann/json.hpp>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using nlohmann::json;

constexpr int64_t kNoon = 1'780'056'000;  // 2026-05-29T12:00:00Z

json snapshot_of(Harness& h) {
  return snapshot(h.core().view(), {h.now(), kNoon * 1000 + 250}, kNoon - 3600);
}

TEST(Snapshot, ARunThatHasNotBegunHasAllFieldsOfTheHeader) {
  Harness h;
  const json shown = snapshot_of(h);
  EXPECT_EQ(shown["schema"], 1);
  EXPECT_EQ(shown["run"], "run");
  EXPECT_EQ(shown["time"], "2026-05-29T12:00:00.250Z");
  EXPECT_EQ(shown["up_since"], "2026-05-29T11:00:00.000Z");
  EXPECT_EQ(shown["up_s"], 3600.25);
  EXPECT_EQ(shown["findings"][0]["code"], "nothing_wrong");
  EXPECT_TRUE(shown["groups"].empty() && shown["events"].empty());
}

TEST(Snapshot, MembersHaveRanksAndActivities) {
  Harness h;
  h.found({"a", "b"});
  h.say("a", protocol::Begin{epoch(1), op(0), all_reduce(10)});
  h.tick_with({"a", "b"}, 22);
  const json shown = snapshot_of(h);
  const json& group = shown["groups"][0];
  EXPECT_EQ(group["phase"], "active");
  EXPECT_EQ(group["epoch"], "1.1");
  EXPECT_EQ(group["members"], 2);
  EXPECT_EQ(group["shared_state"], nullptr);
  EXPECT_EQ(group["operations_open"], 1);
  const json& peer = group["peers"][0];
  EXPECT_EQ(peer["rank"], 0);
  EXPECT_EQ(peer["address"], "10.0.0.1:1001");
  EXPECT_EQ(peer["state"], "member");
  EXPECT_EQ(peer["doing"], "has been in all_reduce (#0) for 11 s");
  EXPECT_EQ(peer["since"], "2026-05-29T11:59:49.250Z");
  EXPECT_EQ(peer["since_s"], 11.0);
  EXPECT_EQ(group["calls"].size(), 1u);
  EXPECT_EQ(group["calls"][0]["waiting"], json::array({0}));
  EXPECT_EQ(group["calls"][0]["missing"], json::array({1}));
  EXPECT_EQ(shown["findings"][0]["code"], "rank_has_not_called");
  EXPECT_EQ(shown["findings"][0]["severity"], "error");
  EXPECT_LE(shown["events"].size(), 5u);
  EXPECT_EQ(shown["events"].back()["level"], "warning");
}

TEST(Snapshot, TheRingAndTheRateAreThereIfTheyAreKnown) {
  Harness h;
  h.found({"a", "b"});
  EXPECT_EQ(snapshot_of(h)["groups"][0]["rate"], nullptr);
  EXPECT_EQ(snapshot_of(h)["groups"][0]["ring"][0]["bytes_per_s"], nullptr);
  h.say("a", protocol::LinkRates{{{h.id("b"), 5000}}});
  for (const char* name : {"a", "b"}) h.say(name, protocol::Begin{epoch(1), op(0), all_reduce(25)});
  for (const char* name : {"a", "b"}) h.say(name, protocol::Done{epoch(1), op(0), 0});
  h.tick_with({"a", "b"}, 20);
  const json group = snapshot_of(h)["groups"][0];
  EXPECT_EQ(group["ring"][0],
            (json{{"from", 0}, {"to", 1}, {"bytes_per_s", 5000}, {"round_trip_s", nullptr}}));
  EXPECT_EQ(group["rate"],
            (json{{"operations_per_s", 0.1}, {"bytes_per_s", 10.0}, {"over_s", 10.0}}));
}

TEST(Snapshot, PeersThatAreNoMembersHaveNoRank) {
  Harness h;
  h.found({"a"}, 0, 1);
  h.enlist("c", Harness::hello(1));
  h.greet("d", Harness::hello(1));
  const json peers = snapshot_of(h)["groups"][0]["peers"];
  ASSERT_EQ(peers.size(), 3u);
  EXPECT_EQ(peers[1]["rank"], nullptr);
  EXPECT_EQ(peers[1]["state"], "waiting");
  EXPECT_EQ(peers[2]["state"], "arriving");
  h.close("a");
  EXPECT_EQ(snapshot_of(h)["groups"][0]["peers"][0]["state"], "away");
}

TEST(Snapshot, IsBounded) {
  Harness h;
  for (uint32_t group = 0; group < 30; ++group) h.found({"m" + std::to_string(group)}, group);
  const json shown = snapshot_of(h);
  EXPECT_EQ(shown["groups"].size(), kGroupsShown);
  EXPECT_EQ(shown["groups_more"], 30 - kGroupsShown);
  EXPECT_EQ(shown["findings_more"], 0);
}

}  // namespace
}  // namespace pccl::master
