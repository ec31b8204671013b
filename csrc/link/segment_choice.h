// SegmentChoice: how large the TCP segments of the connections to one peer may be. Pure: it hears
// of each link that ended without progress, and when a full packet has arrived.
// A router that drops large packets and says nothing (an MTU black hole) lets a connection come
// about, since what introduces a link is small, and then takes all data. So the next connection has
// smaller segments. If the smallest do not help either, the link is dead.
#pragma once

#include <cstdint>

#include "csrc/protocol/limits.h"

namespace pccl::link {

class SegmentChoice {
 public:
  // The limit for the next connection; 0: none, the system decides.
  uint32_t segment() const { return segment_; }
  // A link has ended of which no large packet arrived; its connection had such segments.
  void ended_without_progress(uint32_t segment) {
    ++in_a_row_;
    smallest_failed_ |= segment <= protocol::kSegments.back();
    for (const uint32_t smaller : protocol::kSegments) {
      if (smaller >= segment) continue;
      segment_ = segment_ == 0 || smaller < segment_ ? smaller : segment_;
      return;
    }
  }
  // A full packet of a connection with such segments has arrived. True once: it was made smaller,
  // and that has helped.
  bool arrived(uint32_t segment) {
    in_a_row_ = 0;
    smallest_failed_ = false;
    if (segment_ == 0 || segment > segment_ || told_) return false;
    return told_ = true;
  }
  // No size helps.
  bool hopeless() const {
    return smallest_failed_ && in_a_row_ >= protocol::kLinksWithoutProgressMax;
  }

 private:
  uint32_t segment_ = 0;
  int in_a_row_ = 0;  // links that ended without progress, since a full packet has arrived
  bool smallest_failed_ = false;
  bool told_ = false;
};

}  // namespace pccl::link
