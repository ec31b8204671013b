#include "master/runs/registry.h"

#include <gtest/gtest.h>

#include <random>

#include "csrc/protocol/limits.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::kRunsMax;
using protocol::kRunsPerNetworkMax;
using std::chrono::seconds;
using RunPhase = Registry::Phase;

constexpr UnixSeconds kKept = 30 * kDay;

SharedStateRecord state(uint32_t group = 0) { return {{group}, 120, 0xc0ffee}; }

// A registry whose decisions are carried out at once, as the shell does.
class RegistryTest : public testing::Test {
 protected:
  void TearDown() override { registry.check(); }
  Registry::Admission admit(const std::string& run, const std::string& origin = "10.0.0.1") {
    Registry::Admission admission = registry.admit(run, origin, now, clock);
    for (const auto& decision : admission.decisions) {
      if (const auto* end = std::get_if<Registry::End>(&decision)) {
        ended.push_back(end->run);
        const auto listed = registry.find(end->run);
        for (size_t i = 0; i < listed->connections; ++i) registry.disconnected(end->run, now);
        registry.over(end->run, {}, clock);
      } else {
        forgotten.push_back(std::get<Registry::Forget>(decision).run);
      }
    }
    return admission;
  }
  // found() makes a run whose founders wait, train() one that trains.
  void found(const std::string& run, const std::string& origin = "10.0.0.1") {
    ASSERT_FALSE(admit(run, origin).rejected.has_value()) << run;
    registry.connected(run);
    registry.waits(run, now + seconds(3600));
  }
  void train(const std::string& run, const std::string& origin = "10.0.0.1") {
    found(run, origin);
    registry.founded(run);
  }
  void finish(const std::string& run, std::vector<SharedStateRecord> states = {}) {
    while (registry.find(run)->connections > 0) registry.disconnected(run, now);
    registry.over(run, std::move(states), clock);
  }
  RunPhase phase(const std::string& run) { return registry.find(run)->phase; }
  bool known(const std::string& run) { return registry.find(run).has_value(); }

  Registry registry{kKept};
  Instant now{seconds(1000)};
  UnixSeconds clock = 1764000000;
  std::vector<std::string> ended, forgotten;
};

TEST_F(RegistryTest, ARunIsFoundedThenAwayThenALine) {
  EXPECT_TRUE(admit("r").opened);
  EXPECT_EQ(phase("r"), RunPhase::kFounding);
  registry.connected("r");
  EXPECT_FALSE(admit("r").opened) << "it lives";
  registry.founded("r");
  EXPECT_EQ(phase("r"), RunPhase::kTraining);
  registry.disconnected("r", now);
  EXPECT_EQ(phase("r"), RunPhase::kAway);
  const auto line = registry.over("r", {state()}, clock);
  EXPECT_EQ(line, (FinishedRun{"10.0.0.1", clock, {state()}}));
  EXPECT_EQ(phase("r"), RunPhase::kFinished);
  const auto again = admit("r", "10.0.0.2");
  EXPECT_TRUE(again.opened);
  EXPECT_EQ(again.states, (std::vector{state()})) << "its name brings them back";
}

TEST_F(RegistryTest, ARunThatHasFoundedNothingLeavesNothing) {
  found("r");
  finish("r");
  EXPECT_FALSE(known("r"));
  train("s");
  finish("s", {state()});
  clock += 100;
  found("s");
  finish("s", {state()});
  EXPECT_EQ(registry.find("s")->since, clock - 100) << "it has ended when it was founded last";
}

TEST_F(RegistryTest, FoundersWhoAreGoneEndTheirRunAfterTenSeconds) {
  found("r");
  EXPECT_EQ(registry.deadline(), now + seconds(3610));
  registry.disconnected("r", now);
  EXPECT_EQ(registry.deadline(), now + seconds(10)) << "whatever they chose";
  EXPECT_TRUE(registry.expire(now + seconds(9)).empty());
  const auto ends = registry.expire(now + seconds(10));
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].run, "r");
  EXPECT_EQ(ends[0].why, "it had not begun when its last peer was gone for 10 s");
}

TEST_F(RegistryTest, FoundersWhoWaitEndTheirRunWhenTheLongestWaitIsOver) {
  found("r");
  registry.waits("r", now + seconds(60));
  EXPECT_EQ(registry.deadline(), now + seconds(3610));
  registry.disconnected("r", now);
  registry.connected("r");  // its peer came back
  EXPECT_EQ(registry.deadline(), now + seconds(3610));
  EXPECT_EQ(registry.expire(now + seconds(3610)).at(0).why,
            "its founders have waited for as long as they wanted to");
  registry.founded("r");
  EXPECT_FALSE(registry.deadline().has_value()) << "members have a timeout of their own";
}

