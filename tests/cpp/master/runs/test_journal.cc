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
  record.policy = protocol::LossPolicy::kRetry;
  record.pattern = protocol::PatternChoice::kDirect;
  record.peer_timeout_ms = 2500;
  record.first_call_timeout_ms = 700;
  record.call_timeout_ms = 60000;
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

// ---- Versions ----

// Written by the code of version 2: a live run with two members and a shared state, and a run that
// has ended.
constexpr const char* kOfVersion2 =
    "7063636c6a726e6c0200000030e0048d91010000c83ebf3001010000000201000000722a000000000000000800"
    "000031302e302e302e310401000000720300000001c4090000bc02000002000000020000000000000000000000"
    "000000000000000000000000000200000001000000000000000000000000000000000200000001000000020000"
    "00010000000200000001000000010000000a00000031302e302e302e313a3102000000010000000a0000003130"
    "2e302e302e323a3202000000000000000100000000000000000000000100000000000000000000000000000002"
    "00000001000000010000000800000031302e302e302e3100000000000100010000000000000000000000020000"
    "00010000000800000031302e302e302e320105000000622e6e6574020004000000000000000800000061206c61"
    "756e6368050100000072030000000500000000000000bc0a0000000000000204000000646f6e652c0000000000"
    "00000d000000323030313a6462383a3a2f36340504000000646f6e650300000007000000000000002301000000"
    "0000000604000000646f6e650081246900000000";

// Written by the code of version 3: the same, and the second member has another address.
constexpr const char* kOfVersion3 =
    "7063636c6a726e6c03000000302e312e300000000000000000000000e7d2570d05000000170349570101000000"
    "1c000000dce3bb1a0201000000722a000000000000000800000031302e302e302e3108001e01000083da34a404"
    "01000000720300000001c4090000bc020000030000000200000000000000000000000000000000000000000000"
    "000002000000010000000000000000000000000000000002000000010000000200000001000000020000000100"
    "0000010000000a00000031302e302e302e313a3102000000010000000a00000031302e302e302e323a32020000"
    "000000000001000000000000000000000001000000000000000000000000000000020000000100000001000000"
    "0800000031302e302e302e31000000000001000100000000000000000000000000000002000000010000000800"
    "000031302e302e302e320105000000622e6e6574020004000000000000000800000061206c61756e6368010000"
    "000800000031302e392e302e3205001a000000179678d8050100000072030000000500000000000000bc0a0000"
    "0000000024000000d6aebb0d0204000000646f6e652c000000000000000d000000323030313a6462383a3a2f36"
    "3408001d000000d89e1c2e0504000000646f6e65030000000700000000000000230100000000000011000000ec"
    "3cb9a20604000000646f6e650081246900000000";

// Written by the code of version 4: the same, and the second member has a name.
constexpr const char* kOfVersion4 =
    "7063636c6a726e6c04000000302e312e3000000000000000000000002082076c05000000170349570101000000"
    "1c000000b36614a60201000000722a000000000000000800000031302e302e302e310c00380100008c95689504"
    "01000000720300000001c4090000bc020000030000000200000000000000000000000000000000000000000000"
    "000002000000010000000000000000000000000000000002000000010000000200000001000000020000000100"
    "0000010000000a00000031302e302e302e313a310000000002000000010000000a00000031302e302e302e323a"
    "3205000000746f6b796f0200000000000000010000000000000000000000010000000000000000000000000000"
    "000200000001000000010000000800000031302e302e302e310000000000010001000000000000000000000000"
    "0000000000000002000000010000000800000031302e302e302e320105000000622e6e65740200040000000000"
    "00000800000061206c61756e6368010000000800000031302e392e302e32050005000000746f6b796f1a000000"
    "179678d8050100000072030000000500000000000000bc0a00000000000024000000ba358a930204000000646f"
    "6e652c000000000000000d000000323030313a6462383a3a2f36340c001d000000d89e1c2e0504000000646f6e"
    "65030000000700000000000000230100000000000011000000ec3cb9a20604000000646f6e6500812469000000"
    "00";

// Written by the code of version 5: the same, and the second member has a token.
constexpr const char* kOfVersion5 =
    "7063636c6a726e6c05000000302e312e30000000000000000000000022687b2f05000000170349570101000000"
    "1c000000b36614a60201000000722a000000000000000800000031302e302e302e310c004e01000066c8fba804"
    "01000000720300000001c4090000bc020000030000000200000001000000010000000000000000000000000000"
    "000002000000010000000000000000000000000000000002000000010000000200000001000000020000000100"
    "0000010000000a00000031302e302e302e313a310000000002000000010000000a00000031302e302e302e323a"
    "3205000000746f6b796f0200000000000000010000000000000000000000010000000000000000000000000000"
    "000200000001000000010000000800000031302e302e302e310000000000010001000000000000000000000000"
    "000000000000000002000000010000000800000031302e302e302e320105000000622e6e657402000400000000"
    "0000000800000061206c61756e6368010000000800000031302e392e302e32050005000000746f6b796f010900"
    "0000746f6b656e3030303203000000626f621a000000179678d8050100000072030000000500000000000000bc"
    "0a00000000000024000000ba358a930204000000646f6e652c000000000000000d000000323030313a6462383a"
    "3a2f36340c001d000000d89e1c2e0504000000646f6e6503000000070000000000000023010000000000001100"
    "0000ec3cb9a20604000000646f6e650081246900000000";

