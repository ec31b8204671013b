// The schedule on paper (paper_world.h), and what it says of sizes, places and credit.

#include "csrc/ring/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/protocol/limits.h"
#include "csrc/ring/eager.h"
#include "tests/cpp/ring/paper_world.h"

namespace pccl::ring {
namespace {

using Stretches = std::map<uint64_t, uint64_t>;  // the end of each, by its start

std::vector<uint64_t> interesting_counts(uint64_t world) {
  return {0,
          1,
          2,
          world - 1,
          world,
          world + 1,
          63,
          64 * world + 1,
          16384 * world,
          16384 * world * 3 + 5,
          1000003};
}

// The blocks tile the row without gap or overlap.
void expect_tiled(const Schedule& schedule, uint64_t bytes) {
  uint64_t end = 0;
  for (uint32_t block = 0; block < schedule.block_count(); ++block) {
    EXPECT_EQ(schedule.block_offset(block), end);
    end += schedule.block_bytes(block);
  }
  EXPECT_EQ(end, bytes);
}

// Marks [start, end) as written and joins it with adjacent stretches.
void write(Stretches& written, uint64_t start, uint64_t end) {
  if (start == end) return;
  auto after = written.lower_bound(start);
  EXPECT_TRUE(after == written.end() || after->first >= end) << "written twice: " << start;
  if (after != written.begin()) {
    const auto before = std::prev(after);
    EXPECT_LE(before->second, start) << "written twice: " << start;
    if (before->second == start) start = before->first;
  }
  if (after != written.end() && after->first == end) {
    end = after->second;
    written.erase(after);
  }
  written[start] = end;
}

// All stretches that arriving chunks write, each byte once.
Stretches bytes_written(const Schedule& schedule) {
  Stretches written;
  for (uint64_t id = 0; schedule.receives() && id < schedule.chunk_count(); ++id) {
    const Chunk chunk = schedule.chunk_received(id);
    EXPECT_LE(chunk.bytes, schedule.chunk_bytes());
    if (schedule.action(chunk) == Action::kAccumulate) continue;
    write(written, chunk.offset, chunk.offset + chunk.bytes);
  }
  return written;
}

Stretches one_stretch(uint64_t start, uint64_t end) {
  Stretches stretches;
  write(stretches, start, end);
  return stretches;
}

constexpr WireFormat kBfloat16{16, 0, 16};

class AllWorlds : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Schedule, AllWorlds, ::testing::Range(1u, 10u));

TEST_P(AllWorlds, AllReduceReducesEveryElementOnceOnEveryRank) {
  const uint32_t world = GetParam();
  for (const uint64_t element_bytes : {1, 2, 4, 8}) {
    for (const uint64_t count : interesting_counts(world)) {
      SCOPED_TRACE(std::to_string(count) + " elements of " + std::to_string(element_bytes));
      Shape shape{.world = world,
                  .element_bytes = element_bytes,
                  .count = count,
                  .block_bytes = {},
                  .wan = element_bytes == 4};
      PaperWorld ranks(shape, count + world);
      ASSERT_TRUE(ranks.run()) << "it stands still";
      for (uint32_t rank = 0; rank < world && world > 1; ++rank) {
        PaperRank& member = ranks.member(rank);
        EXPECT_EQ(bytes_written(member.schedule), one_stretch(0, count * element_bytes));
        for (const auto& [at, symbol] : member.tensor) EXPECT_EQ(symbol, ranks.all());
        for (const Ranks slot : member.slots) EXPECT_EQ(slot, 0u);
      }
    }
  }
}

// Codes wait in scratch in all rounds but the last, and each chunk has whole blocks.
TEST_P(AllWorlds, CodesAreReducedOncePassedOnAndFreed) {
  const uint32_t world = GetParam();
  for (const WireFormat& format : {WireFormat{8, 256, 8}, WireFormat{8, 32, 16}, kBfloat16}) {
    for (const uint64_t count : interesting_counts(world)) {
      for (const bool wan : {false, true}) {
        SCOPED_TRACE(std::to_string(count) + " elements in " + text(format));
        PaperWorld ranks({.world = world,
                          .element_bytes = 4,
                          .count = count,
                          .format = format,
                          .block_bytes = {},
                          .wan = wan},
                         count + world);
        ASSERT_TRUE(ranks.run()) << "it stands still";
        for (uint32_t rank = 0; rank < world && world > 1; ++rank) {
          PaperRank& member = ranks.member(rank);
          EXPECT_EQ(bytes_written(member.schedule), one_stretch(0, count * 4));
          for (const auto& [at, symbol] : member.tensor) {
            EXPECT_EQ(symbol, ranks.all());
            EXPECT_TRUE(format.block == 0 || at.second % (4 * format.block) == 0 ||
                        at.second == count * 4);
          }
          for (const Ranks slot : member.slots) EXPECT_EQ(slot, 0u);
        }
      }
    }
  }
}

TEST_P(AllWorlds, CreditNeverDeadlocksInAnyOrder) {
  const uint32_t world = GetParam();
  const uint64_t count =
      // Eight slices, more than the depth of the scratch buffer.
      uint64_t{world} * (64 << 10) * 11 + 3;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const bool wan = seed % 4 == 3;
    PaperWorld ranks({.world = world,
                      .element_bytes = 1,
                      .count = count,
                      .format = seed % 3 == 0 ? WireFormat{8, 256, 8} : WireFormat{},
                      .block_bytes = {},
                      .wan = wan},
                     seed);
    ASSERT_TRUE(ranks.run()) << "seed " << seed;
  }
}