TEST_F(RegistryTest, TheHolderWithMostUnbegunRunsMakesRoom) {
  for (size_t i = 0; i < kRunsMax - 3; ++i) found("stranger " + std::to_string(i), "6.6.6.6");
  found("old", "10.0.0.2");
  train("old trains", "10.0.0.2");
  found("other", "10.0.0.3");
  EXPECT_TRUE(admit("new", "10.0.0.4").opened);
  EXPECT_EQ(ended, (std::vector<std::string>{"stranger 0"}));
  EXPECT_TRUE(known("new"));
}

TEST_F(RegistryTest, RunsThatTrainMakeNoRoom) {
  for (size_t i = 0; i < kRunsMax; ++i)
    train("r" + std::to_string(i), "10.0." + std::to_string(i % 4) + ".1");
  const auto admission = admit("new", "10.9.9.9");
  ASSERT_TRUE(admission.rejected.has_value());
  EXPECT_EQ(admission.rejected->text,
            "this master serves 1024 runs, the most it can: join one of them or start another "
            "master");
  EXPECT_FALSE(admit("r0").rejected.has_value()) << "it is served already";
  registry.disconnected("r1", now);
  EXPECT_FALSE(admit("new", "10.9.9.9").rejected.has_value()) << "nobody of r1 is connected";
}

TEST_F(RegistryTest, LinesOfANetworkThatAgreedOnNothingMakeRoomOldestFirst) {
  for (size_t i = 0; i < kRunsPerNetworkMax; ++i) {
    train("r" + std::to_string(i));
    ++clock;
    finish("r" + std::to_string(i),
           i % 2 == 0 ? std::vector{state()} : std::vector<SharedStateRecord>{});
  }
  train("new");
  train("newer");
  EXPECT_EQ(forgotten, (std::vector<std::string>{"r1", "r3"}));
  EXPECT_TRUE(known("r0") && known("r5"));
  train("elsewhere", "10.0.0.2");
  EXPECT_EQ(forgotten.size(), 2u) << "another network has room of its own";
}

TEST_F(RegistryTest, RunsThatAgreedOnAStateAreForgottenByAgeAndByTheirOperatorOnly) {
  for (size_t i = 0; i < kRunsPerNetworkMax; ++i) {
    train("r" + std::to_string(i));
    finish("r" + std::to_string(i), {state()});
  }
  const auto admission = admit("new");
  ASSERT_TRUE(admission.rejected.has_value());
  EXPECT_EQ(admission.rejected->text,
            "this master remembers 1024 runs of your network (10.0.0.1), the most there can be of "
            "one, and each is under way or has agreed on a shared state: ask its operator to "
            "forget some (pccl forget RUN)");
  EXPECT_FALSE(known("new"));
  const auto gone = registry.forget("r7");
  ASSERT_TRUE(std::holds_alternative<Registry::Forget>(gone));
  EXPECT_EQ(std::get<Registry::Forget>(gone).why,
            "its operator wanted it; it had agreed on group 0 at revision 120 with hash "
            "0000000000c0ffee");
  EXPECT_TRUE(admit("new").opened);
  EXPECT_TRUE(registry.forget_old(clock + kKept - 1).empty());
  const auto old = registry.forget_old(clock + kKept);
  EXPECT_EQ(old.size(), kRunsPerNetworkMax - 1);
  EXPECT_TRUE(contains(std::get<Registry::Forget>(old[0]).why, "it has ended 30 days ago; it had"))
      << std::get<Registry::Forget>(old[0]).why;
}

TEST_F(RegistryTest, NobodyGoesForARunThatIsRefused) {
  for (size_t i = 0; i < kRunsPerNetworkMax; ++i) {
    train("r" + std::to_string(i));
    finish("r" + std::to_string(i), {state()});
  }
  for (size_t i = 0; i < kRunsMax; ++i) {
    found("waits " + std::to_string(i), "10.0.1." + std::to_string(i % 4));
  }
  EXPECT_TRUE(admit("new").rejected.has_value()) << "its network is full of lines";
  EXPECT_TRUE(ended.empty());
  EXPECT_TRUE(admit("r5").opened) << "one of these lines";
  EXPECT_EQ(ended.size(), 1u);
}

TEST_F(RegistryTest, ARunIsOfTheNetworkThatOpenedItFirst) {
  train("r", "10.0.0.1");
  finish("r", {state()});
  EXPECT_EQ(admit("r", "10.0.0.2").origin, "10.0.0.1");
  EXPECT_EQ(registry.find("r")->origin, "10.0.0.1");
}

TEST_F(RegistryTest, ALineWithManyStatesCountsAsSeveral) {
  std::vector<SharedStateRecord> states;
  for (uint32_t group = 0; group < 10 * protocol::kStatesPerLine; ++group)
    states.push_back(state(group));
  train("wide");
  finish("wide", states);
  for (size_t i = 0; i < kRunsPerNetworkMax - 10; ++i) train("r" + std::to_string(i));
  EXPECT_TRUE(admit("one more").rejected.has_value());
}

