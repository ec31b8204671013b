#include "csrc/ring/engine.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/memory/pool_buffer.h"
#include "csrc/ring/buffers.h"
#include "csrc/ring/core.h"

namespace pccl::ring {

struct Engine::Impl {
  class OneLane;
  Impl(Callbacks given, std::shared_ptr<memory::Pool> memory)
      : callbacks(std::move(given)), shared_pool(std::move(memory)) {}

  // Steps the core with `event`, then with all events that the step causes. If a step is running
  // already, that step handles `event` later.
  void drive(Event event);
  bool still_true(const Event& event);
  OneLane* find(LaneId lane);
  using Buffers = std::map<uint64_t, std::unique_ptr<OpBuffers>>;  // by handle
  Status make_buffers(uint64_t handle, const Shape& shape, Memory memory, Buffers& made);
  Status make_parts(Task& task, const Memory& memory, Buffers& made);
  OpBuffers& buffers_of(uint64_t handle);
  void end_kept(const OpEnded& end);
  void end_failed(OpKey op);
  void no_memory(PeerId peer, size_t bytes);

  void apply(SendFrame& effect);
  void apply(SendChunk& effect);
  void apply(Land& effect);
  void apply(LandUnexpected& effect);
  void apply(Discard&) {}  // a lane without a landing discards the chunk
  void apply(TakeUnexpected& effect);
  void apply(DropUnexpected& effect) { unexpected.erase({effect.peer, effect.unexpected}); }
  void apply(Combine& effect) { buffers_of(effect.handle).combine(effect.chunk, effect.absent); }
  void apply(Revoke& effect);
  void apply(Withdraw& effect);
  void apply(Restore& effect) { buffers_of(effect.handle).restore(effect.from); }
  void apply(Release& effect) { buffers.erase(effect.handle); }
  void apply(Retain& effect);
  void apply(OpProgressed& effect) { callbacks.on_event(effect); }
  void apply(OpTransferred& effect) { callbacks.on_event(effect); }
  void apply(OpAgreed& effect) { callbacks.on_event(effect); }
  void apply(OpDrained& effect) { callbacks.on_event(effect); }
  void apply(Requested& effect) { callbacks.on_event(effect); }
  void apply(FailLink& effect) { callbacks.on_fail_link(effect.peer, effect.why); }

  const Callbacks callbacks;
  RingCore core;
  const std::shared_ptr<memory::Pool> shared_pool;
  memory::Pool& pool = *shared_pool;
  Buffers buffers;
  struct Kept {
    Epoch epoch;                                      // the last epoch it was posted in
    std::vector<std::unique_ptr<OpBuffers>> buffers;  // one per epoch
  };
  std::map<OpKey, Kept> kept;  // retained after kRestart
  // messages of operations that are not posted here yet
  std::map<std::pair<PeerId, UnexpectedId>, memory::PoolBuffer> unexpected;
  uint64_t handles = 0;
  std::map<OpKey, Epoch> failed;  // reported by OpFailed, not ended yet
  std::map<PeerId, std::vector<std::unique_ptr<OneLane>>> links;
  // Lanes that are down. Their methods may still be on the stack, so the lanes are destroyed later:
  // when the next lane comes up.
  std::vector<std::unique_ptr<OneLane>> gone;
  std::vector<Event> waiting;
  Effects effects;  // waiting and effects keep their capacity
  bool stepping = false;
  Counters counters;
};

// This end of a lane. At most one chunk lands on it at a time, in the memory of one operation.
class Engine::Impl::OneLane : public link::LaneSink {
 public:
  OneLane(Impl& engine, LaneId lane, link::Port& writer)
      : id(lane), port(writer), engine_(engine), landed_(engine.pool), leaving_(engine.pool) {}

  void on_frame(const net::FrameHeader& header) override {
    engine_.drive(FrameArrived{id, header});
  }

  std::span<std::byte> on_chunk(const net::FrameHeader& header) override {
    PCCL_ASSERT(!engine_.stepping && !lands_);
    engine_.drive(ChunkArriving{id, header});
    if (!lands_) return {};
    if (!landing_.where.empty()) return landing_.where;
    // The chunk has no bytes, so it is complete already. For the reader, an empty span means
    // "discard".
    on_chunk_end(true);
    return {};
  }

  void on_piece(size_t at, size_t bytes) override {
    if (!lands_) return;
    received += bytes;
    engine_.counters.bytes_received += bytes;
    if (landing_in_ == nullptr) return;
    landing_in_->absorb(landing_, at, bytes);
    if (at + bytes == landing_.chunk.wire_bytes)
      engine_.counters.tensor_bytes_received += landing_.chunk.bytes;
  }

