// Owner: what this member knows of the block that it owns in an operation of the direct pattern:
// for each slice, how many contributions are still to come. It is plain data in an Operation;
// RingCore alone changes it.
// Invariants:
//  (1) Each other member contributes to each slice once.
//  (2) All slices before combined() have all their contributions, and the slice at combined() has
//      not.
#pragma once

#include <cstdint>
#include <vector>

namespace pccl::ring {

class Owner {
 public:
  Owner() = default;  // of no block
  // REQUIRES: `others`, the number of the other members, is at least 1.
  Owner(uint64_t slices, uint32_t others);

  bool owns() const { return !missing_.empty(); }
  // A contribution to this slice is here. True if it is the last one: the sum can be computed.
  bool arrived(uint64_t slice);
  // Slices, from the start, whose sums are computed.
  uint64_t combined() const { return combined_; }
  void check() const;  // asserts the invariants

 private:
  std::vector<uint8_t> missing_;  // contributions, by slice
  uint32_t others_ = 0;
  uint64_t combined_ = 0;
};

}  // namespace pccl::ring
