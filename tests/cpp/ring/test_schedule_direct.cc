// The schedules of the direct pattern: that of the whole operation, and those of its legs.

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <vector>

#include "csrc/protocol/limits.h"
#include "csrc/protocol/shares.h"
#include "csrc/ring/schedule.h"
#include "csrc/ring/task.h"
#include "tests/cpp/ring/shares.h"

namespace pccl::ring {
namespace {

Shape shape(uint32_t rank, const std::vector<uint16_t>& shares, uint64_t count, bool wan) {
  return {.pattern = Pattern::kDirect,
          .rank = rank,
          .world = static_cast<uint32_t>(shares.size()),
          .element_bytes = 4,
          .count = count,
          .block_bytes = {},
          .wan = wan,
          .shares = shares};
}

// Both ends of a leg.
struct Ends {
  Schedule start, end;
  Ends(const Shape& of, uint32_t from, uint32_t to)
      : start(shape_of_leg(at(of, from), from, to)), end(shape_of_leg(at(of, to), from, to)) {}
  static Shape at(Shape shape, uint32_t rank) {
    shape.rank = rank;
    return shape;
  }
};

// Calls visit(shape) for worlds, sizes and shares of all kinds.
void for_each_shape(const std::function<void(const Shape&)>& visit) {
  std::mt19937_64 random(5);
  for (uint32_t world = 2; world <= 6; ++world) {
    for (const uint64_t count : {1, 17, 5000, 300'007, 3'000'000}) {
      for (const bool wan : {false, true}) {
        visit(shape(0, protocol::equal_shares(world), count, wan));
        visit(shape(0, random_shares(world, random), count, wan));
      }
    }
  }
}

TEST(DirectSchedule, EveryByteIsContributedAndReturnedOnce) {
  for_each_shape([](const Shape& all) {
    for (uint32_t rank = 0; rank < all.world; ++rank) {
      const Schedule whole(Ends::at(all, rank));
      whole.check();
      EXPECT_FALSE(whole.sends() || whole.receives()) << "its legs do";
      uint64_t contributed = 0, returned = 0, own = 0;
      for (uint64_t index = 0; index < whole.written_count(); ++index) {
        const Chunk chunk = whole.written(index);
        EXPECT_EQ(whole.index_written(chunk), index);
        if (chunk.block == rank) own += chunk.bytes;
      }
      for (uint32_t other = 0; other < all.world; ++other) {
        if (other == rank) continue;
        const Schedule to(shape_of_leg(Ends::at(all, rank), rank, other));
        const Schedule from(shape_of_leg(Ends::at(all, rank), other, rank));
        for (uint64_t id = 0; id < to.chunk_count(); ++id) {
          const Chunk chunk = to.chunk_sent_for(id);
          if (chunk.round == 0) contributed += chunk.bytes;
        }
        for (uint64_t id = 0; id < from.chunk_count(); ++id) {
          const Chunk chunk = from.chunk_received(id);
          if (from.action(chunk) == Action::kStore) returned += chunk.bytes;
        }
      }
      EXPECT_EQ(own + contributed, all.count * 4);
      EXPECT_EQ(own + returned, all.count * 4);
    }
  });
}

TEST(DirectSchedule, BothEndsOfALegCountAlike) {
  for_each_shape([](const Shape& all) {
    for (uint32_t from = 0; from < all.world; ++from) {
      for (uint32_t to = 0; to < all.world; ++to) {
        if (from == to) continue;
        const Ends leg(all, from, to);
        leg.start.check();
        leg.end.check();
        EXPECT_EQ(leg.start.sends(), all.shares[from] + all.shares[to] > 0);
        EXPECT_EQ(leg.start.sends(), leg.end.receives());
        EXPECT_FALSE(leg.start.receives() || leg.end.sends());
        EXPECT_EQ(leg.start.step_count(), leg.end.step_count());
        EXPECT_LE(leg.start.head(protocol::kEagerBytesLarge).steps, leg.end.credit_of_owner(0));
        for (uint64_t id = 0; id < leg.start.chunk_count(); ++id) {
          Chunk received = leg.end.chunk_received(id);
          EXPECT_EQ(leg.end.find(received.round, received.block, received.slice), id);
          EXPECT_FALSE(leg.end.find(received.round, from + to - received.block, received.slice));
          received.slot = 0;
          EXPECT_EQ(leg.start.chunk_sent_for(id), received);
          EXPECT_EQ(received.block, received.round == 0 ? to : from);
        }
        EXPECT_FALSE(leg.end.find(2, from, 0));
      }
    }
  });
}

TEST(DirectSchedule, ResultsWaitUntilTheyAreComputed) {
  const Ends leg(shape(0, {100, 156, 0}, 1'000'000, false), 0, 1);
  const Schedule::Sources sources = leg.start.sources();
  EXPECT_EQ(sources.stride, 2u) << "contributions alone";
  EXPECT_EQ(sources.end, leg.start.chunk_count());
  EXPECT_EQ(leg.start.chunk_sent_for(leg.start.result_id(3)).round, 1);
  EXPECT_EQ(leg.start.chunk_sent_for(leg.start.result_id(3)).slice, 3u);
  EXPECT_FALSE(leg.end.unlocked_by(0));
  const Ends back(shape(0, {100, 156, 0}, 1'000'000, false), 0, 2);
  EXPECT_EQ(back.start.sources().end, 0u) << "rank 2 owns nothing";
  EXPECT_EQ(back.start.chunk_sent_for(back.start.result_id(3)).slice, 3u);
}

// With all the credit that an owner can have granted, no two contributions share a slot.
TEST(DirectSchedule, DataWithinTheCreditFitsIntoTheScratch) {
  for_each_shape([](const Shape& all) {
    for (uint32_t owner = 0; owner < all.world; ++owner) {
      const Schedule whole(Ends::at(all, owner));
      if (!whole.owns()) {
        EXPECT_EQ(whole.slot_count(), 0u);
        continue;
      }
      EXPECT_LE(uint64_t{whole.slot_count()} * whole.chunk_bytes(), 32u << 20);
      for (const uint64_t combined : {uint64_t{0}, whole.slices() / 2}) {
        std::set<uint32_t> slots;
        size_t under_way = 0;
        for (uint32_t other = 0; other < all.world; ++other) {
          if (other == owner) continue;
          const Schedule leg(shape_of_leg(Ends::at(all, owner), other, owner));
          for (uint64_t slice = combined; slice < leg.slices(); ++slice) {
            const Chunk chunk = leg.chunk_received(*leg.find(0, owner, slice));
            if (chunk.step >= leg.credit_of_owner(combined)) break;
            slots.insert(chunk.slot);
            ++under_way;
          }
        }
        EXPECT_EQ(slots.size(), under_way);
        EXPECT_TRUE(slots.empty() || *slots.rbegin() < whole.slot_count());
      }
    }
  });
}

// The results that wait are part of the scratch. Only with the depth that every schedule has may
// the smallest slice need more.
TEST(DirectSchedule, ScratchOfAQuantizedOwnerKeepsItsBudget) {
  constexpr uint64_t kBudget = 32u << 20;
  for (const WireFormat format : {WireFormat{8, 256, 8}, WireFormat{4, 64, 8},
                                  WireFormat{4, 32, 16}, WireFormat{16, 0, 16}}) {
    for (const uint32_t world : {3u, 5u, 8u, 24u, 64u, 128u}) {
      for (const bool wan : {false, true}) {
        for (const uint64_t more : {uint64_t{0}, uint64_t{256} << 20}) {
          Shape all = shape(0, protocol::equal_shares(world), 300'000'000, wan);
          all.format = format;
          all.scratch_bytes = more;
          const Schedule whole(all);
          const uint64_t scratch = uint64_t{whole.slot_count()} * whole.slot_bytes();
          EXPECT_LE(scratch, wan && more > 0 ? more : kBudget) << text(format) << " " << world;
          EXPECT_GE(scratch, wan ? kBudget / 2 : 0) << text(format) << " " << world;
          EXPECT_EQ(whole.slot_count() % world, 0u) << "one of them for the result";
        }
      }
    }
  }
}

TEST(DirectSchedule, CountsWhatIsFinal) {
  const Ends leg(shape(0, {128, 128, 0}, 1'000'000, false), 0, 1);
  auto cursor = leg.end.first();
  EXPECT_EQ(leg.end.slices_here(cursor), 0u);
  while (cursor.step < 3) leg.end.advance(cursor);
  EXPECT_EQ(leg.end.slices_here(cursor), 2u) << "slice 2 lacks its results";
  cursor.at_end = true;
  EXPECT_EQ(leg.end.slices_here(cursor), leg.end.slices());
  EXPECT_EQ(leg.end.elements_in(2) % 4096, 0u);
  EXPECT_EQ(leg.end.elements_in(leg.end.slices()), 1'000'000u);
}

}  // namespace
}  // namespace pccl::ring