TEST(Schedule, MutualReducesEveryElementOnceOnBoth) {
  for (const bool restored : {true, false}) {
    for (uint64_t count : interesting_counts(2)) {
      if (count > 1000) count *= 40;  // more steps than a rank may be ahead
      Shape shape{.pattern = Pattern::kPairwise,
                  .world = 2,
                  .element_bytes = 4,
                  .count = count,
                  .block_bytes = {},
                  .wan = true,
                  .restored = restored};
      PaperWorld ranks(shape, count);
      ASSERT_TRUE(ranks.run()) << count << " elements: it stands still";
      for (uint32_t rank = 0; rank < 2; ++rank) {
        PaperRank& member = ranks.member(rank);
        EXPECT_EQ(bytes_written(member.schedule), one_stretch(0, 4 * count));
        for (const auto& [at, symbol] : member.tensor) EXPECT_EQ(symbol, ranks.all());
      }
    }
  }
}

TEST_P(AllWorlds, AllGatherBringsEveryBlockEverywhere) {
  const uint32_t world = GetParam();
  for (const uint64_t count : interesting_counts(world)) {
    PaperWorld ranks({.pattern = Pattern::kAllGather,
                      .world = world,
                      .element_bytes = 2,
                      .count = count,
                      .block_bytes = {}},
                     count);
    ASSERT_TRUE(ranks.run());
    for (uint32_t rank = 0; rank < world; ++rank) {
      const Schedule& schedule = ranks.member(rank).schedule;
      expect_tiled(schedule, 2 * count * world);
      Stretches others = one_stretch(0, schedule.block_offset(rank));
      write(others, schedule.block_offset(rank) + schedule.block_bytes(rank), 2 * count * world);
      EXPECT_EQ(bytes_written(schedule), world == 1 ? Stretches() : others);
      for (const auto& [at, symbol] : ranks.member(rank).tensor)
        EXPECT_EQ(symbol, Ranks{1} << at.first);
    }
  }
}

TEST_P(AllWorlds, BroadcastReachesTheLast) {
  const uint32_t world = GetParam();
  for (const uint64_t count : interesting_counts(world)) {
    PaperWorld ranks({.pattern = Pattern::kBroadcast,
                      .world = world,
                      .element_bytes = 4,
                      .count = count,
                      .block_bytes = {}},
                     count);
    ASSERT_TRUE(ranks.run());
    EXPECT_FALSE(ranks.member(0).schedule.receives());
    EXPECT_FALSE(ranks.member(world - 1).schedule.sends());
    for (uint32_t rank = 1; rank < world; ++rank) {
      EXPECT_EQ(bytes_written(ranks.member(rank).schedule), one_stretch(0, 4 * count));
      for (const auto& [at, symbol] : ranks.member(rank).tensor) EXPECT_EQ(symbol, 1u);
    }
  }
}

