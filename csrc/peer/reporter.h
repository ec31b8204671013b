// Reporter: sends Telemetry to the master while somebody watches the run (Observe). It decides only
// when: the shell collects the numbers (SampleTelemetry). Nothing else depends on it. It belongs to
// the PeerCore.
// Invariants:
//   1. Nothing is sent before Observe, and nothing to a master that was restarted since.
//   2. Two Telemetry are at least kIntervalMin apart, whatever the master asks for.
#pragma once

#include <optional>

#include "csrc/peer/membership.h"

namespace pccl::peer {

class Reporter {
 public:
  static constexpr Duration kIntervalMin = std::chrono::milliseconds(500);

  Reporter(Context& context, const Membership& membership)
      : context_(context), membership_(membership) {}

  Status on(const protocol::Observe& observe);
  void sampled(protocol::Telemetry telemetry);             // the answer to SampleTelemetry
  void stop() { interval_ = Duration{0}, next_.reset(); }  // nobody watches
  void on_time();
  std::optional<Instant> deadline() const { return next_; }

 private:
  Context& context_;
  const Membership& membership_;
  Duration interval_{0};  // 0: nobody watches
  std::optional<Instant> next_;
};

}  // namespace pccl::peer