  void on_chunk_end(bool valid) override {
    if (!lands_) return;
    lands_ = false;
    engine_.drive(ChunkArrived{id, valid});
  }

  void chunk_sent() override {
    if (!known) return;
    left = true;
    engine_.counters.bytes_sent += sent_.wire_bytes;
    engine_.counters.tensor_bytes_sent += sent_.bytes;
    engine_.drive(LaneWindow{id, port.window()});
    engine_.drive(ChunkSent{id});
  }

  // False if there is no memory.
  bool land(OpBuffers& memory, const Land& how) {
    const Chunk& chunk = how.chunk;
    if (memory.lands_apart(chunk, how.action) && !landed_.fit(chunk.wire_bytes)) return false;
    lands_ = true;
    landing_in_ = &memory;
    landing_ = memory.land(chunk, how.action, landed_.bytes(), how.absent);
    return true;
  }
  // False if there is no memory.
  bool send(const net::FrameHeader& header, const OpBuffers& memory, const Chunk& chunk) {
    sent_ = chunk;
    const size_t room = memory.copy_bytes(chunk);
    if (room == 0) {
      port.send_chunk(header, memory.source(chunk));
      return true;
    }
    if (!leaving_.fit(room)) return false;
    port.send_chunk(header, memory.copy_source(chunk, leaving_.bytes()));
    return true;
  }
  void land_unexpected(std::span<std::byte> where) {
    lands_ = true;
    landing_in_ = nullptr;
    landing_ = {{}, Action::kGather, where};
  }
  void revoke() {
    lands_ = false;
    port.revoke();
  }
  bool lands() const { return lands_; }

  const LaneId id;
  link::Port& port;
  // The core has handled LaneUp of this lane. Before that, effects with this id are meant for an
  // earlier lane.
  bool known = false;
  bool left = false;      // the last chunk has left, and ChunkSent is not handled yet
  uint64_t received = 0;  // bytes that have landed

