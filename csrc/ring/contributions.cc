#include "csrc/ring/contributions.h"

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/ring/announce.h"

namespace pccl::ring {
namespace {

std::string text(const protocol::FrameHeader& header) {
  return "contribution to (tag " + std::to_string(header.op.tag.value) + ", #" +
         std::to_string(header.op.sequence) + ") from rank " + std::to_string(header.block) + ", " +
         std::to_string(header.length) + " bytes, ";
}

}  // namespace

void Contributions::begin_epoch(Effects& effects) {
  while (!kept_.empty()) drop(kept_.begin()->first, effects);
  unrequested_ = Window(Window::kUnrequestedBytes);
  requested_ = Window(Window::kRequestedBytes);
}

void Contributions::lost(Effects& effects) const {
  for (const auto& [op, kept] : kept_) effects.push_back(DropUnexpected{link_.peer, {op}});
}

// ---- Sending ----

void Contributions::begin(Operation& operation, bool requested, Effects& effects) {
  const auto rank = operation.one_shot.rank_of(link_.peer);
  if (!operation.one_shot.members()[*rank].sent)
    (requested ? unsent_requested_ : unsent_).push_back(&operation);
  serve(effects);
  take(operation, effects);
  request(operation, effects);
}

void Contributions::queue_all(OpTable& operations, Effects& effects) {
  unsent_.clear();
  for (auto& [key, operation] : operations) {
    const auto rank = operation.one_shot.rank_of(link_.peer);
    const bool wanted = std::find(unsent_requested_.begin(), unsent_requested_.end(), &operation) !=
                        unsent_requested_.end();
    if (rank && operation.one_shot.wants_to_send(*rank) && !wanted) unsent_.push_back(&operation);
  }
  std::sort(unsent_.begin(), unsent_.end(),
            [](const Operation* a, const Operation* b) { return a->serial < b->serial; });
  serve(effects);
}

void Contributions::serve(Effects& effects) {
  for (const bool requested : {true, false}) {
    auto& waiting = requested ? unsent_requested_ : unsent_;
    while (!waiting.empty()) {
      Operation& operation = *waiting.front();
      if (!window(requested).fits(operation.part_of(link_.peer)->to)) break;
      if (!send(operation, requested, effects)) return;
      waiting.pop_front();
      announce_if_transferred(operation, effects);
    }
  }
}

// False if no lane of the link is ready.
bool Contributions::send(Operation& operation, bool requested, Effects& effects) {
  const auto lane = link_.free_lane();
  if (!lane) return false;
  const uint32_t rank = *operation.one_shot.rank_of(link_.peer);
  const Part& part = operation.task.parts[rank];
  protocol::FrameHeader header = operation.header(protocol::FrameType::kChunk);
  header.digest = part.digest_to;
  header.round = kOneShotRound;
  header.block = operation.one_shot.own_rank();
  header.length = static_cast<uint32_t>(part.to);
  header.value = (requested ? kRequested : 0) | (operation.task.absent.any() ? kAbsent : 0);
  link_.next = *lane + 1;
  window(requested).sent(header.length);
  operation.one_shot.sent(rank);
  effects.push_back(SendContribution{{link_.peer, *lane}, header, operation.task.handle, rank});
  return true;
}

void Contributions::on_requested(Operation& operation, uint64_t digest, Effects& effects) {
  const Part* const part = operation.part_of(link_.peer);
  // The master reports a mismatch to all members.
  if (digest != (part == nullptr ? operation.task.digest : part->digest_to)) return;
  if (part == nullptr) {
    return link_.fail("requests a contribution to an operation that it takes no part in", effects);
  }
  if (std::erase(unsent_, &operation) == 0) return;  // already sent or requested
  unsent_requested_.push_back(&operation);
  serve(effects);
}

void Contributions::on_window(const protocol::FrameHeader& header, Effects& effects) {
  if (header.epoch < link_.epoch) return;
  if (header.epoch != link_.epoch ||
      !window(header.round == kOneShotRound).on_taken(header.value)) {
    return link_.fail("it has taken " + std::to_string(header.value) +
                          " bytes of contributions, more than it was sent",
                      effects);
  }
  serve(effects);
}

// ---- Receiving ----

std::string Contributions::judge(uint32_t lane, const protocol::FrameHeader& header,
                                 OpTable& operations, InFlightChunk& landing, Effects& effects) {
  if (header.epoch < link_.epoch) return {};
  if (!link_.ready(link_.lanes[lane]) || header.epoch != link_.epoch)
    return "contribution in epoch " + pccl::text(header.epoch) + " before both sides had opened it";
  const bool requested = (header.value & kRequested) != 0, absent = (header.value & kAbsent) != 0;
  const bool makes_sense = header.slice == 0 && header.value <= (kRequested | kAbsent) &&
                           header.length > 0 && header.length <= protocol::kOneShotBytesMax;
  if (!makes_sense) return text(header) + "is none";
  if (!window(requested).arriving(header.length)) return text(header) + "there is no room for it";
  Operation* const operation = operations.find(header.op);
  if (operation == nullptr && !operations.knows(header.op)) {
    if (requested) return text(header) + "of which nobody has asked for any";
    if (kept_.size() >= protocol::kOpsOpenMax) return text(header) + "is one too many";
    if (kept_.contains(header.op)) return text(header) + "came twice";
    kept_[header.op] = {header.digest, header.block, header.length, absent, false};
    landing.unexpected = UnexpectedId{header.op};
    request_all(operations, effects);
    return {};
  }
  const Part* const part = operation == nullptr ? nullptr : operation->part_of(link_.peer);
  const uint64_t digest = part != nullptr        ? part->digest_from
                          : operation == nullptr ? 0
                                                 : operation->task.digest;
  if (operation != nullptr && digest == header.digest) {
    const auto rank = operation->one_shot.rank_of(link_.peer);
    const bool fits = rank && *rank == header.block && part->from == header.length;
    if (!fits) return text(header) + "is none of it";
    const OneShot::Other& member = operation->one_shot.members()[*rank];
    if (member.coming) return text(header) + "came twice";
    if (!operation->note_contribution(*rank, absent)) return text(header) + "tells of absent ranks";
    if (!member.lost) landing = {operation, *rank, {}};
    operation->one_shot.coming(*rank);
  }
  taken(requested, header.length, effects);
  request_all(operations, effects);
  return {};
}

void Contributions::arrived(const InFlightChunk& landed, OpTable& operations, Effects& effects) {
  if (landed.operation != nullptr) {
    landed.operation->one_shot.arrived();
    return combine_if_here(*landed.operation, effects);
  }
  const OpKey op = landed.unexpected->op;
  kept_.at(op).here = true;
  Operation* const operation = operations.find(op);
  if (operation == nullptr) return;
  if (!operation->one_shot.active()) return drop(op, effects);
  take(*operation, effects);
  combine_if_here(*operation, effects);
}

// Takes the contribution that came before the operation was posted, if there is one.
void Contributions::take(Operation& operation, Effects& effects) {
  const OpKey op = operation.task.op;
  const auto at = kept_.find(op);
  if (at == kept_.end()) return;
  const Kept kept = at->second;
  const Part* const part = operation.part_of(link_.peer);
  if (part == nullptr || kept.digest != part->digest_from) return drop(op, effects);
  const auto rank = operation.one_shot.rank_of(link_.peer);
  if (!rank || kept.rank != *rank || kept.bytes != part->from ||
      !operation.note_contribution(*rank, kept.absent)) {
    drop(op, effects);
    return link_.fail("a contribution that is none of its operation's", effects);
  }
  operation.one_shot.coming(*rank);
  if (!kept.here) return;
  kept_.erase(at);
  effects.push_back(TakeUnexpected{
      link_.peer, {op}, operation.task.handle, operation.contribution_of(*rank), Action::kGather});
  operation.one_shot.arrived();
  taken(false, kept.bytes, effects);
}

void Contributions::drop(OpKey op, Effects& effects) {
  const auto at = kept_.find(op);
  if (at == kept_.end()) return;
  const uint32_t bytes = at->second.bytes;
  kept_.erase(at);
  link_.revoke(
      [op](const InFlightChunk& landing) { return landing.unexpected == UnexpectedId{op}; },
      effects);
  effects.push_back(DropUnexpected{link_.peer, {op}});
  taken(false, bytes, effects);
}

// A contribution of `bytes` bytes is no longer kept, or has reached its operation: it counts as
// taken.
void Contributions::taken(bool requested, uint64_t bytes, Effects& effects) {
  Window& counted = window(requested);
  counted.taken(bytes);
  const auto lane = link_.free_lane();
  const auto news = counted.news();
  if (!lane || !news) return;
  protocol::FrameHeader header;
  header.type = protocol::FrameType::kWindow;
  header.epoch = link_.epoch;
  header.round = requested ? kOneShotRound : 0;
  header.value = *news;
  counted.announced();
  effects.push_back(SendFrame{{link_.peer, *lane}, header});
}

// Requests a contribution. If the window is nearly used up, the other end may have no room to send
// it unrequested.
void Contributions::request(Operation& operation, Effects& effects) {
  const auto rank = operation.one_shot.rank_of(link_.peer);
  if (!unrequested_.scarce() || !rank || !operation.one_shot.may_request(*rank)) return;
  const auto lane = link_.free_lane();
  if (!lane) return;
  operation.one_shot.requested(*rank);
  protocol::FrameHeader header = operation.header(protocol::FrameType::kCredit);
  header.round = kOneShotRound;
  header.digest = operation.task.parts[*rank].digest_from;
  header.value = 1;
  effects.push_back(SendFrame{{link_.peer, *lane}, header});
}

void Contributions::request_all(OpTable& operations, Effects& effects) {
  if (!unrequested_.scarce()) return;
  for (auto& [key, operation] : operations) request(operation, effects);
}

// ---- The end ----

void Contributions::drain(const Operation& operation, Effects& effects) {
  const auto rank = operation.one_shot.rank_of(link_.peer);
  if (!rank) return;
  if (operation.one_shot.wants_to_send(*rank)) {
    std::erase(unsent_, &operation);
    std::erase(unsent_requested_, &operation);
  }
  link_.revoke([&](const InFlightChunk& landing) { return landing.operation == &operation; },
               effects);
}

// If the link has failed, a contribution that began to arrive may stay incomplete until LinkDown.
long Contributions::check(const OpTable& operations) const {
  unrequested_.check();
  requested_.check();
  check_unsent(operations);
  long landing = 0;
  uint64_t room = 0;
  PCCL_ASSERT(kept_.size() <= protocol::kOpsOpenMax);
  for (const auto& [op, kept] : kept_) {
    const Operation* const operation = operations.find(op);
    PCCL_ASSERT(!operations.knows(op) || operation != nullptr);
    PCCL_ASSERT(operation == nullptr || !kept.here);
    const Part* const part = operation == nullptr ? nullptr : operation->part_of(link_.peer);
    PCCL_ASSERT(operation == nullptr || (part != nullptr && part->digest_from == kept.digest));
    room += Window::cost(kept.bytes);
    if (kept.here) continue;
    const long lanes = link_.landing_lanes({op});
    PCCL_ASSERT(lanes == 1 || (lanes == 0 && link_.failed));
    landing += lanes;
  }
  PCCL_ASSERT(link_.failed || (unrequested_.kept() == room && requested_.kept() == 0));
  return landing;
}

void Contributions::check_unsent(const OpTable& operations) const {
  const Operation* before = nullptr;
  const auto check_one = [&](const Operation* operation) {
    PCCL_ASSERT(operations.holds(operation));
    const auto rank = operation->one_shot.rank_of(link_.peer);
    PCCL_ASSERT(rank && operation->one_shot.wants_to_send(*rank));
  };
  for (const Operation* operation : unsent_) {
    check_one(operation);
    PCCL_ASSERT(before == nullptr || before->serial < operation->serial);
    before = operation;
  }
  for (const Operation* operation : unsent_requested_) {
    check_one(operation);
    PCCL_ASSERT(std::count(unsent_requested_.begin(), unsent_requested_.end(), operation) == 1);
    PCCL_ASSERT(std::count(unsent_.begin(), unsent_.end(), operation) == 0);
  }
  if (!link_.free_lane()) return;  // queue_all() adds the missing ones
  size_t wanting = 0;
  for (const auto& [key, operation] : operations) {
    const auto rank = operation.one_shot.rank_of(link_.peer);
    if (rank && operation.one_shot.wants_to_send(*rank)) ++wanting;
  }
  PCCL_ASSERT(wanting == unsent_.size() + unsent_requested_.size());
}

}  // namespace pccl::ring
