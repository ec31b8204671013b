#include "master/operator/observers.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

using protocol::kObserverIdleMax;
using protocol::kObserverReadTimeout;
using protocol::kObserversMax;
using protocol::kSnapshotIntervalMin;
using std::chrono::milliseconds;

class ObserversTest : public testing::Test {
 protected:
  ~ObserversTest() override { observers.check(); }
  std::string add(uint64_t id, const std::string& run = "night") {
    const auto rejected = observers.add({id}, run);
    return rejected ? rejected->text : "";
  }
  std::string ask(uint64_t id, const std::string& run = "night", size_t unsent = 0) {
    return observers.receive({id}, protocol::Watch{.run = run}, unsent).message;
  }
  // "night 1 2": the run, and the observers that get its snapshot.
  std::string due() {
    const auto found = observers.take_due(now);
    if (!found) return "";
    std::string out = found->run;
    for (const ConnectionId id : found->observers) out += " " + std::to_string(id.value);
    return out;
  }
  std::string overdue(size_t unsent = 0) {
    std::string out;
    for (const auto& [id, why] : observers.take_overdue(now, [&](ConnectionId) { return unsent; }))
      out += std::to_string(id.value) + ": " + why + "\n";
    return out;
  }
  void pass(Duration time) { now = now + time; }

  Instant now = Instant{} + std::chrono::hours(1);
  Observers observers;
};

TEST_F(ObserversTest, FewDescriptorsAllowFewObservers) {
  Observers few(1);
  EXPECT_FALSE(few.add({1}, "night"));
  EXPECT_TRUE(few.add({2}, "night"));
}

TEST_F(ObserversTest, TheFirstQuestionIsAnsweredAtOnce) {
  EXPECT_FALSE(observers.deadline().has_value());
  EXPECT_EQ(add(1), "");
  EXPECT_TRUE(observers.contains({1}));
  EXPECT_LE(*observers.deadline(), now);
  EXPECT_EQ(due(), "night 1");
  EXPECT_EQ(due(), "") << "one answer for one question";
}

TEST_F(ObserversTest, ARunIsDescribedOnceInAnInterval) {
  add(1);
  EXPECT_EQ(due(), "night 1");
  EXPECT_EQ(ask(1), "");
  pass(milliseconds(60));
  add(2);
  EXPECT_EQ(due(), "");
  pass(kSnapshotIntervalMin - milliseconds(61));
  EXPECT_EQ(due(), "");
  EXPECT_EQ(*observers.deadline(), now + milliseconds(1));
  pass(milliseconds(1));
  EXPECT_EQ(due(), "night 1 2") << "together";
}

TEST_F(ObserversTest, DifferentRunsAreDescribedWithAPauseBetween) {
  add(1, "b");
  add(2, "a");
  add(3, "b");
  EXPECT_EQ(due(), "b 1 3") << "the one that has waited longest";
  EXPECT_EQ(due(), "");
  EXPECT_EQ(*observers.deadline(), now + Observers::kPause);
  pass(Observers::kPause);
  EXPECT_EQ(due(), "a 2");
}

// Two runs take turns, however fast the observers of one of them ask.
TEST_F(ObserversTest, NoRunWaitsForEver) {
  for (uint64_t id = 1; id <= 20; ++id) add(id, "run" + std::to_string(id));
  std::set<std::string> described;
  for (int i = 0; i < 20; ++i) {
    const std::string one = due();
    ASSERT_NE(one, "");
    described.insert(one);
    const uint64_t id = std::stoull(one.substr(one.find(' ')));
    EXPECT_EQ(ask(id, "run" + std::to_string(id)), "");
    pass(Observers::kPause);
  }
  EXPECT_EQ(described.size(), 20u);
}

TEST_F(ObserversTest, AnObserverAsksOneQuestionAtATime) {
  add(1);
  EXPECT_EQ(ask(1), "an observer asks before it has read its answer");
  due();
  EXPECT_EQ(ask(1, "night", 1), "an observer asks before it has read its answer");
  EXPECT_EQ(ask(1, "day"), "an observer asks for another run");
  const Status status = observers.receive({1}, protocol::Ping{}, 0);
  EXPECT_EQ(status.message, "Ping of an observer");
  EXPECT_EQ(status.code, Code::kProtocol);
  EXPECT_EQ(ask(1), "");
}

TEST_F(ObserversTest, ThereAreAtMostSoMany) {
  for (uint64_t id = 1; id <= kObserversMax; ++id) EXPECT_EQ(add(id), "");
  EXPECT_EQ(add(1000),
            "this master has 64 observers, the most that it serves at the same time: ask again "
            "later");
  EXPECT_FALSE(observers.contains({1000}));
  observers.forget({1});
  EXPECT_EQ(add(1000), "");
}

TEST_F(ObserversTest, ASlowReaderIsDropped) {
  add(1);
  due();
  EXPECT_EQ(*observers.deadline(), now + kObserverReadTimeout);
  pass(kObserverReadTimeout - milliseconds(1));
  EXPECT_EQ(overdue(1), "");
  pass(milliseconds(1));
  EXPECT_EQ(overdue(1), "1: it has not read its answer within 5 s\n");
  EXPECT_FALSE(observers.contains({1}));
}

TEST_F(ObserversTest, AnObserverThatAsksNothingIsDropped) {
  add(1);
  due();
  pass(kObserverReadTimeout);
  EXPECT_EQ(overdue(), "") << "it has read its answer";
  pass(kObserverIdleMax - kObserverReadTimeout - milliseconds(1));
  EXPECT_EQ(overdue(), "");
  EXPECT_EQ(*observers.deadline(), now + milliseconds(1));
  pass(milliseconds(1));
  EXPECT_EQ(overdue(), "1: it has asked nothing for 60 s\n");
}

TEST_F(ObserversTest, AnObserverThatWaitsIsNotOverdue) {
  add(1);
  pass(kObserverIdleMax * 2);
  EXPECT_EQ(overdue(1), "");
  EXPECT_EQ(due(), "night 1");
}

}  // namespace
}  // namespace pccl::master
