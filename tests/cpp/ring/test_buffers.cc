#include "csrc/ring/buffers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

namespace pccl::ring {
namespace {

std::span<std::byte> bytes_of(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

// One rank of a world of three. Its tensor has 3 x 4096 floats: blocks of 16 KiB, one slice.
struct Rank {
  Rank(ReduceOp reduce, bool save) : tensor(3 * 4096) {
    std::iota(tensor.begin(), tensor.end(), 1.0f);
    before = tensor;
    auto made = OpBuffers::make(shape,
                                {.spans = {bytes_of(tensor)},
                                 .dtype = DType::kFloat32,
                                 .reduce = reduce,
                                 .contributors = 3,
                                 .save = save},
                                pool);
    EXPECT_TRUE(made.ok());
    buffers = std::move(made.value());
  }

  // The next chunk arrives with `value` in every element, in pieces of 1 to `piece_max` bytes, and
  // stops once `cut_at` bytes have arrived. Returns the chunk.
  Chunk arrive(float value, size_t piece_max, size_t cut_at = SIZE_MAX) {
    const Chunk chunk = schedule.chunk_received(schedule.id(cursor));
    auto landing = buffers->land(chunk, schedule.action(chunk), spare);
    EXPECT_EQ(landing.where.size(), chunk.bytes);
    const std::vector<float> values(chunk.bytes / 4, value);
    for (size_t at = 0; at < std::min<size_t>(chunk.bytes, cut_at);) {
      const size_t piece = std::min(1 + random() % piece_max, chunk.bytes - at);
      std::memcpy(landing.where.data() + at, reinterpret_cast<const std::byte*>(values.data()) + at,
                  piece);
      buffers->absorb(landing, at, piece);
      at += piece;
    }
    schedule.advance(cursor);
    return chunk;
  }
  float in_tensor(const Chunk& chunk, size_t index) { return tensor[chunk.offset / 4 + index]; }

  Shape shape{.rank = 0, .world = 3, .element_bytes = 4, .count = 3 * 4096, .block_bytes = {}};
  Schedule schedule{shape};
  Schedule::Cursor cursor = schedule.first();
  memory::Pool pool;
  std::vector<std::byte> spare = std::vector<std::byte>(schedule.chunk_bytes());
  std::vector<float> tensor, before;
  std::unique_ptr<OpBuffers> buffers;
  std::mt19937 random{3};
};

TEST(OpBuffers, ReduceEachPieceWhateverItsSize) {
  for (const size_t piece_max : {1, 3, 64, 777, 100000}) {
    Rank rank(ReduceOp::kAvg, true);
    const Chunk accumulated = rank.arrive(1000.0f, piece_max);
    EXPECT_EQ(accumulated.block, 2u);
    EXPECT_TRUE(rank.tensor == rank.before) << "partial sums travel in scratch";
    const auto next = rank.schedule.unlocked_by(accumulated.id);
    const auto partial = rank.buffers->source(rank.schedule.chunk_sent_for(*next));
    ASSERT_EQ(partial.size(), 16384u);
    for (size_t index = 0; index < 4096; ++index) {
      float value;
      std::memcpy(&value, partial.data() + 4 * index, 4);
      ASSERT_EQ(value, 1000.0f + rank.in_tensor(accumulated, index));
    }
    const Chunk finished = rank.arrive(3.0f, piece_max);
    EXPECT_EQ(finished.block, 1u);
    for (size_t index = 0; index < 4096; ++index) {
      ASSERT_EQ(rank.in_tensor(finished, index),
                (3.0f + static_cast<float>(4096 + index + 1)) / 3.0f);
    }
    const Chunk stored = rank.arrive(5.0f, piece_max);
    EXPECT_EQ(stored.block, 0u);
    EXPECT_EQ(rank.in_tensor(stored, 4095), 5.0f);
    rank.buffers->restore();
    EXPECT_TRUE(rank.tensor == rank.before);
  }
}

TEST(OpBuffers, RestoreWhatWasCutInTheMiddle) {
  for (const int whole_units : {0, 1, 2, 3}) {
    for (const size_t cut_at : {0, 1, 63, 64, 5000}) {
      Rank rank(ReduceOp::kSum, true);
      for (int chunk = 0; chunk < whole_units; ++chunk) rank.arrive(9.0f, 500);
      rank.arrive(8.0f, 1, cut_at);
      rank.buffers->restore();
      EXPECT_TRUE(rank.tensor == rank.before) << whole_units << " units and " << cut_at << " bytes";
    }
  }
}

// Three slices. The first restore() leaves the first slice as it is; the second one restores it.
TEST(OpBuffers, RestoreInTwoPartsWhatIsKeptForAWhile) {
  constexpr size_t kCount = 3 * (3 * 65536 / 4);
  const Shape shape{.world = 3, .element_bytes = 4, .count = kCount, .block_bytes = {}};
  const Schedule schedule(shape);
  memory::Pool pool;
  std::vector<float> tensor(kCount, 1.0f);
  auto buffers = std::move(
      OpBuffers::make(shape, {.spans = {bytes_of(tensor)}, .contributors = 3}, pool).value());
  std::vector<std::byte> spare(schedule.chunk_bytes());
  for (uint64_t id = schedule.chunk_count(); id-- > 0;) {  // in reverse order
    const Chunk chunk = schedule.chunk_received(id);
    auto landing = buffers->land(chunk, schedule.action(chunk), spare);
    std::fill_n(reinterpret_cast<float*>(landing.where.data()), chunk.bytes / 4, 7.0f);
    buffers->absorb(landing, 0, chunk.bytes);
  }
  const size_t kept = kCount / 3;
  const uint64_t held = pool.bytes_held();
  buffers->restore(kept * 4);
  buffers->close(kept * 4);
  EXPECT_LE(pool.bytes_held(), held);
  EXPECT_EQ(std::count(tensor.begin(), tensor.end(), 1.0f), kCount - kept);
  EXPECT_EQ(std::count(tensor.begin(), tensor.begin() + kept, 1.0f), 0);
  // Its owner may have reused this part by now.
  std::fill(tensor.begin() + kept, tensor.end(), 3.0f);
  buffers->restore();
  EXPECT_EQ(std::count(tensor.begin(), tensor.begin() + kept, 1.0f), kept);
  EXPECT_EQ(std::count(tensor.begin() + kept, tensor.end(), 3.0f), kCount - kept);
}

// On two lanes, a final sum and final values land alternately, piece by piece. One is cut off.
TEST(OpBuffers, SeveralUnitsLandAtOnce) {
  Rank rank(ReduceOp::kSum, true);
  const Chunk summed = rank.schedule.chunk_received(1);
  const Chunk stored = rank.schedule.chunk_received(2);
  std::vector<std::byte> other(rank.schedule.chunk_bytes());
  auto sum = rank.buffers->land(summed, Action::kFinish, rank.spare);
  auto store = rank.buffers->land(stored, Action::kStore, other);
  for (size_t at = 0; at < summed.bytes; at += 1024) {
    std::fill_n(reinterpret_cast<float*>(sum.where.data() + at), 256, 100.0f);
    rank.buffers->absorb(sum, at, 1024);
    if (at > summed.bytes / 2) continue;
    std::fill_n(reinterpret_cast<float*>(store.where.data() + at), 256, 7.0f);
    rank.buffers->absorb(store, at, 1024);
  }
  EXPECT_EQ(rank.in_tensor(summed, 5), 100.0f + rank.before[summed.offset / 4 + 5]);
  EXPECT_EQ(rank.in_tensor(stored, 5), 7.0f);
  rank.buffers->restore();
  EXPECT_TRUE(rank.tensor == rank.before);
}

TEST(OpBuffers, WithoutSavingNothingIsHeldOrRestored) {
  Rank saving(ReduceOp::kSum, true);
  Rank rank(ReduceOp::kSum, false);
  EXPECT_LT(rank.pool.bytes_held(), saving.pool.bytes_held());
  rank.arrive(1.0f, 100);
  rank.arrive(1.0f, 100);
  rank.buffers->restore();
  EXPECT_FALSE(rank.tensor == rank.before);
}

// Chunks of a pairwise exchange that have landed in part or in whole.
TEST(OpBuffers, OvertakenDataIsSentAsItWas) {
  for (const bool save : {true, false}) {
    constexpr size_t kCount = 600 * 16384;  // more chunks than are kept without saving
    const Shape shape{.pattern = Pattern::kPairwise,
                      .world = 2,
                      .element_bytes = 4,
                      .count = kCount,
                      .block_bytes = {},
                      .wan = true,
                      .restored = save};
    const Schedule schedule(shape);
    memory::Pool pool;
    std::vector<float> tensor(kCount);
    std::iota(tensor.begin(), tensor.end(), 1.0f);
    const std::vector<float> before = tensor;
    auto buffers = std::move(
        OpBuffers::make(shape, {.spans = {bytes_of(tensor)}, .contributors = 2, .save = save}, pool)
            .value());
    EXPECT_EQ(pool.bytes_held() < (36u << 20), !save);
    std::vector<std::byte> spare(schedule.chunk_bytes()), contribution(schedule.chunk_bytes());
    for (const uint64_t id : {uint64_t{2}, uint64_t{550}, schedule.chunk_count() - 1}) {
      const Chunk chunk = schedule.chunk_received(id);
      const auto expected = std::as_bytes(std::span(before)).subspan(chunk.offset, chunk.bytes);
      auto landing = buffers->land(chunk, schedule.action(chunk), spare);
      std::fill_n(reinterpret_cast<float*>(landing.where.data()), chunk.bytes / 4, 7.0f);
      for (size_t at = 0; at < chunk.bytes; at += chunk.bytes / 4) {
        buffers->copy_source(chunk, contribution);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), contribution.begin()));
        buffers->absorb(landing, at, chunk.bytes / 4);
      }
      buffers->copy_source(chunk, contribution);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), contribution.begin()));
      EXPECT_EQ(tensor[chunk.offset / 4 + 9], before[chunk.offset / 4 + 9] + 7.0f);
    }
    buffers->restore();
    EXPECT_EQ(tensor == before, save);
  }
}

