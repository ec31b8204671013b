// LinkTraffic: what the lanes of one link to a far neighbour carry, and what follows from it: which
// of them rest (LaneChoice). It cuts the time in which nothing but the network holds us up into
// windows of a few round trips. Whether it is the lanes' buffers needs none: the system counts that
// time, lane by lane. Belongs to the data loop.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/path_info.h"
#include "csrc/link/lane_choice.h"

namespace pccl::link {

// A lane as far as it matters here.
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual bool idle() const = 0;  // sends no chunk
  virtual PathInfo path() const = 0;
  virtual uint64_t buffers() const = 0;  // as Socket
};

class LinkTraffic {
 public:
  // `way`: there and back. `lanes`: so many are used at first; `fixed`: for good.
  LinkTraffic(Duration way, uint32_t lanes, bool fixed = false);

  // REQUIRES: outlives this.
  void add(Carrier& lane);
  // A chunk has left on this lane, and perhaps another has begun. True: a window is over, and
  // resting() may be another.
  bool chunk_sent(const Carrier& lane, Instant now);
  // A bit for each lane that rests, in the order of add().
  protocol::LaneBits resting() const { return choice_.resting(); }
  // For the next link to the same peer.
  uint32_t lanes_wanted() const { return choice_.wanted(); }

 private:
  struct Look {
    Instant at;
    std::vector<PathInfo> paths;  // of each lane
    bool finding_speed = false;   // what comes until the next look does not count
  };

  bool used(const Carrier& lane) const;
  bool lane_idle(Instant now);
  bool buffers_hold(Instant now);
  Look look(Instant now, bool finding_speed) const;
  void window_over(const Look& before, const Look& after);
  Duration queue(const Look& look) const;
  bool can_grow(const Look& look) const;  // lanes in use, most of them
  static bool loses(const Look& before, const Look& after);

  const Duration way_;
  const Duration window_length_;
  LaneChoice choice_;
  std::vector<Carrier*> lanes_;
  std::optional<Look> window_;  // since then all lanes in use have always had something to send
  Instant looked_at_;           // whether buffers hold them, last
  Duration busy_before_{0}, held_before_{0};  // of all lanes, until it was last known
  Instant idle_at_;                           // a lane in use, as last counted
  int idle_windows_ = 0;                      // in a row
};

}  // namespace pccl::link
