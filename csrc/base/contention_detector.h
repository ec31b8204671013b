// ContentionDetector: the contention detector. It notices that a thread does not get its core
// because another thread runs there. If two threads that work for each other take turns on one core
// while another core is idle, the system may need ten milliseconds to notice. The detector belongs
// to the thread that it watches. This thread must have work or poll for work all the time. The
// detector is pure: its caller passes the time and how long the thread has run. migrate() acts on
// the result.
#pragma once

#include "csrc/base/clock.h"

namespace pccl {

class ContentionDetector {
 public:
  // Returns whether the thread waited long for a core since the last call of waited(). Returns
  // false if that call was long ago, because the thread may have slept since. `ran`: the time that
  // the thread has run in its life.
  // REQUIRES: neither argument ever decreases.
  bool waited(Instant now, Duration ran);

 private:
  Instant looked_at_{};
  Duration ran_{};
};

// The time that the calling thread has run so far.
Duration thread_ran();

// Migrates the calling thread to another core, if it may use more than one. Later the system may
// move the thread back. migrate() does nothing if the thread may use many cores: then the system
// finds an idle core whenever it wakes a thread, and another core may be far from the memory in
// use.
void migrate();

}  // namespace pccl
