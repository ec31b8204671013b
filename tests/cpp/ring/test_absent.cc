// Reductions with absent ranks through whole engines: they take zeros from these ranks, an average
// does not count them, and each rank knows who was absent when it has a result.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/cpp/ring/expected.h"
#include "tests/cpp/ring/shares.h"
#include "tests/cpp/ring/world.h"

namespace pccl::ring {
namespace {

constexpr OpKey kKey{TagId{1}, 0};

protocol::AbsentRanks told(const Call& call) {
  protocol::AbsentRanks ranks;
  const auto world = static_cast<uint32_t>(call.absent.size());
  for (uint32_t rank = 0; rank < world; ++rank) {
    if (call.absent[rank]) ranks.add(protocol::AbsentRanks::of(rank, world));
  }
  return ranks;
}

// The ranks with a bit in `set` are absent.
std::vector<bool> absent(uint32_t world, uint64_t set) {
  std::vector<bool> ranks;
  for (uint32_t rank = 0; rank < world; ++rank) ranks.push_back((set >> rank & 1) != 0);
  return ranks;
}

// Every form that a sum or an average takes in a world of this size.
std::vector<Call> forms(uint32_t world) {
  const auto call = [](Pattern pattern, uint64_t count) {
    return Call{.key = kKey, .pattern = pattern, .count = count, .block_bytes = {}};
  };
  std::vector<Call> all = {
      call(Pattern::kAllReduce, 100'003), call(Pattern::kAllReduce, 7),
      call(Pattern::kDirect, 100'003),    call(Pattern::kOneShot, 1'003),
      call(Pattern::kReduce, 100'003),    call(Pattern::kReduceScatter, 20'011)};
  all.push_back(call(Pattern::kOneShot, 501));  // a small reduce-scatter
  all.back().part = [](uint32_t, uint32_t) { return 501; };
  for (Call& one : all) one.root = world / 2;
  if (world == 2) all.push_back(call(Pattern::kPairwise, 100'003));
  for (const WireFormat& format : {WireFormat{8, 256, 8}, WireFormat{4, 64, 16}}) {
    all.push_back(call(world == 2 ? Pattern::kPairwise : Pattern::kDirect, 100'003));
    all.back().format = format;
  }
  all.push_back(call(Pattern::kAllReduce, 100'003));
  if (world > 1) all.back().format = {8, 256, 8};
  return all;
}

bool tells_all(const World& world, const Call& call, uint32_t rank) {
  return world.size() == 1 || call.pattern != Pattern::kReduce || rank == call.root;
}

class Absent : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Worlds, Absent, ::testing::Range(1u, 6u));

TEST_P(Absent, RanksContributeZerosAndAnAverageDoesNotCountThem) {
  uint64_t seed = 0;
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kInt32}) {
      for (Call call : forms(GetParam())) {
        if (call.format.quantizes() && dtype == DType::kInt32) continue;
        for (uint64_t set = 1; set<uint64_t{1} << GetParam(); set += GetParam()> 3 ? 5 : 1) {
          World world(GetParam(), ++seed, 100'000);
          world.wan = seed % 2 == 0;  // then there is eager data
          call.reduce = op;
          call.dtype = dtype;
          call.absent = absent(GetParam(), set);
          if (seed % 3 == 0) call.shares = random_shares(world.size(), world.random);
          world.post(call);
          world.settle();
          for (uint32_t rank = 0; rank < world.size(); ++rank) {
            if (!tells_all(world, call, rank)) continue;
            EXPECT_EQ(world.at(rank, call.key).absent, told(call)) << "rank " << rank;
          }
          commit(world, call);
          expect_quiet(world);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// World looks whether it is.
TEST_P(Absent, AbortedAtAnyMomentTheTensorIsAsItWas) {
  for (Call call : forms(GetParam())) {
    for (uint64_t moves = 0; moves < 400; moves += 13) {
      World world(GetParam(), moves, 60'000);
      call.absent = absent(GetParam(), moves | 1);
      world.post(call);
      for (uint64_t move = 0; world.size() > 1 && move < moves && world.move(); ++move) {
      }
      for (uint32_t rank = 0; rank < world.size(); ++rank) world.end(rank, call.key, false);
      expect_quiet(world);
    }
  }
}

// When an element is final, all absent ranks are known: they are no contributors to the part that
// is kept. The tensor of an absent rank is as it was from there on.
TEST_P(Absent, AreKnownWithThePartThatIsKept) {
  uint64_t kept = 0;
  for (uint64_t seed = 1; seed <= runs(60); ++seed) {
    World world(GetParam(), seed, 60'000);
    world.wan = seed % 2 == 0;
    const Pattern both = GetParam() == 2 ? Pattern::kPairwise : Pattern::kDirect;
    Call call{.key = kKey,
              .pattern = seed % 4 < 2 ? Pattern::kAllReduce : both,
              .reduce = ReduceOp::kAvg,
              .count = 300'000,
              .block_bytes = {},
              .keep = true,
              .absent = absent(GetParam(), seed)};
    world.post(call);
    const uint64_t moves =
        world.size() > 1 ? world.random() % (100 * world.size() * world.size()) : 0;
    for (uint64_t move = 0; move < moves && world.move(); ++move) {
    }
    uint64_t finished = call.count;
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      const Posted& posted = world.at(rank, call.key);
      finished = std::min(finished, posted.finished);
      if (posted.finished == 0) continue;
      EXPECT_EQ(posted.absent, told(call)) << "rank " << rank;
    }
    kept += finished;
    for (uint32_t rank = 0; rank < world.size(); ++rank) world.again(rank, call.key, finished);
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      world.renew(rank, Epoch{2});
      world.post_again(rank, call.key);
    }
    world.settle();
    for (uint32_t rank = 0; rank < world.size(); ++rank) world.at(rank, call.key).transferred = 1;
    commit(world, call);
    expect_quiet(world);
  }
  EXPECT_TRUE(kept > 0 || GetParam() == 1);
}

}  // namespace
}  // namespace pccl::ring
