#include "master/group/groups.h"

#include <functional>
#include <random>

#include "master/group/joint.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::JointKind;
using protocol::LinkState;
using Trait = Groups::Trait;

// ---- The index ----

// Random events in groups: peers come, found groups, vote and are lost, and time passes. After each
// step the index must equal the result of a scan of all groups.
class Walk {
 public:
  explicit Walk(uint64_t seed) : random_(seed) {
    context_.effects = &effects_;
    context_.options.incarnation = 1;
  }

  void step() {
    context_.now = context_.now + std::chrono::milliseconds(below(40));
    effects_.clear();
    const bool quiet = anything();
    settle(quiet);
    hear_effects();
  }
  void check() const {
    std::array<std::set<GroupId>, Groups::kTraits> with;
    std::optional<Instant> first;
    size_t peers = 0;
    for (const auto& [id, group] : groups_.all()) {
      peers += group.view().membership.peers().size() + group.view().membership.gone().size();
      const Groups::Summary now = Groups::summary_of(group);
      for (size_t i = 0; i < with.size(); ++i) {
        if (now.traits[i]) with[i].insert(id);
      }
      if (now.deadline) first = first ? std::min(*first, *now.deadline) : now.deadline;
    }
    for (size_t i = 0; i < with.size(); ++i) {
      EXPECT_EQ(groups_.with(static_cast<Trait>(i)), with[i]) << "trait " << i;
    }
    EXPECT_EQ(groups_.deadline(), first);
    EXPECT_EQ(context_.group_of.size(), peers) << "those here, and those remembered";
    EXPECT_TRUE(context_.persisting.empty());
  }
  // The number of steps after which some group had this trait.
  size_t seen(Trait trait) const { return seen_[static_cast<size_t>(trait)]; }
  size_t deadlines() const { return deadlines_; }
  size_t answers() const { return answers_; }

 private:
  struct Person {
    PeerId id;
    ConnectionId connection;
    GroupId group;
    bool registered = false;
    uint32_t votes = 0;
    Epoch epoch;
  };

  uint64_t below(uint64_t bound) { return random_() % bound; }

  bool anything() {
    const uint64_t what = people_.empty() ? 0 : below(12);
    if (what == 0 && people_.size() < 30) come();
    if (what == 0 || people_.empty()) return false;
    Person& person = people_[below(people_.size())];
    const Group* known = groups_.find(person.group);
    // The peer was lost.
    if (known == nullptr || known->view().membership.find(person.id) == nullptr) {
      std::erase_if(people_, [id = person.id](const Person& one) { return one.id == id; });
      return false;
    }
    Group& group = groups_.touch(person.group);
    if (!person.registered) {
      person.registered = true;
      (void)group.on(person.id, protocol::Register{"", 1000});
    } else if (what == 1) {
      group.give_up(person.id, "so");
    } else if (what == 2) {
      groups_.each([](Group& one) { one.tick(); });
    } else if (what == 3 && person.epoch) {
      const OpKey key = op(static_cast<uint32_t>(below(3)));
      (void)group.on(person.id, protocol::Begin{person.epoch, key, all_reduce(8)});
      return !group.view().epochs.changing() && !group.view().epochs.losing();
    } else if (what < 8) {
      for (const auto& [other, about] : group.view().membership.peers()) {
        if (other == person.id || about.order == 0) continue;
        (void)group.on(person.id, protocol::LinkReport{other, LinkState::kUp, "", ++serial_});
      }
    } else if (person.epoch && !group.view().epochs.recovering()) {
      const auto kind = static_cast<JointKind>(below(20) == 0 ? below(3) : below(2));
      (void)group.on(person.id, protocol::Vote{person.votes, kind, offer(1, {1}), person.epoch});
    }
    return false;
  }
  void come() {
    const PeerId id = context_.new_peer();
    const GroupId group{static_cast<uint32_t>(below(5))};
    people_.push_back({id, {id.value}, group, false, 0, {}});
    connections_.accept({id.value}, "10.0.0.1", false);
    groups_.begin(group).welcome(id, {}, {1 + static_cast<uint32_t>(below(2)), 1});
    connections_.admit({id.value}, id, group, ConnectionPhase::kWelcomed);
  }
  // Ends a step as a core does.
  void settle(bool quiet) {
    groups_.touch_overdue(context_.now);
    watch(quiet);
    for (int round = 0; round < 2 && !quiet; ++round) {
      groups_.each_due(quiet, [](Group& group) { group.advance(); });
      settle_joint_calls(groups_);
      watch(quiet);
    }
    groups_.each_due(quiet, [](Group& group) { group.flush(); });
    groups_.forget(quiet);
    groups_.end_step(quiet);
    for (size_t i = 0; i < seen_.size(); ++i) {
      seen_[i] += !groups_.with(static_cast<Trait>(i)).empty();
    }
    deadlines_ += groups_.deadline().has_value();
  }
  void watch(bool quiet) {
    groups_.refresh();
    groups_.each_due(quiet, [this](Group& group) {
      const bool is_new = group.view().has_members() && group.view().is_new();
      const bool removed = group.watch_newcomers(is_new ? awaited_by_others(groups_) : "");
      if (group.watch_late_members() || removed) groups_.touch(group.id());
      groups_.refresh();
    });
  }
  void hear_effects() {
    const Effects effects = std::exchange(effects_, {});
    for (const Effect& effect : effects) {
      if (const auto* persist = std::get_if<Persist>(&effect)) {
        const auto of = context_.persisting.extract(persist->token);
        if (groups_.find(of.mapped()) == nullptr) continue;
        groups_.touch(of.mapped()).persisted(persist->token);
        settle(false);
      } else if (const auto* send = std::get_if<Send>(&effect)) {
        on(*send);
      }
    }
    if (!effects_.empty()) hear_effects();
  }
  void on(const Send& send) {
    for (Person& person : people_) {
      if (person.connection != send.connection) continue;
      if (const auto* start = std::get_if<protocol::EpochStart>(&send.message)) {
        if (start->epoch == start->generation) person.votes = 0;
        person.epoch = start->epoch;
      } else if (const auto* answer = std::get_if<protocol::Answer>(&send.message)) {
        person.votes = answer->number + 1;
        ++answers_;
      }
    }
  }

