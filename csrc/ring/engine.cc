#include "csrc/ring/engine.h"

#include <map>
#include <optional>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/ring/pool.h"

namespace pccl::ring {

struct Engine::Inside {
  class Link;
  explicit Inside(Callbacks given) : callbacks(std::move(given)) {}

  // Steps the core with `event`, then with whatever that caused; at once, unless a step is under
  // way.
  void drive(Event event);
  bool still_true(const Event& event);
  Link* link_of(PeerId peer);
  OpBuffers& buffers_of(uint64_t handle);
  void end_kept(const OpEnded& end);

  void apply(SendFrame& effect);
  void apply(SendChunk& effect);
  void apply(Land& effect);
  void apply(Discard&) {}  // a link without a landing discards
  void apply(Revoke& effect);
  void apply(Withdraw& effect);
  void apply(Restore& effect) { buffers_of(effect.handle).restore(effect.from); }
  void apply(Release& effect) { buffers.erase(effect.handle); }
  void apply(Retain& effect);
  void apply(OpProgressed& effect) {
    callbacks.on_progressed(effect.epoch, effect.op, effect.finished);
  }
  void apply(OpTransferred& effect) { callbacks.on_transferred(effect.epoch, effect.op); }
  void apply(OpDrained& effect) { callbacks.on_drained(effect.epoch, effect.op); }
  void apply(FailLink& effect) { callbacks.on_fail_link(effect.peer, effect.why); }

  const Callbacks callbacks;
  RingCore core;
  Pool pool;
  std::map<uint64_t, std::unique_ptr<OpBuffers>> buffers;
  struct Kept {
    Epoch epoch;                                      // the last it was posted in
    std::vector<std::unique_ptr<OpBuffers>> buffers;  // one of each epoch
  };
  std::map<OpKey, Kept> kept;  // what kAgain has left as it is
  uint64_t handles = 0;
  std::map<OpKey, Epoch> failed;  // told by on_failed, not ended yet
  std::map<PeerId, std::unique_ptr<Link>> links;
  // Down, but perhaps on the stack still: destroyed when the next link comes up.
  std::vector<std::unique_ptr<Link>> gone;
  std::vector<Event> waiting;
  Effects effects;  // waiting and effects keep their capacity
  bool stepping = false;
  Counters counters;
};

// One end of a link: what its reader feeds. A chunk lands in the memory of one operation at a time.
class Engine::Inside::Link : public net::FrameSink {
 public:
  Link(Inside& engine, PeerId peer, Port& writer) : port(writer), engine_(engine), peer_(peer) {}

  void on_frame(const net::FrameHeader& header) override {
    engine_.drive(FrameArrived{peer_, header});
  }

  std::span<std::byte> on_chunk(const net::FrameHeader& header) override {
    PCCL_ASSERT(!engine_.stepping && landing == nullptr);
    engine_.drive(ChunkArriving{peer_, header});
    if (landing == nullptr) return {};
    if (!where.empty()) return where;
    on_chunk_end(true);  // it is complete already, and the reader takes an empty span for "discard"
    return {};
  }

  void on_piece(size_t at, size_t bytes) override {
    if (landing == nullptr) return;
    landing->absorb(at, bytes);
    engine_.counters.bytes_received += bytes;
  }

  void on_chunk_end(bool valid) override {
    if (landing == nullptr) return;
    landing = nullptr;
    engine_.drive(ChunkArrived{peer_, valid});
  }

  Port& port;
  // The core has heard of it: its effects are meant for this link, not for a predecessor.
  bool known = false;
  OpBuffers* landing = nullptr;  // of the chunk that is landing
  std::span<std::byte> where;
  bool left = false;  // the chunk given last has left, and the core is about to hear of it
  size_t chunk_bytes = 0;

 private:
  Inside& engine_;
  const PeerId peer_;
};

// ---- Steps ----

void Engine::Inside::drive(Event event) {
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
  }
  waiting.clear();
  stepping = false;
}

// A chunk that had left was withdrawn before the core heard of it; a link went down and up again
// meanwhile.
bool Engine::Inside::still_true(const Event& event) {
  if (const auto* sent = std::get_if<ChunkSent>(&event)) {
    Link* const link = link_of(sent->peer);
    return link != nullptr && std::exchange(link->left, false);
  }
  if (const auto* up = std::get_if<LinkUp>(&event)) {
    const auto at = links.find(up->peer);
    if (at == links.end()) return false;
    at->second->known = true;
  }
  return true;
}

Engine::Inside::Link* Engine::Inside::link_of(PeerId peer) {
  const auto at = links.find(peer);
  return at == links.end() || !at->second->known ? nullptr : at->second.get();
}

