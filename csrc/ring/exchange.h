// Exchange: small all-reduces do not go around the ring. Every member sends its tensor straight to
// every other, which keeps it in scratch, and reduces all of them in the order of the ring: one hop
// instead of 2(N-1), the same bits everywhere (DESIGN section 7). Nobody waits for credit: a copy
// leaves as soon as its operation is called, and what arrives before it was called there is kept,
// as much of it as a Window allows. When that is nearly used up, whoever has called an operation
// asks for its copies. These have a window of their own, which always opens again, since they are
// taken as they come: so an operation that was called everywhere never waits for others that were
// not. Pure; plain data that RingCore moves along.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/protocol/limits.h"

namespace pccl::ring {

// A frame of an exchange has this for its round; a copy also the place of its sender for its block,
// and 1 for its value if it was asked for.
inline constexpr uint16_t kExchangeRound = UINT16_MAX;

// How far one operation has come with each of the others, by their places in the ring.
class Exchange {
 public:
  Exchange() = default;  // of an operation that goes around the ring: finished from the beginning
  Exchange(const std::vector<PeerId>& members, uint32_t own_place);

  struct Other {
    PeerId peer;
    bool sent = false;
    bool asked = false;   // for what it has to send
    bool coming = false;  // or here
    bool lost = false;    // with its link: nothing more goes there or comes from there
  };
  uint32_t own_place() const { return own_place_; }
  std::optional<uint32_t> place_of(PeerId peer) const;            // nothing: no other member
  const std::vector<Other>& members() const { return members_; }  // this peer, too
  bool wants_to_send(uint32_t place) const;
  bool may_ask(uint32_t place) const;

  void asked(uint32_t place) { members_[place].asked = true; }
  void sent(uint32_t place);
  void coming(uint32_t place) { members_[place].coming = true; }
  void arrived() { --to_come_; }
  void lost(PeerId peer);

  bool all_here() const { return to_come_ == 0; }
  bool goes_around() const { return members_.empty(); }
  bool finished() const { return to_come_ == 0 && to_send_ == 0; }

 private:
  std::vector<Other> members_;
  uint32_t own_place_ = 0;
  uint32_t to_come_ = 0, to_send_ = 0;
};

// What may be on its way to one neighbour, or kept there. The two ends of a direction count the
// same bytes, from the beginning of an epoch; a small copy counts as the memory that it takes.
class Window {
 public:
  static constexpr uint64_t kUnaskedBytes = 2u << 20;
  static constexpr uint64_t kAskedBytes = 1u << 20;
  explicit Window(uint64_t bytes) : bytes_(bytes) {}

  // ---- The sender ----
  bool fits(uint64_t bytes) const { return sent_ + cost(bytes) <= known_taken_ + bytes_; }
  void sent(uint64_t bytes) { sent_ += cost(bytes); }
  // False if the other end cannot have taken so many. Frames of several lanes overtake each other.
  bool heard(uint64_t taken);

  // ---- The receiver ----
  // False if the other end was not allowed to send that.
  bool arriving(uint64_t bytes);
  void taken(uint64_t bytes) { taken_ += cost(bytes); }
  // What the other end is to hear, if that is worth a frame; then it was told.
  std::optional<uint64_t> news() const;
  void told() { told_ = taken_; }
  // So much is used that the other end may have no room for what was called here.
  bool scarce() const { return arrived_ - told_ > bytes_ / 2; }

 private:
  static uint64_t cost(uint64_t bytes) { return std::max(bytes, protocol::kKeptBytesMin); }

  uint64_t bytes_;
  uint64_t sent_ = 0, known_taken_ = 0;
  uint64_t arrived_ = 0, taken_ = 0, told_ = 0;
};

// Which operations of this epoch were posted here, or have ended without: what arrives of one of
// them, when it is not in flight, is too late, and anything else too early. Operations of a tag
// come nearly in their order, so it is one interval of numbers for each tag.
class Known {
 public:
  void add(OpKey op);
  bool contains(OpKey op) const;
  void clear() { intervals_.clear(); }

 private:
  std::map<TagId, std::map<uint32_t, uint32_t>> intervals_;  // first number: the one after the last
};

}  // namespace pccl::ring