TEST(Schedule, TransferMovesEveryBlockEmptyOnesIncluded) {
  const std::vector<std::vector<uint64_t>> all = {
      {}, {0}, {1}, {0, 0, 0}, {5, 0, 3 << 20, 64, 0}, {(1 << 20) + 1, 1 << 20, (1 << 20) - 1}};
  for (const auto& blocks : all) {
    PaperWorld ranks({.pattern = Pattern::kTransfer, .world = 2, .block_bytes = blocks}, 1);
    ASSERT_TRUE(ranks.run());
    const Schedule& destination = ranks.member(1).schedule;
    expect_tiled(destination, destination.total_bytes());
    EXPECT_EQ(bytes_written(destination), one_stretch(0, destination.total_bytes()));
  }
}

// The elements that finished() counts are really there. The count grows slice by slice, up to all.
TEST_P(AllWorlds, AllReduceFinishesFromTheStartOn) {
  const uint32_t world = GetParam();
  for (const uint64_t count : {uint64_t{0}, uint64_t{5}, uint64_t{world} * 16384 * 7 + 3}) {
    for (uint32_t rank = 0; rank < world && world > 1; ++rank) {
      const Schedule schedule(
          {.rank = rank, .world = world, .element_bytes = 4, .count = count, .block_bytes = {}});
      Stretches written;
      uint64_t before = 0, steps = 0;
      auto cursor = schedule.first();
      while (!cursor.at_end) {
        const Chunk chunk = schedule.chunk_received(schedule.id(cursor));
        schedule.advance(cursor);
        if (schedule.action(chunk) != Action::kAccumulate) {
          write(written, chunk.offset, chunk.offset + chunk.bytes);
        }
        const uint64_t finished = schedule.finished(cursor);
        EXPECT_GE(finished, before);
        if (finished > before) ++steps;
        before = finished;
        EXPECT_TRUE(finished == 0 || written.at(0) >= 4 * finished);
      }
      EXPECT_EQ(schedule.finished(cursor), count);
      EXPECT_EQ(steps, count > 1000 ? 8u : count > 0 ? 1u : 0u);
    }
  }
}

TEST(Schedule, MutualFinishesFromTheStartOn) {
  const uint64_t count = 5 * 3584 + 3;  // chunks of 14 KiB
  const Schedule schedule({.pattern = Pattern::kPairwise,
                           .rank = 1,
                           .world = 2,
                           .element_bytes = 4,
                           .count = count,
                           .block_bytes = {},
                           .wan = true});
  auto cursor = schedule.first();
  for (uint64_t chunks = 0; chunks < 6; ++chunks) {
    EXPECT_EQ(schedule.finished(cursor), chunks * 3584);
    schedule.advance(cursor);
  }
  EXPECT_TRUE(cursor.at_end);
  EXPECT_EQ(schedule.finished(cursor), count);
}

TEST(Schedule, APieceArrivesFromTheStartOn) {
  const Schedule schedule({.pattern = Pattern::kTransfer,
                           .rank = 1,
                           .world = 2,
                           .count = 1'000'003,
                           .block_bytes = {1'000'003},
                           .wan = true});
  auto cursor = schedule.first();
  uint64_t bytes = 0;
  while (!cursor.at_end) {
    EXPECT_EQ(schedule.finished(cursor), bytes);
    bytes += schedule.chunk_received(schedule.id(cursor)).bytes;
    schedule.advance(cursor);
  }
  EXPECT_EQ(bytes, 1'000'003u);
  EXPECT_EQ(schedule.finished(cursor), bytes);
}