  std::mt19937_64 random_;
  Effects effects_;
  Context context_;
  Connections connections_{context_};
  Groups groups_{context_, connections_};
  std::vector<Person> people_;
  uint32_t serial_ = 0;
  std::array<size_t, Groups::kTraits> seen_{};
  size_t deadlines_ = 0, answers_ = 0;
};

TEST(Groups, TheIndexIsWhatALookAtAllGroupsFinds) {
  std::array<size_t, Groups::kTraits> seen{};
  size_t deadlines = 0, answers = 0;
  for (uint64_t seed = 1; seed <= 40 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Walk walk(seed);
    for (int i = 0; i < 400 && !testing::Test::HasFailure(); ++i) {
      walk.step();
      walk.check();
    }
    for (size_t i = 0; i < seen.size(); ++i) seen[i] += walk.seen(static_cast<Trait>(i));
    deadlines += walk.deadlines();
    answers += walk.answers();
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    if (static_cast<Trait>(i) == Trait::kAnnouncing) continue;  // occurs only after restarts
    EXPECT_GT(seen[i], 100u) << "trait " << i;
  }
  EXPECT_GT(deadlines, 100u);
  EXPECT_GT(answers, 100u);
}

TEST(Groups, OnlyWhoIsTouchedIsDueAndOnceMoreInTheNextStep) {
  Effects effects;
  Context context;
  context.effects = &effects;
  Connections connections{context};
  Groups groups{context, connections};
  for (const uint32_t id : {3u, 1u, 2u}) groups.begin({id});
  const auto due = [&groups](bool quiet) {
    std::vector<uint32_t> ids;
    groups.each_due(quiet, [&](Group& group) {
      ids.push_back(group.id().value);
      if (group.id() == GroupId{1}) groups.touch({2});
    });
    return ids;
  };
  using Ids = std::vector<uint32_t>;
  EXPECT_EQ(due(false), (Ids{1, 2, 3}));
  groups.end_step(false);
  EXPECT_EQ(due(true), Ids{}) << "none was touched in this step";
  groups.end_step(true);
  EXPECT_EQ(due(false), (Ids{1, 2, 3})) << "once more";
  groups.end_step(false);
  groups.touch({1});
  EXPECT_EQ(due(true), (Ids{1, 2})) << "2 became due on the way";
  groups.end_step(true);
  EXPECT_EQ(due(false), (Ids{1, 2})) << "a quiet step has not advanced them";
  groups.end_step(false);
  groups.touch({3});
  groups.touch({2});
  EXPECT_EQ(due(false), (Ids{1 + 1, 3}));
  groups.forget(false);
  groups.end_step(false);
  EXPECT_EQ(groups.size(), 1u) << "nobody is in those that were due";
}

// ---- The cost of a step ----

// The number of groups that a core with `groups` groups looks at while `happen` happens to the last
// one.
uint64_t cost(uint32_t groups, const std::function<void(Harness&, uint32_t group)>& happen) {
  Harness h;
  for (uint32_t group = 0; group < groups; ++group) {
    const std::string name = std::to_string(group);
    if (group + 1 == groups) {
      h.found({"a", "b"}, group);
    } else {
      h.found({name}, group);
    }
  }
  const uint64_t before = h.core().view().groups.looked_at();
  happen(h, groups - 1);
  h.take();
  return h.core().view().groups.looked_at() - before;
}

