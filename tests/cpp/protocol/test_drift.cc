#include "csrc/protocol/drift.h"

#include <gtest/gtest.h>

namespace pccl::protocol {
namespace {

using Keys = std::vector<uint32_t>;

// Entries "a", "b" of 24 bytes each, and "progress" of 32 bytes.
StateEntries entries(uint64_t a, uint64_t b, uint64_t progress = 0) {
  return {{"a", DType::kFloat32, {2, 3}, a},
          {"b", DType::kFloat32, {2, 3}, b},
          {"progress", DType::kInt64, {4}, progress}};
}

// All members have agreed on revision 3. The elected state is {1, 1} at `revision`.
struct Case {
  std::optional<uint64_t> last = 3;
  uint64_t offered = 4;
  SyncStrategy strategy = SyncStrategy::kEnforcePopular;
  StateEntries own = entries(1, 2);
  uint64_t revision = 4;
};

std::optional<Drift> drift(const Case& of) {
  const Offer offer{of.offered, of.strategy, {}};
  return drift_of({of.last, offer, of.own, of.revision, entries(1, 1)});
}

TEST(Drift, AMemberThatTookTheStepWithOtherBitsDrifts) {
  const auto found = drift({});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(*found, (Drift{4, "\"b\"", 24, 0}));
  EXPECT_EQ(drift({.own = entries(2, 2, 7)}), (Drift{4, "\"a\", \"b\"", 48, 0}));
}

TEST(Drift, AMemberWithTheSameBitsDoesNotDrift) {
  EXPECT_FALSE(drift({.own = entries(1, 1)}).has_value());
}

TEST(Drift, ANewcomerDoesNotDrift) { EXPECT_FALSE(drift({.last = std::nullopt}).has_value()); }

TEST(Drift, AMemberThatHasMissedStepsDoesNotDrift) {
  EXPECT_FALSE(drift({.offered = 3}).has_value()) << "the last revision";
  EXPECT_FALSE(drift({.last = 1, .offered = 1}).has_value()) << "several revisions behind";
  EXPECT_FALSE(drift({.last = 1}).has_value()) << "it was not at the last agreement";
  EXPECT_FALSE(drift({.last = 4}).has_value()) << "the same call again";
  EXPECT_FALSE(drift({.last = 5}).has_value()) << "set back by its operator";
  EXPECT_FALSE(drift({.last = UINT64_MAX, .offered = 0, .revision = 0}).has_value());
  EXPECT_FALSE(drift({.revision = 5}).has_value()) << "the elected state is another step";
}

TEST(Drift, AnotherStrategyIsNoDrift) {
  EXPECT_FALSE(drift({.strategy = SyncStrategy::kReceiveOnly}).has_value());
  EXPECT_FALSE(drift({.strategy = SyncStrategy::kSendOnly}).has_value());
}

TEST(Drift, TheCountersOfTheTrainersMayDiffer) {
  EXPECT_FALSE(drift({.own = entries(1, 1, 7)}).has_value());
}

TEST(Drift, EntriesThatAPeerDoesNotHaveAreNoCorrection) {
  StateEntries own = entries(2, 2);
  own.erase(own.begin());
  EXPECT_EQ(differing(own, entries(1, 1)), Keys{1});
  EXPECT_EQ(differing({}, entries(1, 1)), Keys{});
  EXPECT_EQ(differing(entries(2, 1, 5), entries(1, 1)), (Keys{0, 2}));
}

TEST(Drift, AFewKeysAreNamed) {
  StateEntries own, elected;
  for (uint64_t at = 0; at < 7; ++at) {
    own.push_back({"k" + std::to_string(at), DType::kUint8, {1}, 1});
    elected.push_back({"k" + std::to_string(at), DType::kUint8, {1}, 2});
  }
  const Offer offer{4, SyncStrategy::kEnforcePopular, {}};
  const auto found = drift_of({3, offer, own, 4, elected});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->keys, "\"k0\", \"k1\", \"k2\", \"k3\" and 3 more");
  EXPECT_EQ(found->bytes, 7u);
}

TEST(Drift, WarningsComeAtGrowingIntervals) {
  std::vector<uint64_t> announced;
  for (uint64_t count = 1; count <= 40; ++count) {
    if (is_announced(count)) announced.push_back(count);
  }
  EXPECT_EQ(announced, (std::vector<uint64_t>{1, 2, 4, 8, 16, 32}));
}

TEST(Drift, ItsTextNamesTheMemberTheKeysAndTheCount) {
  Drift drift{4, "\"b\"", 24, 1};
  EXPECT_EQ(
      drift_text("rank 2 (c)", drift),
      "rank 2 (c) drifts: its result differs from that of the others, and sync_shared_state has "
      "corrected \"b\" (24 bytes) at revision 4 (1 correction so far)");
  drift.count = 8;
  EXPECT_TRUE(drift_text("", drift).ends_with(" (8 corrections so far)"));
  EXPECT_EQ(drift_warning("", drift), drift_text("", drift) + ": " + kDriftAdvice);
}

}  // namespace
}  // namespace pccl::protocol