TEST_F(RegistryTest, FoundersThatAreGoneMakeRoomBeforeOthers) {
  for (size_t i = 0; i < kRunsPerNetworkMax - 2; ++i) train("r" + std::to_string(i));
  found("waits");
  found("gone");
  registry.disconnected("gone", now);
  admit("new");
  admit("newer");
  EXPECT_EQ(ended, (std::vector<std::string>{"gone", "new"})) << "nobody has connected to new";
}

TEST_F(RegistryTest, TheWholeHasABoundToo) {
  size_t i = 0;
  for (; i < protocol::kRunsKnownMax; ++i) {
    const std::string origin = "10.0.0." + std::to_string(i / kRunsPerNetworkMax);
    registry.restore("r" + std::to_string(i), {origin, clock, {state()}});
  }
  EXPECT_TRUE(contains(admit("new", "10.1.1.1").rejected->text, "remembers 65536 runs"));
  registry.forget("r9");
  registry.restore("poor", {"10.0.0.1", clock, {}});
  EXPECT_TRUE(admit("new", "10.1.1.1").opened);
  EXPECT_EQ(forgotten, (std::vector<std::string>{"poor"}));
}

TEST_F(RegistryTest, TooManyThatAreAwayEndTheOldestOfTheNetworkWithMost) {
  train("honest", "10.0.0.2");
  registry.disconnected("honest", now);
  for (size_t i = 0; i < protocol::kRunsAwayMax; ++i) {
    const std::string run = "r" + std::to_string(i);
    train(run, "6.6.6." + std::to_string(i % 5));
    registry.disconnected(run, now);
  }
  const auto ends = registry.expire(now);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].run, "r0");
}

TEST_F(RegistryTest, AnOperatorHearsWhyARunStays) {
  EXPECT_EQ(std::get<std::string>(registry.forget("r")),
            "this master knows no run \"r\": pccl runs lists all");
  train("r");
  EXPECT_EQ(std::get<std::string>(registry.forget("r")),
            "run \"r\" has 1 connected peer: end them, then forget it");
  registry.disconnected("r", now);
  EXPECT_TRUE(contains(std::get<std::string>(registry.forget("r")), "waits for its peers"));
}

TEST_F(RegistryTest, AJournalBringsBackBothKinds) {
  registry.restore("line", {"10.0.0.1", clock - 5, {state()}});
  registry.restore("trains", "10.0.0.2", true, now + seconds(60), clock);
  registry.restore("founds", "10.0.0.3", false, now + seconds(60), clock);
  EXPECT_EQ(phase("line"), RunPhase::kFinished);
  EXPECT_EQ(phase("trains"), RunPhase::kAway);
  EXPECT_EQ(registry.expire(now + seconds(60)).at(0).run, "founds");
  EXPECT_EQ(registry.list().size(), 3u);
}

// The counts stay right in every order of events: at the end everything can be removed.
TEST_F(RegistryTest, ARandomWalkLeavesNothingBehind) {
  std::mt19937 random(1);
  for (int step = 0; step < 20000; ++step) {
    const std::string run = "r" + std::to_string(random() % 40);
    const auto listed = registry.find(run);
    const bool lives = listed && listed->phase != RunPhase::kFinished;
    switch (random() % 7) {
      case 0: admit(run, "10.0.0." + std::to_string(random() % 3)); break;
      case 1:
        if (lives) registry.connected(run);
        break;
      case 2:
        if (lives && listed->connections > 0) registry.disconnected(run, now);
        break;
      case 3:
        if (lives) registry.founded(run);
        break;
      case 4:
        if (lives && listed->connections == 0)
          finish(run, random() % 2 ? std::vector{state()} : std::vector<SharedStateRecord>{});
        break;
      case 5: registry.forget(run); break;
      default:
        now = now + seconds(1);
        for (const auto& end : registry.expire(now)) finish(end.run);
    }
    registry.check();
  }
  for (const auto& [run, listed] : registry.list()) {
    if (listed.phase != RunPhase::kFinished) finish(run);
  }
  registry.forget_old(clock + kKept);
  EXPECT_TRUE(registry.list().empty());
  EXPECT_FALSE(registry.deadline().has_value());
  for (size_t i = 0; i < kRunsPerNetworkMax; ++i) train("x" + std::to_string(i), "10.0.0.1");
  EXPECT_TRUE(ended.empty() || !known("r0"));
  EXPECT_TRUE(admit("y", "10.0.0.1").rejected.has_value()) << "its count is exact";
}

}  // namespace
}  // namespace pccl::master
