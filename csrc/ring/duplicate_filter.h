// DuplicateFilter: remembers which operations of this epoch were posted here, or have ended without
// being posted. A message for an operation that is not in flight is late if the operation is known,
// and early otherwise. Operations of a tag come nearly in order, so a tag usually needs one
// interval of sequence numbers. OpTable owns it. Pure.
// Invariant: no interval is empty, and there is a gap between any two intervals of a tag.
#pragma once

#include <cstdint>
#include <map>

#include "csrc/base/ids.h"

namespace pccl::ring {

class DuplicateFilter {
 public:
  void add(OpKey op);
  bool contains(OpKey op) const;
  void clear() { intervals_.clear(); }
  void check() const;  // asserts the invariants

 private:
  std::map<TagId, std::map<uint32_t, uint32_t>> intervals_;  // first number -> last number + 1
};

}  // namespace pccl::ring
