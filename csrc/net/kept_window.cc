#include "csrc/net/kept_window.h"

#include <algorithm>

namespace pccl::net {

KeptWindow::KeptWindow(Source source, Instant now)
    : source_(std::move(source)), last_sent_(now), stretch_{.begin = now, .end = now} {}

KeptWindow::How KeptWindow::sends(Instant now, bool chunk, uint64_t sent) {
  if (now - last_sent_ >= kIdle && source_.restarts()) {
    kept_until_ = now + kRoundTripsKept * source_.path().smoothed;
    unproven_ = true;
  }
  last_sent_ = now;
  How how{.keep = now < kept_until_, .pace = {}};
  if (!chunk) return how;
  how.pace = chunk_leaves(now, sent);
  kept_until_ = now;  // a chunk fills the socket, and so its window is used
  return how;
}

std::optional<uint64_t> KeptWindow::chunk_leaves(Instant now, uint64_t sent) {
  if (now - stretch_.end >= kIdle) {
    const auto bytes = static_cast<double>(sent - stretch_.sent_before);
    const Duration took = stretch_.end - stretch_.begin + source_.path().least;
    if (bytes >= kInitialWindow && took > Duration{0}) stretch_.rate = bytes / to_seconds(took);
    stretch_.begin = now;
    stretch_.sent_before = sent;
  }
  stretch_.end = now;
  if (std::exchange(unproven_, false)) {
    const PathInfo path = source_.path();
    const std::optional<uint64_t> pace = first_pace(path);
    if (pace) paced_until_ = now + kRoundTripsPaced * path.least;
    return pace;
  }
  if (!paced_until_ || now < *paced_until_) return {};
  paced_until_.reset();
  return 0;
}

std::optional<uint64_t> KeptWindow::first_pace(const PathInfo& path) const {
  if (stretch_.rate == 0 || path.least <= Duration{0}) return {};
  const double share = std::max(kWindowShareMin * static_cast<double>(path.window), kInitialWindow);
  return static_cast<uint64_t>(std::max(kFaster * stretch_.rate, share / to_seconds(path.least)));
}

}  // namespace pccl::net
