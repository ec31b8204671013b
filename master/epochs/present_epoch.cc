#include "master/epochs/present_epoch.h"

#include <set>

#include "csrc/protocol/limits.h"
#include "master/context.h"
#include "master/epochs/decision_mac.h"
#include "master/epochs/operation_waits.h"
#include "master/members/connections.h"
#include "master/members/membership.h"
#include "master/text_format.h"

namespace pccl::master {

OperationWaits PresentEpoch::waits() const { return operations_.waits(); }

// ---- From members ----

Status PresentEpoch::check(Epoch epoch) const {
  if (epoch <= number()) return {};
  return violation("epoch " + text(epoch) + ", while the group is in epoch " + text(number()));
}

Status PresentEpoch::begin(PeerId peer, const protocol::Begin& begin) {
  PCCL_ASSERT(membership_.is_member(peer));
  // A receive from any source sends Begin only when it has found the matching send. By then,
  // drain() may have settled the operation of the two. The Begin is accepted all the same: without
  // it, the operation could not be forgotten.
  const bool late = stage_ == Stage::kDraining && operations_.knows(begin.op);
  const bool counts = stage_ == Stage::kOpen || stage_ == Stage::kFreezing || late;
  if (begin.epoch != number() || !counts) return check(begin.epoch);
  const size_t reserved = operations_.open_count() + announced_.current.verdicts.kept().size();
  const bool full =
      reserved >= protocol::kVerdictsMax || operations_.known_count() >= protocol::kOpsKnownMax;
  if (full && !operations_.knows(begin.op)) {
    context_.exceed("group " + std::to_string(group_.value) + " has " +
                    count_text(operations_.open_count(), "open operation") + ", knows " +
                    count_text(operations_.known_count(), "operation") + ", and " +
                    count_text(reserved - operations_.open_count(), "verdict") +
                    " are not acknowledged by all members");
    return {};
  }
  return operations_.begin(peer, begin.op, begin.info, membership_.newcomers(), context_.now);
}

Status PresentEpoch::done(PeerId peer, const protocol::Done& done) {
  PCCL_ASSERT(membership_.is_member(peer));
  const Status status = acknowledge(peer, done.epoch, done.verdict_index);
  if (!status.ok() || done.epoch != number() || !runs()) return status;
  return operations_.done(peer, done.op);
}

Status PresentEpoch::abort(PeerId peer, const protocol::AbortRequest& request,
                           const MissingText& missing) {
  PCCL_ASSERT(membership_.is_member(peer));
  if (request.epoch != number() || !runs()) return check(request.epoch);
  return operations_.abort(peer, request, missing);
}

Status PresentEpoch::answer(PeerId peer, const protocol::AbortAnswer& answer) {
  PCCL_ASSERT(membership_.is_member(peer));
  if (answer.epoch != number() || !runs()) return check(answer.epoch);
  return operations_.answer(peer, answer);
}

Status PresentEpoch::acknowledge(PeerId peer, Epoch epoch, uint64_t verdict_index) {
  if (epoch != number() || !epoch) return check(epoch);
  if (announced_.current.verdicts.acknowledge(peer, verdict_index)) return {};
  return violation("verdict " + std::to_string(verdict_index) + " of epoch " + text(epoch) +
                   " acknowledged, which has " +
                   std::to_string(announced_.current.verdicts.next_index()));
}

void PresentEpoch::report(const std::vector<protocol::Scalar>& scalars) {
  for (const protocol::Scalar& scalar : scalars)
    scalars_.add(context_.now, scalar.name, scalar.value);
}

Status PresentEpoch::check(const protocol::Resume& resume) const {
  const auto messages = missed(announced_, resume);
  if (!messages.ok()) return messages.status();
  if (resume.epoch != number()) return {};
  for (size_t i = 0; i < resume.ops.size(); ++i) {
    const OpKey op = resume.ops[i].op;
    if (announced_.current.verdicts.contains(op) || operations_.has_begun(resume.peer, op))
      continue;
    Status status = operations_.check_begin(resume.peer, op, resume.infos[i]);
    if (!status.ok()) return status;
  }
  return {};
}

Result<std::vector<protocol::Message>> PresentEpoch::resume(const protocol::Resume& resume) {
  PCCL_ASSERT(membership_.is_member(resume.peer));
  flush();
  Result<std::vector<protocol::Message>> messages = missed(announced_, resume);
  if (!messages.ok() || resume.epoch != number()) return messages;
  const Status status = take_over(resume);
  if (!status.ok()) return status;
  operations_.catch_up(resume.peer, uncalled_by(announced_, resume));
  for (protocol::AbortProposal& proposal : operations_.proposals(resume.peer))
    messages.value().emplace_back(std::move(proposal));
  return messages;
}

// A Begin or Done that was lost with the old connection counts as if it arrived now. An operation
// that has a verdict is skipped, because the peer receives the verdict.
Status PresentEpoch::take_over(const protocol::Resume& resume) {
  PCCL_ASSERT(resume.epoch == number() && resume.ops.size() == resume.infos.size());
  Status status = acknowledge(resume.peer, resume.epoch, resume.verdict_index);
  for (size_t i = 0; i < resume.ops.size() && status.ok(); ++i) {
    const protocol::OpReport& op = resume.ops[i];
    if (announced_.current.verdicts.contains(op.op)) continue;
    if (!operations_.has_begun(resume.peer, op.op)) {
      status = begin(resume.peer, {number(), op.op, resume.infos[i]});
    }
    if (!status.ok() || op.state == protocol::OpState::kNotDone) continue;
    if (operations_.has_begun(resume.peer, op.op)) status = done(resume.peer, {number(), op.op, 0});
  }
  return status;
}

// ---- Verdicts ----

void PresentEpoch::flush() {
  const uint64_t first = announced_.current.verdicts.next_index();
  take_settled();
  for (auto& [member, proposal] : operations_.take_proposals()) {
    if (membership_.is_member(member)) connections_.send(member, std::move(proposal));
  }
  const auto messages = announced_.current.verdicts.since(number(), first);
  PCCL_ASSERT(messages.has_value());
  for (const PeerId member : membership_.members()) {
    for (const protocol::Verdicts& some : *messages) connections_.send(member, some);
  }
  for (auto& [member, answer] : operations_.take_answers()) {
    if (membership_.is_member(member)) connections_.send(member, std::move(answer));
  }
}

void PresentEpoch::take_settled() {
  std::vector<protocol::Verdict> settled = operations_.take_settled(context_.now);
  for (const Operations::Ending& ending : operations_.take_endings()) count(ending);
  for (const protocol::Verdict& verdict : settled) {
    if (verdict.outcome == protocol::Outcome::kAborted) {
      context_.log(LogLevel::kInfo, {LogEvent::kOperationFailed, group_}, verdict.text);
    } else {
      compared(static_cast<bool>(verdict.sender));
    }
    membership_.operation_ended(verdict.op, verdict.code, context_.now);
    ended_.push_back(verdict.op);
  }
  const VerdictLog& log = announced_.current.verdicts;
  uint64_t index = log.next_index();
  for (protocol::Verdict& verdict : settled) {
    verdict.unacknowledged = static_cast<uint32_t>(index - log.stable_index());
    verdict.mac = mac_of(context_.options.decisions, number(), index++, verdict);
  }
  announced_.current.verdicts.append(std::move(settled));
}

void PresentEpoch::count(const Operations::Ending& ending) {
  if (!ending.committed) return statistics_.aborted(ending.kind);
  statistics_.committed(context_.now, ending.kind, ending.bytes, context_.now - ending.since);
  if (ending.begins) latecomers_.count(context_.now, *ending.begins);
}

void PresentEpoch::called_together(const Latecomers::Begins& begins) {
  latecomers_.count(context_.now, begins);
}

// All members have taken part in an operation that has committed, unless it was a transfer: they
// are now compared.
void PresentEpoch::compared(bool is_transfer) {
  constexpr auto kCompared = protocol::Standing::kCompared;
  if (is_transfer || membership_.lowest_standing() >= kCompared) return;
  membership_.raise(membership_.members(), kCompared);
}

std::vector<PeerId> PresentEpoch::unresponsive_members() const {
  std::vector<PeerId> peers;
  if (!number()) return peers;
  for (const PeerId member : membership_.members()) {
    if (announced_.current.verdicts.unseen(member) > protocol::kOpsOpenMax) peers.push_back(member);
  }
  return peers;
}

// ---- From Epochs ----

void PresentEpoch::open(const protocol::EpochStart& start) {
  if (start.generation == start.epoch) {
    operations_ = Operations(start);
  } else {
    operations_ = operations_.reconfigured(start);
    operations_.not_repeated(announced_.current.end->committed);
  }
  announced_.begin(start);
  statistics_.began(context_.now, start.joined.size());
  for (const protocol::Member& member : start.members) connections_.send(member.peer, start);
}

void PresentEpoch::close(const protocol::EpochEnd& end) {
  for (const OpKey op : end.committed) compared(operations_.is_transfer(op));
  for (const Operations::Ending& ending : operations_.endings_at(end)) count(ending);
  for (const PeerId member : membership_.members()) connections_.send(member, end);
  membership_.operation_ended(std::nullopt, Code::kPeerLost, context_.now);
  context_.log(LogLevel::kInfo, {LogEvent::kEpochEnds, group_},
               "epoch " + text(number()) + " is over: of " +
                   count_text(operations_.open_count(), "open operation") + " " +
                   std::to_string(end.committed.size()) + " committed");
  announced_.end(end);
}

void PresentEpoch::lose(const protocol::Member& member, LossCause cause) {
  announced_.current.verdicts.lose(member.peer);
  statistics_.lost(context_.now, cause, member.name);
}

void PresentEpoch::forget() {
  PCCL_ASSERT(membership_.members().empty());
  announced_ = {};
  operations_ = {};
}

// ---- After a restart ----

void PresentEpoch::restore(const MembershipRecord& record) {
  PCCL_ASSERT(!number() && record.start.epoch == record.current.epoch);
  announced_.start = record.start;
  announced_.previous = AnnouncedEpoch::restored(record.previous, {});
  announced_.current = AnnouncedEpoch::restored(record.current, membership_.members());
  operations_ = Operations(record.start);
}

// If the epoch is over, the durable list of verdicts is complete. Otherwise only the reports of the
// members show the operations: these continue, and are settled if all members are done by now.
void PresentEpoch::recover(const std::map<PeerId, protocol::Resume>& resumed) {
  PCCL_ASSERT(resumed.size() == membership_.members().size());
  const bool over = announced_.current.end.has_value();
  if (!over) rebuild(resumed);
  for (const auto& [peer, resume] : resumed) {
    if (over || resume.epoch != number()) continue;
    const Status status = take_over(resume);
    if (!status.ok()) break_off(peer, status);
  }
  take_settled();
  for (const auto& [peer, resume] : resumed) {
    auto messages = missed(announced_, resume);
    if (!messages.ok()) {
      break_off(peer, messages.status());
      continue;
    }
    for (protocol::Message& message : messages.value()) connections_.send(peer, std::move(message));
  }
}

// The verdicts come from the member that has received the largest number of them. If this member no
// longer keeps a verdict, then all members have received it. A member may call an operation after
// its verdict has arrived: the member then sends only Begin. So the operations that have a verdict
// and that some member has not called go into the table of operations. Otherwise the Begin would be
// taken for a new operation.
void PresentEpoch::rebuild(const std::map<PeerId, protocol::Resume>& resumed) {
  const protocol::Resume* best = nullptr;
  for (const auto& [peer, resume] : resumed) {
    if (resume.epoch != number()) continue;
    if (best == nullptr || resume.verdict_index > best->verdict_index) best = &resume;
  }
  if (best != nullptr) {
    announced_.current.verdicts =
        VerdictLog(membership_.members(), best->stable_index, best->verdicts);
  }
  std::map<OpKey, std::set<PeerId>> not_begun;
  std::vector<protocol::Uncalled> all;
  for (const auto& [peer, resume] : resumed) {
    for (const protocol::Uncalled& op : uncalled_by(announced_, resume)) {
      not_begun[op.op].insert(peer);
      all.push_back(op);
    }
  }
  for (const protocol::Uncalled& op : all) operations_.restore_settled(op, not_begun[op.op]);
}

void PresentEpoch::break_off(PeerId peer, const Status& why) {
  PCCL_ASSERT(membership_.is_member(peer) && !why.ok());
  context_.log(LogLevel::kWarning, {LogEvent::kConnectionClosed, group_, membership_.name(peer)},
               "closed the connection of " + membership_.describe(peer) + ": " + why.message);
  connections_.close(peer);
  membership_.set_connected(peer, false, why.message);
}

// ---- Invariants ----

void PresentEpoch::check() const {
  announced_.current.verdicts.check();
  announced_.previous.verdicts.check();
  operations_.check();
  statistics_.check();
  scalars_.check();
  PCCL_ASSERT(operations_.known_count() <= protocol::kOpsKnownMax);
  PCCL_ASSERT(operations_.open_count() + announced_.current.verdicts.kept().size() <=
              protocol::kVerdictsMax);
  const auto& members = membership_.members();
  PCCL_ASSERT(members.empty() == !number() && start().epoch == number());
  PCCL_ASSERT(start().generation <= number());
  PCCL_ASSERT(!number() || announced_.previous.epoch < number());
  PCCL_ASSERT(start().generation == number() || start().generation <= announced_.previous.epoch);
  PCCL_ASSERT(!announced_.freeze || announced_.freeze->epoch == number());
  PCCL_ASSERT(!announced_.current.end || announced_.current.end->epoch == number());
  PCCL_ASSERT(operations_.is_of(number(), start().members));
  PCCL_ASSERT(announced_.current.verdicts.members() == members.size());
  for (const PeerId member : members) {
    PCCL_ASSERT(start().members.at(*membership_.rank(member)).peer == member);
    PCCL_ASSERT(announced_.current.verdicts.is_member(member));
  }
}

}  // namespace pccl::master
