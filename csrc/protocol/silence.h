// Silence: for how long nothing was heard from the other side of a connection, and nothing said to
// it, counted in ticks, each a part of the peer timeout (PROTOCOL.md, section 8). Of links and of
// both ends of a connection to the master. Its owner's loop calls tick(), after all input is
// drained, and once however late it is: so a process that was stopped for a while does not blame
// the others when it wakes up.
#pragma once

#include <cstdint>

#include "csrc/protocol/limits.h"

namespace pccl::protocol {

class Silence {
 public:
  // So many ticks without anything heard are too many.
  explicit Silence(int ticks_max) : ticks_max_(ticks_max) {}

  void heard() { silent_ticks_ = 0; }
  void said() { quiet_ticks_ = 0; }
  void tick() {
    ++silent_ticks_;
    ++quiet_ticks_;
  }

  int silent_ticks() const { return silent_ticks_; }
  bool too_long() const { return silent_ticks_ >= ticks_max_; }
  bool ping_due() const { return quiet_ticks_ >= kTicksPerPing; }

 private:
  int ticks_max_;
  int silent_ticks_ = 0;  // since anything was heard
  int quiet_ticks_ = 0;   // since anything was said
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
