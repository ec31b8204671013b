// States of a chunk, written as: state  event  ->  state
//     received: (expected)  arriving  ->  coming  arrived  ->  here
//     sent:     locked  its data arrived, or it is a source  ->  can be sent
//               take  ->  leaving  sent  ->  sent

#include "csrc/ring/progress.h"

#include <algorithm>
#include <functional>

#include "csrc/base/assert.h"

namespace pccl::ring {

Progress::Progress(const Schedule& schedule)
    : schedule_(schedule),
      chunks_(schedule.chunk_count()),
      sources_(schedule.sources()),
      sent_until_(schedule.first()),
      received_until_(schedule.first()) {
  sent_until_.at_end |= !schedule.sends();
  received_until_.at_end |= !schedule.receives();
}

std::optional<Progress::Next> Progress::next_source() const {
  if (source_ >= sources_.end) return std::nullopt;
  if (in_step_ && !received_until_.at_end &&
      schedule_.cursor_at(source_).step > received_until_.step)
    return std::nullopt;
  return Next{schedule_.order(source_), source_};
}

std::optional<Progress::Next> Progress::next() const {
  const std::optional<Next> source = next_source();
  if (unlocked_.empty() || (source && unlocked_.front() > *source)) return source;
  return unlocked_.front();
}

bool Progress::can_send(uint64_t steps) const {
  const std::optional<Next> first = next();
  return first && schedule_.cursor_at(first->id).step < steps;
}

uint64_t Progress::take() {
  const std::optional<Next> first = next();
  PCCL_ASSERT(first);
  ++taken_;
  const bool from_source = source_ < sources_.end && source_ == first->id;
  if (from_source) {
    source_ += sources_.stride;
    return first->id;
  }
  std::pop_heap(unlocked_.begin(), unlocked_.end(), std::greater<>());
  unlocked_.pop_back();
  return first->id;
}

void Progress::sent(uint64_t id) {
  PCCL_ASSERT((chunks_[id] & kSent) == 0);
  chunks_[id] |= kSent;
  advance(sent_until_, kSent);
}

void Progress::arrived(uint64_t id) {
  PCCL_ASSERT((chunks_[id] & (kComing | kHere)) == kComing);
  chunks_[id] |= kHere;
  advance(received_until_, kHere);
  if (const auto unlocked = schedule_.unlocked_by(id)) unlock(*unlocked);
}

void Progress::unlock(uint64_t id) {
  unlocked_.push_back({schedule_.order(id), id});
  std::push_heap(unlocked_.begin(), unlocked_.end(), std::greater<>());
}

void Progress::advance(Schedule::Cursor& cursor, uint8_t mark) const {
  while (!cursor.at_end && (chunks_[schedule_.id(cursor)] & mark) != 0) schedule_.advance(cursor);
}

void Progress::check() const {
  const auto lacks = [this](const Schedule::Cursor& cursor, uint8_t mark) {
    return cursor.at_end || (chunks_[schedule_.id(cursor)] & mark) == 0;
  };
  PCCL_ASSERT(lacks(sent_until_, kSent) && lacks(received_until_, kHere));
  PCCL_ASSERT(source_ % sources_.stride == 0 && source_ < sources_.end + sources_.stride);
  PCCL_ASSERT(source_ / sources_.stride <= taken_);
  PCCL_ASSERT(taken_ + unlocked_.size() <= chunks_.size());
  for (const Next& next : unlocked_) {
    PCCL_ASSERT(next.order == schedule_.order(next.id) && (chunks_[next.id] & kSent) == 0);
  }
  PCCL_ASSERT(std::is_heap(unlocked_.begin(), unlocked_.end(), std::greater<>()));
  if (!sent_until_.at_end) return;
  PCCL_ASSERT(unlocked_.empty() && (taken_ == chunks_.size() || !schedule_.sends()));
}

}  // namespace pccl::ring
