// PaperWorld: runs the schedule with symbols instead of bytes. All ranks of a world run it against
// each other in random order, and chunks in flight overtake one another. A symbol is the set of
// ranks whose contribution it contains.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "csrc/ring/progress.h"
#include "csrc/ring/schedule.h"

namespace pccl::ring {

using Ranks = uint32_t;                       // a set with one bit per rank
using Place = std::pair<uint32_t, uint64_t>;  // block and offset

struct OnTheWay {
  Chunk chunk;
  Ranks symbol = 0;
};

// One rank: its tensor, its scratch buffer and its progress.
struct PaperRank {
  explicit PaperRank(const Shape& shape) : schedule(shape), progress(schedule) {
    slots.assign(schedule.slot_count(), 0);
  }
  Schedule schedule;
  Progress progress;
  std::map<Place, Ranks> tensor;  // an absent entry is the rank's own contribution
  std::vector<Ranks> slots;       // 0: free
  std::deque<OnTheWay> inbox;
  uint64_t allowed = 0;
  // Only if chunks overtake: the chunks that have left, and by step modulo the depth the last chunk
  // that was kept.
  std::set<uint64_t> left;
  std::map<uint64_t, uint64_t> kept;
};

class PaperWorld {
 public:
  PaperWorld(Shape shape, uint64_t seed) : random_(seed) {
    for (shape.rank = 0; shape.rank < shape.world; ++shape.rank)
      members_.push_back(std::make_unique<PaperRank>(shape));
    shape_ = shape;
  }

  // Again and again, one rank pauses until the others can do nothing more, so that they run as far
  // ahead of it as they ever can. Returns true if all have finished.
  bool run() {
    for (bool moved = true; moved;) {
      const uint32_t stopped = static_cast<uint32_t>(random_() % shape_.world);
      while (move_all_but(stopped)) {
      }
      moved = false;
      for (uint32_t rank = 0; rank < shape_.world; ++rank) moved |= send(rank) || receive(rank);
    }
    for (const auto& member : members_) {
      if (!member->progress.finished() || !member->inbox.empty()) return false;
    }
    return true;
  }

  PaperRank& member(uint32_t rank) { return *members_[rank]; }
  Ranks all() const { return (Ranks{1} << shape_.world) - 1; }

 private:
  Ranks own(uint32_t rank, uint32_t block) const {
    switch (shape_.pattern) {
      case Pattern::kPairwise:
      case Pattern::kAllReduce: return Ranks{1} << rank;
      case Pattern::kAllGather: return block == rank ? Ranks{1} << rank : 0;
      default: return rank == 0 ? 1 : 0;
    }
  }
  Ranks& at(uint32_t rank, const Chunk& chunk) {
    return members_[rank]
        ->tensor.try_emplace({chunk.block, chunk.offset}, own(rank, chunk.block))
        .first->second;
  }

  // Moves ranks in random order, each a few times. Returns false if none could do anything.
  bool move_all_but(uint32_t stopped) {
    bool moved = false;
    for (uint32_t turn = 0; turn < 2 * shape_.world; ++turn) {
      const uint32_t rank = static_cast<uint32_t>(random_() % shape_.world);
      if (rank != stopped) moved |= random_() % 2 != 0 ? send(rank) : receive(rank);
    }
    for (uint32_t rank = 0; rank < shape_.world && !moved; ++rank)
      moved = rank != stopped && (send(rank) || receive(rank));
    return moved;
  }

  bool send(uint32_t rank) {
    PaperRank& me = *members_[rank];
    const PaperRank& downstream = *members_[(rank + 1) % shape_.world];
    // A credit from downstream arrives now.
    const Progress& there = downstream.progress;
    me.allowed = std::max(me.allowed,
                          downstream.schedule.credit(there.sent_until(), there.received_until()));
    if (!me.progress.can_send(me.allowed)) return false;
    const Chunk chunk = me.schedule.chunk_sent_for(me.progress.take());
    EXPECT_LT(chunk.step, me.allowed);
    OnTheWay leaving{chunk, 0};
    if (me.schedule.from_scratch(chunk)) {
      Ranks& slot = me.slots[me.schedule.slot_sent(chunk)];
      EXPECT_NE(slot, 0u) << "sent from an empty slot";
      leaving.symbol = std::exchange(slot, 0);
    } else if (me.schedule.row().overtakes()) {
      leaving.symbol = own(rank, chunk.block);  // the data from before anything landed
    } else {
      leaving.symbol = at(rank, chunk);
    }
    me.left.insert(chunk.id);
    EXPECT_NE(leaving.symbol, 0u);
    me.progress.sent(chunk.id);
    members_[(rank + 1) % shape_.world]->inbox.push_back(leaving);
    return true;
  }

  bool receive(uint32_t rank) {
    PaperRank& me = *members_[rank];
    if (me.inbox.empty()) return false;
    const auto next = me.inbox.begin() + static_cast<ptrdiff_t>(random_() % me.inbox.size());
    const auto [sent, symbol] = *next;
    me.inbox.erase(next);
    EXPECT_EQ(me.schedule.find(sent.round, sent.block, sent.slice), sent.id);
    EXPECT_TRUE(me.progress.expects(sent.id));
    me.progress.arriving(sent.id);
    const Chunk chunk = me.schedule.chunk_received(sent.id);
    EXPECT_EQ(chunk, sent);
    EXPECT_LE(chunk.wire_bytes, me.schedule.slot_bytes());
    Ranks& tensor = at(rank, chunk);
    switch (me.schedule.action(chunk)) {
      case Action::kAccumulate: {
        Ranks& slot = me.slots.at(me.schedule.slot(chunk));
        EXPECT_EQ(slot, 0u) << "a slot is overwritten before it has left";
        EXPECT_EQ(symbol & tensor, 0u) << "reduced twice";
        slot = symbol | tensor;
        break;
      }
      case Action::kGather: ADD_FAILURE() << "of an exchange"; break;
      case Action::kFinish:
        EXPECT_EQ(symbol & tensor, 0u) << "reduced twice";
        tensor |= symbol;
        EXPECT_EQ(tensor, all());
        if (me.schedule.row().overtakes() && !shape_.restored) keep(me, chunk);
        pass_on(me, chunk, tensor);
        break;
      case Action::kStore:
        EXPECT_TRUE(shape_.pattern != Pattern::kAllReduce || symbol == all());
        EXPECT_EQ(me.tensor[Place(chunk.block, chunk.offset)], own(rank, chunk.block))
            << "stored twice";
        tensor = symbol;
        pass_on(me, chunk, tensor);
        break;
    }
    me.progress.arrived(chunk.id);
    return true;
  }

  // The codes of a result wait in a slot.
  static void pass_on(PaperRank& me, const Chunk& chunk, Ranks symbol) {
    if (!me.schedule.passes_codes(chunk)) return;
    Ranks& slot = me.slots.at(me.schedule.slot(chunk));
    EXPECT_EQ(slot, 0u) << "a slot is overwritten before it has left";
    slot = symbol;
  }

  // Overwritten data is kept only for as many steps as upstream may be ahead.
  static void keep(PaperRank& me, const Chunk& chunk) {
    const uint64_t at = chunk.step % me.schedule.depth();
    const auto before = me.kept.find(at);
    EXPECT_TRUE(before == me.kept.end() || me.left.contains(before->second))
        << "overwritten before it has left";
    me.kept[at] = chunk.id;
  }

  std::mt19937_64 random_;
  Shape shape_;
  std::vector<std::unique_ptr<PaperRank>> members_;
};

}  // namespace pccl::ring
