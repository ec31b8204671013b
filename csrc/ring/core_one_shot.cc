// The part of RingCore for one-shot operations (one_shot.h). A contribution at its sender:
//   posted         the link is ready, the window has room    SendContribution
//   posted         the link is not ready, or has no room     waits in Link::unsent
//   waiting        kOpen, kWindow; kCredit, a request        SendContribution, once there is room
// A contribution at its receiver, by the state of its operation there:
//   in flight      Land; after the last contribution, Combine
//   not posted     LandUnexpected; once posted, TakeUnexpected; once ended, DropUnexpected
//   ended          Discard

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/ring/core.h"

namespace pccl::ring {
namespace {

std::string text(const protocol::FrameHeader& header) {
  return "contribution to (tag " + std::to_string(header.op.tag.value) + ", #" +
         std::to_string(header.op.sequence) + ") from rank " + std::to_string(header.block) + ", " +
         std::to_string(header.length) + " bytes, ";
}

}  // namespace

// ---- Sending ----

void RingCore::begin_one_shot(Operation& operation, Effects& effects) {
  const OpKey op = operation.task.op;
  for (const OneShot::Other& member : operation.one_shot.members()) {
    const PeerId peer = member.part.peer;
    Link* const link = find_link(peer);
    if (link == nullptr) continue;  // this peer, or on_open() does it later
    const bool requested = link->unexpected.take(op, member.part.digest_to) > 0;
    if (!member.sent) (requested ? link->unsent_requested : link->unsent).push_back(&operation);
    serve_contributions(peer, *link, effects);
    take_contribution(peer, *link, operation, effects);
    request(peer, *link, operation, effects);
  }
  combine_if_here(operation, effects);
}

void RingCore::queue_contributions(PeerId peer, Link& link, Effects& effects) {
  link.unsent.clear();
  for (auto& [key, operation] : operations_) {
    const auto rank = operation.one_shot.rank_of(peer);
    const auto& requested = link.unsent_requested;
    const bool wanted =
        std::find(requested.begin(), requested.end(), &operation) != requested.end();
    if (rank && operation.one_shot.wants_to_send(*rank) && !wanted)
      link.unsent.push_back(&operation);
  }
  std::sort(link.unsent.begin(), link.unsent.end(),
            [](const Operation* a, const Operation* b) { return a->serial < b->serial; });
  serve_contributions(peer, link, effects);
}

void RingCore::serve_contributions(PeerId peer, Link& link, Effects& effects) {
  for (const bool requested : {true, false}) {
    auto& waiting = requested ? link.unsent_requested : link.unsent;
    const Window& window = requested ? link.requested : link.window;
    while (!waiting.empty()) {
      Operation& operation = *waiting.front();
      if (!window.fits(operation.part_of(peer)->to)) break;
      if (!send_contribution(peer, link, operation, requested, effects)) return;
      waiting.pop_front();
      announce_if_transferred(operation, effects);
    }
  }
}

// False if no lane of the link is ready.
bool RingCore::send_contribution(PeerId peer, Link& link, Operation& operation, bool requested,
                                 Effects& effects) {
  const auto lane = free_lane(link);
  if (!lane) return false;
  const uint32_t rank = *operation.one_shot.rank_of(peer);
  const Part& part = operation.task.parts[rank];
  protocol::FrameHeader header;
  header.type = protocol::FrameType::kChunk;
  header.epoch = operation.task.epoch;
  header.op = operation.task.op;
  header.digest = part.digest_to;
  header.round = kOneShotRound;
  header.block = operation.one_shot.own_rank();
  header.length = static_cast<uint32_t>(part.to);
  header.value = (requested ? kRequested : 0) | (operation.task.absent.any() ? kAbsent : 0);
  link.next = *lane + 1;
  (requested ? link.requested : link.window).sent(header.length);
  operation.one_shot.sent(rank);
  effects.push_back(SendContribution{{peer, *lane}, header, operation.task.handle, rank});
  return true;
}

// The other end has posted the operation, and needs our contribution before all others.
void RingCore::on_requested(PeerId peer, Link& link, Operation& operation, uint64_t digest,
                            Effects& effects) {
  const Part* const part = operation.part_of(peer);
  // The master reports a mismatch to all members.
  if (digest != (part == nullptr ? operation.task.digest : part->digest_to)) return;
  if (part == nullptr) {
    return fail(peer, link, "requests a contribution to an operation that it takes no part in",
                effects);
  }
  const size_t waiting = std::erase(link.unsent, &operation);
  if (waiting == 0) return;  // already sent or requested
  link.unsent_requested.push_back(&operation);
  serve_contributions(peer, link, effects);
}

void RingCore::on_window(LaneId lane, Link& link, const protocol::FrameHeader& header,
                         Effects& effects) {
  if (header.epoch < epoch_) return;
  Window& window = header.round == kOneShotRound ? link.requested : link.window;
  if (header.epoch != epoch_ || !window.on_taken(header.value)) {
    return fail(lane.peer, link,
                "it has taken " + std::to_string(header.value) +
                    " bytes of contributions, more than it was sent",
                effects);
  }
  serve_contributions(lane.peer, link, effects);
}

// ---- Receiving ----

// Like judge(). A contribution counts as taken at once, unless it is kept for an operation that is
// not posted here yet.
std::string RingCore::judge_contribution(LaneId id, Link& link, const protocol::FrameHeader& header,
                                         InFlightChunk& landing, Effects& effects) {
  if (header.epoch < epoch_) return {};
  if (!ready(link, link.lanes[id.index]) || header.epoch != epoch_)
    return "contribution in epoch " + pccl::text(header.epoch) + " before both sides had opened it";
  const PeerId peer = id.peer;
  const bool requested = (header.value & kRequested) != 0, absent = (header.value & kAbsent) != 0;
  const bool makes_sense = header.slice == 0 && header.value <= (kRequested | kAbsent) &&
                           header.length > 0 && header.length <= protocol::kOneShotBytesMax;
  if (!makes_sense) return text(header) + "is none";
  if (!(requested ? link.requested : link.window).arriving(header.length))
    return text(header) + "there is no room for it";
  Operation* const operation = operations_.find(header.op);
  if (operation == nullptr && !duplicates_.contains(header.op)) {
    if (requested) return text(header) + "of which nobody has asked for any";
    if (link.contributions.size() >= protocol::kOpsOpenMax) return text(header) + "is one too many";
    if (link.contributions.contains(header.op)) return text(header) + "came twice";
    link.contributions[header.op] = {header.digest, header.block, header.length, absent, false};
    landing.unexpected = UnexpectedId{header.op};
    request_all(peer, link, effects);
    return {};
  }
  const Part* const part = operation == nullptr ? nullptr : operation->part_of(peer);
  const uint64_t digest = part != nullptr        ? part->digest_from
                          : operation == nullptr ? 0
                                                 : operation->task.digest;
  if (operation != nullptr && digest == header.digest) {
    const auto rank = operation->one_shot.rank_of(peer);
    const bool fits = rank && *rank == header.block && part->from == header.length;
    if (!fits) return text(header) + "is none of it";
    const OneShot::Other& member = operation->one_shot.members()[*rank];
    if (member.coming) return text(header) + "came twice";
    if (!operation->note_contribution(*rank, absent)) return text(header) + "tells of absent ranks";
    if (!member.lost) landing = {operation, *rank, {}};
    operation->one_shot.coming(*rank);
  }
  contribution_taken(peer, link, requested ? link.requested : link.window, header.length, effects);
  request_all(peer, link, effects);
  return {};
}

void RingCore::contribution_arrived(LaneId lane, Link& link, const InFlightChunk& landed,
                                    Effects& effects) {
  if (landed.operation != nullptr) {
    landed.operation->one_shot.arrived();
    return combine_if_here(*landed.operation, effects);
  }
  const OpKey op = landed.unexpected->op;
  link.contributions.at(op).here = true;
  Operation* const operation = operations_.find(op);
  if (operation == nullptr) return;
  if (!operation->one_shot.active()) return drop_contribution(lane.peer, link, op, effects);
  take_contribution(lane.peer, link, *operation, effects);
  combine_if_here(*operation, effects);
}

// Takes the contribution that came before the operation was posted, if there is one.
void RingCore::take_contribution(PeerId peer, Link& link, Operation& operation, Effects& effects) {
  const OpKey op = operation.task.op;
  const auto at = link.contributions.find(op);
  if (at == link.contributions.end()) return;
  const Link::Contribution contribution = at->second;
  const Part* const part = operation.part_of(peer);
  if (part == nullptr || contribution.digest != part->digest_from)
    return drop_contribution(peer, link, op, effects);
  const auto rank = operation.one_shot.rank_of(peer);
  if (!rank || contribution.rank != *rank || contribution.bytes != part->from ||
      !operation.note_contribution(*rank, contribution.absent)) {
    drop_contribution(peer, link, op, effects);
    return fail(peer, link, "a contribution that is none of its operation's", effects);
  }
  operation.one_shot.coming(*rank);
  if (!contribution.here) return;
  link.contributions.erase(at);
  effects.push_back(TakeUnexpected{
      peer, {op}, operation.task.handle, operation.contribution_of(*rank), Action::kGather});
  operation.one_shot.arrived();
  contribution_taken(peer, link, link.window, contribution.bytes, effects);
}

void RingCore::drop_contribution(PeerId peer, Link& link, OpKey op, Effects& effects) {
  const auto at = link.contributions.find(op);
  if (at == link.contributions.end()) return;
  const uint32_t bytes = at->second.bytes;
  link.contributions.erase(at);
  for (uint32_t index = 0; index < link.lanes.size(); ++index) {
    InFlightChunk& landing = link.lanes[index].landing;
    if (landing.unexpected != UnexpectedId{op}) continue;
    landing = {};
    effects.push_back(Revoke{{peer, index}});
  }
  effects.push_back(DropUnexpected{peer, {op}});
  contribution_taken(peer, link, link.window, bytes, effects);
}

// A contribution of `bytes` bytes is no longer kept, or has reached its operation: it counts as
// taken.
void RingCore::contribution_taken(PeerId peer, Link& link, Window& window, uint64_t bytes,
                                  Effects& effects) {
  window.taken(bytes);
  const auto lane = free_lane(link);
  const auto news = window.news();
  if (!lane || !news) return;
  protocol::FrameHeader header;
  header.type = protocol::FrameType::kWindow;
  header.epoch = epoch_;
  header.round = &window == &link.requested ? kOneShotRound : 0;
  header.value = *news;
  window.announced();
  effects.push_back(SendFrame{{peer, *lane}, header});
}

// Requests a contribution. If the window is nearly used up, the other end may have no room to send
// it unrequested.
void RingCore::request(PeerId peer, Link& link, Operation& operation, Effects& effects) {
  const auto rank = operation.one_shot.rank_of(peer);
  if (!link.window.scarce() || !rank || !operation.one_shot.may_request(*rank)) return;
  const auto lane = free_lane(link);
  if (!lane) return;
  operation.one_shot.requested(*rank);
  protocol::FrameHeader header;
  header.type = protocol::FrameType::kCredit;
  header.round = kOneShotRound;
  header.epoch = operation.task.epoch;
  header.op = operation.task.op;
  header.digest = operation.task.parts[*rank].digest_from;
  header.value = 1;
  effects.push_back(SendFrame{{peer, *lane}, header});
}

void RingCore::request_all(PeerId peer, Link& link, Effects& effects) {
  if (!link.window.scarce()) return;
  for (auto& [key, operation] : operations_) request(peer, link, operation, effects);
}

// ---- The end ----

void RingCore::combine_if_here(Operation& operation, Effects& effects) {
  PCCL_ASSERT(operation.one_shot.active());
  if (!operation.one_shot.all_here() || operation.combined) return;
  operation.combined = true;
  const auto& parts = operation.task.parts;
  const bool receives = std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
    return part.from > 0 && &part != &parts[operation.task.shape.rank];
  });
  if (receives) effects.push_back(Combine{operation.task.handle, {}, operation.absent().count()});
  announce_if_transferred(operation, effects);
}

void RingCore::drain_one_shot(const Operation& operation, Effects& effects) {
  for (auto& [peer, link] : links_) {
    const auto rank = operation.one_shot.rank_of(peer);
    if (!rank) continue;
    if (operation.one_shot.wants_to_send(*rank)) {
      std::erase(link.unsent, &operation);
      std::erase(link.unsent_requested, &operation);
    }
    for (uint32_t index = 0; index < link.lanes.size(); ++index) {
      InFlightChunk& landing = link.lanes[index].landing;
      if (landing.operation != &operation) continue;
      landing = {};
      effects.push_back(Revoke{{peer, index}});
    }
  }
}

}  // namespace pccl::ring
