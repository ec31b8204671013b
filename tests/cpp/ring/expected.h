// The results that the calls of a World must have, computed the plain way.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "csrc/memory/kernels.h"
#include "tests/cpp/quantized_sum.h"
#include "tests/cpp/ring/world.h"
#include "tests/cpp/ring_blocks.h"

namespace pccl::ring {

// Reduces what the ranks contribute. `of(rank)`: what this rank has, if it is not absent.
inline Bytes reduced(World& world, const Call& call, const auto& of) {
  std::vector<Bytes> all;
  RandomKeys keys{{}, World::kResultKey, 0};
  int absent = 0;
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    all.push_back(of(rank));
    keys.own.push_back(World::key_of(rank));
    keys.partial.push_back(World::partial_key_of(rank));
    if (call.absent.empty() || !call.absent[rank]) continue;
    all.back() = Bytes(all.back().size());
    ++absent;
  }
  if (call.format.quantizes() && world.size() > 1) {
    if (call.pattern == Pattern::kAllReduce) {
      return quantized_ring_sum(call.format, call.dtype, call.reduce, all,
                                ring_blocks(world.schedule_of(call)), static_cast<size_t>(absent),
                                keys);
    }
    return quantized_sum(call.format, call.dtype, call.reduce, all,
                         call.pattern == Pattern::kPairwise, static_cast<size_t>(absent), keys);
  }
  Bytes out = all[0];
  const memory::Reduction reduction{call.dtype, call.reduce, static_cast<int>(world.size()),
                                    absent};
  for (uint32_t rank = 1; rank < world.size(); ++rank) {
    memory::reduce(reduction, static_cast<int>(rank), out.data(), out.data(), all[rank].data(),
                   call.count);
  }
  return out;
}

inline Bytes reduced(World& world, const Call& call) {
  return reduced(world, call, [&](uint32_t rank) { return world.at(rank, call.key).before[0]; });
}

// Reduces the blocks that all ranks have for this one.
inline std::vector<Bytes> scattered(World& world, const Call& call, uint32_t rank) {
  return {
      reduced(world, call, [&](uint32_t other) { return world.at(other, call.key).inputs[rank]; })};
}

inline std::vector<Bytes> expected(World& world, const Call& call, uint32_t rank) {
  switch (call.pattern) {
    case Pattern::kAllReduce:
    case Pattern::kOneShot:
    case Pattern::kPairwise:
    case Pattern::kDirect:
      if (call.part) return scattered(world, call, rank);
      return {reduced(world, call)};
    case Pattern::kAllGather: {
      std::vector<Bytes> blocks;
      for (uint32_t other = 0; other < world.size(); ++other) {
        blocks.push_back(world.at(other, call.key).before[other]);
      }
      return blocks;
    }
    case Pattern::kReduceScatter: return scattered(world, call, rank);
    case Pattern::kReduce:
      if (rank != call.root) return world.at(rank, call.key).before;
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
