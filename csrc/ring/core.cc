// A link, from LinkUp to LinkDown (what may leave on it is the column on the right):
//   up          LinkUp, or an epoch of which this peer is no member           Open
//   said        we have sent Open(epoch)                                     Open
//   ready       and its Open(epoch) has come                                 Open, credits, chunks
//   failed      it broke a rule: everything on it is void until LinkDown      nothing
// An operation, from OpPosted to OpEnded: its cursors move along the schedule, one chunk in the air
// per link and direction; at the end of both it is transferred. OpEnded takes it out wherever it
// stands.

#include "csrc/ring/core.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::ring {
namespace {

constexpr uint64_t kProgressSteps = 64;

std::string text(OpKey op) {
  return "(tag " + std::to_string(op.tag.value) + ", #" + std::to_string(op.sequence) + ")";
}

std::string place(uint32_t round, uint32_t block, uint32_t slice, uint32_t bytes) {
  return "round " + std::to_string(round) + ", block " + std::to_string(block) + ", slice " +
         std::to_string(slice) + ", " + std::to_string(bytes) + " bytes";
}

net::FrameHeader header_of(const Operation& operation, net::FrameType type) {
  net::FrameHeader header;
  header.type = type;
  header.epoch = operation.task.epoch;
  header.op = operation.task.op;
  header.digest = operation.task.digest;
  return header;
}

}  // namespace

void RingCore::step(const Event& event, Effects& effects) {
  std::visit([&](const auto& what) { on(what, effects); }, event);
}

// ---- Epochs and links ----

void RingCore::on(const EpochBegun& event, Effects& effects) {
  PCCL_ASSERT(event.epoch > epoch_);
  epoch_ = event.epoch;  // no link is ready from here on: what is drained makes room for nothing
  members_ = event.peers;
  while (operations_.size() > 0) drain(operations_.begin()->second, {}, effects);
  for (auto& [peer, link] : links_) {
    link.early.clear();
    say_open(peer, link, effects);
  }
}

void RingCore::on(const LinkUp& event, Effects& effects) {
  const auto [at, added] = links_.try_emplace(event.peer);
  PCCL_ASSERT(added);
  say_open(event.peer, at->second, effects);
}

void RingCore::on(const LinkDown& event, Effects& effects) {
  Link* const link = find_link(event.peer);
  if (link == nullptr) return;
  if (link->landing != nullptr) effects.push_back(Revoke{event.peer});
  if (link->sending != nullptr) {
    link->sending->sending = false;
    effects.push_back(Withdraw{event.peer});
  }
  for (auto& [key, operation] : operations_) {
    if (operation.task.upstream == event.peer) operation.upstream_lost = true;
    if (operation.task.downstream == event.peer) {
      operation.downstream_lost = true;
      operation.queued = false;
    }
  }
  links_.erase(event.peer);
}

RingCore::Link* RingCore::find_link(PeerId peer) {
  const auto at = links_.find(peer);
  return at == links_.end() ? nullptr : &at->second;
}

bool RingCore::ready(const Link& link) const {
  return !link.failed && epoch_ && link.said == epoch_ && link.heard == epoch_;
}

void RingCore::say_open(PeerId peer, Link& link, Effects& effects) {
  if (!epoch_ || link.failed || std::find(members_.begin(), members_.end(), peer) == members_.end())
    return;
  net::FrameHeader header;
  header.type = net::FrameType::kOpen;
  header.epoch = epoch_;
  link.said = epoch_;
  effects.push_back(SendFrame{peer, header});
}

void RingCore::fail(PeerId peer, Link& link, std::string why, Effects& effects) {
  link.failed = true;
  effects.push_back(FailLink{peer, std::move(why)});
}

// ---- Frames ----

void RingCore::on(const FrameArrived& event, Effects& effects) {
  Link* const link = find_link(event.peer);
  if (link == nullptr || link->failed) return;
  switch (event.header.type) {
    case net::FrameType::kOpen: return on_open(event.peer, *link, event.header, effects);
    case net::FrameType::kCredit: return on_credit(event.peer, *link, event.header, effects);
    default:
      fail(event.peer, *link,
           "frame of type " + std::to_string(static_cast<int>(event.header.type)) + " out of place",
           effects);
  }
}

