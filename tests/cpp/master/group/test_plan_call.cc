#include "master/group/plan_call.h"

#include "master/epochs/routes.h"
#include "master/topology/size_average.h"
#include "tests/cpp/master/optimization_test.h"

namespace pccl::master {
namespace {

using protocol::LinkState;
using protocol::Probe;
using PlanCallTest = OptimizationTest;

TEST_F(PlanCallTest, TheAdoptedRingStaysWhenALinkIsMadeAnew) {
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

TEST_F(PlanCallTest, OneMemberIsAnsweredAtOnce) {
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

TEST_F(PlanCallTest, ALimitBelowOneProbeBreaksTheProtocol) {
  found({"a", "b"});
  protocol::Vote vote{0, kOptimize, {}, epoch(1)};
  vote.max_bytes = protocol::kProbesBytesMin - 1;
  h.say("a", vote);
  EXPECT_TRUE(contains(h.story().back(), "a closed")) << h.story().back();
}

TEST_F(PlanCallTest, ItWaitsForOperationsThatAllHaveBegun) {
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

TEST_F(PlanCallTest, ATimeoutNamesWhatItWaitsFor) {
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

TEST_F(PlanCallTest, ALossInARoundFailsTheCall) {
  found({"a", "b", "c", "d"});
  vote(1, 0);
  h.close("d");
  h.say("a", protocol::LinkReport{h.id("d"), LinkState::kDown, "reset", 1});
  names_.pop_back();
  for (const std::string& name : names_) h.say(name, protocol::StateReport{epoch(1), {}});
  EXPECT_EQ(answer().code, Code::kPeerLost);
  EXPECT_FALSE(answer().plan.has_value());
}

TEST_F(PlanCallTest, AfterAnotherEpochTheCallGoesOnWithTheOtherPairs) {
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

TEST_F(PlanCallTest, UpdateTopologyAdoptsWhatTrafficHasShown) {
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

TEST_F(PlanCallTest, APlanSurvivesARestartOfTheMaster) {
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

TEST_F(PlanCallTest, APlanThatTheMembersOutliveIsNotAdopted) {
  h.policy = protocol::LossPolicy::kRetry;
  found({"a", "b", "c", "d"});
  make_ring_fast({0, 2, 1, 3});
  vote(1, 0);
  run_rounds();
  ASSERT_NE(h.last<protocol::FreezeRequest>("a"), nullptr) << "a better plan was found";
  h.close("d");
  h.say("a", protocol::LinkReport{h.id("d"), LinkState::kDown, "reset", 1});
  names_.pop_back();
  renew(1, 0);
  EXPECT_EQ(h.last<protocol::EpochStart>("a")->ring, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_FALSE(plan().adopted);
  EXPECT_EQ(plan().epoch, epoch(2).value);
  EXPECT_EQ(plan().rates.size(), 9u);
  EXPECT_EQ(plan().note, "the members or their links changed, so the plan was not adopted")
      << "all pairs that are left were measured";
}

// ---- The sizes for which a plan is made ----

class SizesTest : public OptimizationTest {
 protected:
  void begin(const protocol::OpInfo& info) {
    for (const std::string& name : names_) {
      h.say(name, protocol::Begin{epoch(1), op(operations_), info});
      h.say(name, protocol::Done{epoch(1), op(operations_), 0});
    }
    ++operations_;
  }
  // The size for which the next search is.
  double planned_bytes() {
    h.hold_searches = true;
    vote(1, calls_++, 0);
    const bool one = h.searches().size() == 1;
    EXPECT_TRUE(one);
    const double bytes = one ? h.searches().front().question->bytes : 0;
    h.hold_searches = false;
    h.search();
    return bytes;
  }
  uint32_t operations_ = 0, calls_ = 0;
};

TEST_F(SizesTest, APlanIsForTheAllReducesOfTheRun) {
  found({"a", "b", "c"});
  EXPECT_EQ(planned_bytes(), topology::SizeAverage::kGuess);
  begin(all_reduce(protocol::kOneShotBytesMax / 4));  // it does not go by a plan
  protocol::OpInfo broadcast = all_reduce(1'000'000);
  broadcast.kind = protocol::OpKind::kBroadcast;
  begin(broadcast);
  EXPECT_EQ(planned_bytes(), topology::SizeAverage::kGuess);
  begin(all_reduce(1'000'000));
  EXPECT_EQ(planned_bytes(), 4e6) << "each all-reduce counts once, whoever begins it";
  begin(all_reduce(2'000'000));
  topology::SizeAverage both;
  both.note(4e6);
  both.note(8e6);
  EXPECT_EQ(planned_bytes(), both.bytes());
}

// In a large group, only smaller all-reduces go without a plan.
TEST_F(SizesTest, TheEpochDecidesWhichSizesAreSmall) {
  std::vector<std::string> names;
  for (char name = 'a'; name <= 'p'; ++name) names.emplace_back(1, name);
  found(names);
  const uint32_t bytes = 48 << 10;
  ASSERT_LT(h.last<protocol::EpochStart>("a")->one_shot_bytes, bytes);
  ASSERT_LT(bytes, protocol::kOneShotBytesMax);
  begin(all_reduce(bytes / 4));
  EXPECT_EQ(planned_bytes(), bytes);
}

// ---- Shares without a call of optimize_topology ----

class SharesTest : public OptimizationTest {
 protected:
  const protocol::EpochStart& start() const { return *h.last<protocol::EpochStart>("a"); }
  // A new connection, whose RTT is known: the members begin another epoch.
  void remake_link(const std::string& one, const std::string& other) {
    const Epoch now = start().epoch;
    ++serial_;
    h.say(one, protocol::LinkReport{h.id(other), LinkState::kDown, "reset", serial_ - 1});
    h.say(one, protocol::LinkReport{h.id(other), LinkState::kUp, "", serial_, 40'000});
    for (const std::string& name : names_) h.say(name, protocol::StateReport{now, {}});
    ASSERT_GT(start().epoch, now);
  }
  void say_rate(const std::string& from, const std::string& to, uint64_t rate) {
    h.say(from, protocol::LinkRates{{{h.id(to), rate}}});
  }
  uint32_t serial_ = 1;
};

TEST_F(SharesTest, ANewLinkBringsThemAndDoesNotChangeThem) {
  found({"a", "b", "c"});
  remake_link("a", "b");
  remake_link("a", "c");
  remake_link("b", "c");
  EXPECT_TRUE(start().shares.empty()) << "no rate is known";
  for (const std::string& from : names_) {
    for (const std::string& to : names_) {
      if (from != to) say_rate(from, to, 10'000'000);
    }
  }
  remake_link("a", "b");
  const topology::Plan before = plan_of(start());
  ASSERT_FALSE(before.shares.empty());
  say_rate("a", "b", 5'000'000);
  say_rate("a", "c", 5'000'000);
  remake_link("a", "b");
  EXPECT_EQ(plan_of(start()), before);
}

}  // namespace
}  // namespace pccl::master
