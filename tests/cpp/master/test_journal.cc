#include "master/journal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using Bytes = std::vector<std::byte>;

MembershipRecord membership(uint32_t counter) {
  MembershipRecord record;
  record.group = {3};
  record.policy = protocol::LossPolicy::kRetry;
  record.peer_timeout_ms = 2500;
  record.first_call_timeout_ms = 700;
  record.founders = 3;
  record.min_peers = 2;
  record.previous = {epoch(counter - 1), 7, {committed(7), aborted(8, "they differ")}, {}};
  record.previous.end = protocol::EpochEnd{epoch(counter - 1),      {},           {op(9)}, "b lost",
                                           protocol::GoesOn::kKept, {{op(8), 77}}};
  record.current = {epoch(counter), 0, {}, {}};
  record.start.epoch = record.start.generation = epoch(counter);
  record.start.members = {{kA, "10.0.0.1:1"}, {kB, "10.0.0.2:2"}};
  record.start.ring = {0, 1};
  record.members = {{kA, "10.0.0.1", false, "", 1, 1, ""},
                    {kB, "10.0.0.2", true, "b.net", 2, 4, "a launch"}};
  return record;
}

std::vector<Entry> story() {
  return {Started{1},
          RunOpened{"r", 42, "10.0.0.1"},
          RunRecorded{"r", membership(2)},
          RunRecorded{"r", SharedStateRecord{{3}, 5, 0xabc}},
          RunOpened{"gone", 43, "10.0.0.1"},
          RunForgotten{"gone"},
          RunOpened{"done", 44, "2001:db8::/64"},
          RunRecorded{"done", membership(2)},
          RunRecorded{"done", SharedStateRecord{{3}, 7, 0x123}},
          RunFinished{"done", 1764000000},
          Started{9},
          RunRecorded{"r", membership(3)},
          RunRecorded{"r", SharedStateRecord{{3}, 6, 0xdef}}};
}

Memory told() {
  Memory memory;
  memory.incarnation = 9;
  memory.runs["r"] = {42, {{{3}, membership(3)}}, {{{3}, {{3}, 6, 0xdef}}}, "10.0.0.1", {}};
  memory.runs["done"] = {44, {}, {{{3}, {{3}, 7, 0x123}}}, "2001:db8::/64", 1764000000};
  return memory;
}

// One frame per entry.
Bytes written(const std::vector<Entry>& entries) {
  Bytes file = journal::header();
  for (const Entry& entry : entries) journal::append({entry}, file);
  return file;
}

TEST(Journal, AGroupWithoutMembersLeavesNothing) {
  Memory memory;
  memory.apply(RunOpened{"r", 1, ""});
  memory.apply(RunRecorded{"r", membership(2)});
  EXPECT_EQ(memory.runs["r"].memberships.size(), 1u);
  MembershipRecord nobody = membership(3);
  nobody.members.clear();
  memory.apply(RunRecorded{"r", nobody});
  EXPECT_TRUE(memory.runs["r"].memberships.empty());
}

TEST(Journal, RemembersTheLastOfEachKind) {
  const Bytes file = written(story());
  auto replayed = journal::replay(file);
  ASSERT_TRUE(replayed.ok()) << replayed.status().message;
  EXPECT_EQ(replayed.value().memory, told());
  EXPECT_EQ(replayed.value().bytes, file.size());
}

TEST(Journal, AFrameMayHoldManyAndACompactedOneSaysTheSame) {
  Bytes file = journal::header();
  journal::append(story(), file);
  EXPECT_EQ(journal::replay(file).value().memory, told());
  const Bytes compacted = journal::compacted(told());
  EXPECT_LT(compacted.size(), file.size());
  EXPECT_EQ(journal::replay(compacted).value().memory, told());
}

TEST(Journal, OfAWriteThatWasCutOffNothingCounts) {
  const std::vector<Entry> entries = story();
  for (size_t count = 0; count < entries.size(); ++count) {
    const std::vector<Entry> before(entries.begin(), entries.begin() + count);
    const Bytes good = written(before);
    Bytes file = good;
    journal::append({entries[count]}, file);
    const Memory expected = journal::replay(good).value().memory;
    for (size_t size = good.size(); size < file.size(); ++size) {
      auto replayed = journal::replay(std::span(file).first(size));
      ASSERT_TRUE(replayed.ok()) << replayed.status().message;
      ASSERT_EQ(replayed.value().memory, expected) << "cut at " << size;
      ASSERT_EQ(replayed.value().bytes, good.size());
    }
  }
}

TEST(Journal, GarbageAtTheEndIsATornWrite) {
  const Bytes good = written(story());
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    Bytes file = good;
    file.resize(good.size() + 1 + random() % 300);
    if (i % 2 == 0) {
      std::generate(file.begin() + static_cast<std::ptrdiff_t>(good.size()), file.end(),
                    [&] { return static_cast<std::byte>(random()); });
    }
    auto replayed = journal::replay(file);
    ASSERT_TRUE(replayed.ok()) << replayed.status().message;
    EXPECT_EQ(replayed.value().bytes, good.size());
    EXPECT_EQ(replayed.value().memory, told());
  }
}

TEST(Journal, DamageBeforeTheLastWriteIsSaidWithItsPlace) {
  const Bytes first = written({Started{1}});
  Bytes file = written(story());
  file[first.size() + 9] ^= std::byte{1};  // in the second frame
  auto replayed = journal::replay(file);
  ASSERT_FALSE(replayed.ok());
  EXPECT_TRUE(
      contains(replayed.status().message, "is damaged at byte " + std::to_string(first.size())))
      << replayed.status().message;
}

TEST(Journal, AnotherFileIsRefused) {
  const auto why = [](const Bytes& file) {
    auto replayed = journal::replay(file);
    return replayed.ok() ? std::string() : replayed.status().message;
  };
  EXPECT_EQ(why(Bytes{}), "");
  Bytes text(100, std::byte{'x'});
  EXPECT_EQ(why(text), "is not a journal of pccl");
  EXPECT_EQ(why(Bytes(3, std::byte{'x'})), "is not a journal of pccl");
  Bytes file = journal::header();
  const Bytes torn(file.begin(), file.begin() + 11);
  EXPECT_EQ(why(torn), "") << "the very first write was cut off";
  file[8] ^= std::byte{1};
  EXPECT_TRUE(contains(why(file), "its header has another checksum")) << why(file);
}

// Whatever the bytes are, reading them ends in a memory or in words.
TEST(Journal, AnyChangedByteIsFoundOrIsInTheLastFrame) {
  const Bytes good = written(story());
  for (size_t at = 0; at < good.size(); ++at) {
    Bytes file = good;
    file[at] ^= std::byte{0x40};
    auto replayed = journal::replay(file);
    if (replayed.ok()) {
      EXPECT_LT(replayed.value().bytes, good.size()) << "byte " << at << " went unnoticed";
    }
  }
}

}  // namespace
}  // namespace pccl::master