void expect_same_cost(const std::function<void(Harness&, uint32_t group)>& happen) {
  const uint64_t few = cost(10, happen);
  EXPECT_GT(few, 0u);
  EXPECT_EQ(cost(1000, happen), few);
}

TEST(GroupsCost, AnIntroductionDoesNotDependOnHowManyGroupsThereAre) {
  expect_same_cost([](Harness& h, uint32_t group) { h.enlist("c", Harness::hello(2, -1, group)); });
  expect_same_cost([](Harness& h, uint32_t) { h.found({"c", "d"}, 5000); });
}

TEST(GroupsCost, NorDoesWhatAGroupIsAboutToDo) {
  expect_same_cost([](Harness& h, uint32_t group) {
    for (const char* name : {"a", "b"}) {
      h.say(name, protocol::Begin{epoch(group + 1), op(0), all_reduce(8)});
      h.say(name, protocol::Done{epoch(group + 1), op(0), 0});
    }
    for (const char* name : {"a", "b"}) h.vote(name, epoch(group + 1), 0, kSync, offer(1, {1}));
    (void)h.core().deadline();
  });
}

TEST(GroupsCost, NorDoesALossAndAReturn) {
  expect_same_cost([](Harness& h, uint32_t group) {
    h.close("b");
    h.come_back("b", h.resume("b", epoch(group + 1)));
    h.close("b");
    h.say("a", protocol::LinkReport{h.id("b"), LinkState::kDown, "reset", 1});
    h.say("a", protocol::StateReport{epoch(group + 1), {}});
    h.come_back("b", h.resume("b", epoch(group + 1)));  // it is answered with kKicked
    h.say("a", protocol::Leave{});
  });
}

TEST(GroupsCost, AJointCallOfAllGroupsLooksAtAllOnceItIsSettled) {
  const auto votes = [](uint32_t groups) {
    Harness h;
    for (uint32_t group = 0; group < groups; ++group) h.found({std::to_string(group)}, group);
    std::vector<uint64_t> looks;
    for (uint32_t group = 0; group < groups; ++group) {
      const uint64_t before = h.core().view().groups.looked_at();
      h.vote(std::to_string(group), epoch(group + 1), 0);
      looks.push_back(h.core().view().groups.looked_at() - before);
    }
    EXPECT_EQ(h.take().size(), groups);
    return looks;
  };
  const std::vector<uint64_t> of_ten = votes(10), of_many = votes(300);
  EXPECT_EQ(of_many[8], of_ten[8]);
  EXPECT_EQ(of_many[298], of_ten[8]) << "others wait for it";
  EXPECT_GT(of_many[299], 300u);
  EXPECT_LT(of_many[299], 30 * 300u);
}

// ---- Effects beyond one group ----

// The members of the new group do nothing in this test.
TEST(Groups, ANewGroupIsWatchedFromWhenOthersWaitAndNoLonger) {
  Harness h;
  h.found({"a"}, 0);
  h.vote("a", epoch(1), 0);
  h.found({"b"}, 1);
  for (const char* name : {"x", "y"}) h.enlist(name, Harness::hello(3, -1, 2));
  h.take();
  const auto tick = h.core().deadline();
  h.vote("a", epoch(1), 1);
  EXPECT_EQ(h.core().deadline(), h.now() + Probation::kLookAgain);
  h.tick_with({"a", "b", "x", "y"}, 10);
  h.say("a", protocol::JointAbort{1, epoch(1)});
  EXPECT_EQ(h.core().deadline(), h.now() + (*tick - Instant{}));
  h.tick_with({"a", "b", "x", "y"}, 30);
  for (const std::string& line : h.story()) EXPECT_FALSE(contains(line, "Kicked")) << line;
}

TEST(Groups, ADeadlineBetweenTwoTicksIsMet) {
  Harness h;
  protocol::Hello hello = Harness::hello(1);
  hello.settings.first_call_timeout = std::chrono::milliseconds(700);
  h.enlist("a", hello);
  h.vote("a", epoch(1), 0);
  hello.group = {1};
  h.enlist("b", hello);
  h.vote("a", epoch(1), 1);
  h.tick_with({"a", "b"});
  h.story();
  h.be_stopped(std::chrono::milliseconds(200));
  h.step(TimePassed{});
  EXPECT_EQ(h.story(), Lines{}) << "the first look";
  EXPECT_EQ(h.core().deadline(), h.now() + Probation::kLookAgain);
  h.be_stopped(Probation::kLookAgain);
  h.step(TimePassed{});
  const Lines lines = h.story();
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(contains(lines[0], "b < Kicked")) << lines[0];
}

}  // namespace
}  // namespace pccl::master
