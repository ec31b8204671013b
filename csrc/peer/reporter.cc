#include "csrc/peer/reporter.h"

#include <algorithm>
#include <utility>

namespace pccl::peer {

// The first one follows at once, so that the page of a run is soon complete.
Status Reporter::on(const protocol::Observe& observe) {
  if (observe.interval_ms == 0) return stop(), Status{};
  const bool begins = interval_ == Duration{0};
  interval_ = std::max<Duration>(std::chrono::milliseconds(observe.interval_ms), kIntervalMin);
  if (begins) next_ = context_.now;
  return {};
}

void Reporter::on_time() {
  if (!next_ || context_.now < *next_) return;
  next_ = context_.after(interval_);
  if (membership_.phase() != Phase::kMember) return;
  SampleTelemetry ask;
  const uint32_t size = membership_.world_size();
  const uint32_t mine = membership_.ring_index_of(membership_.topology().rank);
  if (size > 1) ask.links = {membership_.peer_at(mine + 1), membership_.peer_at(mine + size - 1)};
  if (size == 2) ask.links.pop_back();  // both neighbours are the same peer
  context_.emit(std::move(ask));
}

void Reporter::sampled(protocol::Telemetry telemetry) {
  if (interval_ == Duration{0} || membership_.phase() != Phase::kMember) return;
  context_.send(std::move(telemetry));
}

}  // namespace pccl::peer
