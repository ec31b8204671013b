// CoreShare: notices that a thread, which has work or looks for some all the time, does not get its
// core: somebody else runs there. Where two threads that work for each other take turns on one core
// while another is idle, the system may need ten milliseconds to see it. Belongs to that thread.
// Pure: it hears the time and how long the thread has run; leave_core() acts on it.
#pragma once

#include "csrc/base/clock.h"

namespace pccl {

class CoreShare {
 public:
  // The thread has run for `ran` in its life. True: since the last look, not long ago, it waited
  // for a core for long.
  bool waited(Instant now, Duration ran);

 private:
  Instant looked_at_{};
  Duration ran_{};
};

// What the calling thread has run so far.
Duration thread_ran();

// Moves the calling thread to another core, if it may use one; where it runs later is the system's
// to say, as before. Nothing happens on a machine of many cores: the system finds an idle one there
// whenever it wakes a thread, and another one may be far from the memory in use.
void leave_core();

}  // namespace pccl