TEST(Schedule, AnOperationThatYieldsHasSmallerChunks) {
  Shape shape{.pattern = Pattern::kTransfer, .world = 2, .block_bytes = {4 << 20}};
  EXPECT_EQ(Schedule(shape).chunk_bytes(), 512u << 10);
  shape.yields = true;
  EXPECT_EQ(Schedule(shape).chunk_bytes(), protocol::kChunkBytesOfState);
  shape.wan = true;
  EXPECT_EQ(Schedule(shape).chunk_bytes(), protocol::kChunkBytesWan);
}

// The drawing in schedule.h: three ranks, three slices.
TEST(Schedule, RunsAsDrawn) {
  const Schedule schedule(
      {.rank = 1, .world = 3, .element_bytes = 1, .count = 9 * (64 << 10), .block_bytes = {}});
  ASSERT_EQ(schedule.chunk_bytes(), 64u << 10);
  std::string drawn;
  for (auto cursor = schedule.first(); !cursor.at_end; schedule.advance(cursor)) {
    const Chunk chunk = schedule.chunk_sent_for(schedule.id(cursor));
    EXPECT_EQ(schedule.cursor_at(chunk.id).step, cursor.step);
    EXPECT_EQ(schedule.cursor_at(chunk.id).position, cursor.position);
    drawn += std::to_string(chunk.step) + ":s" + std::to_string(chunk.slice) + "q" +
             std::to_string(chunk.round) + " ";
    EXPECT_EQ(chunk.block, (1 + 6 - chunk.round) % 3);
  }
  EXPECT_EQ(drawn,
            "0:s0q0 1:s1q0 1:s0q1 2:s2q0 2:s1q1 2:s0q2 3:s2q1 3:s1q2 3:s0q3 4:s2q2 4:s1q3 5:s2q3 ");
}

TEST(Schedule, ChunksKeepTheirBoundsAndDoNotDependOnTheRank) {
  for (const uint32_t world : {1u, 2u, 3u, 8u, 32u, 128u}) {
    for (const uint64_t count :
         {uint64_t{1}, uint64_t{1000}, uint64_t{1} << 20, uint64_t{1} << 33}) {
      Shape shape{.world = world, .element_bytes = 4, .count = count, .block_bytes = {}};
      const Schedule first(shape);
      EXPECT_EQ(first.chunk_bytes() % 64, 0u);
      EXPECT_LE(first.chunk_bytes(), protocol::kChunkBytesMax);
      const uint64_t scratch = uint64_t{first.slot_count()} * first.chunk_bytes();
      EXPECT_LE(scratch, 34u << 20);
      EXPECT_LE(scratch, (Schedule::kDepth + 1) * (4 * count / world + 64) + (128u << 10));
      shape.rank = world - 1;
      EXPECT_EQ(Schedule(shape).chunk_bytes(), first.chunk_bytes());
    }
  }
  EXPECT_EQ(
      Schedule({.world = 2, .element_bytes = 4, .count = 1 << 24, .block_bytes = {}}).chunk_bytes(),
      1u << 20);
  EXPECT_EQ(
      Schedule({.world = 4, .element_bytes = 4, .count = 1 << 24, .block_bytes = {}}).chunk_bytes(),
      256u << 10);
}

TEST(Schedule, ScratchOfCodesKeepsItsBudget) {
  constexpr uint64_t kBudget = 32u << 20;
  for (const WireFormat& format : {WireFormat{8, 256, 8}, WireFormat{8, 1024, 16}, kBfloat16}) {
    for (const uint32_t world : {3u, 6u, 24u, 128u}) {
      for (const bool wan : {false, true}) {
        const Schedule schedule({.world = world,
                                 .element_bytes = 4,
                                 .count = 300'000'000,
                                 .format = format,
                                 .block_bytes = {},
                                 .wan = wan});
        const uint64_t scratch = uint64_t{schedule.slot_count()} * schedule.slot_bytes();
        EXPECT_LE(scratch, kBudget) << text(format) << " " << world;
        EXPECT_GE(scratch, wan ? kBudget / 2 : 0) << text(format) << " " << world;
        const uint64_t waiting = std::min<uint64_t>(2 * world - 3, schedule.slices());
        EXPECT_EQ(schedule.slot_count(), schedule.depth() * waiting) << "all rounds but the last";
      }
    }
  }
}

