// ContentionDetector: the contention detector. It notices that a thread does not get its core
// because another thread runs there. If two threads that work for each other take turns on one core
// while another core is idle, the system may need ten milliseconds to notice. It belongs to the
// thread that it watches, which must have work or poll for work all the time. It is pure: its
// caller passes the time and how long the thread has run. migrate() acts on the result.
#pragma once

#include "csrc/base/clock.h"

namespace pccl {

class ContentionDetector {
 public:
  // REQUIRES: neither argument ever decreases.
  // `ran`: the time that the thread has run in its life. True if it waited long for a core since
  // the last call. False if the last call was long ago.
  bool waited(Instant now, Duration ran);

 private:
  Instant looked_at_{};
  Duration ran_{};
};

// The time that the calling thread has run so far.
Duration thread_ran();

// Migrates the calling thread to another core, if it is allowed to use one. Later the system may
// move it to any allowed core, as before. Does nothing if many cores are allowed: there the system
// finds an idle core whenever it wakes a thread, and another core may be far from the memory in
// use.
void migrate();

}  // namespace pccl
