// Pacer: how fast all lanes of a link send together. Pure: it hears what they carried in windows of
// time in which each of them always had something to send.
// Where data flows both ways, a queue on the way delays the acknowledgements of what comes back,
// and both directions lose by it (a third, unpaced). So once something stands in a queue, the lanes
// send no faster than what went through; while nothing does, a little faster each time.
#pragma once

#include <cstdint>

namespace pccl::ring {

class Pacer {
 public:
  // Bytes per second; `queued`: on the way something stands in a queue.
  void window(uint64_t rate, bool queued);
  // Bytes per second of all lanes together; 0: no limit.
  uint64_t limit() const { return limit_; }

 private:
  uint64_t limit_ = 0;
  uint64_t best_ = 0;  // rate, of late
  uint64_t raise_ = 0;
  uint32_t lowered_ = 0;  // windows in a row
  uint32_t released_for_ = 0;
};

}  // namespace pccl::ring