TEST(Schedule, ATensorThatIsExchangedFitsIntoItsSlot) {
  for (const bool wan : {false, true}) {
    for (const uint64_t count : {1u, 1000u, protocol::kOneShotBytesMax / 4}) {
      const Schedule schedule({.pattern = Pattern::kOneShot,
                               .world = 3,
                               .element_bytes = 4,
                               .count = count,
                               .block_bytes = {},
                               .wan = wan});
      EXPECT_GE(schedule.chunk_bytes(), schedule.total_bytes());
    }
  }
}

// A chunk of a small tensor fits into the first congestion window of a connection: ten segments of
// 1,448 bytes.
TEST(Schedule, FarAwayChunksOfSmallTensorsLeaveAtOnce) {
  Shape shape{.world = 18, .element_bytes = 4, .count = 2'500'000, .block_bytes = {}, .wan = true};
  EXPECT_LE(
      Schedule(shape).chunk_bytes() + protocol::kFrameHeaderBytes + protocol::kFrameTrailerBytes,
      10u * 1448);
  shape.count *= 4;
  EXPECT_GT(Schedule(shape).chunk_bytes(), 14u << 10);
  shape.wan = false;
  EXPECT_EQ(Schedule(shape).chunk_bytes(), 256u << 10);
}

// 32 MiB in flight on a path with an RTT of 200 ms give more than 1 Gbit/s.
TEST(Schedule, FarAwayChunksAreSmallAndMoreAreUnderWay) {
  Shape shape{.world = 2, .element_bytes = 4, .count = 1 << 30, .block_bytes = {}, .wan = true};
  EXPECT_EQ(Schedule(shape).chunk_bytes(), 64u << 10);
  for (const uint32_t world : {3u, 4u, 6u, 12u, 18u, 128u}) {
    shape.world = world;
    const Schedule schedule(shape);
    const uint64_t scratch = uint64_t{schedule.slot_count()} * schedule.chunk_bytes();
    EXPECT_GE(schedule.depth(), Schedule::kDepth);
    EXPECT_EQ(schedule.slot_count(), schedule.depth() * (world - 2));
    EXPECT_LE(scratch, 34u << 20);
    EXPECT_GE(scratch, 12u << 20) << world;
    EXPECT_EQ(schedule.credit({}, {}), schedule.depth());
  }
}

// A ring in which bytes cost nothing, and each hop takes one tick, half of an RTT. Only credit
// limits how much each hop carries. Returns the bytes per tick while the pipeline is full.
uint64_t bytes_per_tick(Shape shape) {
  struct Member {
    explicit Member(const Shape& shape) : schedule(shape), progress(schedule) {}
    Schedule schedule;
    Progress progress;
    uint64_t allowed = 0, granted = 0;  // as the neighbours know it by now
    std::vector<uint64_t> coming;       // chunks that arrive with the next tick
  };
  // All members do the same at the same time. So one is enough: what it sends, it also receives.
  Member member(shape);
  uint64_t sent = 0, sent_early = 0, tick = 0, early = 0;
  const uint64_t chunks = member.schedule.chunk_count();
  for (; !member.progress.finished(); ++tick) {
    for (const uint64_t id : std::exchange(member.coming, {})) {
      member.progress.arriving(id);
      member.progress.arrived(id);
    }
    member.allowed = member.granted;
    while (member.progress.can_send(member.allowed)) {
      const uint64_t id = member.progress.take();
      member.progress.sent(id);
      member.coming.push_back(id);
      ++sent;
    }
    member.granted =
        member.schedule.credit(member.progress.sent_until(), member.progress.received_until());
    if (sent <= chunks / 4) std::tie(early, sent_early) = std::pair(tick, sent);
    if (sent >= chunks * 3 / 4)
      return (sent - sent_early) * member.schedule.chunk_bytes() / (tick - early);
  }
  return 0;
}

