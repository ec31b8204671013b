// Ranks call the same operations in different orders, on links that move in random steps: all
// complete, whatever the order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <vector>

#include "tests/cpp/programs.h"
#include "tests/cpp/ring/expected.h"
#include "tests/cpp/ring/world.h"

namespace pccl::ring {
namespace {

OpKey call_key(uint64_t tag, uint32_t sequence = 0) { return {TagId{tag}, sequence}; }

TEST(Orders, ManyOperationsCalledInAnyOrderAllComplete) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    World world(4, seed);
    std::vector<Call> calls;
    for (uint32_t n = 0; n < 24; ++n) {
      calls.push_back(
          {.key = call_key(n % 5, n / 5), .count = world.random() % 3000, .block_bytes = {}});
      if (n % 6 == 5) calls.back().pattern = Pattern::kAllGather;
    }
    for (uint32_t rank = 0; rank < 4; ++rank) {
      std::shuffle(calls.begin(), calls.end(), world.random);
      for (const Call& call : calls) {
        world.post(rank, call);
        for (uint64_t moves = world.random() % 10; moves > 0 && world.move(); --moves) {
        }
      }
    }
    world.settle();
    for (const Call& call : calls) commit(world, call);
    expect_quiet(world);
  }
}

TEST(Orders, OppositeOrdersOfTwoRanks) {
  World world(2, 1);
  std::vector<Call> calls;
  for (uint32_t n = 0; n < 32; ++n)
    calls.push_back({.key = call_key(n), .count = 10000, .block_bytes = {}});
  for (const Call& call : calls) world.post(0, call);
  world.settle();
  std::reverse(calls.begin(), calls.end());
  for (const Call& call : calls) {
    world.post(1, call);
    world.settle();
    commit(world, call);
  }
  expect_quiet(world);
}

TEST(Orders, AnOperationThatOneRankHasNotCalledDelaysNoOther) {
  World world(3, 4);
  const Call late{.key = call_key(1), .count = 50000, .block_bytes = {}};
  const Call now{.key = call_key(2), .count = 50000, .block_bytes = {}};
  world.post(0, late);
  world.post(1, late);
  world.post(now);
  world.settle();
  commit(world, now);
  world.post(2, late);
  world.settle();
  commit(world, late);
  expect_quiet(world);
}

// ---- The smallest limits ----

// A link has one lane, and a lane one chunk on its way.
TEST(Orders, WithOneLaneAndOneChunkAtATimeAllComplete) {
  constexpr std::array<uint64_t, 8> kBytes{256,       1u << 10,   4u << 10,   16u << 10,
                                           64u << 10, 256u << 10, 512u << 10, 1u << 20};
  for (uint64_t seed = 0; seed < runs(4); ++seed) {
    World world(8, seed, 40000, 1);
    world.window = 1;
    std::vector<Call> calls;
    for (uint32_t n = 0; n < 64; ++n)
      calls.push_back(
          {.key = call_key(n), .count = kBytes[n % 8] / sizeof(float), .block_bytes = {}});
    std::vector<std::vector<Call>> orders(world.size(), calls);
    for (auto& order : orders) order = shuffled(calls, world.random);
    for (size_t step = 0; step < calls.size(); ++step) {
      for (uint32_t rank = 0; rank < world.size(); ++rank) world.post(rank, orders[rank][step]);
      for (uint64_t moves = world.random() % 40; moves > 0 && world.move(); --moves) {
      }
    }
    world.settle();
    for (const Call& call : calls) commit(world, call);
    expect_quiet(world);
  }
}

// ---- Groups that overlap ----

// Groups of some of the ranks, which make a few calls in each. A wait of a rank ends when all
// members of the group have the result.
class Groups {
 public:
  static constexpr uint32_t kRanks = 6;
  static constexpr size_t kGroups = 4, kCalls = 3;  // in each group

  explicit Groups(uint64_t seed) : random_(seed) {
    std::vector<std::vector<size_t>> calls(kRanks);
    for (size_t number = 0; number < kGroups; ++number) {
      std::vector<size_t> members = shuffled(numbers_to(kRanks), random_);
      members.resize(2 + random_() % 3);
      groups_.push_back({members, std::make_unique<World>(members.size(), random_())});
      for (const size_t rank : members) {
        for (size_t call = 0; call < kCalls; ++call) calls[rank].push_back(number * kCalls + call);
      }
      for (size_t call = 0; call < kCalls; ++call)
        calls_.push_back({.key = call_key(call), .count = random_() % 3 * 199, .block_bytes = {}});
    }
    posted_.resize(calls_.size());
    const std::vector<size_t> order = shuffled(numbers_to(calls_.size()), random_);
    for (uint32_t rank = 0; rank < kRanks; ++rank)
      programs_.push_back(program(calls[rank], order, 2, random_));
    at_.resize(kRanks);
  }

  // Until no rank can continue and no link can move.
  void run() {
    while (random_() % 2 == 0 ? act() || move() : move() || act()) {
    }
  }
  void check() {
    for (uint32_t rank = 0; rank < kRanks; ++rank)
      ASSERT_EQ(at_[rank], programs_[rank].size()) << "rank " << rank << " waits for ever";
    for (size_t call = 0; call < calls_.size(); ++call) commit(world_of(call), calls_[call]);
    for (const Group& group : groups_) expect_quiet(*group.world);
  }

 private:
  struct Group {
    std::vector<size_t> members;
    std::unique_ptr<World> world;
  };

  World& world_of(size_t call) { return *groups_[call / kCalls].world; }
  // One step of one rank. False: no rank can continue.
  bool act() {
    for (const size_t rank : shuffled(numbers_to(kRanks), random_)) {
      if (at_[rank] == programs_[rank].size()) continue;
      const ProgramStep& next = programs_[rank][at_[rank]];
      if (next.waits && !settled(next.call)) continue;
      at_[rank] += 1;
      if (!next.waits) post(rank, next.call);
      return true;
    }
    return false;
  }
  bool move() {
    for (const size_t group : shuffled(numbers_to(kGroups), random_)) {
      if (groups_[group].world->move()) return true;
    }
    return false;
  }
  void post(size_t rank, size_t call) {
    const std::vector<size_t>& members = groups_[call / kCalls].members;
    const auto place = std::find(members.begin(), members.end(), rank) - members.begin();
    world_of(call).post(static_cast<uint32_t>(place), calls_[call]);
    posted_[call] += 1;
  }
  bool settled(size_t call) {
    World& world = world_of(call);
    if (posted_[call] < world.size()) return false;
    for (uint32_t place = 0; place < world.size(); ++place) {
      if (world.at(place, calls_[call].key).transferred == 0) return false;
    }
    return true;
  }

  std::mt19937_64 random_;
  std::vector<Group> groups_;
  std::vector<Call> calls_;     // of all groups
  std::vector<size_t> posted_;  // by call: the number of ranks that have posted it
  std::vector<Program> programs_;
  std::vector<size_t> at_;  // by rank: its next step
};

TEST(Orders, GroupsThatOverlapComplete) {
  for (uint64_t seed = 0; seed < runs(10'000); ++seed) {
    SCOPED_TRACE(seed);
    Groups groups(seed);
    groups.run();
    groups.check();
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace pccl::ring
