// KeepaliveTimer: the keepalive timer of one connection. It counts how long nothing was received
// from the other side, and how long nothing was sent to it. The unit is a tick, a fixed part of the
// peer timeout (PROTOCOL.md, section 8). Each lane of a link has a timer, and so have both ends of
// a connection to the master. The owner's loop drives it, on one thread. A tick has one beat, or
// several if the peer timeout is long.
// Invariant: after all input is drained the owner calls beat() once, even if several beats are
// overdue. So a process that was paused does not blame the others when it wakes up.
#pragma once

#include <algorithm>
#include <cstdint>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::protocol {

constexpr Duration tick_of(Duration peer_timeout) { return peer_timeout / kTicksPerTimeout; }
constexpr int beats_per_tick(Duration peer_timeout) {
  return static_cast<int>((tick_of(peer_timeout) + kBeatMax - Duration{1}) / kBeatMax);
}
constexpr Duration beat_of(Duration peer_timeout) {
  return tick_of(peer_timeout) / beats_per_tick(peer_timeout);
}
// A ping leaves after this number of beats without a send. A send just after a beat counts only
// from the next beat, so nearly one beat more may pass. Therefore the result is at most one less
// than the number of beats in kPingIntervalMax.
constexpr int beats_per_ping(Duration peer_timeout) {
  return std::min(kTicksPerPing * beats_per_tick(peer_timeout),
                  static_cast<int>(kPingIntervalMax / beat_of(peer_timeout)) - 1);
}

class KeepaliveTimer {
 public:
  // REQUIRES: `peer_timeout` is in the accepted range (limits.h).
  // `ticks_max`: too_long() is true after this number of ticks without input.
  explicit KeepaliveTimer(int ticks_max, Duration peer_timeout = kPeerTimeoutDefault)
      : ticks_max_(ticks_max),
        beats_per_tick_(protocol::beats_per_tick(peer_timeout)),
        beats_per_ping_(protocol::beats_per_ping(peer_timeout)) {
    PCCL_ASSERT(ticks_max_ > 0 && beats_per_tick_ > 0 && beats_per_ping_ > 0);
  }

  void received() { beats_since_received_ = 0; }
  void sent() { beats_since_sent_ = 0; }
  void beat() {
    ++beats_since_received_;
    ++beats_since_sent_;
  }

  int silent_ticks() const { return beats_since_received_ / beats_per_tick_; }
  bool too_long() const { return silent_ticks() >= ticks_max_; }
  bool ping_due() const { return beats_since_sent_ >= beats_per_ping_; }

 private:
  int ticks_max_, beats_per_tick_, beats_per_ping_;
  int beats_since_received_ = 0;
  int beats_since_sent_ = 0;
};

// LivenessCheck: finds out whether a link is alive when its other end dials again. The link gets a
// ping with a number of its own. Only a pong with this number counts as an answer, because data
// that was under way when the other end went away may arrive for a long time. The owner calls
// look() every tick, or four times a second if a tick is longer than a quarter of a second.
class LivenessCheck {
 public:
  static constexpr int kLooks = 3;

  // REQUIRES: `number` is above 0, because 0 means that no pong has arrived.
  explicit LivenessCheck(uint64_t number) : number_(number) { PCCL_ASSERT(number_ > 0); }

  uint64_t number() const { return number_; }
  enum class Finding { kUnknown, kAlive, kDead };
  // `answer`: the number of the last pong on the link; 0: none. REQUIRES: look() has not returned
  // kDead.
  Finding look(uint64_t answer) {
    PCCL_ASSERT(looks_ < kLooks);
    if (answer == number_) return Finding::kAlive;
    return ++looks_ >= kLooks ? Finding::kDead : Finding::kUnknown;
  }

 private:
  uint64_t number_;
  int looks_ = 0;
};

}  // namespace pccl::protocol
