#include "master/state/resumption.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

TEST(Resumption, IsARevisionAndAHashInHexadecimal) {
  const auto where = parse_resumption("120:00c0ffee00c0ffee");
  ASSERT_TRUE(where);
  EXPECT_EQ(where->revision, 120u);
  EXPECT_EQ(where->hash, 0x00c0ffee00c0ffeeu);
  EXPECT_EQ(parse_resumption("0:0xAB")->hash, 0xabu);
  for (const char* wrong : {"", ":", "1", "1:", ":1", "-1:a", "1:g", "1:a:b", "1 :a", "1:0x",
                            "99999999999999999999:1", "1:1ffffffffffffffff"}) {
    EXPECT_FALSE(parse_resumption(wrong)) << wrong;
  }
}

TEST(Resumption, ReplacesTheStateAndEndsTheMembership) {
  Memory memory;
  MembershipRecord record;
  record.members = {{kA, "", false, "", 1, 1, "", {}, ""}};
  memory.runs["r"] = {42, {{{0}, record}}, {{{0}, {{0}, 200, 1}}}};
  auto entries = resume_from(memory, {120, 7, "", {0}}, 99);
  ASSERT_TRUE(entries.ok());
  for (const Entry& entry : entries.value()) memory.apply(entry);
  EXPECT_EQ(memory.runs["r"].run_id, 42u);
  EXPECT_TRUE(memory.runs["r"].memberships[{0}].members.empty());
  EXPECT_EQ(memory.runs["r"].shared_states[{0}], (SharedStateRecord{{0}, 120, 7}));
}

TEST(Resumption, NeedsANameUnlessThereIsOneRun) {
  Memory memory;
  EXPECT_TRUE(contains(resume_from(memory, {1, 1, "", {0}}, 9).status().message, "knows no run"));
  auto entries = resume_from(memory, {1, 1, "new", {2}}, 9);
  ASSERT_TRUE(entries.ok());
  for (const Entry& entry : entries.value()) memory.apply(entry);
  EXPECT_EQ(memory.runs["new"].run_id, 9u);
  EXPECT_EQ(memory.runs["new"].shared_states[{2}].revision, 1u);
  memory.runs["other"] = {};
  const auto unclear = resume_from(memory, {1, 1, "", {0}}, 9);
  EXPECT_TRUE(contains(unclear.status().message, "the runs new, other"))
      << unclear.status().message;
}

}  // namespace
}  // namespace pccl::master