// Steps are granted in their order, and each takes a tick more than the one before if the pipeline
// is not full. So a hop carries a chunk in a tick for each step of scratch, and the rounds of a
// slice beside that.
TEST(Schedule, ScratchLimitsWhatAFarRingCarries) {
  Shape shape{.element_bytes = 4, .count = 1 << 30, .block_bytes = {}, .wan = true};
  for (const uint32_t world : {4u, 12u, 18u}) {
    shape.world = world;
    shape.scratch_bytes = 0;
    const uint64_t standard = bytes_per_tick(shape);
    const uint64_t steps = Schedule(shape).depth() + 2 * world - 5;
    EXPECT_NEAR(static_cast<double>(standard), static_cast<double>(steps << 16), 1e5) << world;
    // 2.5, 8.5 and 14 Gbit/s with an RTT of 66 ms, by at most 1 GiB of scratch
    for (const uint64_t wanted : {10u << 20, 35u << 20, 58u << 20}) {
      shape.scratch_bytes = wanted * (world - 2);
      EXPECT_GE(bytes_per_tick(shape), wanted) << world;
    }
    EXPECT_EQ(
        Schedule(shape).head(8u << 20).steps,
        Schedule(
            {.world = world, .element_bytes = 4, .count = 1 << 30, .block_bytes = {}, .wan = true})
            .head(8u << 20)
            .steps)
        << "the other end may have less scratch";
  }
}

std::vector<uint64_t> in_order(const Schedule& schedule) {
  std::vector<uint64_t> ids(schedule.chunk_count());
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  std::sort(ids.begin(), ids.end(), [&schedule](uint64_t one, uint64_t other) {
    return schedule.order(one) < schedule.order(other);
  });
  return ids;
}

// Chunk 4s + q is round q of slice s.
TEST(Schedule, RoundsGoOneAfterAnotherWhereAllMayBeUnderWayAtOnce) {
  Shape shape{.rank = 1,
              .world = 3,
              .element_bytes = 1,
              .count = 9 * (64 << 10),
              .block_bytes = {},
              .wan = true};
  const Schedule wan(shape);
  ASSERT_GE(wan.depth(), wan.step_count());
  std::vector<uint64_t> rounds;
  for (uint64_t round = 0; round < 4; ++round) {
    for (uint64_t id = round; id < wan.chunk_count(); id += 4) rounds.push_back(id);
  }
  EXPECT_EQ(in_order(wan), rounds);
  shape.count = 1 << 30;
  const Schedule large(shape);
  ASSERT_LT(large.depth(), large.step_count());
  const std::vector<uint64_t> steps = in_order(large);
  EXPECT_EQ(std::vector(steps.begin(), steps.begin() + 6),
            (std::vector<uint64_t>{0, 4, 1, 8, 5, 2}));
}

TEST(Schedule, FindsUnitsByTheirMarksAndNothingElse) {
  const Schedule ring(
      {.rank = 1, .world = 3, .element_bytes = 1, .count = 9 * (64 << 10), .block_bytes = {}});
  EXPECT_EQ(ring.find(0, 0, 0), 0u);
  EXPECT_EQ(ring.find(1, 2, 2), 9u);
  EXPECT_EQ(ring.find(1, 1, 2), std::nullopt) << "another block goes in that round";
  EXPECT_EQ(ring.find(4, 0, 0), std::nullopt);
  EXPECT_EQ(ring.find(0, 0, 3), std::nullopt);
  const Schedule transfer(
      {.pattern = Pattern::kTransfer, .rank = 1, .world = 2, .block_bytes = {5, 0, 3 << 20, 64}});
  EXPECT_EQ(transfer.find(0, 0, 0), 0u);
  EXPECT_EQ(transfer.find(0, 2, 1), 3u);
  EXPECT_EQ(transfer.find(0, 3, 0), transfer.chunk_count() - 1);
  EXPECT_EQ(transfer.find(0, 0, 1), std::nullopt);
  EXPECT_EQ(transfer.find(0, 4, 0), std::nullopt);
  EXPECT_EQ(transfer.find(1, 0, 0), std::nullopt);
  const Schedule nothing({.world = 2, .block_bytes = {}});
  EXPECT_EQ(nothing.find(0, 0, 0), std::nullopt);
}

