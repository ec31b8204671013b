// LinkTraffic: what the lanes of one link to a far neighbour carry, and what follows from it: which
// of them rest (LaneChoice), and how much may be under way (Flight). For the former it cuts the
// time in which nothing but the network holds us up into windows of a few round trips. Belongs to
// the data loop.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/path_info.h"
#include "csrc/ring/flight.h"
#include "csrc/ring/lane_choice.h"

namespace pccl::ring {

// A lane as far as it matters here.
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual bool idle() const = 0;  // sends no chunk
  virtual uint64_t bytes_sent() const = 0;
  virtual PathInfo path() const = 0;
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
  // Chunks wait for the next look.
  void hold() { held_ = held_in_window_ = true; }
  // At the first chunk, and every look_every() while under_way(): chunks of so many bytes may leave
  // until the next look.
  uint64_t look(Instant now);
  bool under_way() const { return held_ || under_way_ > 0; }
  Duration look_every() const;
  // A bit for each lane that rests, in the order of add().
  protocol::LaneBits resting() const { return choice_.resting(); }
  // For the next link to the same peer.
  uint32_t lanes_wanted() const { return choice_.wanted(); }

 private:
  struct Window {
    Instant at;
    std::vector<uint64_t> sent;        // by each lane
    uint32_t segments = 0, again = 0;  // of all
    bool finding_speed = false;        // what comes until the next one does not count
  };

  bool used(const Carrier& lane) const;
  Window begin_window(Instant now, bool finding_speed) const;
  void window_over(const Window& before, const Window& after);
  bool queues() const;
  static bool loses(const Window& before, const Window& after);

  // A lane as the last look has found it.
  struct Seen {
    uint64_t sent = 0;
    uint32_t delivered = 0;  // segments
    uint64_t under_way = 0;  // bytes
  };
  void look_at(const Carrier& lane, Seen& seen);

  const Duration way_;
  LaneChoice choice_;
  Flight flight_;
  std::vector<Carrier*> lanes_;
  std::vector<Seen> seen_;
  bool held_ = false;
  bool held_in_window_ = false;
  uint64_t under_way_ = 0, delivered_ = 0;  // bytes
  std::vector<Duration> ways_;
  std::optional<Window> window_;  // since then all lanes in use have always had something to send
};

}  // namespace pccl::ring
