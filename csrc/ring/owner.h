// Owner: the state of the block that this member owns in an operation of the direct pattern. For
// each slice, it counts the contributions that are still to come. If results are held in scratch
// (Schedule::holds_results), it also counts the members that the result of the slice has not left
// to. A one-shot operation uses an Owner with one slice. Owner is plain data in an Operation;
// RingCore alone changes it.
// Invariants:
//  (1) Each of the `others` members contributes to each slice once.
//  (2) All slices before combined() have all their contributions; the slice at combined() lacks
//      some.
//  (3) The results of all slices before free() are no longer held. The result at free() is not
//      computed yet, or is still held. free() <= combined().
#pragma once

#include <cstdint>
#include <vector>

namespace pccl::ring {

class Owner {
 public:
  Owner() = default;  // of a member that owns no block
  // `others`: the number of other members that contribute. REQUIRES: `others` is at least 1.
  Owner(uint64_t slices, uint32_t others, bool holds_results);

  bool owns() const { return !missing_.empty(); }
  // A contribution to this slice is here. True if it is the last contribution: the sum can be
  // computed.
  bool arrived(uint64_t slice);
  // The result of this slice has left to one more member. True if results are held and this was the
  // last member. REQUIRES: the sum is computed.
  bool left(uint64_t slice);
  // The number of slices, from the start, whose sums are computed.
  uint64_t combined() const { return combined_; }
  // The number of slices, from the start, whose slots can be used again.
  uint64_t free() const { return staying_.empty() ? combined_ : free_; }
  void check() const;  // asserts the invariants

 private:
  std::vector<uint8_t> missing_;  // by slice: contributions that are still to come
  std::vector<uint8_t> staying_;  // by slice: members that lack the result; empty: no results held
  uint32_t others_ = 0;
  uint64_t combined_ = 0, free_ = 0;
};

}  // namespace pccl::ring
