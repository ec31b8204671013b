// Progress: the state of one operation on this rank: which chunks of its schedule have arrived,
// which have been sent, and which may be sent next.
// It is plain data in an Operation; RingCore alone changes it. Chunks of one operation travel on
// several lanes at once and may overtake each other, so chunks are also unlocked out of order.
// Invariants:
//  (1) All chunks before a cursor have passed the stage of the cursor (sent, or arrived); the chunk
//      at the cursor has not.
//  (2) A chunk is taken at most once, from the sources or from the heap, so no chunk is sent twice.
//  (3) A chunk that has arrived began to arrive before. A chunk in the heap has its data here and
//      has not been sent. The first one in the heap is the first in schedule order.
//  (4) When all chunks are sent, all were taken, and the heap is empty.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/ring/schedule.h"

namespace pccl::ring {

class Progress {
 public:
  explicit Progress(const Schedule& schedule);

  // ---- Sending ----
  // From now on, a chunk that needs nothing from upstream waits until all chunks of the steps
  // before its own have arrived. No step then runs far ahead of another: a chunk that is sent is
  // received, reduced and sent on while it is in cache. That matters within one machine, where the
  // path adds almost no delay.
  void go_in_step() { in_step_ = true; }
  // Ends go_in_step().
  void run_ahead() { in_step_ = false; }
  bool in_step() const { return in_step_; }
  // True if the next chunk belongs to one of the first `steps` steps. The next chunk is the first
  // one, in schedule order, whose data is here. If rounds go one after another, a later chunk may
  // belong to these steps and yet wait. That does no harm: credit then covers all steps, and only
  // eager data covers fewer.
  bool can_send(uint64_t steps) const;
  // Returns the next chunk, which is now in flight. REQUIRES: can_send().
  uint64_t take();
  // Number of chunks that have not been taken.
  uint64_t chunks_left() const { return chunks_.size() - taken_; }
  void sent(uint64_t id);
  // All chunks before this cursor have been sent.
  const Schedule::Cursor& sent_until() const { return sent_until_; }

  // ---- Receiving ----
  // False if the chunk has arrived before, or is arriving on another lane.
  bool expects(uint64_t id) const { return (chunks_[id] & kComing) == 0; }
  void arriving(uint64_t id) { chunks_[id] |= kComing; }
  void arrived(uint64_t id);
  // The data of this chunk is here, so the chunk can be sent. RingCore calls it for data that was
  // computed here.
  void unlock(uint64_t id);
  // All chunks before this cursor have arrived.
  const Schedule::Cursor& received_until() const { return received_until_; }

  bool finished() const { return sent_until_.at_end && received_until_.at_end; }

  // is_arriving(): the chunk is arriving now. is_here(): it has arrived. may_be_leaving(): it may
  // be leaving now.
  bool is_arriving(uint64_t id) const { return (chunks_[id] & (kComing | kHere)) == kComing; }
  bool is_here(uint64_t id) const { return (chunks_[id] & kHere) != 0; }
  bool may_be_leaving(uint64_t id) const { return taken_ > 0 && (chunks_[id] & kSent) == 0; }
  void check() const;  // asserts the invariants

 private:
  static constexpr uint8_t kComing = 1, kHere = 2, kSent = 4;
  struct Next {
    uint64_t order = 0;  // schedule order
    uint64_t id = 0;
    friend bool operator>(const Next& a, const Next& b) { return a.order > b.order; }
  };
  // The first chunk, in schedule order, whose data is here. It ignores credit.
  std::optional<Next> next() const;
  std::optional<Next> next_source() const;
  void advance(Schedule::Cursor& cursor, uint8_t mark) const;

  const Schedule& schedule_;
  std::vector<uint8_t> chunks_;  // marks, by chunk id
  uint64_t taken_ = 0;
  uint64_t source_ = 0;  // the next chunk id that needs nothing from upstream
  Schedule::Sources sources_;
  bool in_step_ = false;
  std::vector<Next> unlocked_;  // min-heap of chunks that are here and not sent on yet
  Schedule::Cursor sent_until_, received_until_;
};

}  // namespace pccl::ring
