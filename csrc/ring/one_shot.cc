// State of an operation towards another member, written as: state  event  ->  state
//     sent:   posted, and its link is ready with room  ->  sent
//     here:   (expected)  arriving  ->  coming  arrived  ->  here
//     lost:   its link went down; the missing parts stay missing until the operation ends

#include "csrc/ring/one_shot.h"

#include <algorithm>
#include <iterator>

#include "csrc/base/assert.h"

namespace pccl::ring {

// ---- OneShot ----

OneShot::OneShot(const std::vector<Part>& parts, uint32_t own_rank) : own_rank_(own_rank) {
  PCCL_ASSERT(own_rank < parts.size());
  for (const Part& part : parts) {
    const bool own = members_.size() == own_rank;
    PCCL_ASSERT(std::max(part.to, part.from) <= protocol::kOneShotBytesMax);
    members_.push_back({part, own || part.to == 0, own, own || part.from == 0});
    if (!members_.back().sent) ++to_send_;
    if (!members_.back().coming) ++to_come_;
  }
}

std::optional<uint32_t> OneShot::rank_of(PeerId peer) const {
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].part.peer == peer && rank != own_rank_) return rank;
  }
  return std::nullopt;
}

bool OneShot::wants_to_send(uint32_t rank) const {
  return !members_[rank].sent && !members_[rank].lost;
}

bool OneShot::may_request(uint32_t rank) const {
  const Other& other = members_[rank];
  return !other.requested && !other.coming && !other.lost;
}

void OneShot::sent(uint32_t rank) {
  PCCL_ASSERT(wants_to_send(rank));
  members_[rank].sent = true;
  --to_send_;
}

void OneShot::lost(PeerId peer) {
  if (const auto rank = rank_of(peer)) members_[*rank].lost = true;
}

// ---- Window ----

bool Window::on_taken(uint64_t taken) {
  if (taken > sent_) return false;
  known_taken_ = std::max(known_taken_, taken);
  return true;
}

bool Window::arriving(uint64_t bytes) {
  if (arrived_ + cost(bytes) > announced_ + bytes_) return false;
  arrived_ += cost(bytes);
  return true;
}

std::optional<uint64_t> Window::news() const {
  return taken_ < announced_ + bytes_ / 4 ? std::nullopt : std::optional(taken_);
}

// ---- DuplicateFilter ----

bool DuplicateFilter::contains(OpKey op) const {
  const auto tag = intervals_.find(op.tag);
  if (tag == intervals_.end()) return false;
  const auto after = tag->second.upper_bound(op.sequence);
  return after != tag->second.begin() && std::prev(after)->second > op.sequence;
}

void DuplicateFilter::add(OpKey op) {
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

// ---- Invariants ----

void OneShot::check() const {
  if (!active()) return PCCL_ASSERT(finished());
  uint32_t unsent = 0, expected = 0, coming = 0;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    const Other& other = members_[rank];
    PCCL_ASSERT(rank != own_rank_ || (other.sent && other.coming && !other.lost));
    if (!other.sent) ++unsent;
    ++(other.coming ? coming : expected);
  }
  PCCL_ASSERT(to_send_ == unsent);
  PCCL_ASSERT(expected <= to_come_ && to_come_ <= expected + coming);
}

void Window::check() const {
  PCCL_ASSERT(known_taken_ <= sent_ && sent_ <= known_taken_ + bytes_);
  PCCL_ASSERT(announced_ <= taken_ && taken_ <= arrived_);
  PCCL_ASSERT(arrived_ <= announced_ + bytes_);
}

void DuplicateFilter::check() const {
  for (const auto& [tag, intervals] : intervals_) {
    PCCL_ASSERT(!intervals.empty());
    bool first = true;
    uint32_t last_end = 0;
    for (const auto& [begin, end] : intervals) {
      PCCL_ASSERT(begin < end && (first || last_end < begin));
      first = false;
      last_end = end;
    }
  }
}

}  // namespace pccl::ring
