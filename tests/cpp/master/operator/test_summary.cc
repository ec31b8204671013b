#include "master/operator/summary.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

RunRecord run_with(size_t members, std::vector<std::pair<uint32_t, uint64_t>> revisions) {
  RunRecord run;
  MembershipRecord& group = run.memberships[GroupId{}];
  group.members.resize(members);
  for (const auto& [id, revision] : revisions) {
    run.shared_states[GroupId{id}] = {GroupId{id}, revision, 1};
  }
  return run;
}

Lines summary_of(const Memory& memory) { return summary(memory, protocol::kSpoken); }

TEST(Summary, AMasterWithoutRuns) { EXPECT_EQ(summary_of({}), (Lines{"it knows no runs so far"})); }

TEST(Summary, NamesRunsMembersAndRevisions) {
  Memory memory;
  memory.runs["day"] = run_with(2, {{0, 7}});
  memory.runs["day"].ended = 1000;
  memory.runs["night"] = run_with(3, {{0, 120}});
  memory.runs["new"] = run_with(1, {});
  memory.runs["two"] = run_with(2, {{0, 5}, {3, 6}});
  memory.runs["two"].memberships[GroupId{3}].members.resize(2);
  EXPECT_EQ(summary_of(memory),
            (Lines{"it knows 4 runs: 3 going on with 8 members, 1 finished",
                   "run \"new\": 1 member may come back, no shared state",
                   "run \"night\": 3 members may come back, shared state at revision 120",
                   "run \"two\": 4 members may come back, shared states: group 0 at revision 5, "
                   "group 3 at revision 6",
                   "run \"day\": finished, shared state at revision 7"}));
}

TEST(Summary, ARunOfAVersionThatIsNotSpokenHasEnded) {
  Memory memory;
  memory.runs["old"] = run_with(2, {{0, 7}});
  memory.runs["old"].version = protocol::kSpoken.lowest - 1;
  EXPECT_EQ(summary_of(memory), (Lines{"it knows 1 run: 0 going on with 0 members, 1 finished",
                                       "run \"old\": finished, shared state at revision 7"}));
}

TEST(Summary, ALongListIsCounted) {
  Memory memory;
  for (size_t i = 0; i < kRunsSummedUp + 2; ++i) {
    const std::string name = (i < 10 ? "0" : "") + std::to_string(i);
    memory.runs[name] = run_with(1, {});
  }
  std::vector<std::pair<uint32_t, uint64_t>> revisions;
  for (uint32_t group = 0; group < kGroupsSummedUp + 1; ++group) revisions.emplace_back(group, 1);
  memory.runs["00"] = run_with(1, revisions);
  const Lines lines = summary_of(memory);
  ASSERT_EQ(lines.size(), 1 + kRunsSummedUp + 1);
  EXPECT_TRUE(lines[0].starts_with("it knows 22 runs: 22 going on with 22 members")) << lines[0];
  EXPECT_EQ(lines[1],
            "run \"00\": 1 member may come back, shared states: group 0 at revision 1, group 1 at "
            "revision 1, group 2 at revision 1, group 3 at revision 1, and 1 more group");
  EXPECT_EQ(lines.back(), "and 2 more runs: `pccl runs` lists them all");
}

}  // namespace
}  // namespace pccl::master
