// NarrowPaths: the peers with a link that ended without progress, and a SegmentChoice for each
// (segment_choice.h). It is pure, and LinkCore owns it.
// Invariant: the limit for accepted connections is the limit of the narrowest path. TCP accepts no
// limit for an established connection, and a listener does not know who will connect. The other end
// learns this limit while its connection is being made, and obeys it too.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "csrc/base/ids.h"
#include "csrc/link/segment_choice.h"

namespace pccl::link {

class NarrowPaths {
 public:
  uint32_t segment(PeerId peer) const;  // see SegmentChoice; 0: no limit
  bool given_up(PeerId peer) const;
  void ended_without_progress(PeerId peer, uint32_t segment);
  // See SegmentChoice.
  bool arrived(PeerId peer, uint32_t segment);
  // Returns whether a lowered limit had helped on the path to this peer.
  bool forget(PeerId peer);
  // The limit for accepted connections, if it has changed since the last call.
  std::optional<uint32_t> news();
  void check() const;  // asserts the invariants. REQUIRES: news() was called after the last change

 private:
  uint32_t narrowest() const;

  std::map<PeerId, SegmentChoice> all_;
  uint32_t accepted_ = 0;  // the latest news()
};

}  // namespace pccl::link
