// Silence: for how long nothing was heard from the other side of a connection, and nothing said to
// it, counted in ticks, each a part of the peer timeout (PROTOCOL.md, section 8). Of links and of
// both ends of a connection to the master. Its owner's loop calls beat(), after all input is
// drained, and once however late it is: so a process that was stopped for a while does not blame
// the others when it wakes up. A tick has one beat, and several if the peer timeout is long.
#pragma once

#include <algorithm>
#include <cstdint>

#include "csrc/protocol/limits.h"

namespace pccl::protocol {

constexpr Duration tick_of(Duration peer_timeout) { return peer_timeout / kTicksPerTimeout; }
constexpr int beats_per_tick(Duration peer_timeout) {
  return static_cast<int>((tick_of(peer_timeout) + kBeatMax - Duration{1}) / kBeatMax);
}
constexpr Duration beat_of(Duration peer_timeout) {
  return tick_of(peer_timeout) / beats_per_tick(peer_timeout);
}
// Something may have been said just after a beat, which the next one notices: so one less than fit.
constexpr int beats_per_ping(Duration peer_timeout) {
  return std::min(kTicksPerPing * beats_per_tick(peer_timeout),
                  static_cast<int>(kPingIntervalMax / beat_of(peer_timeout)) - 1);
}

class Silence {
 public:
  // So many ticks without anything heard are too many.
  explicit Silence(int ticks_max, Duration peer_timeout = kPeerTimeoutDefault)
      : ticks_max_(ticks_max),
        beats_per_tick_(protocol::beats_per_tick(peer_timeout)),
        beats_per_ping_(protocol::beats_per_ping(peer_timeout)) {}

  void heard() { silent_beats_ = 0; }
  void said() { quiet_beats_ = 0; }
  void beat() {
    ++silent_beats_;
    ++quiet_beats_;
  }

  int silent_ticks() const { return silent_beats_ / beats_per_tick_; }
  bool too_long() const { return silent_ticks() >= ticks_max_; }
  bool ping_due() const { return quiet_beats_ >= beats_per_ping_; }

 private:
  int ticks_max_, beats_per_tick_, beats_per_ping_;
  int silent_beats_ = 0;  // since anything was heard
  int quiet_beats_ = 0;   // since anything was said
};

// Probe: whether a link lives whose other end dials again. It is sent a ping with a number of its
// own: nothing else is an answer, since what was under way when the other end went away may come
// for long. Its owner calls look() every tick, or four times a second where ticks are longer.
class Probe {
 public:
  static constexpr int kLooks = 3;

  explicit Probe(uint64_t number) : number_(number) {}

  uint64_t number() const { return number_; }
  enum class Finding { kUnknown, kAlive, kDead };
  // `answer`: the number of the last pong on the link.
  Finding look(uint64_t answer) {
    if (answer == number_) return Finding::kAlive;
    return ++looks_ >= kLooks ? Finding::kDead : Finding::kUnknown;
  }

 private:
  uint64_t number_;
  int looks_ = 0;
};

}  // namespace pccl::protocol
