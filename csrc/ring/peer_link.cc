#include "csrc/ring/peer_link.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::ring {
namespace {

// A chunk on a narrow lane needs this number of round trips in addition: one for the bytes queued
// on the lane before it, and one for its last bytes.
constexpr uint64_t kRoundTripsMore = 2;
// The parts or legs of one operation use about this number of lanes, on all links together.
constexpr uint32_t kLanesOfParts = 52;

// Returns the largest number of lanes that may carry chunks on a link when this operation wants to
// send. The parts of an exchange, and the legs of a direct all-reduce, leave on all links at once,
// and share the sending rate of this machine. If all lanes of all links were used, most connections
// would have windows that are too small to recover from a loss without a timeout.
uint32_t lanes_for(const Operation& operation) {
  if (operation.whole == nullptr) return protocol::kLanesMax;
  return std::max(kLanesOfParts / (operation.whole->task.shape.world - 1), uint32_t{1});
}

bool yields(const Operation& operation) { return operation.task.pulled || operation.task.filler; }

}  // namespace

// First choice: a ready, active lane without a chunk; second: a ready, active lane; third: any
// ready lane. The search goes round-robin, because the system may not have sent the last frame of a
// lane yet.
std::optional<uint32_t> PeerLink::free_lane(bool for_contribution) const {
  std::optional<uint32_t> any;
  const auto count = static_cast<uint32_t>(lanes.size());
  for (uint32_t turn = 0; turn < count; ++turn) {
    const uint32_t index = (next + turn) % count;
    const Lane& lane = lanes[index];
    const bool sends = lane.sending.operation != nullptr;
    if (!ready(lane) || (for_contribution && sends && !lane.has_room_for_copy())) continue;
    if (!sends && !is_inactive(index)) return index;
    if (!any || (is_inactive(*any) && !is_inactive(index))) any = index;
  }
  return any;
}

// Returns a ready, active lane that is sending no chunk. A lane is narrow if its window is smaller
// than a chunk: it then needs several round trips for one chunk. A narrow lane is used only if no
// other lane is free. If a lane that is not narrow is sending, a narrow lane is used only if all
// lanes together need longer for the rest of the queue than the narrow lane needs for one chunk. If
// they do not, nothing is returned, and the chunk waits.
std::optional<uint32_t> PeerLink::lane_for_chunk(const Operation& operation,
                                                 uint64_t bytes_left) const {
  const uint64_t chunk = operation.schedule.slot_bytes();
  const auto count = static_cast<uint32_t>(lanes.size());
  std::optional<uint32_t> narrow;
  uint64_t windows = 0;
  bool others_under_way = false;
  const uint32_t most = lanes_for(operation);
  const auto sends = [](const Lane& lane) { return lane.sending.operation != nullptr; };
  if (most < count && std::count_if(lanes.begin(), lanes.end(), sends) >= most) return std::nullopt;
  const uint32_t first = most < count ? 0 : next;  // begin with the same lanes each time
  for (uint32_t turn = 0; turn < count; ++turn) {
    const uint32_t index = (first + turn) % count;
    const Lane& lane = lanes[index];
    if (!ready(lane) || is_inactive(index)) continue;
    windows += lane.window;
    const bool is_narrow = lane.window > 0 && lane.window < chunk;
    if (lane.sending.operation != nullptr) {
      others_under_way |= !is_narrow;
    } else if (!is_narrow) {
      return index;
    } else if (!narrow || lane.window > lanes[*narrow].window) {
      narrow = index;
    }
  }
  if (!narrow || !others_under_way) return narrow;
  const uint64_t round_trips = chunk / lanes[*narrow].window + kRoundTripsMore;
  return bytes_left > round_trips * windows ? narrow : std::nullopt;
}

// Transfers of shared state and fillers yield in another way (SendQueue).
bool PeerLink::holds_back(const Operation& operation) const {
  if (operation.task.priority >= moving_ || lower_ >= kPersistence || yields(operation))
    return false;
  return std::any_of(lanes.begin(), lanes.end(),
                     [](const Lane& lane) { return lane.sending.operation != nullptr; });
}

void PeerLink::leaves(const Operation& operation) {
  if (yields(operation)) return;
  if (operation.task.priority < moving_ && lower_ < kPersistence) {
    ++lower_;
  } else {
    moving_ = operation.task.priority;
    lower_ = 0;
  }
}

void PeerLink::arrived(const Operation& operation) {
  if (operation.task.priority < moving_ || yields(operation)) return;
  moving_ = operation.task.priority;
  lower_ = 0;
}

void PeerLink::fail(std::string why, Effects& effects) {
  failed = true;
  effects.push_back(FailLink{peer, std::move(why)});
}

void PeerLink::withdraw(const Operation& operation, Effects& effects) {
  for (uint32_t index = 0; index < lanes.size(); ++index) {
    InFlightChunk& sending = lanes[index].sending;
    if (sending.operation != &operation) continue;
    sending = {};
    effects.push_back(Withdraw{{peer, index}});
  }
}

long PeerLink::landing_lanes(const UnexpectedId& message) const {
  return std::count_if(lanes.begin(), lanes.end(),
                       [&](const Lane& lane) { return lane.landing.unexpected == message; });
}

void PeerLink::check(const OpTable& operations) const {
  PCCL_ASSERT(!lanes.empty() && lanes.size() <= protocol::kLanesMax);
  for (uint32_t index = 0; index < lanes.size(); ++index) {
    const Lane& lane = lanes[index];
    const bool open = lane.open_sent == epoch && lane.open_received >= epoch;
    PCCL_ASSERT(lane.open_sent <= epoch);
    PCCL_ASSERT(lane.copied_before <= lane.copied);
    PCCL_ASSERT(lane.copied < protocol::kEagerBytes + protocol::kOneShotBytesMax);
    const InFlightChunk& sending = lane.sending;
    PCCL_ASSERT(!sending.unexpected);
    if (sending.operation != nullptr) {
      PCCL_ASSERT(operations.holds(sending.operation) && open);
      PCCL_ASSERT(sending.operation->task.downstream == peer &&
                  !sending.operation->downstream_lost);
      PCCL_ASSERT(sending.operation->progress.may_be_leaving(sending.chunk));
    }
    const InFlightChunk& landing = lane.landing;
    if (!landing.any()) continue;
    PCCL_ASSERT(open);
    for (uint32_t other = 0; other < index; ++other) {
      const InFlightChunk& there = lanes[other].landing;
      PCCL_ASSERT(landing.unexpected
                      ? there.unexpected != landing.unexpected
                      : there.operation != landing.operation || there.chunk != landing.chunk);
    }
    PCCL_ASSERT(!landing.unexpected || landing.operation == nullptr);
    if (landing.unexpected) continue;  // EagerQueue::check() checks it
    PCCL_ASSERT(operations.holds(landing.operation));
    const Operation& operation = *landing.operation;
    PCCL_ASSERT(operation.task.upstream == peer && !operation.upstream_lost);
    PCCL_ASSERT(operation.progress.is_arriving(landing.chunk));
  }
}

}  // namespace pccl::ring