void RingCore::on_open(PeerId peer, Link& link, const net::FrameHeader& header, Effects& effects) {
  if (header.epoch <= link.heard)
    return fail(peer, link,
                "epoch " + pccl::text(header.epoch) + " opened after " + pccl::text(link.heard),
                effects);
  link.heard = header.epoch;
  if (!ready(link)) return;
  for (auto& [key, operation] : operations_) {
    if (operation.task.upstream == peer) grant(operation, effects);
  }
}

void RingCore::on_credit(PeerId peer, Link& link, const net::FrameHeader& header,
                         Effects& effects) {
  if (header.epoch < epoch_) return;
  if (!ready(link) || header.epoch != epoch_) {
    return fail(peer, link,
                "credit in epoch " + pccl::text(header.epoch) + " before both had opened it",
                effects);
  }
  Operation* const operation = operations_.find(header.op);
  if (operation == nullptr) {
    if (link.early.keep(header.op, header.digest, header.value)) return;
    return fail(peer, link,
                "credit for more than " + std::to_string(protocol::kOpsOpenMax) +
                    " operations that were not called here",
                effects);
  }
  if (header.digest != operation->task.digest)
    return;  // the master tells everybody of the mismatch
  if (operation->task.downstream != peer) {
    return fail(peer, link,
                "credit for " + text(header.op) + " from a peer that is not downstream of it",
                effects);
  }
  operation->allowed = std::max(operation->allowed, header.value);
  enqueue(*operation, effects);
}

// ---- Chunks ----

void RingCore::on(const ChunkArriving& event, Effects& effects) {
  Link* const link = find_link(event.peer);
  Operation* operation = nullptr;
  if (link != nullptr && !link->failed) {
    PCCL_ASSERT(link->landing == nullptr);
    std::string why = judge(event.peer, *link, event.header, operation);
    if (!why.empty()) fail(event.peer, *link, std::move(why), effects);
  }
  if (operation == nullptr) {
    effects.push_back(Discard{event.peer});
    return;
  }
  link->landing = operation;
  const Unit unit = operation->schedule.receive_unit(operation->received);
  effects.push_back(
      Land{event.peer, operation->task.handle, unit, operation->schedule.action(unit)});
}

std::string RingCore::judge(PeerId peer, const Link& link, const net::FrameHeader& header,
                            Operation*& operation) {
  if (header.epoch < epoch_) return {};
  if (!ready(link) || header.epoch != epoch_) {
    return "chunk in epoch " + pccl::text(header.epoch) + " before both had opened it";
  }
  Operation* const found = operations_.find(header.op);
  // Chunks leave only against credit, so an operation that is not here has ended here.
  if (found == nullptr || found->task.digest != header.digest) return {};
  if (found->task.upstream != peer)
    return "chunk of " + text(header.op) + " from a peer that is not upstream of it";
  if (found->upstream_lost) return {};
  if (found->voided) return "chunk of " + text(header.op) + " after a void one";
  if (found->received.at_end) return "chunk of " + text(header.op) + " after its last";
  const Unit unit = found->schedule.receive_unit(found->received);
  if (header.round != unit.round || header.block != unit.block || header.slice != unit.slice ||
      header.length != unit.bytes) {
    return "chunk of " + text(header.op) + " is " +
           place(header.round, header.block, header.slice, header.length) + "; expected " +
           place(unit.round, unit.block, unit.slice, unit.bytes);
  }
  if (unit.step >= found->granted) return "chunk of " + text(header.op) + " without credit";
  operation = found;
  return {};
}

void RingCore::on(const ChunkArrived& event, Effects& effects) {
  Link* const link = find_link(event.peer);
  PCCL_ASSERT(link != nullptr && link->landing != nullptr);
  Operation& operation = *std::exchange(link->landing, nullptr);
  if (!event.valid) {
    operation.voided = true;
    return;
  }
  operation.schedule.advance_receive(operation.received);
  enqueue(operation, effects);
  tell_progress(operation, effects);
  tell_if_transferred(operation, effects);
}

void RingCore::on(const ChunkSent& event, Effects& effects) {
  Link* const link = find_link(event.peer);
  PCCL_ASSERT(link != nullptr && link->sending != nullptr);
  Operation& operation = *std::exchange(link->sending, nullptr);
  operation.sending = false;
  operation.schedule.advance_send(operation.sent);
  grant(operation, effects);
  enqueue(operation, effects);
  serve(event.peer, *link, effects);
  tell_if_transferred(operation, effects);
}

