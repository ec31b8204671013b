// Silence: for how long nothing was heard from the other side of a connection, and nothing said to
// it, counted in ticks, each a part of the peer timeout (PROTOCOL.md, section 8). Of links and of
// both ends of a connection to the master. Its owner's loop calls tick(), after all input is
// drained, and once however late it is: so a process that was stopped for a while does not blame
// the others when it wakes up.
#pragma once

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

}  // namespace pccl::protocol