// Written by the code of version 6: the same, and the pattern is direct, with shares.
constexpr const char* kOfVersion6 =
    "7063636c6a726e6c06000000302e312e300000000000000000000000c4c4b9ef050000001703495701010000"
    "001c000000f329111b0201000000722a000000000000000800000031302e302e302e310d005701000061cef3"
    "5e0401000000720300000001c4090000bc020000030000000200000001000000010000000000000000000000"
    "0000000000020000000100000000000000000000000000000000020000000100000002000000010000000200"
    "000001000000010000000a00000031302e302e302e313a310000000002000000010000000a00000031302e30"
    "2e302e323a3205000000746f6b796f0200000000000000010000000000000000000000010000000000000000"
    "0000000000000002000000c80038000200000001000000010000000800000031302e302e302e310000000000"
    "010001000000000000000000000000000000000000000002000000010000000800000031302e302e302e3201"
    "05000000622e6e6574020004000000000000000800000061206c61756e6368010000000800000031302e392e"
    "302e32050005000000746f6b796f0109000000746f6b656e3030303203000000626f62021a000000179678d8"
    "050100000072030000000500000000000000bc0a000000000000240000005ada34810204000000646f6e652c"
    "000000000000000d000000323030313a6462383a3a2f36340d001d000000d89e1c2e0504000000646f6e6503"
    "0000000700000000000000230100000000000011000000ec3cb9a20604000000646f6e650081246900000000";

Bytes from_hexadecimal(const std::string& digits) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

void expect_read(const Bytes& file, uint16_t protocol_version, const std::vector<Endpoint>& others,
                 const std::string& name, const std::optional<Holder>& holder = {},
                 const std::vector<uint16_t>& shares = {}) {
  auto replayed = journal::replay(file);
  ASSERT_TRUE(replayed.ok()) << replayed.status().message;
  EXPECT_EQ(replayed.value().bytes, file.size());
  const Memory& memory = replayed.value().memory;
  EXPECT_EQ(memory.incarnation, 1u);
  ASSERT_EQ(memory.runs.size(), 2u);
  const RunRecord& run = memory.runs.at("r");
  EXPECT_EQ(run.run_id, 42u);
  EXPECT_EQ(run.version, protocol_version);
  ASSERT_TRUE(run.memberships.contains({3}));
  ASSERT_EQ(run.memberships.at({3}).members.size(), 2u);
  MemberRecord second = membership(2).members[1];
  second.peer = peer_id(2);
  second.others = others;
  second.name = name;
  second.holder = holder;
  EXPECT_EQ(run.memberships.at({3}).members[1], second);
  EXPECT_EQ(run.memberships.at({3}).start.members[1].name, name);
  EXPECT_EQ(run.memberships.at({3}).pattern,
            shares.empty() ? protocol::PatternChoice::kAny : protocol::PatternChoice::kDirect);
  EXPECT_EQ(run.memberships.at({3}).call_timeout_ms, 0u);
  EXPECT_EQ(run.memberships.at({3}).start.shares, shares);
  EXPECT_EQ(run.memberships.at({3}).start.direct, protocol::DirectSizes{}) << "all sizes";
  EXPECT_EQ(run.shared_states.at({3}), (SharedStateRecord{{3}, 5, 0xabc}));
  EXPECT_EQ(memory.runs.at("done").ended, 1764000000);
  EXPECT_EQ(journal::replay(journal::compacted(memory)).value().memory, memory);
}

TEST(Journal, OnesOfEarlierVersionsAreRead) {
  expect_read(from_hexadecimal(kOfVersion2), 7, {}, "");  // as all runs of masters that wrote it
  expect_read(from_hexadecimal(kOfVersion3), 8, {{"10.9.0.2", 5}}, "");
  expect_read(from_hexadecimal(kOfVersion4), 12, {{"10.9.0.2", 5}}, "tokyo");
  expect_read(from_hexadecimal(kOfVersion5), 12, {{"10.9.0.2", 5}}, "tokyo",
              Holder{"token0002", "bob"});
  expect_read(from_hexadecimal(kOfVersion6), 13, {{"10.9.0.2", 5}}, "tokyo",
              Holder{"token0002", "bob"}, {200, 56});
}

// A header with this version and release, and the right checksum.
Bytes file_of(uint8_t version, const std::string& release) {
  Bytes file = journal::header();
  file[8] = static_cast<std::byte>(version);
  std::fill_n(file.begin() + 12, 16, std::byte{0});
  for (size_t i = 0; i < release.size(); ++i) file[12 + i] = static_cast<std::byte>(release[i]);
  if (version < 3) file.resize(16);
  const uint32_t sum = net::checksum(std::span(file).first(file.size() - 4));
  std::memcpy(file.data() + file.size() - 4, &sum, sizeof sum);
  return file;
}

TEST(Journal, OneOfAnotherVersionIsRefusedWithTheReleaseThatReadsIt) {
  const auto why = [](const Bytes& file) {
    auto replayed = journal::replay(file);
    return replayed.ok() ? std::string() : replayed.status().message;
  };
  const std::string here = "this pccl " + std::string(protocol::kRelease);
  EXPECT_EQ(why(file_of(7, "0.1.0")), "");
  EXPECT_EQ(why(file_of(8, "12.34.56")), "is of version 8, which pccl 12.34.56 reads, and " + here +
                                             " does not: go on with that release");
  EXPECT_EQ(why(file_of(8, "0.2\n")), "is of version 8, which pccl 0.2\\n reads, and " + here +
                                          " does not: go on with that release");
  EXPECT_EQ(why(file_of(1, "")),
            "is of version 1, which a pccl from before its first release "
            "reads, and " +
                here + " does not: go on with that release");
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
