// OneShot: the state of one one-shot operation, the form of a collective for small tensors. Every
// member sends each other one its part directly, in an all-reduce its whole tensor. A member keeps
// the contributions in scratch, and reduces them in rank order or stores them: one hop instead of
// up to 2(N-1), and the same bits everywhere (docs/design.md, section 7). These classes are plain
// data that belong to RingCore; RingCore alone changes them. Invariants:
//  (1) A contribution needs no credit. It leaves as soon as its operation is posted and the Window
//      has room.
//  (2) A contribution that arrives before its operation is posted is kept, within the limit of the
//      Window.
//  (3) When the Window is nearly used up, a member that has posted an operation requests the
//      contributions to it. Requested contributions have a window of their own. That window always
//      opens again, because they are taken as they arrive. So an operation that all members have
//      posted never waits for one that some have not posted.
//  (4) A OneShot counts the contributions that are still to be sent. The contributions that are
//      still to come are those that have not begun to arrive, and some that have.
//  (5) At the sender: sent - known taken <= size of the Window. At the receiver: announced <= taken
//      <= arrived, and arrived - announced <= size of the Window. All are bytes.
//  (6) The intervals of a DuplicateFilter are not empty, and there is a gap between any two.
// Failure: Window::on_taken() and Window::arriving() return false when the other end broke a rule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/protocol/limits.h"
#include "csrc/ring/task.h"

namespace pccl::ring {

// The round of every frame of a one-shot operation. In a contribution, the block is the rank of the
// sender. The value has two bits: the contribution was requested, and the sender is absent
// (csrc/protocol/absent_ranks.h).
inline constexpr uint16_t kOneShotRound = UINT16_MAX;
inline constexpr uint64_t kRequested = 1, kAbsent = 2;
static_assert(protocol::kOneShotMembersMax <= protocol::AbsentRanks::kMax);

// The state of one operation towards each of the other members, by rank.
class OneShot {
 public:
  OneShot() = default;  // for an operation without contributions: finished from the start
  OneShot(const std::vector<Part>& parts, uint32_t own_rank);

  struct Other {
    Part part;
    bool sent = false;       // nothing is left to send there
    bool requested = false;  // its contribution was requested
    bool coming = false;     // its contribution is arriving or here, or there is none
    bool lost = false;       // its link went down: nothing more goes there or comes from there
  };
  uint32_t own_rank() const { return own_rank_; }
  // Nothing if `peer` is not one of the other members.
  std::optional<uint32_t> rank_of(PeerId peer) const;
  const std::vector<Other>& members() const { return members_; }  // this peer included
  bool wants_to_send(uint32_t rank) const;
  bool may_request(uint32_t rank) const;

  void requested(uint32_t rank) { members_[rank].requested = true; }
  void sent(uint32_t rank);
  void coming(uint32_t rank) { members_[rank].coming = true; }
  void arrived() { --to_come_; }
  void lost(PeerId peer);

  bool all_here() const { return to_come_ == 0; }
  // Whether the operation has contributions.
  bool active() const { return !members_.empty(); }
  bool finished() const { return to_come_ == 0 && to_send_ == 0; }
  uint32_t to_come() const { return to_come_; }
  void check() const;  // asserts the invariants

 private:
  std::vector<Other> members_;
  uint32_t own_rank_ = 0;
  uint32_t to_come_ = 0, to_send_ = 0;
};

// Flow control for the contributions that are in flight to one neighbour, or kept there. Both ends
// of a direction count the same bytes from the beginning of an epoch. A small contribution counts
// as the memory that it occupies.
class Window {
 public:
  static constexpr uint64_t kUnrequestedBytes = 2u << 20;
  static constexpr uint64_t kRequestedBytes = 1u << 20;
  explicit Window(uint64_t bytes) : bytes_(bytes) {}

  // ---- The sender ----
  bool fits(uint64_t bytes) const { return sent_ + cost(bytes) <= known_taken_ + bytes_; }
  void sent(uint64_t bytes) { sent_ += cost(bytes); }
  // False if the other end cannot have taken that many bytes. Frames on different lanes may
  // overtake each other, so the largest value counts.
  bool on_taken(uint64_t taken);

  // ---- The receiver ----
  // False if the other end was not allowed to send these bytes; they do not count then.
  bool arriving(uint64_t bytes);
  void taken(uint64_t bytes) { taken_ += cost(bytes); }
  // The number of bytes taken, if it is worth a frame to announce it; announced() records that it
  // was announced.
  std::optional<uint64_t> news() const;
  void announced() { announced_ = taken_; }
  // Whether the other end may have no room left in its window for an operation posted here.
  bool scarce() const { return arrived_ - announced_ > bytes_ / 2; }
  // cost(): the bytes of the window that a contribution uses. kept(): those that arrived and are
  // not taken.
  static uint64_t cost(uint64_t bytes) { return std::max(bytes, protocol::kKeptBytesMin); }
  uint64_t kept() const { return arrived_ - taken_; }
  void check() const;  // asserts the invariants

 private:
  uint64_t bytes_;
  uint64_t sent_ = 0, known_taken_ = 0;
  uint64_t arrived_ = 0, taken_ = 0, announced_ = 0;
};

// DuplicateFilter: the duplicate filter. It remembers which operations of this epoch were posted
// here, or have ended without being posted. A message for an operation that is not in flight is
// late if the operation is known, and early otherwise. Operations of a tag come nearly in order, so
// a tag usually needs one interval of sequence numbers.
class DuplicateFilter {
 public:
  void add(OpKey op);
  bool contains(OpKey op) const;
  void clear() { intervals_.clear(); }
  void check() const;  // asserts the invariants

 private:
  std::map<TagId, std::map<uint32_t, uint32_t>> intervals_;  // first number -> one past the last
};

}  // namespace pccl::ring
