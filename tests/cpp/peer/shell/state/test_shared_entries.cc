#include "csrc/peer/shell/state/shared_entries.h"

#include <gtest/gtest.h>

#include <cstring>

#include "csrc/memory/state_hash.h"
#include "tests/cpp/change_list.h"
#include "tests/cpp/peer/shell/device_memory.h"

namespace pccl::peer {
namespace {

class SharedEntriesTest : public testing::Test {
 protected:
  StateSpan entry(const std::string& key, std::vector<float>& values) {
    return {key,
            DType::kFloat32,
            {static_cast<int64_t>(values.size())},
            std::as_writable_bytes(std::span(values))};
  }
  std::string refusal(std::vector<StateSpan> entries) {
    const auto made = SharedEntries::make(std::move(entries), {});
    EXPECT_FALSE(made.ok());
    if (made.ok()) return "";
    EXPECT_EQ(made.status().code, Code::kInvalidArgument);
    return made.status().message;
  }
  std::vector<float> a = std::vector<float>(4, 1.0f), b = std::vector<float>(8, 2.0f), none;
};

TEST_F(SharedEntriesTest, TheOfferIsSortedAndHashed) {
  const auto entries =
      SharedEntries::make({entry("b", b), entry("a", a), entry("", none)}, {}).value();
  const auto& offered = entries->offer().entries;
  ASSERT_EQ(offered.size(), 3u);
  EXPECT_EQ(offered[0].key, "");
  EXPECT_EQ(offered[1].key, "a");
  EXPECT_EQ(offered[2].shape, std::vector<int64_t>{8});
  EXPECT_EQ(offered[2].hash, memory::state_hash(reinterpret_cast<const std::byte*>(b.data()), 32));
}

// A plan for some keys of these entries, which elects the given hashes.
BeginPieces plan(const SharedEntries& entries, const std::vector<uint32_t>& keys,
                 const std::vector<uint64_t>& hashes = {}) {
  BeginPieces begin;
  begin.plan.entries = entries.offer().entries;
  begin.plan.keys = keys;
  change_list(begin.plan.entries, [&](auto& elected) {
    for (size_t i = 0; i < hashes.size(); ++i) elected[keys[i]].hash = hashes[i];
  });
  return begin;
}
OpKey op(uint32_t number = 0) { return {tag_id("state"), number}; }
uint64_t hash_of_values(const std::vector<float>& values) {
  return memory::state_hash(reinterpret_cast<const std::byte*>(values.data()), 4 * values.size());
}

TEST_F(SharedEntriesTest, ReceivedDataStaysApartUntilItIsInstalled) {
  const auto entries =
      SharedEntries::make({entry("a", a), entry("b", b), entry("none", none)}, {}).value();
  const std::vector<float> fresh(8, 5.0f);
  const uint64_t nothing = memory::state_hash(nullptr, 0);
  entries->begin(plan(*entries, {1, 2}, {hash_of_values(fresh), nothing}));
  const auto span = entries->lend(op(), {true, 0}).value();
  ASSERT_EQ(span.size(), 32u);
  EXPECT_NE(static_cast<void*>(span.data()), b.data());
  std::memset(span.data(), 0, 32);
  EXPECT_EQ(entries->check(op(), 0).status.message,
            "entry \"b\" arrived with another hash than was agreed on: its owner changed it during "
            "the call");
  std::memcpy(span.data(), fresh.data(), 32);
  EXPECT_EQ(entries->check(op(), 0).status, Status{});
  EXPECT_EQ(b, std::vector<float>(8, 2.0f));
  EXPECT_EQ(entries->install({1, 2}), Status{});
  EXPECT_EQ(b, fresh);
  EXPECT_EQ(a, std::vector<float>(4, 1.0f));
  EXPECT_EQ(entries->bytes_received(), 32u);
  EXPECT_EQ(entries->bytes_sent(), 0u);
}

TEST_F(SharedEntriesTest, InPlaceAPieceOfOneEntryIsReceivedInTheTensor) {
  const auto entries =
      SharedEntries::make({entry("a", a), entry("b", b)}, {.in_place = true}).value();
  entries->begin(plan(*entries, {1}, {1}));
  EXPECT_EQ(static_cast<void*>(entries->lend(op(), {true, 0}).value().data()), b.data());
  b.assign(8, 5.0f);
  entries->begin(plan(*entries, {1}, {hash_of_values(b)}));
  EXPECT_EQ(entries->check(op(), 0).status, Status{});
  EXPECT_EQ(entries->install({1}), Status{});
}

TEST_F(SharedEntriesTest, OnlyWhatThisPeerLacksIsInstalled) {
  const auto entries = SharedEntries::make({entry("a", a), entry("b", b)}, {}).value();
  entries->begin(plan(*entries, {0, 1}));
  const auto span = entries->lend(op(), {true, 0}).value();
  ASSERT_EQ(span.size(), 48u);
  std::memset(span.data(), 0, 48);
  EXPECT_EQ(entries->install({1}), Status{});
  EXPECT_EQ(b, std::vector<float>(8, 0.0f));
  EXPECT_EQ(a, std::vector<float>(4, 1.0f));
}

TEST_F(SharedEntriesTest, OneEntryIsSentFromItsTensorAndSeveralFromACopy) {
  const auto entries = SharedEntries::make({entry("a", a), entry("b", b)}, {}).value();
  entries->begin(plan(*entries, {0}));
  EXPECT_EQ(static_cast<void*>(entries->lend(op(), {false, 0}).value().data()), a.data());
  EXPECT_EQ(entries->bytes_sent(), 16u);
  entries->begin(plan(*entries, {0, 1}));
  const auto span = entries->lend(op(1), {false, 0}).value();
  ASSERT_EQ(span.size(), 48u);
  EXPECT_EQ(std::memcmp(span.data(), a.data(), 16), 0);
  EXPECT_EQ(std::memcmp(span.data() + 16, b.data(), 32), 0);
  entries->take_back(op(1));
}

// The elected state has "a" and "c" besides "b", which this peer has.
class AddedTest : public SharedEntriesTest {
 protected:
  AddedTest() {
    begin.plan.entries = {{"a", DType::kFloat32, {4}, hash_of_values(fresh)},
                          {"b", DType::kFloat32, {8}, hash_of_values(b)},
                          {"c", DType::kFloat32, {4}, hash_of_values(fresh)}};
  }
  std::shared_ptr<SharedEntries> entries_with_room(uint64_t bytes) {
    auto spans = StateSpans::make({entry("b", b)}, StateSpans::MayAdd{bytes, {}}).value();
    return SharedEntries::make(std::move(spans), {});
  }
  const std::vector<float> fresh = std::vector<float>(4, 5.0f);
  BeginPieces begin;
};

TEST_F(AddedTest, EntriesThatAreLackedAreAdded) {
  const auto entries = entries_with_room(32);
  EXPECT_TRUE(entries->offer().partial);
  begin.plan.keys = {0, 2};
  entries->begin(begin);
  const auto span = entries->lend(op(), {true, 0}).value();
  ASSERT_EQ(span.size(), 32u);
  std::memcpy(span.data(), fresh.data(), 16);
  std::memcpy(span.data() + 16, fresh.data(), 16);
  EXPECT_EQ(entries->check(op(), 0).status, Status{});
  EXPECT_EQ(entries->install({0, 2}), Status{});
  const std::vector<AddedEntry> added = entries->take_added();
  ASSERT_EQ(added.size(), 2u);
  EXPECT_EQ(added[1].key, "c");
  EXPECT_EQ(std::memcmp(added[1].memory.get(), fresh.data(), 16), 0);
  EXPECT_EQ(b, std::vector<float>(8, 2.0f));
}

TEST_F(AddedTest, APieceOfOneSuchEntryIsReceivedInItsMemory) {
  const auto entries = entries_with_room(32);
  begin.plan.keys = {2};
  entries->begin(begin);
  const auto span = entries->lend(op(), {true, 0}).value();
  std::memcpy(span.data(), fresh.data(), 16);
  EXPECT_EQ(entries->install({2}), Status{});
  EXPECT_EQ(entries->take_added()[1].memory.get(), span.data());
}

TEST_F(AddedTest, APlanThatIsTooLargeFailsTheFirstTransfer) {
  const auto entries = entries_with_room(31);
  begin.plan.keys = {0, 2};
  entries->begin(begin);
  const auto lent = entries->lend(op(), {true, 0});
  ASSERT_FALSE(lent.ok());
  EXPECT_EQ(lent.status().code, Code::kSharedState);
  change_list(begin.plan.entries, [](auto& elected) { elected.pop_back(); });
  begin.plan.keys = {0};
  entries->begin(begin);
  EXPECT_TRUE(entries->lend(op(1), {true, 0}).ok()) << "another state may fit";
}

// Two parts and a short one.
class PartsTest : public SharedEntriesTest {
 protected:
  PartsTest() {
    for (size_t i = 0; i < 10000; ++i) c.push_back(static_cast<float>(i));
    theirs = SharedEntries::make({entry("c", c)}, options).value();
    ours = SharedEntries::make({entry("c", d)}, options).value();
    const std::vector<uint64_t> hashes = {theirs->offer().entries[0].hash};
    theirs->begin(plan(*theirs, {0}));
    ours->begin(plan(*ours, {0}, hashes));
  }
  Status move(uint32_t what) {
    const auto from = theirs->lend(op(), {false, what}).value();
    const auto to = ours->lend(op(), {true, what}).value();
    EXPECT_EQ(from.size(), to.size());
    std::memcpy(to.data(), from.data(), from.size());
    return ours->check(op(), what).status;
  }
  const SharedEntries::Options options{.piece_bytes = 16384};
  std::vector<float> c, d = std::vector<float>(10000);
  std::shared_ptr<SharedEntries> theirs, ours;
};

TEST_F(PartsTest, EachIsCheckedAlone) {
  EXPECT_EQ(theirs->offer().entries[0].hash, hash_of_values(c));
  EXPECT_EQ(move(kManifest), Status{});
  for (const uint32_t piece : {2u, 0u, 1u}) EXPECT_EQ(move(piece), Status{});
  EXPECT_EQ(ours->install({0}), Status{});
  EXPECT_EQ(c, d);
}

TEST_F(PartsTest, AReceiverCanSendThem) {
  EXPECT_EQ(move(kManifest), Status{});
  EXPECT_EQ(move(1), Status{});
  const auto piece = ours->lend(op(), {false, 1}).value();
  EXPECT_EQ(std::memcmp(piece.data(), c.data() + 4096, 16384), 0);
  const auto manifest = ours->lend(op(1), {false, kManifest}).value();
  EXPECT_EQ(manifest.size(), 24u);
}

TEST_F(PartsTest, AChangedPartIsFound) {
  EXPECT_EQ(move(kManifest), Status{});
  c[5000] += 1;
  EXPECT_EQ(move(0), Status{});
  EXPECT_EQ(move(1).code, Code::kSharedState);
}

TEST_F(PartsTest, AManifestThatDoesNotAddUpIsRefused) {
  const auto to = ours->lend(op(), {true, kManifest}).value();
  std::memset(to.data(), 7, to.size());
  EXPECT_EQ(ours->check(op(), kManifest).status.message,
            "the hashes of the parts of entry \"c\" do not add up to the hash that was agreed on");
}

TEST_F(PartsTest, NewsAreCarried) {
  const auto from = theirs->lend(op(), {false, kHave, {6}}).value();
  const auto to = ours->lend(op(), {true, kHave}).value();
  ASSERT_EQ(from.size(), to.size());
  std::memcpy(to.data(), from.data(), from.size());
  EXPECT_EQ(ours->check(op(), kHave).have, std::vector<uint64_t>{6});
}

TEST_F(PartsTest, APlanThatGoesOnKeepsThePieces) {
  EXPECT_EQ(move(kManifest), Status{});
  EXPECT_EQ(move(2), Status{});
  BeginPieces again = plan(*ours, {0}, {theirs->offer().entries[0].hash});
  again.keeps = true;
  ours->begin(again);
  EXPECT_EQ(move(0), Status{});
  EXPECT_EQ(move(1), Status{});
  EXPECT_EQ(ours->install({0}), Status{});
  EXPECT_EQ(c, d);
}

// ---- Entries on devices ----

class DeviceEntriesTest : public SharedEntriesTest {
 protected:
  StateSpan on_device(const std::string& key, size_t size, int value) {
    vectors[key] =
        std::make_shared<DeviceVector>(std::vector<std::byte>(size, static_cast<std::byte>(value)));
    return {key, DType::kUint8, {static_cast<int64_t>(size)}, {}, &device, vectors[key]};
  }
  std::shared_ptr<SharedEntries> make() {
    return SharedEntries::make({on_device("x", 100, 7), entry("a", a), on_device("none", 0, 0),
                                on_device("y", 40000, 8)},
                               {.piece_bytes = 16384})
        .value();
  }
  static uint64_t hash_of(size_t size, int value) {
    const std::vector<std::byte> bytes(size, static_cast<std::byte>(value));
    return memory::state_hash(bytes.data(), bytes.size());
  }
  void expect_offer(const SharedEntries& entries) {
    EXPECT_EQ(entries.failure(), Status{});
    const auto& offered = entries.offer().entries;
    ASSERT_EQ(offered.size(), 4u);
    EXPECT_EQ(offered[0].hash,
              memory::state_hash(reinterpret_cast<const std::byte*>(a.data()), 16));
    EXPECT_EQ(offered[1].hash, memory::state_hash(nullptr, 0));
    EXPECT_EQ(offered[2].hash, hash_of(100, 7));
    EXPECT_EQ(offered[3].hash, hash_of(40000, 8));
  }

