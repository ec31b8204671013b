#include "csrc/protocol/state.h"

#include <gtest/gtest.h>

#include "csrc/protocol/limits.h"

namespace pccl::protocol {
namespace {

using Entries = std::vector<StateEntry>;

TEST(State, ItsHashIsOverKeysTypesShapesAndHashes) {
  const Entries base = {{"a", DType::kFloat32, {2, 3}, 1}, {"b", DType::kFloat32, {2, 3}, 2}};
  EXPECT_EQ(state_hash(base), state_hash(Entries(base)));
  Entries changed = base;
  changed[0].key = "other";
  EXPECT_NE(state_hash(base), state_hash(changed));
  changed = base;
  changed[1].dtype = DType::kInt32;
  EXPECT_NE(state_hash(base), state_hash(changed));
  changed = base;
  changed[1].shape = {3, 2};
  EXPECT_NE(state_hash(base), state_hash(changed));
  changed = base;
  std::swap(changed[0].hash, changed[1].hash);
  EXPECT_NE(state_hash(base), state_hash(changed));
}

TEST(State, TheWordsOfALayoutGiveTheHashOfEachContent) {
  Entries entries = {{"a", DType::kFloat32, {2, 3}, 1},
                     {"a name of many letters", DType::kInt64, {}, 2},
                     {"b", DType::kUint8, {7}, 3}};
  const LayoutWords words(entries);
  EXPECT_EQ(words.state_hash(std::vector<uint64_t>{1, 2, 3}), state_hash(entries));
  entries[1].hash = 9;
  EXPECT_EQ(words.state_hash(std::vector<uint64_t>{1, 9, 3}), state_hash(entries));
  EXPECT_EQ(LayoutWords().state_hash({}), state_hash({}));
}

TEST(State, ASenselessShapeHasNoSize) {
  EXPECT_EQ(bytes_of(StateEntry{"a", DType::kFloat32, {2, 3}, 0}), 24u);
  EXPECT_EQ(bytes_of(StateEntry{"a", DType::kFloat32, {}, 0}), 4u);
  EXPECT_EQ(bytes_of(StateEntry{"a", DType::kFloat32, {2, -3}, 0}), std::nullopt);
  EXPECT_EQ(bytes_of(StateEntry{"a", DType::kFloat32, {int64_t{1} << 62, 8}, 0}), std::nullopt);
}

TEST(State, AListIsSortedAndItsTensorsFitAnywhere) {
  constexpr int64_t kHalf = int64_t{kStateBytesMax / 2};
  EXPECT_TRUE(is_sensible({}));
  EXPECT_TRUE(is_sensible({{"a", DType::kInt8, {kHalf}, 0}, {"b", DType::kInt8, {kHalf}, 0}}));
  EXPECT_FALSE(is_sensible({{"a", DType::kInt8, {kHalf}, 0}, {"b", DType::kInt8, {kHalf + 1}, 0}}));
  EXPECT_FALSE(is_sensible({{"a", DType::kInt8, {1}, 0}, {"a", DType::kInt8, {1}, 0}}));
  EXPECT_FALSE(is_sensible({{"b", DType::kInt8, {1}, 0}, {"a", DType::kInt8, {1}, 0}}));
  EXPECT_FALSE(is_sensible({{"a", DType::kInt8, {-1}, 0}}));
}

TEST(State, APartOfAStateLacksTheRest) {
  const Entries all = {
      {"a", DType::kInt8, {1}, 1}, {"b", DType::kInt8, {2}, 2}, {"c", DType::kInt8, {3}, 3}};
  EXPECT_TRUE(is_part_of({}, all));
  EXPECT_EQ(lacking({}, all), (std::vector<uint32_t>{0, 1, 2}));
  const Entries some = {{"a", DType::kInt8, {1}, 1}, {"c", DType::kInt8, {3}, 9}};
  EXPECT_TRUE(is_part_of(some, all));
  EXPECT_FALSE(is_part_of(all, some));
  EXPECT_EQ(lacking(some, all), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(lacking(all, all), std::vector<uint32_t>{});
  EXPECT_FALSE(is_part_of({{"c", DType::kInt8, {4}, 3}}, all)) << "of another shape";
  EXPECT_FALSE(is_part_of({{"c", DType::kInt8, {3}, 3}, {"a", DType::kInt8, {1}, 1}}, all));
  EXPECT_FALSE(same_layouts(some, all));
  EXPECT_TRUE(same_layouts(all, {{"a", DType::kInt8, {1}, 7}, all[1], all[2]}));
}

}  // namespace
}  // namespace pccl::protocol
