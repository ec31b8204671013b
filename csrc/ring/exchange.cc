// State of an operation towards another member, written as: state  event  ->  state
//     sent:   posted, and its link is ready with room  ->  sent
//     here:   (expected)  arriving  ->  coming  arrived  ->  here
//     lost:   its link went down; the missing parts stay missing until the operation ends

#include "csrc/ring/exchange.h"

#include <algorithm>
#include <iterator>

#include "csrc/base/assert.h"

namespace pccl::ring {

// ---- Exchange ----

Exchange::Exchange(const std::vector<PeerId>& members, uint32_t own_place)
    : own_place_(own_place),
      to_come_(static_cast<uint32_t>(members.size()) - 1),
      to_send_(to_come_) {
  PCCL_ASSERT(own_place < members.size());
  for (const PeerId peer : members) members_.push_back({peer});
}

std::optional<uint32_t> Exchange::place_of(PeerId peer) const {
  for (uint32_t place = 0; place < members_.size(); ++place) {
    if (members_[place].peer == peer && place != own_place_) return place;
  }
  return std::nullopt;
}

bool Exchange::wants_to_send(uint32_t place) const {
  return place != own_place_ && !members_[place].sent && !members_[place].lost;
}

bool Exchange::may_ask(uint32_t place) const {
  const Other& other = members_[place];
  return place != own_place_ && !other.asked && !other.coming && !other.lost;
}

void Exchange::sent(uint32_t place) {
  PCCL_ASSERT(wants_to_send(place));
  members_[place].sent = true;
  --to_send_;
}

void Exchange::lost(PeerId peer) {
  if (const auto place = place_of(peer)) members_[*place].lost = true;
}

// ---- Window ----

bool Window::heard(uint64_t taken) {
  if (taken > sent_) return false;
  known_taken_ = std::max(known_taken_, taken);
  return true;
}

bool Window::arriving(uint64_t bytes) {
  arrived_ += cost(bytes);
  return arrived_ <= told_ + bytes_;
}

std::optional<uint64_t> Window::news() const {
  return taken_ < told_ + bytes_ / 4 ? std::nullopt : std::optional(taken_);
}

// ---- Known ----

bool Known::contains(OpKey op) const {
  const auto tag = intervals_.find(op.tag);
  if (tag == intervals_.end()) return false;
  const auto after = tag->second.upper_bound(op.sequence);
  return after != tag->second.begin() && std::prev(after)->second > op.sequence;
}

void Known::add(OpKey op) {
  if (contains(op)) return;
  auto& intervals = intervals_[op.tag];
  auto at = intervals.emplace(op.sequence, op.sequence + 1).first;
  if (at != intervals.begin() && std::prev(at)->second == op.sequence) {
    at = std::prev(intervals.erase(at));
    at->second = op.sequence + 1;
  }
  const auto next = std::next(at);
  if (next == intervals.end() || next->first != at->second) return;
  at->second = next->second;
  intervals.erase(next);
}

}  // namespace pccl::ring