  memory::FakeDevice device{{.seed = 2, .delay_max = 3}, move, hash_all};
  std::map<std::string, std::shared_ptr<DeviceVector>> vectors;
};

TEST_F(DeviceEntriesTest, TheDeviceHashesThem) {
  expect_offer(*make());
  EXPECT_EQ(device.bytes_out(), 0u);
}

TEST_F(DeviceEntriesTest, TheHostHashesThemIfTheDeviceCannot) {
  device.set({.kernels = false});
  expect_offer(*make());
  EXPECT_EQ(device.bytes_out(), 40100u);
}

// The entries are "a", "none", "x" and "y". "y" has three parts.
TEST_F(DeviceEntriesTest, OnlyWhatIsSentIsCopiedOutAndOnlyOnce) {
  const auto entries = make();
  entries->begin(plan(*entries, {0, 1, 3}));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(entries->lend(op(), {false, 0}).value().size(), 16u);
    for (uint32_t part = 0; part < 3; ++part) {
      const auto span = entries->lend(op(), {false, 1 + part}).value();
      EXPECT_EQ(std::memcmp(span.data(), vectors["y"]->bytes.data() + part * 16384, span.size()),
                0);
    }
  }
  EXPECT_EQ(entries->lend(op(1), {false, kManifest}).value().size(), 24u);
  EXPECT_EQ(device.bytes_out(), 40000u);
  EXPECT_EQ(device.pinned_bytes(), 0u);
  EXPECT_EQ(entries->bytes_sent(), 2u * 40016);
}

TEST_F(DeviceEntriesTest, OnlyReceivedEntriesAreInstalled) {
  const auto entries = make();
  entries->begin(plan(*entries, {2, 3}, {hash_of(100, 9), hash_of(40000, 6)}));
  const auto small = entries->lend(op(), {true, 0}).value();
  std::fill(small.begin(), small.end(), std::byte{9});
  EXPECT_EQ(entries->check(op(), 0).status, Status{});
  for (uint32_t part = 1; part < 4; ++part) {
    const auto span = entries->lend(op(), {true, part}).value();
    std::fill(span.begin(), span.end(), std::byte{6});
  }
  EXPECT_EQ(device.copied_in(), 0u);
  EXPECT_EQ(entries->install({2, 3}), Status{});
  EXPECT_EQ(vectors["x"]->bytes, std::vector<std::byte>(100, std::byte{9}));
  EXPECT_EQ(vectors["y"]->bytes, std::vector<std::byte>(40000, std::byte{6}));
}

TEST_F(DeviceEntriesTest, AFailureOfTheDeviceNamesTheEntry) {
  const auto entries = make();
  ASSERT_EQ(entries->failure(), Status{});
  device.set({.pinned_max = 0});
  entries->begin(plan(*entries, {2}));
  EXPECT_EQ(entries->lend(op(), {false, 0}).status().message,
            "entry \"x\": no pinned memory of 128 bytes is left");
  EXPECT_TRUE(entries->lend(op(), {true, 0}).ok());
  EXPECT_EQ(entries->install({2}).message,
            "entry \"x\": no pinned memory of 128 bytes is left; the other members have the agreed "
            "state, and this entry may hold a part of it: restore it, or end this process");
  EXPECT_EQ(vectors["x"]->bytes, std::vector<std::byte>(100, std::byte{7}));
}

TEST_F(DeviceEntriesTest, ADeviceThatCannotHashLendsNothing) {
  device.set({.stuck = true});
  const auto entries = SharedEntries::make({on_device("x", 100, 7), on_device("y", 1, 1)},
                                           {.timeout = std::chrono::milliseconds(1)})
                           .value();
  const std::string expected =
      "one of the entries \"x\" to \"y\": the device has not finished within 1 ms, and was given "
      "this work before the call";
  EXPECT_EQ(entries->failure(), (Status{Code::kOperationTimeout, expected, {}}));
  EXPECT_EQ(entries->offer().entries[0].hash, 0u);
  entries->begin(plan(*entries, {0}));
  EXPECT_EQ(entries->lend(op(), {false, 0}).status(), entries->failure());
  EXPECT_EQ(entries->lend(op(), {true, 0}).status(), entries->failure());
}

TEST_F(DeviceEntriesTest, AllMemoryIsReleasedByTheCaller) {
  const auto entries = make();
  std::weak_ptr<DeviceVector> memory = vectors["x"];
  vectors.clear();
  EXPECT_FALSE(memory.expired());
  entries->release();
  EXPECT_TRUE(memory.expired());
}

TEST_F(SharedEntriesTest, EntriesThatCannotBeOffered) {
  EXPECT_EQ(refusal({entry("a", a), entry("a", b)}), "shared state: the key \"a\" is there twice");
  StateSpan wrong = entry("a", a);
  wrong.shape = {5};
  EXPECT_EQ(refusal({wrong}), "shared state: entry \"a\" has 16 bytes, its shape says 20");
  wrong.shape = {-4};
  EXPECT_EQ(refusal({wrong}),
            "shared state: entry \"a\" has 16 bytes, its shape says something else");
  wrong.shape = {int64_t{1} << 62, 4, 1};
  EXPECT_EQ(refusal({wrong}),
            "shared state: entry \"a\" has 16 bytes, its shape says something else");
  wrong = entry("a", a);
  wrong.shape.resize(65, 1);
  EXPECT_EQ(refusal({wrong}),
            "shared state: entry \"a\" has 65 dimensions, at most 64 are allowed");
  wrong = entry(std::string(513, 'k'), a);
  EXPECT_EQ(refusal({wrong}), "shared state: the key \"" + std::string(64, 'k') +
                                  "...\" has 513 bytes, at most 512 are allowed");
}

TEST_F(SharedEntriesTest, AsManyAsOneMessageHolds) {
  std::vector<StateSpan> entries;
  for (int i = 0; i <= 65536; ++i) entries.push_back(entry(std::to_string(i), a));
  EXPECT_EQ(refusal(entries), "shared state: 65537 entries, at most 65536 are allowed");
  entries.resize(40000);
  for (StateSpan& each : entries) each.key.resize(500, 'k');
  EXPECT_EQ(refusal(entries).substr(0, 60),
            "shared state: its keys and shapes take 21600000 bytes, at mo");
}

}  // namespace
}  // namespace pccl::peer
