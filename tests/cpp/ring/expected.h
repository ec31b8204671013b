// The results that the calls of a World must have, computed the plain way.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "csrc/memory/kernels.h"
#include "tests/cpp/quantized_sum.h"
#include "tests/cpp/ring/world.h"

namespace pccl::ring {

inline Bytes reduced(World& world, const Call& call) {
  if (call.format.quantizes()) {
    std::vector<Bytes> all;
    RandomKeys keys{{}, World::kResultKey, 0};
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      all.push_back(world.at(rank, call.key).before[0]);
      keys.own.push_back(World::key_of(rank));
    }
    return quantized_sum(call.format, call.dtype, call.reduce, all,
                         call.pattern == Pattern::kPairwise, keys);
  }
  Bytes out = world.at(0, call.key).before[0];
  const memory::Reduction reduction{call.dtype, call.reduce, static_cast<int>(world.size())};
  for (uint32_t rank = 1; rank < world.size(); ++rank) {
    memory::reduce(reduction, static_cast<int>(rank), out.data(), out.data(),
                   world.at(rank, call.key).before[0].data(), call.count);
  }
  return out;
}

// Reduces the blocks that all ranks have for this one.
inline std::vector<Bytes> scattered(World& world, const Call& call, uint32_t rank) {
  Bytes out = world.at(0, call.key).inputs[rank];
  const memory::Reduction reduction{call.dtype, call.reduce, static_cast<int>(world.size())};
  for (uint32_t other = 1; other < world.size(); ++other) {
    memory::reduce(reduction, static_cast<int>(other), out.data(), out.data(),
                   world.at(other, call.key).inputs[rank].data(), call.count);
  }
  return {out};
}

inline std::vector<Bytes> expected(World& world, const Call& call, uint32_t rank) {
  switch (call.pattern) {
    case Pattern::kAllReduce:
    case Pattern::kOneShot:
    case Pattern::kPairwise:
    case Pattern::kDirect:
      if (call.part) return scattered(world, call, rank);
      return {world.size() == 1 ? world.at(0, call.key).before[0] : reduced(world, call)};
    case Pattern::kAllGather: {
      std::vector<Bytes> blocks;
      for (uint32_t other = 0; other < world.size(); ++other) {
        blocks.push_back(world.at(other, call.key).before[other]);
      }
      return blocks;
    }
    case Pattern::kReduceScatter: return scattered(world, call, rank);
    case Pattern::kReduce:
      if (rank != call.root || world.size() == 1) return world.at(rank, call.key).before;
      return {reduced(world, call)};
    case Pattern::kOneShotExchange:
    case Pattern::kExchange: {
      std::vector<Bytes> parts;
      for (uint32_t other = 0; other < world.size(); ++other)
        parts.push_back(world.at(other, call.key).inputs[rank]);
      return parts;
    }
    case Pattern::kBroadcast: return world.at(call.root, call.key).before;
    case Pattern::kTransfer: return world.at(call.root, call.key).before;
  }
  return world.at(rank, call.key).before;
}

// Commits a call that all members have transferred, as the master would, and checks its result.
inline void commit(World& world, const Call& call) {
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    if (!world.takes_part(rank, call)) continue;
    ASSERT_EQ(world.at(rank, call.key).transferred, 1) << "rank " << rank;
    world.end(rank, call.key, true);
    ASSERT_EQ(world.at(rank, call.key).drained, 1);
    EXPECT_TRUE(world.result(rank, call.key) == expected(world, call, rank))
        << "wrong result on rank " << rank;
  }
}

inline void expect_quiet(World& world) {
  EXPECT_TRUE(world.failures.empty()) << world.failures.front();
  for (uint32_t rank = 0; rank < world.size(); ++rank)
    EXPECT_EQ(world.engine(rank).counters().operations_open, 0u);
}

}  // namespace pccl::ring
