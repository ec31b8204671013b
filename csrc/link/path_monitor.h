// PathMonitor is the path monitor of one link on a wan path or to another machine. It measures the
// rate of each lane and feeds the lane controller (LaneController), which decides which lanes are
// inactive. A PathMonitor belongs to the peer loop.
//
// It cuts the time in which only the network limits the link into intervals of a few round trips.
// It needs no interval to find that the buffers of the lanes are the limit: the system counts that
// time for each lane. On a local path to another machine, it only finds the rate.
// Invariants:
// 1. At least one lane is active.
// 2. The sample at the start of an interval has every lane. When a lane comes up, the interval is
//    given up.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/path_info.h"
#include "csrc/link/lane_controller.h"

namespace pccl::link {

// The part of a lane that PathMonitor uses.
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual bool idle() const = 0;  // sends no chunk
  virtual PathInfo path() const = 0;
  virtual uint64_t buffers() const = 0;  // bytes, as in Socket
};

class PathMonitor {
 public:
  // `rtt` of the path. `lanes`: number of active lanes at the start. `fixed`: that number never
  // changes.
  PathMonitor(Duration rtt, uint32_t lanes, bool fixed = false);

  // REQUIRES: `lane` outlives this, and was not added before.
  void add(Carrier& lane);
  // A chunk has left on this lane, and the next chunk may have begun. Returns true if an interval
  // is over: inactive() and rate() may have changed.
  bool chunk_sent(const Carrier& lane, Instant now);
  // One bit for each inactive lane, in the order of add().
  protocol::LaneBits inactive() const { return controller_.inactive(); }
  // Number of active lanes for the next link to the same peer.
  uint32_t lanes_wanted() const { return controller_.wanted(); }
  // Bytes per second that arrive at the other end while only the network limits the lanes: the
  // median of the last intervals in which no buffer was the limit. 0: not known yet.
  uint64_t rate() const;
  // Upper bound for unsent bytes in a lane's socket: small enough for urgent data, large enough to
  // bridge the sender's wake-up. 0: not known yet.
  uint64_t unsent_max() const;

  // Asserts the invariants. Without NDEBUG, chunk_sent() calls it.
  void check() const;

 private:
  struct Sample {
    Instant at;
    std::vector<PathInfo> paths;  // one for each lane
    bool finding_speed = false;   // the interval that begins here does not count
  };

  bool chunk_left(const Carrier& lane, Instant now);
  bool used(const Carrier& lane) const;
  bool lane_idle(Instant now);
  bool buffers_hold(Instant now);
  Sample sample(Instant now, bool finding_speed) const;
  void interval_over(const Sample& before, const Sample& after);
  void note_rate(const Sample& before, const Sample& after, uint64_t rate);
  Duration queue(const Sample& sample) const;
  bool can_grow(const Sample& sample) const;  // most of the active lanes
  static bool loses(const Sample& before, const Sample& after);

  const Duration rtt_;
  const Duration interval_length_;
  LaneController controller_;
  std::vector<Carrier*> lanes_;
  // The first sample of the present interval. Since then all active lanes have always had something
  // to send.
  std::optional<Sample> interval_;
  Instant sampled_at_;                        // time of the last check of buffers
  Duration busy_before_{0}, held_before_{0};  // sums of all lanes, at the last result
  Instant idle_at_;                           // when an idle lane was last counted
  int idle_intervals_ = 0;                    // in a row
  std::vector<uint64_t> rates_;               // of the last intervals, kIntervalsForRate at most
  uint64_t highest_rate_ = 0;                 // the highest rate() so far
};

}  // namespace pccl::link