OpBuffers& Engine::Inside::buffers_of(uint64_t handle) {
  const auto at = buffers.find(handle);
  PCCL_ASSERT(at != buffers.end());
  return *at->second;
}

// What earlier epochs have left is put back, or stays for good, with the last end.
void Engine::Inside::end_kept(const OpEnded& end) {
  const auto at = kept.find(end.op);
  if (at == kept.end()) return;
  std::optional<Epoch> posted = core.posted(end.op);
  if (failed.contains(end.op)) posted = failed.at(end.op);
  if (end.ending == Ending::kAgain) {
    at->second.epoch = posted.value_or(at->second.epoch);
    return;
  }
  const Kept ended = std::move(at->second);
  kept.erase(at);
  for (const auto& part : ended.buffers) {
    if (end.ending == Ending::kAborted) part->restore();
  }
  if (!posted) callbacks.on_drained(ended.epoch, end.op);
}

// ---- Effects ----

void Engine::Inside::apply(SendFrame& effect) {
  if (Link* const link = link_of(effect.peer)) link->port.send(effect.header);
}

void Engine::Inside::apply(SendChunk& effect) {
  Link* const link = link_of(effect.peer);
  if (link == nullptr) return;
  link->chunk_bytes = effect.unit.bytes;
  link->port.send_chunk(effect.header, buffers_of(effect.handle).source(effect.unit));
}

void Engine::Inside::apply(Land& effect) {
  Link* const link = link_of(effect.peer);
  if (link == nullptr) return;
  link->landing = &buffers_of(effect.handle);
  link->where = link->landing->land(effect.unit, effect.action);
}

void Engine::Inside::apply(Revoke& effect) {
  Link* const link = link_of(effect.peer);
  if (link == nullptr) return;
  link->landing = nullptr;
  link->port.revoke();
}

void Engine::Inside::apply(Retain& effect) {
  const auto at = buffers.find(effect.handle);
  at->second->close();
  Kept& those = kept[effect.op];
  those.epoch = effect.epoch;
  those.buffers.push_back(std::move(at->second));
  buffers.erase(at);
}

void Engine::Inside::apply(Withdraw& effect) {
  Link* const link = link_of(effect.peer);
  if (link == nullptr) return;
  link->left = false;
  link->port.withdraw();
}

// ---- Engine ----

Engine::Engine(Callbacks callbacks) : inside_(std::make_unique<Inside>(std::move(callbacks))) {}
Engine::~Engine() = default;

void Engine::begin_epoch(Epoch epoch, std::vector<PeerId> peers) {
  inside_->drive(EpochBegun{epoch, std::move(peers)});
}

net::FrameSink& Engine::link_up(PeerId peer, Port& port) {
  if (!inside_->stepping) inside_->gone.clear();
  const auto [at, added] =
      inside_->links.try_emplace(peer, std::make_unique<Inside::Link>(*inside_, peer, port));
  PCCL_ASSERT(added);
  Inside::Link& link = *at->second;
  inside_->drive(LinkUp{peer});
  return link;
}

void Engine::link_down(PeerId peer) {
  const auto at = inside_->links.find(peer);
  if (at == inside_->links.end()) return;
  Inside::Link& link = *at->second;
  link.landing = nullptr;
  link.port.revoke();
  link.port.withdraw();
  inside_->gone.push_back(std::move(at->second));
  inside_->links.erase(at);
  inside_->drive(LinkDown{peer});
}

void Engine::post(Task task, Memory memory) {
  Result<std::unique_ptr<OpBuffers>> made =
      OpBuffers::make(task.shape, std::move(memory), inside_->pool);
  if (!made.ok()) {
    inside_->failed.emplace(task.op, task.epoch);
    inside_->callbacks.on_failed(task.epoch, task.op, made.status());
    return;
  }
  task.handle = ++inside_->handles;
  inside_->buffers.emplace(task.handle, std::move(made.value()));
  inside_->drive(OpPosted{std::move(task)});
}

void Engine::end(OpEnded end) {
  const OpKey op = end.op;
  inside_->drive(end);
  const auto at = inside_->failed.find(op);
  if (at == inside_->failed.end()) return;
  const Epoch epoch = at->second;
  inside_->failed.erase(at);
  inside_->callbacks.on_drained(epoch, op);
}

void Engine::chunk_sent(PeerId peer) {
  Inside::Link* const link = inside_->link_of(peer);
  if (link == nullptr) return;
  link->left = true;
  inside_->counters.bytes_sent += link->chunk_bytes;
  inside_->drive(ChunkSent{peer});
}

Engine::Counters Engine::counters() const {
  Counters counters = inside_->counters;
  counters.operations_open = inside_->core.operations_open();
  counters.bytes_held = inside_->pool.bytes_held();
  return counters;
}

}  // namespace pccl::ring