// ---- Operations ----

std::optional<Epoch> RingCore::posted(OpKey op) {
  const Operation* const operation = operations_.find(op);
  return operation == nullptr ? std::nullopt : std::optional(operation->task.epoch);
}

void RingCore::on(const OpPosted& event, Effects& effects) {
  PCCL_ASSERT(event.task.epoch == epoch_);
  Operation& operation = operations_.add(event.task);
  Link* const downstream = find_link(event.task.downstream);
  if (downstream != nullptr)
    operation.allowed = downstream->early.take(event.task.op, event.task.digest);
  grant(operation, effects);
  enqueue(operation, effects);
  tell_if_transferred(operation, effects);
}

void RingCore::on(const OpEnded& event, Effects& effects) {
  for (auto& [peer, link] : links_) link.early.drop(event.op);
  Operation* const operation = operations_.find(event.op);
  if (operation != nullptr) drain(*operation, event, effects);
}

// Tells upstream how far it may go by now. Never more than it needs: its last credit is one that it
// waits for, so none arrives after it has finished.
void RingCore::grant(Operation& operation, Effects& effects) {
  if (!operation.owes_credit()) return;
  const Link* const link = find_link(operation.task.upstream);
  if (link == nullptr || !ready(*link)) return;  // on_open asks again
  operation.granted = operation.schedule.credit(operation.sent);
  net::FrameHeader header = header_of(operation, net::FrameType::kCredit);
  header.value = operation.granted;
  effects.push_back(SendFrame{operation.task.upstream, header});
}

void RingCore::enqueue(Operation& operation, Effects& effects) {
  if (operation.queued || !operation.can_send()) return;
  Link* const link = find_link(operation.task.downstream);
  PCCL_ASSERT(link != nullptr);  // its credit came on it, and its loss is remembered
  link->queue.push(operation);
  serve(operation.task.downstream, *link, effects);
}

void RingCore::serve(PeerId peer, Link& link, Effects& effects) {
  if (link.sending != nullptr || link.queue.empty() || !ready(link)) return;
  Operation& operation = link.queue.pop();
  operation.sending = true;
  link.sending = &operation;
  const Unit unit = operation.schedule.send_unit(operation.sent);
  net::FrameHeader header = header_of(operation, net::FrameType::kChunk);
  header.round = unit.round;
  header.block = unit.block;
  header.slice = unit.slice;
  header.length = unit.bytes;
  effects.push_back(SendChunk{peer, header, operation.task.handle, unit});
}

// Often enough that little is done twice, seldom enough that it costs nothing.
void RingCore::tell_progress(Operation& operation, Effects& effects) {
  if (!operation.task.keep) return;
  const uint64_t finished = operation.schedule.finished(operation.received);
  const uint64_t news = std::max(operation.task.shape.count / kProgressSteps, uint64_t{1});
  if (finished < operation.told_finished + news) return;
  operation.told_finished = finished;
  effects.push_back(OpProgressed{operation.task.epoch, operation.task.op, finished});
}

void RingCore::tell_if_transferred(Operation& operation, Effects& effects) {
  if (operation.told_transferred || !operation.finished()) return;
  operation.told_transferred = true;
  effects.push_back(OpTransferred{operation.task.epoch, operation.task.op});
}

void RingCore::drain(Operation& operation, const OpEnded& end, Effects& effects) {
  const Task& task = operation.task;
  Link* const upstream = find_link(task.upstream);
  if (upstream != nullptr && upstream->landing == &operation) {
    upstream->landing = nullptr;
    effects.push_back(Revoke{task.upstream});
  }
  const PeerId next = task.downstream;
  Link* const downstream = find_link(next);
  if (downstream != nullptr && operation.queued) downstream->queue.remove(operation);
  if (downstream != nullptr && operation.sending) {
    downstream->sending = nullptr;
    effects.push_back(Withdraw{next});
  }
  if (end.ending != Ending::kCommitted) {
    effects.push_back(Restore{task.handle, end.keep * task.shape.element_bytes});
  }
  if (end.keep > 0) {
    effects.push_back(Retain{task.handle, task.epoch, task.op});
  } else {
    effects.push_back(Release{task.handle});
  }
  effects.push_back(OpDrained{task.epoch, task.op});
  operations_.remove(task.op);
  if (downstream != nullptr) serve(next, *downstream, effects);
}

}  // namespace pccl::ring
