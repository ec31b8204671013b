#include "master/runs/journal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "csrc/net/checksum.h"
#include "csrc/protocol/wire.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using Bytes = std::vector<std::byte>;

MembershipRecord membership(uint32_t counter) {
  MembershipRecord record;
  record.group = {3};
  record.settings = {.on_peer_loss = protocol::LossPolicy::kRetry,
                     .pattern = protocol::PatternChoice::kDirect,
                     .peer_timeout = std::chrono::milliseconds(2500),
                     .first_call_timeout = std::chrono::milliseconds(700),
                     .call_timeout = std::chrono::seconds(60)};
  record.founders = 3;
  record.min_peers = 2;
  record.previous = {epoch(counter - 1), 7, {committed(7), aborted(8, "they differ")}, {}};
  record.previous.end = protocol::EpochEnd{
      epoch(counter - 1), {}, {op(9)}, "b lost", protocol::Continuation::kKept, {{op(8), 77}}};
  record.current = {epoch(counter), 0, {}, {}};
  record.start.epoch = record.start.generation = epoch(counter);
  record.start.members = {{kA, "10.0.0.1:1", ""}, {kB, "10.0.0.2:2", "tokyo"}};
  record.start.ring = {0, 1};
  record.start.shares = {200, 56};
  record.start.direct = {1000, 5'000'000'000};
  record.members = {{kA, "10.0.0.1", false, "", 1, 1, "", {}, ""},
                    {kB, "10.0.0.2", true, "b.net", 2, 4, "a launch", {{"10.9.0.2", 5}}, "tokyo"}};
  record.members[1].holder = Holder{"token0002", "bob"};
  return record;
}

std::vector<Entry> story() {
  return {Started{1},
          RunOpened{"r", 42, "10.0.0.1", 12},
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

Memory announced() {
  Memory memory;
  memory.incarnation = 9;
  memory.runs["r"] = {42, {{{3}, membership(3)}}, {{{3}, {{3}, 6, 0xdef}}}, "10.0.0.1", {}, 12};
  memory.runs["done"] = {44, {}, {{{3}, {{3}, 7, 0x123}}}, "2001:db8::/64", 1764000000};
  return memory;
}

// A journal file with one frame per entry.
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
  EXPECT_EQ(replayed.value().memory, announced());
  EXPECT_EQ(replayed.value().bytes, file.size());
}

TEST(Journal, AFrameMayHoldManyAndACompactedOneSaysTheSame) {
  Bytes file = journal::header();
  journal::append(story(), file);
  EXPECT_EQ(journal::replay(file).value().memory, announced());
  const Bytes compacted = journal::compacted(announced());
  EXPECT_LT(compacted.size(), file.size());
  EXPECT_EQ(journal::replay(compacted).value().memory, announced());
}

TEST(Journal, AWriteThatWasCutOffDoesNotCount) {
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
    EXPECT_EQ(replayed.value().memory, announced());
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

// ---- The compact form ----

TEST(Journal, ACompactFormThatWasCutOffIsRefused) {
  const Bytes whole = journal::compacted(announced());
  const size_t head = journal::header().size();
  ASSERT_GT(whole.size(), head);
  for (size_t size = 1; size < whole.size(); ++size) {
    auto replayed = journal::replay(std::span(whole).first(size));
    ASSERT_FALSE(replayed.ok()) << "cut at " << size;
    const size_t bytes_min = size < head ? head : whole.size();
    EXPECT_EQ(replayed.status().message, "was cut off: it has " + std::to_string(size) +
                                             " bytes, and it had at least " +
                                             std::to_string(bytes_min) + " when it was made");
  }
}

TEST(Journal, ACompactFormOfSeveralPiecesThatWasCutOffIsRefused) {
  Memory memory;
  for (uint64_t id = 0; id < 1000; ++id)
    memory.runs["r" + std::to_string(id)] = {id, {{{3}, membership(2)}}, {}, "10.0.0.1", {}, 12};
  std::vector<size_t> ends;  // of the pieces
  Bytes whole;
  journal::compact(memory, [&](const Bytes& piece) {
    whole.insert(whole.end(), piece.begin(), piece.end());
    ends.push_back(whole.size());
  });
  ASSERT_GT(ends.size(), 3u);
  EXPECT_EQ(journal::replay(whole).value().memory, memory);
  ends.pop_back();
  for (const size_t end : ends)
    EXPECT_FALSE(journal::replay(std::span(whole).first(end)).ok()) << "cut at " << end;
}

TEST(Journal, AWriteBehindTheCompactFormMayBeCutOff) {
  const Bytes compact = journal::compacted(announced());
  Bytes file = compact;
  journal::append({RunForgotten{"r"}}, file);
  for (size_t size = compact.size(); size < file.size(); ++size) {
    auto replayed = journal::replay(std::span(file).first(size));
    ASSERT_TRUE(replayed.ok()) << replayed.status().message;
    EXPECT_EQ(replayed.value().memory, announced()) << "cut at " << size;
    EXPECT_EQ(replayed.value().bytes, compact.size());
  }
  EXPECT_FALSE(journal::replay(file).value().memory.runs.contains("r"));
}

TEST(Journal, AChangedByteOfTheCompactFormIsDamage) {
  const Bytes good = journal::compacted(announced());
  for (size_t at = 0; at < good.size(); ++at) {
    Bytes file = good;
    file[at] ^= std::byte{0x40};
    EXPECT_FALSE(journal::replay(file).ok()) << "byte " << at << " went unnoticed";
  }
}

// ---- Other files ----

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
  EXPECT_EQ(why(file), "");
  file[8] ^= std::byte{1};
  EXPECT_TRUE(contains(why(file), "its header has another checksum")) << why(file);
}

// ---- Versions ----

// A header with this version and release, and the right checksum.
Bytes file_of(uint8_t version, const std::string& release) {
  Bytes file = journal::header();
  file[8] = static_cast<std::byte>(version);
  std::fill_n(file.begin() + 12, 16, std::byte{0});
  for (size_t i = 0; i < release.size(); ++i) file[12 + i] = static_cast<std::byte>(release[i]);
  const uint32_t sum = net::checksum(std::span(file).first(28));
  std::memcpy(file.data() + 28, &sum, sizeof sum);
  return file;
}

TEST(Journal, OneOfAnotherVersionIsRefusedWithTheReleaseThatReadsIt) {
  const auto why = [](const Bytes& file) {
    auto replayed = journal::replay(file);
    return replayed.ok() ? std::string() : replayed.status().message;
  };
  const std::string here = "this pccl " + std::string(protocol::kRelease);
  EXPECT_EQ(why(file_of(9, "0.1.0")), "");
  EXPECT_EQ(why(file_of(10, "12.34.56")), "is of version 10, which pccl 12.34.56 reads, and " +
                                              here + " does not: go on with that release");
  Bytes short_one = file_of(10, "12.34.56");
  short_one.resize(32);  // the part that all versions have
  EXPECT_TRUE(why(short_one).starts_with("is of version 10, which pccl 12.34.56 reads"));
  EXPECT_EQ(why(file_of(8, "0.1\n")), "is of version 8, which pccl 0.1\\n reads, and " + here +
                                          " does not: go on with that release");
}

// ---- Tokens of members ----

// A journal of `membership(2)`, in which the token and the name of its second member are these.
Bytes with_holder(const std::string& token, const std::string& name) {
  const auto text = [](const std::string& content) {
    Bytes bytes;
    protocol::Writer{bytes}(protocol::bounded(content, content.size()));
    return bytes;
  };
  Bytes file = journal::header();
  const size_t header_bytes = file.size();
  journal::append({RunOpened{"r", 42, ""}, RunRecorded{"r", membership(2)}}, file);
  Bytes payload(file.begin() + static_cast<std::ptrdiff_t>(header_bytes + 8), file.end());
  for (const auto& [from, to] :
       {std::pair(text("token0002"), text(token)), std::pair(text("bob"), text(name))}) {
    const auto at = std::search(payload.begin(), payload.end(), from.begin(), from.end());
    EXPECT_NE(at, payload.end());
    const auto rest = payload.erase(at, at + static_cast<std::ptrdiff_t>(from.size()));
    payload.insert(rest, to.begin(), to.end());
  }
  Bytes frame;
  protocol::Writer{frame}(static_cast<uint32_t>(payload.size()));
  net::Checksum sum;
  sum.add(frame);
  sum.add(payload);
  protocol::Writer{frame}(sum.value());
  file.resize(header_bytes);
  file.insert(file.end(), frame.begin(), frame.end());
  file.insert(file.end(), payload.begin(), payload.end());
  return file;
}

TEST(Journal, TheTokenOfAMemberIsOneThatAKeyringCanHave) {
  const auto why = [](const std::string& token, const std::string& name) {
    auto replayed = journal::replay(with_holder(token, name));
    if (!replayed.ok()) return replayed.status().message;
    const Memory& memory = replayed.value().memory;
    EXPECT_EQ(memory.runs.at("r").memberships.at({3}).members[1].holder, (Holder{token, name}));
    return std::string();
  };
  using std::string;
  EXPECT_EQ(why("token0002", "bob"), "");
  EXPECT_EQ(why(string(16, '0'), string(protocol::kNameBytesMax, 'n')), "");
  const string at = "is damaged at byte " + std::to_string(journal::header().size()) + ": ";
  const string unreal = at + "a member with a token that no keyring can have";
  EXPECT_EQ(why("token02", "bob"), unreal);
  EXPECT_EQ(why("TOKEN0002", "bob"), unreal);
  EXPECT_EQ(why("", "bob"), unreal);
  EXPECT_EQ(why("token0002", ""), unreal);
  EXPECT_EQ(why(string(17, '0'), "bob"), at + "a text of 17, at most 16");
  EXPECT_EQ(why("token0002", string(protocol::kNameBytesMax + 1, 'n')),
            at + "a text of 65, at most 64");
  EXPECT_EQ(why("token0002", "b\nb"), at + "a name with characters that cannot be shown: b\\nb");
}

TEST(Journal, SettingsThatNoRunCanHaveAreDamage) {
  MembershipRecord record = membership(2);
  record.settings.peer_timeout = Duration{0};
  Bytes file = journal::header();
  const std::string at = "is damaged at byte " + std::to_string(file.size()) + ": ";
  journal::append({RunOpened{"r", 42, ""}, RunRecorded{"r", record}}, file);
  auto replayed = journal::replay(file);
  ASSERT_FALSE(replayed.ok());
  EXPECT_TRUE(replayed.status().message.starts_with(at + "peer_timeout is 0 ms, allowed are"))
      << replayed.status().message;
}

// Reading any bytes gives either a memory or an error text.
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
