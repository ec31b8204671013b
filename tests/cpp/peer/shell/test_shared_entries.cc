#include "csrc/peer/shell/shared_entries.h"

#include <gtest/gtest.h>

#include <cstring>

#include "csrc/memory/state_hash.h"
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
    const auto made = SharedEntries::make(std::move(entries));
    EXPECT_FALSE(made.ok());
    if (made.ok()) return "";
    EXPECT_EQ(made.status().code, Code::kInvalidArgument);
    return made.status().message;
  }
  std::vector<float> a = std::vector<float>(4, 1.0f), b = std::vector<float>(8, 2.0f), none;
};

TEST_F(SharedEntriesTest, TheOfferIsSortedAndHashed) {
  const auto entries = SharedEntries::make({entry("b", b), entry("a", a), entry("", none)}).value();
  const auto& offered = entries->offer().entries;
  ASSERT_EQ(offered.size(), 3u);
  EXPECT_EQ(offered[0].key, "");
  EXPECT_EQ(offered[1].key, "a");
  EXPECT_EQ(offered[2].shape, std::vector<int64_t>{8});
  EXPECT_EQ(offered[2].hash, memory::state_hash(reinterpret_cast<const std::byte*>(b.data()), 32));
}

TEST_F(SharedEntriesTest, WhatIsReceivedStaysApartUntilItIsInstalled) {
  const auto entries =
      SharedEntries::make({entry("a", a), entry("b", b), entry("none", none)}).value();
  const auto spans = entries->lend({1, 2}, true).value();
  ASSERT_EQ(spans.size(), 2u);
  ASSERT_EQ(spans[0].size(), 32u);
  EXPECT_NE(static_cast<void*>(spans[0].data()), b.data());
  const std::vector<float> fresh(8, 5.0f);
  std::memcpy(spans[0].data(), fresh.data(), 32);
  const uint64_t nothing = memory::state_hash(nullptr, 0);
  const uint64_t right = memory::state_hash(spans[0].data(), 32);
  EXPECT_EQ(entries->verify({1, 2}, {right, nothing}), Status{});
  EXPECT_EQ(entries->verify({1, 2}, {right + 1, nothing}).message,
            "entry \"b\" arrived with another hash than was agreed on: its owner changed it during "
            "the call");
  EXPECT_EQ(b, std::vector<float>(8, 2.0f));
  EXPECT_EQ(entries->install({1, 2}), Status{});
  EXPECT_EQ(b, fresh);
  EXPECT_EQ(a, std::vector<float>(4, 1.0f));
  EXPECT_EQ(entries->bytes_received(), 32u);
  EXPECT_EQ(entries->bytes_sent(), 0u);
}

TEST_F(SharedEntriesTest, WhatIsSentIsTheTensorItself) {
  const auto entries = SharedEntries::make({entry("a", a), entry("b", b)}).value();
  const auto spans = entries->lend({0}, false).value();
  EXPECT_EQ(static_cast<void*>(spans[0].data()), a.data());
  EXPECT_EQ(entries->bytes_sent(), 16u);
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
                                on_device("y", 40000, 8)})
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

TEST_F(DeviceEntriesTest, OnlyWhatIsSentIsCopiedOutAndOnlyOnce) {
  const auto entries = make();
  for (int i = 0; i < 2; ++i) {
    const auto spans = entries->lend({0, 1, 3}, false).value();
    EXPECT_EQ(static_cast<void*>(spans[0].data()), a.data());
    EXPECT_EQ(spans[1].size(), 0u);
    EXPECT_TRUE(std::equal(spans[2].begin(), spans[2].end(), vectors["y"]->bytes.begin(),
                           vectors["y"]->bytes.end()));
  }
  EXPECT_EQ(device.bytes_out(), 40000u);
  EXPECT_EQ(device.pinned_bytes(), 0u);
  EXPECT_EQ(entries->bytes_sent(), 2u * 40016);
}

TEST_F(DeviceEntriesTest, WhatIsReceivedIsInstalledOnly) {
  const auto entries = make();
  const auto spans = entries->lend({2}, true).value();
  std::fill(spans[0].begin(), spans[0].end(), std::byte{9});
  EXPECT_EQ(entries->verify({2}, {hash_of(100, 9)}), Status{});
  EXPECT_EQ(entries->verify({2}, {hash_of(100, 7)}).code, Code::kSharedState);
  EXPECT_EQ(device.copied_in(), 0u);
  EXPECT_EQ(entries->install({2}), Status{});
  EXPECT_EQ(vectors["x"]->bytes, std::vector<std::byte>(100, std::byte{9}));
  EXPECT_EQ(vectors["y"]->bytes, std::vector<std::byte>(40000, std::byte{8}));
}

TEST_F(DeviceEntriesTest, AFailureOfTheDeviceNamesTheEntry) {
  const auto entries = make();
  ASSERT_EQ(entries->failure(), Status{});
  device.set({.pinned_max = 0});
  EXPECT_EQ(entries->lend({0, 2}, false).status().message,
            "entry \"x\": no pinned memory of 128 bytes is left");
  EXPECT_TRUE(entries->lend({2}, true).ok());
  EXPECT_EQ(entries->install({2}).message,
            "entry \"x\": no pinned memory of 128 bytes is left; the other members have the agreed "
            "state, and this entry may hold a part of it: restore it, or end this process");
  EXPECT_EQ(vectors["x"]->bytes, std::vector<std::byte>(100, std::byte{7}));
}

TEST_F(DeviceEntriesTest, ADeviceThatCannotHashLendsNothing) {
  device.set({.stuck = true});
  const auto entries = SharedEntries::make({on_device("x", 100, 7), on_device("y", 1, 1)},
                                           std::chrono::milliseconds(1))
                           .value();
  const std::string expected =
      "one of the entries \"x\" to \"y\": the device has not finished within 1 ms, and was given "
      "this work before the call";
  EXPECT_EQ(entries->failure(), (Status{Code::kOperationTimeout, expected, {}}));
  EXPECT_EQ(entries->offer().entries[0].hash, 0u);
  EXPECT_EQ(entries->lend({0}, false).status(), entries->failure());
  EXPECT_EQ(entries->lend({0}, true).status(), entries->failure());
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
