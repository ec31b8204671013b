// KeptWindow: decides how a lane sends after an idle period, when TCP would restart with a small
// congestion window. The window is kept, and the first chunks are paced: the path may carry less by
// now. The class is pure: it reads no clock, and gets the state of the connection from its source.
// Invariant: a limit of the pace ends with the first chunk that leaves at least kRoundTripsPaced
// round trips after the limit began.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/path_info.h"

namespace pccl::net {

class KeptWindow {
 public:
  // The shortest pause that counts as an idle period. Linux may restart congestion control after a
  // retransmission timeout, which is at least 200 ms.
  static constexpr Duration kIdle = std::chrono::milliseconds(150);
  // All sends keep the window for this number of round trips after an idle period. Linux halves a
  // window that was not full during a whole retransmission timeout, unless acknowledgements arrive
  // or the socket has more to send. So a send before the first acknowledgement could still lose the
  // window.
  static constexpr int kRoundTripsKept = 2;
  // After the window was kept, chunks leave at most kFaster times as fast as before, for
  // kRoundTripsPaced round trips. By then congestion control has found out whether the window still
  // fits (HyStart). At TCP's own pace of two windows in a round trip, a third of the first window
  // would be lost.
  static constexpr double kFaster = 1.25;
  static constexpr int kRoundTripsPaced = 4;
  // While the pace is limited, at least this share of the window leaves in a round trip, and at
  // least kInitialWindow. The earlier rate may have been low only because there was little to send.
  static constexpr double kWindowShareMin = 0.5;
  // In bytes: ten segments, the first window of TCP itself. A stretch with fewer bytes gives no
  // rate.
  static constexpr double kInitialWindow = 10 * 1460;

  struct Source {
    std::function<bool()> restarts;  // whether congestion control restarts with the next send
    std::function<PathInfo()> path;
  };
  struct How {
    bool keep = false;             // the call that sends has to keep the window
    std::optional<uint64_t> pace;  // the new limit, in bytes per second; 0: no limit
  };

  KeptWindow(Source source, Instant now);
  // Call it when bytes leave. `chunk`: whether some of them belong to a chunk. `sent`: the number
  // of bytes that left before.
  How sends(Instant now, bool chunk, uint64_t sent);

 private:
  std::optional<uint64_t> chunk_leaves(Instant now, uint64_t sent);
  std::optional<uint64_t> first_pace(const PathInfo& path) const;

  Source source_;
  Instant last_sent_;
  Instant kept_until_{};
  // The latest period in which chunks left, without an idle period between two of them.
  struct Stretch {
    Instant begin, end;
    uint64_t sent_before = 0;
    double rate = 0;  // bytes per second in an earlier stretch; 0: not known
  } stretch_;
  bool unproven_ = false;  // the window was kept, and no chunk has left since
  std::optional<Instant> paced_until_;
};

}  // namespace pccl::net
