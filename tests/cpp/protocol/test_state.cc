#include "csrc/protocol/state.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace pccl::protocol
