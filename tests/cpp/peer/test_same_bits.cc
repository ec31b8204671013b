// The bits of float32 sums: what they may depend on, and what not. Engines in one thread run the
// tasks that peers make of one call, in epochs with different rings and shares, over links with
// different numbers of lanes, and after an attempt that was given up.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "csrc/memory/state_hash.h"
#include "csrc/peer/request.h"
#include "tests/cpp/peer/transcript.h"
#include "tests/cpp/ring/shares.h"
#include "tests/cpp/ring/world.h"

namespace pccl::peer {
namespace {

using ring::Call;
using ring::Pattern;

// One way to carry out the call.
struct Way {
  std::vector<uint32_t> ring;
  std::vector<uint16_t> shares;
  uint64_t lanes = 1;
  bool retried = false;
  uint32_t one_shot_bytes = 0;
  uint32_t rtt = 0;
  WireFormat format = {};
  bool rings_only = false;
};

ring::Task task_in(uint32_t rank, uint32_t world, uint64_t count, const Way& way) {
  Context context;
  if (way.rings_only) context.settings.pattern = protocol::PatternChoice::kRing;
  Effects effects;
  context.effects = &effects;
  Membership membership(context);
  for (const Phase phase : {Phase::kConnecting, Phase::kHandshaking, Phase::kWelcomed})
    membership.enter(phase);
  protocol::Welcome welcome;
  welcome.peer = PeerId{rank + 1};
  membership.welcome(welcome);
  membership.enter(Phase::kRegistered);
  protocol::EpochStart start;
  start.epoch = start.generation = Epoch{1};
  for (uint32_t peer = 1; peer <= world; ++peer) start.members.push_back({PeerId{peer}, ""});
  start.ring = way.ring;
  start.shares = way.shares;
  start.one_shot_bytes = way.one_shot_bytes;
  start.rtt = way.rtt;
  EXPECT_TRUE(membership.begin(start).ok());
  OpRequest request;
  request.kind = protocol::OpKind::kAllReduce;
  request.count = count;
  request.format = way.format;
  return task_of(info_of(request, membership), {TagId{1}, 0}, 1, membership);
}

// The hash of the result, which all ranks have.
uint64_t hash(uint32_t world_size, uint64_t count, const Way& way, uint64_t seed = 1,
              Pattern pattern = Pattern::kDirect) {
  ring::World world(world_size, seed, 200'000, way.lanes);
  Call call{.key = {TagId{1}, 0}, .count = count, .block_bytes = {}, .scale = 1 / 7e6f};
  call.task = [&](uint32_t rank) { return task_in(rank, world_size, count, way); };
  EXPECT_EQ(call.task(0).shape.pattern, pattern);
  world.random.seed(5);  // the same values
  world.post(call);
  world.random.seed(seed);
  if (way.retried) {
    for (uint64_t moves = world.random() % 300; moves > 0 && world.move(); --moves) {
    }
    for (uint32_t rank = 0; rank < world_size; ++rank) world.again(rank, call.key, 0);
    for (uint32_t rank = 0; rank < world_size; ++rank) {
      world.renew(rank, Epoch{2});
      world.post_again(rank, call.key);
    }
  }
  world.settle();
  EXPECT_TRUE(world.failures.empty());
  uint64_t first = 0;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    world.end(rank, call.key, true);
    const ring::Bytes& result = world.result(rank, call.key)[0];
    const uint64_t of_rank = memory::state_hash(result.data(), result.size());
    if (rank == 0) first = of_rank;
    EXPECT_EQ(of_rank, first) << "rank " << rank;
  }
  return first;
}

std::vector<uint32_t> in_rank_order(uint32_t world) {
  std::vector<uint32_t> ring(world);
  std::iota(ring.begin(), ring.end(), 0u);
  return ring;
}

constexpr uint64_t kCount = 1 << 18;  // 1 MiB

class SameBits : public testing::TestWithParam<uint32_t> {
 protected:
  std::vector<uint32_t> some_ring() {
    std::vector<uint32_t> ring = in_rank_order(world_);
    std::shuffle(ring.begin(), ring.end(), random_);
    return ring;
  }
  // Of epochs on wan paths and on local ones.
  uint32_t some_rtt() { return random_() % 2 == 0 ? 0 : 50'000; }

  const uint32_t world_ = GetParam();
  std::mt19937_64 random_{world_};
  const Way base_{.ring = in_rank_order(world_), .shares = protocol::equal_shares(world_)};
};
INSTANTIATE_TEST_SUITE_P(Worlds, SameBits, testing::Range(3u, 7u));

TEST_P(SameBits, WhenOneThingVaries) {
  const uint64_t expected = hash(world_, kCount, base_);
  for (int round = 0; round < 5; ++round) {
    Way way = base_;
    way.ring = some_ring();
    EXPECT_EQ(hash(world_, kCount, way), expected) << "another ring";
  }
  for (int round = 0; round < 20; ++round) {
    Way way = base_;
    way.shares = ring::random_shares(world_, random_);
    EXPECT_EQ(hash(world_, kCount, way), expected) << "other shares";
  }
  for (uint64_t lanes = 2; lanes <= 8; ++lanes) {
    Way way = base_;
    way.lanes = lanes;
    EXPECT_EQ(hash(world_, kCount, way, lanes), expected) << lanes << " lanes";
  }
  for (uint64_t seed = 2; seed < 7; ++seed) {
    Way way = base_;
    way.retried = true;
    EXPECT_EQ(hash(world_, kCount, way, seed), expected) << "a retry";
  }
  Way way = base_;
  way.rtt = 50'000;
  EXPECT_EQ(hash(world_, kCount, way), expected) << "on wan paths";
}

TEST_P(SameBits, WhenSeveralThingsVary) {
  const uint64_t expected = hash(world_, kCount, base_);
  for (uint64_t round = 0; round < 50; ++round) {
    const Way way{.ring = some_ring(),
                  .shares = ring::random_shares(world_, random_),
                  .lanes = 1 + random_() % 8,
                  .retried = random_() % 2 == 0,
                  .rtt = some_rtt()};
    EXPECT_EQ(hash(world_, kCount, way, round), expected) << "round " << round;
  }
}

TEST_P(SameBits, QuantizedTensorsWhenSeveralThingsVary) {
  for (const WireFormat format :
       {WireFormat{8, 256, 8}, WireFormat{4, 64, 8}, WireFormat{16, 0, 16},
        WireFormat{8, 256, 8, true}, WireFormat{4, 64, 8, true}}) {
    Way base = base_;
    base.format = format;
    const uint64_t expected = hash(world_, kCount, base);
    EXPECT_NE(expected, hash(world_, kCount, base_));
    for (uint64_t round = 0; round < 20; ++round) {
      const bool shared = round % 4 > 0;  // otherwise the plain tensors of the epoch take the ring
      const Way way{
          .ring = some_ring(),
          .shares = shared ? ring::random_shares(world_, random_) : std::vector<uint16_t>{},
          .lanes = 1 + random_() % 8,
          .retried = random_() % 2 == 0,
          .rtt = some_rtt(),
          .format = format};
      EXPECT_EQ(hash(world_, kCount, way, round), expected) << "round " << round;
    }
  }
}

// Small tensors have the bits of large ones.
TEST_P(SameBits, OneShotOperationsAddInRankOrderToo) {
  constexpr uint64_t kSmall = 16'000;
  const uint64_t expected = hash(world_, kSmall, base_);
  for (int round = 0; round < 5; ++round) {
    Way way = base_;
    way.one_shot_bytes = protocol::kOneShotBytesMax;
    way.ring = some_ring();
    EXPECT_EQ(hash(world_, kSmall, way, 1, Pattern::kOneShot), expected);
  }
}

// The sum of two numbers does not depend on their order, but the MIN of two zeros does.
TEST(SameBitsOfTwo, APairwiseExchangeBeginsWithRankZero) {
  for (const std::vector<uint32_t>& ring : {std::vector<uint32_t>{0, 1}, {1, 0}}) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const ring::Task task = task_in(rank, 2, kCount, {.ring = ring, .shares = {}, .rtt = 50'000});
      EXPECT_EQ(task.shape.pattern, Pattern::kPairwise);
      EXPECT_EQ(task.shape.rank, rank);
      EXPECT_EQ(task.upstream, PeerId{2 - rank});
      EXPECT_EQ(task.downstream, PeerId{2 - rank});
    }
  }
}

// The ring, in contrast, adds in its own order. If this fails, the tests above prove nothing.
TEST(SameBitsOfTheRing, DependOnItsOrder) {
  const Way one{.ring = {0, 1, 2, 3, 4}, .shares = {}};
  const Way other{.ring = {3, 1, 4, 0, 2}, .shares = {}};
  EXPECT_NE(hash(5, kCount, one, 1, Pattern::kAllReduce),
            hash(5, kCount, other, 1, Pattern::kAllReduce));
}

TEST(SameBitsOfTheRing, QuantizedBitsDependOnItsOrderAlone) {
  for (const WireFormat format :
       {WireFormat{8, 256, 8}, WireFormat{16, 0, 16}, WireFormat{8, 256, 8, true}}) {
    const Way base{.ring = {0, 1, 2, 3, 4}, .shares = {}, .format = format, .rings_only = true};
    const uint64_t expected = hash(5, kCount, base, 1, Pattern::kAllReduce);
    for (uint64_t lanes = 1; lanes <= 8; ++lanes) {
      Way way = base;
      way.lanes = lanes;
      way.retried = lanes % 2 == 0;
      EXPECT_EQ(hash(5, kCount, way, lanes, Pattern::kAllReduce), expected) << lanes << " lanes";
    }
    Way other = base;
    other.ring = {3, 1, 4, 0, 2};
    EXPECT_NE(hash(5, kCount, other, 1, Pattern::kAllReduce), expected);
  }
}

}  // namespace
}  // namespace pccl::peer
