// Owner: the state of the block that this member owns in an operation of the direct pattern: for
// each slice, how many contributions are still to come and, if its results are held in scratch
// (Schedule::holds_results), to how many members its result is still to leave. It is plain data in
// an Operation; RingCore alone changes it.
// Invariants:
//  (1) Each other member contributes to each slice once.
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
  Owner() = default;  // of no block
  // REQUIRES: `others`, the number of the other members, is at least 1.
  Owner(uint64_t slices, uint32_t others, bool holds_results);

  bool owns() const { return !missing_.empty(); }
  // A contribution to this slice is here. True if it is the last one: the sum can be computed.
  bool arrived(uint64_t slice);
  // The result of this slice has left to one more member. True if it is the last one, and the
  // results were held. REQUIRES: the sum is computed.
  bool left(uint64_t slice);
  // Slices, from the start, whose sums are computed.
  uint64_t combined() const { return combined_; }
  // Slices, from the start, whose slots can be used again.
  uint64_t free() const { return staying_.empty() ? combined_ : free_; }
  void check() const;  // asserts the invariants

 private:
  std::vector<uint8_t> missing_;  // contributions, by slice
  std::vector<uint8_t> staying_;  // members that lack the result, by slice; empty: none is held
  uint32_t others_ = 0;
  uint64_t combined_ = 0, free_ = 0;
};

}  // namespace pccl::ring
