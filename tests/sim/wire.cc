#include "tests/sim/wire.h"

#include <algorithm>
#include <cstring>

namespace pccl::sim {

class Wire::WirePort : public link::Port {
 public:
  WirePort(Wire& wire, int side) : wire_(wire), side_(side) {}
  void send(const net::FrameHeader& header) override {
    if (!wire_.attached_[side_]) return;
    wire_.writers_[side_]->push(header);
    wire_.pump(side_);
  }
  void send_copy(const net::FrameHeader& header, std::span<const std::byte> payload) override {
    if (!wire_.attached_[side_]) return;
    wire_.writers_[side_]->push_copy(header, payload);
    wire_.pump(side_);
  }
  void send_chunk(const net::FrameHeader& header, std::span<const std::byte> payload) override {
    if (!wire_.attached_[side_]) return;
    wire_.writers_[side_]->push_chunk(header, payload);
    wire_.pump(side_);
  }
  void withdraw() override {
    if (!wire_.attached_[side_]) return;
    wire_.writers_[side_]->withdraw();
    wire_.pump(side_);
  }
  void revoke() override {
    if (wire_.readers_[side_]) wire_.readers_[side_]->revoke();
  }
  // On some wires one end is local, on the others neither is.
  bool same_machine() const override {
    return (wire_.serial + static_cast<uint32_t>(side_)) % 3 == 0;
  }

 private:
  Wire& wire_;
  const int side_;
};

Wire::Wire(EventLoop& event_loop, Random& random, WireOptions options)
    : event_loop_(event_loop), random_(random), options_(options) {
  for (int side = 0; side < 2; ++side) {
    writers_[side] = std::make_unique<net::FrameWriter>(true);
    ports_[side] = std::make_unique<WirePort>(*this, side);
  }
}

Wire::~Wire() = default;

link::Port& Wire::port(int side) { return *ports_[side]; }

void Wire::attach(int side, End end) {
  ends_[side] = std::move(end);
  readers_[side] = std::make_unique<net::FrameReader>(*ends_[side].sink, true);
  attached_[side] = true;
  pump(side);
  pump(1 - side);
}

void Wire::detach(int side) {
  attached_[side] = false;
  ends_[side] = {};
  if (readers_[side]) readers_[side]->detach();
}

void Wire::fail(int side, Status why) {
  if (!attached_[side]) return;
  const auto on_failed = std::move(ends_[side].on_failed);
  detach(side);
  if (on_failed) on_failed(std::move(why));
}

void Wire::inject(int side, std::span<const std::byte> bytes) {
  under_way_[side].insert(under_way_[side].end(), bytes.begin(), bytes.end());
  flows_[side].sent += bytes.size();
  pump(1 - side);
}

// Schedules the next piece to leave `side`, and the next piece to arrive there.
void Wire::pump(int side) {
  const auto delay = [this, side] {
    const auto& late = ends_[side].late;
    const Duration direction = random_.duration(options_.delay_min, options_.delay_max);
    return direction + (late ? late() : Duration{0});
  };
  if (attached_[side] && !sending_[side]) {
    sending_[side] = true;
    event_loop_.after(delay() / 8, [self = shared_from_this(), side] { self->send_some(side); });
  }
  const int from = 1 - side;
  if (attached_[side] && !delivering_[from] && !under_way_[from].empty()) {
    delivering_[from] = true;
    event_loop_.after(delay(), [self = shared_from_this(), from] { self->deliver(from); });
  }
}

void Wire::send_some(int side) {
  sending_[side] = false;
  if (!attached_[side] || (ends_[side].paused && ends_[side].paused())) return;
  const size_t room = options_.under_way_bytes_max -
                      std::min(options_.under_way_bytes_max, under_way_[side].size());
  size_t budget = std::min<size_t>(room, random_.between(1, options_.piece_bytes_max));
  const bool chunk_before = writers_[side]->chunk_pending();
  size_t wrote = 0;
  for (const auto& span : writers_[side]->gather()) {
    const size_t bytes = std::min(budget, span.size());
    under_way_[side].insert(under_way_[side].end(), span.begin(), span.begin() + bytes);
    budget -= bytes;
    wrote += bytes;
  }
  if (wrote == 0) return;
  note_packet(side, wrote);
  writers_[side]->wrote(wrote);
  if (!attached_[1 - side] && refuses) return fail(side, {Code::kSystem, "connection reset", {}});
  if (chunk_before && !writers_[side]->chunk_pending()) {
    const auto on_chunk_sent = ends_[side].on_chunk_sent;  // a copy, because it may detach this end
    if (on_chunk_sent) on_chunk_sent();
  }
  pump(side);
  if (attached_[1 - side]) pump(1 - side);
}

void Wire::note_packet(int side, size_t wrote) {
  Flow& flow = flows_[side];
  const size_t packet = std::min<size_t>(wrote, segment);
  if (wrote > protocol::kSmallPacketBytes && !flow.before_large) flow.before_large = flow.sent;
  if (wrote >= segment && !flow.before_full) flow.before_full = flow.sent;
  const auto& width = ends_[1 - side].width;
  if (!flow.stuck && width && packet > width()) {
    flow.stuck = flow.sent;
    flow.stuck_bytes = packet;
  }
  flow.sent += wrote;
}

// Returns how many of the bytes in transit may arrive. The system retransmits a packet until the
// path is wide enough for it.
size_t Wire::passable(int from) {
  Flow& flow = flows_[from];
  const auto& width = ends_[1 - from].width;
  if (flow.stuck && width && flow.stuck_bytes <= width()) flow.stuck.reset();
  flow.acknowledged = flow.stuck.value_or(flow.sent);
  return flow.stuck ? *flow.stuck - flow.delivered : SIZE_MAX;
}

std::optional<link::Progress> Wire::progress(int side) const {
  const Flow& flow = flows_[side];
  if (!flow.before_large) return std::nullopt;
  const bool arrived = flow.before_full && flow.acknowledged > *flow.before_full;
  const bool none = flow.acknowledged <= flow.before_full.value_or(*flow.before_large);
  if (!arrived && !none) return std::nullopt;
  return link::Progress{{}, segment, arrived};
}

void Wire::deliver(int from) {
  delivering_[from] = false;
  const int to = 1 - from;
  if (!attached_[to]) return;
  if (ends_[to].cut_off && ends_[to].cut_off()) return;
  const size_t most = passable(from);
  if (most == 0 || (ends_[to].paused && ends_[to].paused())) return;
  received_[to] = true;
  size_t budget = std::min<size_t>(most, random_.between(1, options_.piece_bytes_max));
  while (budget > 0 && attached_[to] && !under_way_[from].empty()) {
    const std::span<std::byte> space = readers_[to]->space();
    const size_t bytes = std::min({budget, space.size(), under_way_[from].size()});
    std::copy_n(under_way_[from].begin(), bytes, space.begin());
    under_way_[from].erase(under_way_[from].begin(),
                           under_way_[from].begin() + static_cast<long>(bytes));
    budget -= bytes;
    flows_[from].delivered += bytes;
    Status status = readers_[to]->filled(bytes);
    if (!status.ok()) return fail(to, std::move(status));
  }
  pump(to);
  pump(from);
}

}  // namespace pccl::sim
