// LinkTraffic: what the lanes of one link to a far neighbour carry, and what follows from it: which
// of them rest (LaneChoice) and how fast they send (Pacer). It cuts the time in which nothing but
// the network holds us up into windows of a few round trips. Belongs to the data loop.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/net/socket.h"
#include "csrc/ring/lane_choice.h"
#include "csrc/ring/pacer.h"

namespace pccl::ring {

// A lane as far as it matters here.
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual bool idle() const = 0;  // sends no chunk
  virtual uint64_t bytes_sent() const = 0;
  virtual uint64_t bytes_received() const = 0;
  virtual net::Socket::RoundTrip round_trip() const = 0;
  virtual void pace(uint64_t bytes_per_second) = 0;  // 0: as fast as it can
};

class LinkTraffic {
 public:
  // What the next link to the same peer begins with.
  struct Learnt {
    uint32_t lanes = 0;
    Pacer pacer;
  };
  // `way`: there and back. `fixed`: all lanes are used, whatever they bring.
  LinkTraffic(Duration way, const Learnt& first, bool fixed);

  // REQUIRES: outlives this.
  void add(Carrier& lane);
  // A chunk has left on this lane, and perhaps another has begun. True: a window is over, and
  // resting() may be another.
  bool chunk_sent(const Carrier& lane, Instant now);
  // A bit for each lane that rests, in the order of add().
  uint32_t resting() const { return choice_.resting(); }
  Learnt learnt() const { return {choice_.wanted(), pacer_}; }

 private:
  struct Look {
    Instant at;
    std::vector<uint64_t> sent;  // by each lane
    uint64_t received = 0;       // on all
    bool finding_speed = false;  // what comes until the next look does not count
  };

  bool used(const Carrier& lane) const;
  Look look(Instant now, bool finding_speed) const;
  void window_over(const Look& before, const Look& after);
  bool queues() const;
  void glance(Instant now);
  void pace();

  const Duration way_;
  const bool fixed_;
  LaneChoice choice_;
  Pacer pacer_;
  bool is_paced_ = false;
  struct {
    Instant at;
    uint64_t sent = 0;
  } glanced_;  // while it is not paced
  std::vector<Carrier*> lanes_;
  std::optional<Look> window_;  // since then all lanes in use have always had something to send
};

}  // namespace pccl::ring
