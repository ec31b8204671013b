// SegmentChoice decides the largest TCP segments of the connections to one peer. It is pure, and
// LinkCore owns it. Its input is each link that ended without progress, and each full packet that
// arrived.
//
// Some routers drop large packets and send no error (an MTU black hole). A connection through such
// a router gets established, because hellos are small; then it loses all data. So the next
// connection has smaller segments. If even the smallest segments do not help, the link counts as
// dead.
// Invariants:
// 1. A limit is one of kSegments.
// 2. Only a lowered limit can count as helpful.
#pragma once

#include <algorithm>
#include <cstdint>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::link {

class SegmentChoice {
 public:
  // Limit for the next connection in bytes; 0: no limit, the system decides.
  uint32_t segment() const { return segment_; }
  // A link has ended, and no large packet of it arrived. `segment`: the limit of its connection.
  void ended_without_progress(uint32_t segment) {
    PCCL_ASSERT(segment > 0);
    ++in_a_row_;
    smallest_failed_ |= segment <= protocol::kSegments.back();
    for (const uint32_t smaller : protocol::kSegments) {
      if (smaller >= segment) continue;
      segment_ = segment_ == 0 || smaller < segment_ ? smaller : segment_;
      return;
    }
  }
  // A full packet of a connection with this limit has arrived. Returns true if the limit had been
  // lowered, and that has helped. It returns true only once.
  bool arrived(uint32_t segment) {
    in_a_row_ = 0;
    smallest_failed_ = false;
    if (segment_ == 0 || segment > segment_ || announced_) return false;
    return announced_ = true;
  }
  bool announced() const { return announced_; }  // arrived() has been true
  // No size helps.
  bool given_up() const {
    return smallest_failed_ && in_a_row_ >= protocol::kLinksWithoutProgressMax;
  }
  // Asserts the invariants.
  void check() const {
    const auto& all = protocol::kSegments;
    PCCL_ASSERT(segment_ == 0 || std::find(all.begin(), all.end(), segment_) != all.end());
    PCCL_ASSERT(!announced_ || segment_ != 0);
    PCCL_ASSERT(!smallest_failed_ || in_a_row_ > 0);
  }

 private:
  uint32_t segment_ = 0;
  int in_a_row_ = 0;  // links that ended without progress since the last full packet arrived
  bool smallest_failed_ = false;
  bool announced_ = false;
};

}  // namespace pccl::link
