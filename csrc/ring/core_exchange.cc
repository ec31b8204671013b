// The part of RingCore for one-shot all-reduces (exchange.h). A contribution at its sender:
//   posted         the link is ready, the window has room        SendCopy
//   posted         the link is not ready, or has no room         waits in Link::unsent
//   waiting        kOpen, kWindow; kCredit, which requests it    SendCopy, when there is room
// At its receiver:
//   in flight      Land, then it is here; after the last one     Combine
//   not posted     LandEarly; posted: TakeEarly; ended: DropEarly
//   ended          Discard

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/ring/core.h"

namespace pccl::ring {
namespace {

std::string text(const net::FrameHeader& header) {
  return "copy of (tag " + std::to_string(header.op.tag.value) + ", #" +
         std::to_string(header.op.sequence) + ") from place " + std::to_string(header.block) +
         ", " + std::to_string(header.length) + " bytes, ";
}

}  // namespace

// ---- Sending ----

void RingCore::begin_exchange(Operation& operation, Effects& effects) {
  const OpKey op = operation.task.op;
  for (const Exchange::Other& member : operation.exchange.members()) {
    Link* const link = find_link(member.peer);
    if (link == nullptr) continue;  // this peer, or on_open() does it later
    const bool asked = link->early.take(op, operation.task.digest) > 0;
    (asked ? link->unsent_asked : link->unsent).push_back(&operation);
    serve_copies(member.peer, *link, effects);
    take_copy(member.peer, *link, operation, effects);
    ask(member.peer, *link, operation, effects);
  }
  combine_if_here(operation, effects);
}

void RingCore::queue_copies(PeerId peer, Link& link, Effects& effects) {
  link.unsent.clear();
  for (auto& [key, operation] : operations_) {
    const auto place = operation.exchange.place_of(peer);
    const auto& asked = link.unsent_asked;
    const bool wanted = std::find(asked.begin(), asked.end(), &operation) != asked.end();
    if (place && operation.exchange.wants_to_send(*place) && !wanted)
      link.unsent.push_back(&operation);
  }
  std::sort(link.unsent.begin(), link.unsent.end(),
            [](const Operation* a, const Operation* b) { return a->serial < b->serial; });
  serve_copies(peer, link, effects);
}

void RingCore::serve_copies(PeerId peer, Link& link, Effects& effects) {
  for (const bool asked : {true, false}) {
    auto& waiting = asked ? link.unsent_asked : link.unsent;
    const Window& window = asked ? link.asked : link.window;
    while (!waiting.empty()) {
      Operation& operation = *waiting.front();
      if (!window.fits(operation.schedule.total_bytes())) break;
      if (!send_copy(peer, link, operation, asked, effects)) return;
      waiting.pop_front();
      tell_if_transferred(operation, effects);
    }
  }
}

// False if no lane of the link is ready.
bool RingCore::send_copy(PeerId peer, Link& link, Operation& operation, bool asked,
                         Effects& effects) {
  const auto lane = free_lane(link);
  if (!lane) return false;
  net::FrameHeader header;
  header.type = net::FrameType::kChunk;
  header.epoch = operation.task.epoch;
  header.op = operation.task.op;
  header.digest = operation.task.digest;
  header.round = kExchangeRound;
  header.block = operation.exchange.own_place();
  header.length = static_cast<uint32_t>(operation.schedule.total_bytes());
  header.value = asked ? 1 : 0;
  link.next = *lane + 1;
  (asked ? link.asked : link.window).sent(header.length);
  operation.exchange.sent(*operation.exchange.place_of(peer));
  effects.push_back(SendCopy{{peer, *lane}, header, operation.task.handle});
  return true;
}

// The other end has posted the operation, and needs our contribution before all others.
void RingCore::on_asked(PeerId peer, Link& link, Operation& operation, Effects& effects) {
  const auto place = operation.exchange.place_of(peer);
  if (!place) {
    return fail(peer, link, "asks for a copy of an operation that it takes no part in", effects);
  }
  const size_t waiting = std::erase(link.unsent, &operation);
  if (waiting == 0) return;  // already sent or requested
  link.unsent_asked.push_back(&operation);
  serve_copies(peer, link, effects);
}

void RingCore::on_window(LaneId lane, Link& link, const net::FrameHeader& header,
                         Effects& effects) {
  if (header.epoch < epoch_) return;
  Window& window = header.round == kExchangeRound ? link.asked : link.window;
  if (header.epoch != epoch_ || !window.heard(header.value)) {
    return fail(
        lane.peer, link,
        "it has taken " + std::to_string(header.value) + " bytes of copies, more than it was sent",
        effects);
  }
  serve_copies(lane.peer, link, effects);
}

// ---- Receiving ----

// Like judge(). A contribution counts as taken at once, unless it is kept for an operation that is
// not posted here yet.
std::string RingCore::judge_copy(LaneId id, Link& link, const net::FrameHeader& header,
                                 Passage& landing, Effects& effects) {
  if (header.epoch < epoch_) return {};
  if (!ready(link, link.lanes[id.index]) || header.epoch != epoch_)
    return "copy in epoch " + pccl::text(header.epoch) + " before both had opened it";
  const PeerId peer = id.peer;
  const bool asked = header.value == 1;
  const bool makes_sense = header.slice == 0 && header.value <= 1 && header.length > 0 &&
                           header.length <= protocol::kExchangeBytesMax;
  if (!makes_sense) return text(header) + "is none";
  if (!(asked ? link.asked : link.window).arriving(header.length))
    return text(header) + "there is no room for it";
  Operation* const operation = operations_.find(header.op);
  if (operation == nullptr && !known_.contains(header.op)) {
    if (asked) return text(header) + "of which nobody has asked for any";
    if (link.copies.size() >= protocol::kOpsOpenMax) return text(header) + "is one too many";
    if (link.copies.contains(header.op)) return text(header) + "came twice";
    link.copies[header.op] = {header.digest, header.block, header.length, false};
    landing.early = EarlyId{header.op};
    ask_all(peer, link, effects);
    return {};
  }
  if (operation != nullptr && operation->task.digest == header.digest) {
    const auto place = operation->exchange.place_of(peer);
    const bool fits =
        place && *place == header.block && operation->schedule.total_bytes() == header.length;
    if (!fits) return text(header) + "is none of it";
    const Exchange::Other& member = operation->exchange.members()[*place];
    if (member.coming) return text(header) + "came twice";
    if (!member.lost) landing = {operation, *place, {}};
    operation->exchange.coming(*place);
  }
  copy_taken(peer, link, asked ? link.asked : link.window, header.length, effects);
  ask_all(peer, link, effects);
  return {};
}

void RingCore::copy_arrived(LaneId lane, Link& link, const Passage& landed, Effects& effects) {
  if (landed.operation != nullptr) {
    landed.operation->exchange.arrived();
    return combine_if_here(*landed.operation, effects);
  }
  const OpKey op = landed.early->op;
  link.copies.at(op).here = true;
  Operation* const operation = operations_.find(op);
  if (operation == nullptr) return;
  if (operation->exchange.goes_around()) return drop_copy(lane.peer, link, op, effects);
  take_copy(lane.peer, link, *operation, effects);
  combine_if_here(*operation, effects);
}

// Takes the contribution that came before the operation was posted, if there is one.
void RingCore::take_copy(PeerId peer, Link& link, Operation& operation, Effects& effects) {
  const OpKey op = operation.task.op;
  const auto at = link.copies.find(op);
  if (at == link.copies.end()) return;
  const Link::Copy copy = at->second;
  if (copy.digest != operation.task.digest) return drop_copy(peer, link, op, effects);
  const auto place = operation.exchange.place_of(peer);
  if (!place || copy.place != *place || copy.bytes != operation.schedule.total_bytes()) {
    drop_copy(peer, link, op, effects);
    return fail(peer, link, "a copy that is none of its operation's", effects);
  }
  operation.exchange.coming(*place);
  if (!copy.here) return;
  link.copies.erase(at);
  effects.push_back(
      TakeEarly{peer, {op}, operation.task.handle, operation.copy_of(*place), Action::kGather});
  operation.exchange.arrived();
  copy_taken(peer, link, link.window, copy.bytes, effects);
}

void RingCore::drop_copy(PeerId peer, Link& link, OpKey op, Effects& effects) {
  const auto at = link.copies.find(op);
  if (at == link.copies.end()) return;
  const uint32_t bytes = at->second.bytes;
  link.copies.erase(at);
  for (uint32_t index = 0; index < link.lanes.size(); ++index) {
    Passage& landing = link.lanes[index].landing;
    if (landing.early != EarlyId{op}) continue;
    landing = {};
    effects.push_back(Revoke{{peer, index}});
  }
  effects.push_back(DropEarly{peer, {op}});
  copy_taken(peer, link, link.window, bytes, effects);
}

// A contribution of `bytes` bytes is no longer kept, or has reached its operation: it counts as
// taken.
void RingCore::copy_taken(PeerId peer, Link& link, Window& window, uint64_t bytes,
                          Effects& effects) {
  window.taken(bytes);
  const auto lane = free_lane(link);
  const auto news = window.news();
  if (!lane || !news) return;
  net::FrameHeader header;
  header.type = net::FrameType::kWindow;
  header.epoch = epoch_;
  header.round = &window == &link.asked ? kExchangeRound : 0;
  header.value = *news;
  window.told();
  effects.push_back(SendFrame{{peer, *lane}, header});
}

// Requests a contribution. If the window is nearly used up, the other end may have no room to send
// it unrequested.
void RingCore::ask(PeerId peer, Link& link, Operation& operation, Effects& effects) {
  const auto place = operation.exchange.place_of(peer);
  if (!link.window.scarce() || !place || !operation.exchange.may_ask(*place)) return;
  const auto lane = free_lane(link);
  if (!lane) return;
  operation.exchange.asked(*place);
  net::FrameHeader header;
  header.type = net::FrameType::kCredit;
  header.round = kExchangeRound;
  header.epoch = operation.task.epoch;
  header.op = operation.task.op;
  header.digest = operation.task.digest;
  header.value = 1;
  effects.push_back(SendFrame{{peer, *lane}, header});
}

void RingCore::ask_all(PeerId peer, Link& link, Effects& effects) {
  if (!link.window.scarce()) return;
  for (auto& [key, operation] : operations_) ask(peer, link, operation, effects);
}

// ---- The end ----

void RingCore::combine_if_here(Operation& operation, Effects& effects) {
  PCCL_ASSERT(!operation.exchange.goes_around());
  if (!operation.exchange.all_here() || operation.combined) return;
  operation.combined = true;
  effects.push_back(Combine{operation.task.handle});
  tell_if_transferred(operation, effects);
}

void RingCore::drain_exchange(const Operation& operation, Effects& effects) {
  for (auto& [peer, link] : links_) {
    const auto place = operation.exchange.place_of(peer);
    if (!place) continue;
    if (operation.exchange.wants_to_send(*place)) {
      std::erase(link.unsent, &operation);
      std::erase(link.unsent_asked, &operation);
    }
    for (uint32_t index = 0; index < link.lanes.size(); ++index) {
      Passage& landing = link.lanes[index].landing;
      if (landing.operation != &operation) continue;
      landing = {};
      effects.push_back(Revoke{{peer, index}});
    }
  }
}

}  // namespace pccl::ring