 private:
  Impl& engine_;
  bool lands_ = false;               // a chunk is landing
  OpBuffers* landing_in_ = nullptr;  // of its operation; null: it is not posted here yet
  OpBuffers::Landing landing_;
  Chunk sent_;                     // the chunk that was sent last
  memory::ScratchBuffer landed_;   // chunks that land apart
  memory::ScratchBuffer leaving_;  // bytes from OpBuffers::copy_source()
};

// ---- Steps ----

void Engine::Impl::drive(Event event) {
  waiting.push_back(std::move(event));
  if (stepping) return;
  stepping = true;
  for (size_t index = 0; index < waiting.size(); ++index) {
    const Event next = std::move(waiting[index]);
    if (!still_true(next)) continue;
    if (const auto* end = std::get_if<OpEnded>(&next)) end_kept(*end);
    core.step(next, effects);
    for (Effect& effect : effects) {
      std::visit([this](auto& what) { apply(what); }, effect);
    }
    effects.clear();
    if (const auto* end = std::get_if<OpEnded>(&next)) end_failed(end->op);
  }
  waiting.clear();
  stepping = false;
}

// False in two cases: a chunk had left but was withdrawn before the core handled ChunkSent; or a
// link went down, and perhaps up again, in the meantime.
bool Engine::Impl::still_true(const Event& event) {
  if (const auto* sent = std::get_if<ChunkSent>(&event)) {
    OneLane* const lane = find(sent->lane);
    return lane != nullptr && std::exchange(lane->left, false);
  }
  if (const auto* up = std::get_if<LaneUp>(&event)) {
    const auto at = links.find(up->lane.peer);
    if (at == links.end() || up->lane.index >= at->second.size()) return false;
    at->second[up->lane.index]->known = true;
  }
  return true;
}

Engine::Impl::OneLane* Engine::Impl::find(LaneId lane) {
  const auto at = links.find(lane.peer);
  if (at == links.end() || lane.index >= at->second.size()) return nullptr;
  OneLane* const found = at->second[lane.index].get();
  return found->known ? found : nullptr;
}

Status Engine::Impl::make_buffers(uint64_t handle, const Shape& shape, Memory memory,
                                  Buffers& made) {
  Result<std::unique_ptr<OpBuffers>> one = OpBuffers::make(shape, std::move(memory), pool);
  if (!one.ok()) return one.status();
  made.emplace(handle, std::move(one.value()));
  return {};
}

// Each part of an exchange has buffers of its own, which cover only the bytes of that part.
Status Engine::Impl::make_parts(Task& task, const Memory& memory, Buffers& made) {
  if (!row_of(task.shape.pattern).in_parts()) return {};
  for (uint32_t index = 0; index < task.parts.size(); ++index) {
    Part& part = task.parts[index];
    if (index == task.shape.rank) continue;
    for (const bool sends : {true, false}) {
      const uint64_t bytes = sends ? part.to : part.from;
      if (bytes == 0) continue;
      Memory own;
      own.save = memory.save && !sends;
      // A part that is sent is only read.
      std::byte* const data =
          sends ? const_cast<std::byte*>(memory.inputs[index].data()) : memory.spans[index].data();
      own.spans = {{data, bytes}};
      uint64_t& handle = sends ? part.handle_to : part.handle_from;
      handle = handles + made.size() + 1;
      const Shape shape = shape_of_part(task.shape, bytes, sends);
      const Status status = make_buffers(handle, shape, std::move(own), made);
      if (!status.ok()) return status;
    }
  }
  return {};
}

OpBuffers& Engine::Impl::buffers_of(uint64_t handle) {
  const auto at = buffers.find(handle);
  PCCL_ASSERT(at != buffers.end());
  return *at->second;
}

// The last end of a continued operation restores the elements retained from earlier epochs, or
// makes them final.
void Engine::Impl::end_kept(const OpEnded& end) {
  const auto at = kept.find(end.op);
  if (at == kept.end()) return;
  std::optional<Epoch> posted = core.posted(end.op);
  if (failed.contains(end.op)) posted = failed.at(end.op);
  if (end.ending == Ending::kRestart) {
    at->second.epoch = posted.value_or(at->second.epoch);
    return;
  }
  const Kept ended = std::move(at->second);
  kept.erase(at);
  for (const auto& part : ended.buffers) {
    if (end.ending == Ending::kAborted) part->restore();
  }
  if (!posted) callbacks.on_event(OpDrained{ended.epoch, end.op});
}

// Reports OpDrained for an operation that failed here for lack of memory: the core does not know
// it.
void Engine::Impl::end_failed(OpKey op) {
  const auto at = failed.find(op);
  if (at == failed.end()) return;
  const Epoch epoch = at->second;
  failed.erase(at);
  callbacks.on_event(OpDrained{epoch, op});
}

// ---- Effects ----

void Engine::Impl::apply(SendFrame& effect) {
  if (OneLane* const lane = find(effect.lane)) lane->port.send(effect.header);
}

void Engine::Impl::apply(SendChunk& effect) {
  OneLane* const lane = find(effect.lane);
  if (lane == nullptr) return;
  const OpBuffers& memory = buffers_of(effect.handle);
  if (effect.copied) {
    counters.bytes_sent += effect.chunk.wire_bytes;
    counters.tensor_bytes_sent += effect.chunk.bytes;
    return lane->port.send_copy(effect.header, memory.source(effect.chunk));
  }
  if (lane->send(effect.header, memory, effect.chunk)) return;
  no_memory(effect.lane.peer, effect.chunk.wire_bytes);
}

void Engine::Impl::apply(Land& effect) {
  OneLane* const lane = find(effect.lane);
  if (lane == nullptr) return;
  if (lane->land(buffers_of(effect.handle), effect)) return;
  no_memory(effect.lane.peer, effect.chunk.wire_bytes);
}

void Engine::Impl::apply(LandUnexpected& effect) {
  OneLane* const lane = find(effect.lane);
  if (lane == nullptr) return;
  const std::pair<PeerId, UnexpectedId> key(effect.lane.peer, effect.unexpected);
  const auto [at, added] = unexpected.try_emplace(key, pool, std::max(effect.bytes, 1u));
  PCCL_ASSERT(added);
  if (at->second.bytes().empty()) return no_memory(effect.lane.peer, effect.bytes);
  lane->land_unexpected(at->second.bytes().first(effect.bytes));
}

void Engine::Impl::apply(TakeUnexpected& effect) {
  const auto at = unexpected.find({effect.peer, effect.unexpected});
  PCCL_ASSERT(at != unexpected.end());
  OpBuffers& memory = buffers_of(effect.handle);
  const std::span<std::byte> bytes = at->second.bytes();
  OpBuffers::Landing landing = memory.land(effect.chunk, effect.action, bytes, effect.absent);
  const size_t arrived = effect.chunk.wire_bytes;
  if (landing.where.data() != bytes.data() && arrived > 0)
    std::memcpy(landing.where.data(), bytes.data(), arrived);
  memory.absorb(landing, 0, arrived);
  counters.tensor_bytes_received += effect.chunk.bytes;
  unexpected.erase(at);
}

// Asks to close the link at once, because the core believes that the chunk is in flight.
void Engine::Impl::no_memory(PeerId peer, size_t bytes) {
  callbacks.on_fail_link(peer, "no memory for a chunk of " + std::to_string(bytes) + " bytes");
}

void Engine::Impl::apply(Revoke& effect) {
  if (OneLane* const lane = find(effect.lane)) lane->revoke();
}

void Engine::Impl::apply(Retain& effect) {
  const auto at = buffers.find(effect.handle);
  at->second->close(effect.bytes);
  Kept& those = kept[effect.op];
  those.epoch = effect.epoch;
  those.buffers.push_back(std::move(at->second));
  buffers.erase(at);
}

void Engine::Impl::apply(Withdraw& effect) {
  OneLane* const lane = find(effect.lane);
  if (lane == nullptr) return;
  lane->left = false;
  lane->port.withdraw();
}

// ---- Engine ----

Engine::Engine(Callbacks callbacks, std::shared_ptr<memory::Pool> pool)
    : impl_(std::make_unique<Impl>(std::move(callbacks), std::move(pool))) {}
Engine::~Engine() = default;

void Engine::begin_epoch(Epoch epoch, std::vector<PeerId> peers) {
  impl_->drive(EpochBegun{epoch, std::move(peers)});
}

std::optional<net::FrameHeader> Engine::open_frame(PeerId peer) const {
  return impl_->core.open_frame(peer);
}

link::LaneSink& Engine::lane_up(PeerId peer, link::Port& port, Epoch opened) {
  if (!impl_->stepping) impl_->gone.clear();
  auto& lanes = impl_->links[peer];
  const LaneId id{peer, static_cast<uint32_t>(lanes.size())};
  Impl::OneLane& lane = *lanes.emplace_back(std::make_unique<Impl::OneLane>(*impl_, id, port));
  impl_->drive(LaneUp{id, port.same_machine(), opened});
  impl_->drive(LaneWindow{id, port.window()});
  return lane;
}

void Engine::link_down(PeerId peer) {
  const auto at = impl_->links.find(peer);
  if (at == impl_->links.end()) return;
  for (auto& lane : at->second) {
    lane->revoke();
    lane->port.withdraw();
    impl_->gone.push_back(std::move(lane));
  }
  impl_->links.erase(at);
  impl_->drive(LinkDown{peer});
}

void Engine::set_inactive(PeerId peer, protocol::LaneBits lanes) {
  impl_->drive(LanesInactive{peer, lanes});
}

void Engine::post(Task task, Memory memory) {
  task.shape.restored = memory.save;
  memory.absent = task.absent.any();
  Impl::Buffers made;
  Status status = impl_->make_parts(task, memory, made);
  if (status.ok()) {
    task.handle = impl_->handles + made.size() + 1;
    status = impl_->make_buffers(task.handle, task.shape, std::move(memory), made);
  }
  if (!status.ok()) {
    impl_->failed.emplace(task.op, task.epoch);
    impl_->callbacks.on_event(OpFailed{task.epoch, task.op, status});
    return;
  }
  made.at(task.handle)->begin();
  impl_->handles = task.handle;
  impl_->buffers.merge(made);
  impl_->drive(OpPosted{std::move(task)});
}

void Engine::end(OpEnded end) { impl_->drive(end); }

void Engine::done(OpKey op) { impl_->drive(OpDone{op}); }

std::optional<uint64_t> Engine::received_from(PeerId peer) const {
  const auto at = impl_->links.find(peer);
  if (at == impl_->links.end()) return std::nullopt;
  uint64_t sum = 0;
  for (const auto& lane : at->second) sum += lane->received;
  return sum;
}

Engine::Counters Engine::counters() const {
  Counters counters = impl_->counters;
  counters.operations_open = impl_->core.operations_open();
  counters.bytes_held = impl_->pool.bytes_held();
  return counters;
}

void Engine::check() const {
  const Impl& impl = *impl_;
  PCCL_ASSERT(!impl.stepping && impl.waiting.empty() && impl.effects.empty());
  impl.core.check();
  size_t buffers = 0;
  impl.core.operations().each([&](const Operation& operation) {
    if (!operation.is_leg()) ++buffers;
    PCCL_ASSERT(impl.buffers.contains(operation.task.handle));
    PCCL_ASSERT(!impl.failed.contains(operation.task.op));
  });
  PCCL_ASSERT(impl.buffers.size() == buffers);
  PCCL_ASSERT(impl.unexpected.size() == impl.core.kept_messages());
  for (const auto& [peer, lanes] : impl.links) {
    PCCL_ASSERT(lanes.size() == impl.core.lanes(peer));
    for (const auto& lane : lanes) {
      PCCL_ASSERT(lane->known && !lane->left);
      PCCL_ASSERT(!lane->lands() || impl.core.lands(lane->id));
    }
  }
  for (const auto& [op, kept] : impl.kept) PCCL_ASSERT(kept.epoch && !kept.buffers.empty());
}

}  // namespace pccl::ring
