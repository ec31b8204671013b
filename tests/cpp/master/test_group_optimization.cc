#include "master/group.h"

#include "tests/cpp/master/optimization_test.h"

namespace pccl::master {
namespace {

using protocol::LinkState;
using protocol::Probe;
using GroupOptimizationTest = OptimizationTest;

TEST_F(GroupOptimizationTest, TheAdoptedRingStaysWhenALinkIsMadeAnew) {
  found({"a", "b", "c", "d"});
  make_ring_fast({0, 2, 1, 3});
  vote(1, 0);
  run_rounds();
  renew(1, 0);
  h.say("a", protocol::LinkReport{h.id("b"), LinkState::kDown, "reset", 1});
  h.say("a", protocol::LinkReport{h.id("b"), LinkState::kUp, "", 2});
  for (const std::string& name : names_) h.say(name, protocol::StateReport{epoch(2), {}});
  EXPECT_EQ(h.last<protocol::EpochStart>("a")->epoch, epoch(3));
  EXPECT_EQ(h.last<protocol::EpochStart>("a")->ring, (std::vector<uint32_t>{0, 2, 1, 3}));
}

TEST_F(GroupOptimizationTest, OneMemberIsAnsweredAtOnce) {
  found({"a", "b"});
  h.say("b", protocol::Leave{});
  h.say("a", protocol::StateReport{epoch(1), {}});
  Harness alone;
  alone.found({"a"});
  protocol::Vote vote{0, kOptimize, {}, epoch(1)};
  vote.budget_ms = kBudget;
  alone.say("a", vote);
  const auto* answer = alone.last<protocol::Answer>("a");
  ASSERT_TRUE(answer != nullptr && answer->plan);
  EXPECT_EQ(answer->code, Code::kOk);
  EXPECT_TRUE(contains(answer->plan->note, "one member")) << answer->plan->note;
}

TEST_F(GroupOptimizationTest, BudgetsThatDifferAreAMismatch) {
  found({"a", "b", "c"});
  vote("a", 1, 0, 10'000);
  vote("b", 1, 0, 2500);
  vote("c", 1, 0, 10'000);
  EXPECT_EQ(answer().code, Code::kMismatch);
  EXPECT_EQ(answer().text,
            "ranks gave optimize_topology different budgets: rank 1 gave 2.5 s; ranks 0 and 2 gave "
            "10 s. All ranks must give the same budget");
  EXPECT_EQ(answer("b").text, answer().text);
}

TEST_F(GroupOptimizationTest, ItWaitsForOperationsThatAllHaveBegun) {
  found({"a", "b", "c"});
  for (const std::string& name : names_)
    h.say(name, protocol::Begin{epoch(1), op(0), all_reduce(8)});
  h.say("b", protocol::Begin{epoch(1), op(1), all_reduce(8)});  // the others call it later
  vote(1, 0);
  EXPECT_EQ(h.last<Probe>("b"), nullptr);
  for (const std::string& name : names_) h.say(name, protocol::Done{epoch(1), op(0), 0});
  EXPECT_NE(h.last<Probe>("b"), nullptr) << "the first member rests in the first round";
  run_rounds();
  EXPECT_EQ(answer().code, Code::kOk);
  for (const std::string& line : h.story()) EXPECT_FALSE(contains(line, "aborted")) << line;
}

TEST_F(GroupOptimizationTest, ATimeoutNamesWhatItWaitsFor) {
  found({"a", "b"});
  vote("a", 1, 0);
  h.say("a", protocol::JointAbort{0, epoch(1)});
  EXPECT_EQ(answer().code, Code::kOperationTimeout);
  EXPECT_TRUE(contains(answer().text, "rank 1")) << answer().text;
  vote("b", 1, 0);
  EXPECT_EQ(answer("b").code, Code::kOperationTimeout);
  for (const std::string& name : names_)
    h.say(name, protocol::Begin{epoch(1), op(0), all_reduce(8)});
  vote(1, 1);
  h.say("b", protocol::JointAbort{1, epoch(1)});
  EXPECT_EQ(answer().number, 1u);
  EXPECT_TRUE(contains(answer().text, "all_reduce")) << answer().text;
}

TEST_F(GroupOptimizationTest, ALossInARoundFailsTheCall) {
  found({"a", "b", "c", "d"});
  vote(1, 0);
  h.close("d");
  h.say("a", protocol::LinkReport{h.id("d"), LinkState::kDown, "reset", 1});
  names_.pop_back();
  for (const std::string& name : names_) h.say(name, protocol::StateReport{epoch(1), {}});
  EXPECT_EQ(answer().code, Code::kPeerLost);
  EXPECT_FALSE(answer().plan.has_value());
}

TEST_F(GroupOptimizationTest, AfterAnotherEpochTheCallGoesOnWithTheOtherPairs) {
  found({"a", "b", "c", "d"});
  vote(1, 0);
  for (const std::string& name : names_) report(name);  // the first round
  h.say("a", protocol::LinkReport{h.id("b"), LinkState::kDown, "reset", 1});
  h.say("a", protocol::LinkReport{h.id("b"), LinkState::kUp, "", 2});
  for (const std::string& name : names_) {
    reported_[name] = h.last<Probe>(name)->round;  // of a round that is void
    h.say(name, protocol::StateReport{epoch(1), {}});
  }
  EXPECT_EQ(h.last<protocol::Answer>("a"), nullptr);
  vote(2, 0);
  EXPECT_EQ(run_rounds(), 2u);
  EXPECT_EQ(plan().measured.size(), 6u);
}

TEST_F(GroupOptimizationTest, UpdateTopologyAdoptsWhatTrafficHasShown) {
  found({"a", "b", "c", "d"});
  make_ring_fast({0, 1, 2, 3});
  vote(1, 0);
  run_rounds();
  EXPECT_FALSE(plan().adopted);
  const auto update = [&](uint32_t in_epoch, uint32_t number) {
    for (const std::string& name : names_) h.vote(name, epoch(in_epoch), number);
  };
  update(1, 1);
  EXPECT_EQ(answer().kind, protocol::JointKind::kUpdateTopology) << "nothing changes";
  // The hop from b to c is throttled; another ring is slower than the first one was, but faster
  // now.
  for (auto& row : rate_) std::fill(row.begin(), row.end(), 50);
  vote(1, 2);
  run_rounds();
  h.say("b", protocol::LinkRates{{{h.id("c"), 5'000'000}}});
  update(1, 3);
  const auto& start = *h.last<protocol::EpochStart>("a");
  EXPECT_EQ(start.epoch, epoch(2));
  EXPECT_EQ(start.generation, epoch(2));
  for (size_t place = 0; place < 4; ++place) {
    EXPECT_FALSE(start.ring[place] == 1 && start.ring[(place + 1) % 4] == 2)
        << "the ring avoids the hop";
  }
}

TEST_F(GroupOptimizationTest, APlanSurvivesARestartOfTheMaster) {
  found({"a", "b", "c", "d"});
  make_ring_fast({0, 2, 1, 3});
  vote(1, 0);
  run_rounds();
  renew(1, 0);
  h.restart();
  for (const std::string& name : names_) {
    auto resume = h.resume(name, epoch(2));
    resume.joint_answered = 1;
    resume.needs_reconfiguration = name == "a";
    h.come_back(name, resume);
  }
  for (const std::string& name : names_) h.say(name, protocol::StateReport{epoch(2), {}});
  EXPECT_EQ(h.last<protocol::EpochStart>("a")->ring, (std::vector<uint32_t>{0, 2, 1, 3}));
  EXPECT_GT(h.last<protocol::EpochStart>("a")->epoch, epoch(2));
}

}  // namespace
}  // namespace pccl::master