TEST(Schedule, MutualGrantsAllOfItWhereAllIsKept) {
  Shape shape{.pattern = Pattern::kPairwise,
              .world = 2,
              .element_bytes = 4,
              .count = 1 << 26,
              .block_bytes = {},
              .wan = true};
  EXPECT_EQ(Schedule(shape).credit({}, {}), Schedule(shape).step_count());
  shape.restored = false;
  EXPECT_EQ(Schedule(shape).credit({}, {}), 512u) << "32 MiB";
  EXPECT_EQ(Schedule(shape).credit({.step = 7}, {.step = 9}), 519u);
  EXPECT_EQ(Schedule(shape).credit({.step = 9}, {.step = 7}), 519u);
  EXPECT_EQ(Schedule(shape).credit({.step = 9}, {.at_end = true}), 521u);
}

// The eager data never exceeds what the other end keeps, whatever arrives from upstream meanwhile.
// Once the other end has posted, it has room for all of it.
TEST(Schedule, AHeadStartFitsAndIsCreditFromTheBeginning) {
  constexpr uint64_t kMebi = 1u << 20;
  for (const Pattern pattern :
       {Pattern::kAllReduce, Pattern::kAllGather, Pattern::kBroadcast, Pattern::kPairwise}) {
    for (const uint32_t world : {2u, 3u, 18u}) {
      if (pattern == Pattern::kPairwise && world != 2) continue;
      for (const uint64_t count : {uint64_t{1}, 50'000ul, 20 * kMebi}) {
        const Schedule schedule({.pattern = pattern,
                                 .world = world,
                                 .element_bytes = 4,
                                 .count = count,
                                 .block_bytes = {},
                                 .wan = true,
                                 .restored = false});
        for (const uint64_t room : {uint64_t{0}, uint64_t{5000}, kMebi, 8 * kMebi}) {
          SCOPED_TRACE(testing::Message() << static_cast<int>(pattern) << ", " << world
                                          << " ranks, " << count << " elements, room for " << room);
          const Schedule::Eager head = schedule.head(room);
          uint64_t bytes = 0, cost = 0;
          for (uint64_t id = 0; id < schedule.chunk_count(); ++id) {
            const Chunk chunk = schedule.chunk_sent_for(id);
            if (chunk.step >= head.steps) continue;
            bytes += chunk.bytes;
            cost += eager_cost(chunk.bytes);
          }
          EXPECT_LE(cost, head.cost);
          EXPECT_LE(head.cost, room);
          EXPECT_LE(head.steps, schedule.credit({}, {}));
          if (pattern == Pattern::kPairwise && room == 8 * kMebi) {
            EXPECT_EQ(bytes, std::min(4 * count, room)) << "all of it is used";
          }
        }
      }
    }
  }
  Shape shape{.world = 2, .element_bytes = 4, .count = 1 << 20, .block_bytes = {}};
  EXPECT_EQ(Schedule(shape).head(8 * kMebi).steps, 0u) << "near, credit comes soon enough";
  shape.wan = true;
  EXPECT_GT(Schedule(shape).head(8 * kMebi).steps, 0u);
  shape.pattern = Pattern::kTransfer;
  shape.block_bytes = {1 << 20};
  EXPECT_EQ(Schedule(shape).head(8 * kMebi).steps, 0u);
}

TEST(Schedule, GrantsAllOfItWhereScratchDoesNotLimit) {
  Shape shape{.world = 2, .element_bytes = 4, .count = 1 << 24, .block_bytes = {}};
  EXPECT_EQ(Schedule(shape).credit({}, {}), Schedule(shape).step_count());
  shape.world = 4;
  EXPECT_EQ(Schedule(shape).credit({}, {}), Schedule::kDepth);
  EXPECT_EQ(Schedule(shape).credit({.step = 5}, {}), 4 + Schedule::kDepth);
  shape.pattern = Pattern::kAllGather;
  EXPECT_EQ(Schedule(shape).credit({}, {}), Schedule(shape).step_count());
}

}  // namespace
}  // namespace pccl::ring
