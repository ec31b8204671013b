//   a unit      received: (expected)  arriving  ->  coming  arrived  ->  here
//               sent:     locked  what it needs arrived, or it is a source  ->  can be sent
//                         take  ->  leaving  sent  ->  sent

#include "csrc/ring/progress.h"

#include <algorithm>
#include <functional>

#include "csrc/base/assert.h"

namespace pccl::ring {

Progress::Progress(const Schedule& schedule)
    : schedule_(schedule),
      units_(schedule.unit_count()),
      sources_(schedule.sources()),
      sent_until_(schedule.first()),
      received_until_(schedule.first()) {
  sent_until_.at_end |= !schedule.sends();
  received_until_.at_end |= !schedule.receives();
}

Progress::Next Progress::next_source() const { return {schedule_.place(source_).step, source_}; }

bool Progress::can_send(uint64_t steps) const {
  if (!unlocked_.empty() && unlocked_.front().step < steps) return true;
  return source_ < sources_.end && next_source().step < steps;
}

uint64_t Progress::take() {
  ++taken_;
  const bool from_source =
      source_ < sources_.end && (unlocked_.empty() || unlocked_.front() > next_source());
  if (from_source) {
    const uint64_t id = source_;
    source_ += sources_.stride;
    return id;
  }
  PCCL_ASSERT(!unlocked_.empty());
  std::pop_heap(unlocked_.begin(), unlocked_.end(), std::greater<>());
  const uint64_t id = unlocked_.back().id;
  unlocked_.pop_back();
  return id;
}

void Progress::sent(uint64_t id) {
  PCCL_ASSERT((units_[id] & kSent) == 0);
  units_[id] |= kSent;
  advance(sent_until_, kSent);
}

void Progress::arrived(uint64_t id) {
  PCCL_ASSERT((units_[id] & (kComing | kHere)) == kComing);
  units_[id] |= kHere;
  advance(received_until_, kHere);
  const auto unlocked = schedule_.unlocked_by(id);
  if (!unlocked) return;
  unlocked_.push_back({schedule_.place(*unlocked).step, *unlocked});
  std::push_heap(unlocked_.begin(), unlocked_.end(), std::greater<>());
}

void Progress::advance(Schedule::Cursor& cursor, uint8_t mark) const {
  while (!cursor.at_end && (units_[schedule_.id(cursor)] & mark) != 0) schedule_.advance(cursor);
}

}  // namespace pccl::ring