TEST(OpBuffers, BlocksMayBeSeparateTensorsOrOne) {
  const Shape shape{.pattern = Pattern::kAllGather,
                    .rank = 1,
                    .world = 2,
                    .element_bytes = 1,
                    .count = 10,
                    .block_bytes = {}};
  const Schedule schedule(shape);
  const Chunk sent = schedule.chunk_sent_for(0);
  memory::Pool pool;
  std::vector<std::byte> one(10), two(10), both(20);
  auto apart = OpBuffers::make(shape, {.spans = {one, two}, .dtype = DType::kBytes}, pool);
  auto joined = OpBuffers::make(shape, {.spans = {both}, .dtype = DType::kBytes}, pool);
  EXPECT_EQ(apart.value()->source(sent).data(), two.data());
  EXPECT_EQ(joined.value()->source(sent).data(), both.data() + 10);
  const Chunk received = schedule.chunk_received(0);
  EXPECT_EQ(apart.value()->land(received, Action::kStore, {}).where.data(), one.data());
  EXPECT_EQ(joined.value()->land(received, Action::kStore, {}).where.data(), both.data());
}

TEST(OpBuffers, SaysHowMuchItCouldNotHave) {
  memory::Pool pool;
  std::byte nothing{};
  const uint64_t bytes = uint64_t{1} << 60;
  const auto made = OpBuffers::make({.world = 2, .count = bytes, .block_bytes = {}},
                                    {.spans = {{&nothing, bytes}}}, pool);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code, Code::kSystem);
  EXPECT_NE(made.status().message.find(std::to_string(bytes)), std::string::npos)
      << made.status().message;
  EXPECT_LE(pool.bytes_held(), 1u << 20) << "a chunk of scratch, idle";
}

TEST(BuffersDeathTest, AnOperationBeginsOnce) {
  Rank rank(ReduceOp::kSum, true);
  rank.buffers->begin();
  EXPECT_DEATH(rank.buffers->begin(), "assertion failed: !begun_");
}

}  // namespace
}  // namespace pccl::ring
