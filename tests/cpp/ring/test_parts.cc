// The operations whose tensors have parts: exchanges, one-shot operations that are not in place,
// reduce-scatter and reduce.

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "csrc/ring/engine.h"
#include "tests/cpp/ring/expected.h"
#include "tests/cpp/ring/world.h"

namespace pccl::ring {
namespace {

OpKey numbered(uint64_t tag) { return {TagId{tag}, 0}; }

class Parts : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Engine, Parts, ::testing::Range(1u, 9u));

// Parts of a size of their own, also of none, with one-shot operations and with exchanges.
TEST_P(Parts, PartsPassDirectly) {
  for (const uint64_t count : {0, 1, 1001, 300007}) {
    for (const Pattern pattern : {Pattern::kOneShotExchange, Pattern::kExchange}) {
      if (pattern == Pattern::kOneShotExchange && count > 10000) continue;
      for (const bool wan : {false, true}) {
        World world(GetParam(), count + 1);
        world.wan = wan;
        const auto uneven = [count](uint32_t from, uint32_t to) {
          return (from * 3 + to) % 4 * count / 3;
        };
        const auto to_one = [count](uint32_t, uint32_t to) { return to == 0 ? count : 0; };
        const auto from_one = [count](uint32_t from, uint32_t) { return from == 0 ? count : 0; };
        std::vector<Call> calls;
        for (const std::function<uint64_t(uint32_t, uint32_t)>& part :
             {std::function<uint64_t(uint32_t, uint32_t)>(uneven), {to_one}, {from_one}}) {
          calls.push_back({.key = numbered(calls.size() + 1),
                           .pattern = pattern,
                           .count = count,
                           .block_bytes = {},
                           .part = part});
        }
        for (const Call& call : calls) world.post(call);
        world.settle();
        for (const Call& call : calls) commit(world, call);
        expect_quiet(world);
      }
    }
  }
}

TEST_P(Parts, ReduceScatterAndReduce) {
  for (const uint64_t count : {0, 1, 1001, 300007}) {
    for (const ReduceOp reduce : {ReduceOp::kSum, ReduceOp::kAvg}) {
      for (const bool wan : {false, true}) {
        World world(GetParam(), count + 1);
        world.wan = wan;
        std::vector<Call> calls = {{.key = numbered(1),
                                    .pattern = Pattern::kReduceScatter,
                                    .reduce = reduce,
                                    .count = count,
                                    .block_bytes = {}},
                                   {.key = numbered(2),
                                    .pattern = Pattern::kReduce,
                                    .reduce = reduce,
                                    .count = count,
                                    .root = GetParam() / 2,
                                    .block_bytes = {}}};
        if (count < 10000) {
          calls.push_back({.key = numbered(3),
                           .pattern = Pattern::kOneShot,
                           .reduce = reduce,
                           .count = count,
                           .block_bytes = {},
                           .part = [count](uint32_t, uint32_t) { return count; }});
        }
        for (const Call& call : calls) world.post(call);
        world.settle();
        for (const Call& call : calls) commit(world, call);
        expect_quiet(world);
      }
    }
  }
}

// A reduce-scatter, around the ring or in one shot.
Call reduce_scatter(uint64_t tag, uint64_t count, bool one_shot, bool into_input) {
  Call call{.key = numbered(tag),
            .pattern = one_shot ? Pattern::kOneShot : Pattern::kReduceScatter,
            .count = count,
            .block_bytes = {},
            .into_input = into_input};
  if (one_shot) call.part = [count](uint32_t, uint32_t) { return count; };
  return call;
}

// It begins several times, and each attempt finds what the first one found.
TEST_P(Parts, AReduceScatterIntoItsInput) {
  for (uint64_t seed = 1; seed <= runs(24); ++seed) {
    World world(GetParam(), seed);
    world.wan = seed % 2 == 0;
    const bool one_shot = seed % 3 == 0;
    Call call = reduce_scatter(1, one_shot ? 1001 : 60007, one_shot, true);
    call.reduce = seed % 4 < 2 ? ReduceOp::kSum : ReduceOp::kAvg;
    call.dtype = seed % 5 < 3 ? DType::kFloat32 : DType::kBfloat16;
    if (seed % 7 == 0) {
      call.absent = std::vector<bool>(world.size());
      call.absent[seed % world.size()] = true;
    }
    world.post(call);
    for (uint64_t epoch = 2; epoch < 2 + seed % 3; ++epoch) {
      const uint64_t most = world.size() > 1 ? world.random() % 600 : 0;
      for (uint64_t moves = most; moves > 0 && world.move(); --moves) {
      }
      for (uint32_t rank = 0; rank < world.size(); ++rank) world.again(rank, call.key, 0);
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        world.renew(rank, Epoch{epoch});
        world.at(rank, call.key).transferred = 0;
        world.post_again(rank, call.key);
      }
    }
    world.settle();
    commit(world, call);
    expect_quiet(world);
  }
}

// A call that is not over leaves no trace, whenever it is aborted.
TEST(PartsOfThree, AnAbortRestoresWhatWasWritten) {
  for (uint64_t seed = 1; seed <= runs(60); ++seed) {
    World world(3, seed);
    const auto uneven = [](uint32_t from, uint32_t to) { return uint64_t{(from + to) % 3} * 9000; };
    const auto even = [](uint32_t, uint32_t) { return uint64_t{500}; };
    const std::vector<Call> calls = {
        {.key = numbered(1), .pattern = Pattern::kExchange, .block_bytes = {}, .part = uneven},
        {.key = numbered(2), .pattern = Pattern::kReduceScatter, .count = 90000, .block_bytes = {}},
        {.key = numbered(3),
         .pattern = Pattern::kReduce,
         .count = 90000,
         .root = 1,
         .block_bytes = {}},
        {.key = numbered(4),
         .pattern = Pattern::kOneShotExchange,
         .count = 500,
         .block_bytes = {},
         .part = even},
        {.key = numbered(5),
         .pattern = Pattern::kOneShot,
         .count = 500,
         .block_bytes = {},
         .part = even},
        reduce_scatter(6, 90000, false, true),
        reduce_scatter(7, 500, true, true)};
    for (const Call& call : calls) world.post(call);
    for (uint64_t moves = world.random() % 400; moves > 0 && world.move(); --moves) {
    }
    for (uint32_t rank = 0; rank < 3; ++rank) {
      for (const Call& call : calls) world.end(rank, call.key, false);  // World looks at the memory
    }
    world.settle();
    expect_quiet(world);
  }
}

// Members that disagree about a part: nothing lands, and the link lives.
TEST(PartsOfThree, APartOfAnotherSizeIsIgnored) {
  for (const Pattern pattern : {Pattern::kExchange, Pattern::kOneShotExchange}) {
    World world(3, 1);
    for (uint32_t rank = 0; rank < 3; ++rank) {
      const uint64_t said_by_two = rank == 2 ? 300 : 200;
      world.post(rank, {.key = numbered(1),
                        .pattern = pattern,
                        .count = 300,
                        .block_bytes = {},
                        .part = [said_by_two](uint32_t from, uint32_t) {
                          return from == 2 ? said_by_two : 200;
                        }});
    }
    world.settle();
    for (uint32_t rank = 0; rank < 3; ++rank) {
      const bool misses_one = rank < 2;  // the part of rank 2 never fits
      EXPECT_TRUE(!misses_one || world.at(rank, numbered(1)).transferred == 0) << rank;
      world.end(rank, numbered(1), false);
    }
    expect_quiet(world);
  }
}

}  // namespace
}  // namespace pccl::ring
