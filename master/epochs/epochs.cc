#include "master/epochs/epochs.h"

#include <algorithm>
#include <set>

#include "csrc/base/transitions.h"
#include "master/epochs/decision_mac.h"
#include "master/epochs/operation_waits.h"
#include "master/members/connections.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

using Phase = Epochs::Phase;

// A loss in kFreezing, kEnding or kBroken does not change the phase: there is one survivor less. If
// a member is lost or a chosen peer is gone in kStarting, the group first makes durable that the
// planned epoch does not begin. The freeze requests after a loss are sent after that.
const Transitions<Phase, 24> kEpochTransitions(
    "a group's epochs", text,
    {{Phase::kFounding, Phase::kStarting, "the founders are pending", "Persist"},
     {Phase::kActive, Phase::kDraining, "update_topology was agreed on",
      "Verdicts: what only some have begun is aborted"},
     {Phase::kDraining, Phase::kStarting,
      "no operation is open, min_peers are there, and somebody is pending or the group is broken",
      "Persist"},
     {Phase::kDraining, Phase::kActive, "nobody is pending any more; the change was given up"},
     {Phase::kStarting, Phase::kActive, "durable", "EpochStart"},
     {Phase::kStarting, Phase::kFounding,
      "durable that there is still no epoch; the last member is lost", "Persist if lost"},
     {Phase::kStarting, Phase::kDraining, "durable that the epoch continues"},
     {Phase::kStarting, Phase::kBroken, "durable that the group stays broken"},
     {Phase::kActive, Phase::kFreezing,
      "a member is lost; a link between members was re-established; the master ends; all are "
      "recovered, but one is lost, had a freeze request before, or saw a link break",
      "FreezeRequest"},
     {Phase::kDraining, Phase::kFreezing,
      "a member is lost; a link between members was re-established; the master ends",
      "FreezeRequest"},
     {Phase::kFreezing, Phase::kEnding, "every survivor has reported", "Persist"},
     {Phase::kEnding, Phase::kBroken, "durable that nothing continues", "EpochEnd"},
     {Phase::kEnding, Phase::kActive, "durable that all, or what is kept, continues",
      "EpochEnd, EpochStart"},
     {Phase::kEnding, Phase::kEnding, "durable that it continues, but a member was lost meanwhile",
      "Persist"},
     {Phase::kBroken, Phase::kStarting, "update_topology was agreed on, and min_peers are there",
      "Persist"},
     {Phase::kFounding, Phase::kRecovering, "restored after a restart"},
     {Phase::kRecovering, Phase::kActive, "all are recovered, and the epoch is not over",
      "missed messages"},
     {Phase::kRecovering, Phase::kBroken, "all are recovered, and the epoch is over",
      "missed messages"},
     {Phase::kActive, Phase::kFounding, "the last member is lost", "Persist"},
     {Phase::kDraining, Phase::kFounding, "the last member is lost", "Persist"},
     {Phase::kFreezing, Phase::kFounding, "the last member is lost", "Persist"},
     {Phase::kEnding, Phase::kFounding, "the last member is lost", "Persist"},
     {Phase::kBroken, Phase::kFounding, "the last member is lost", "Persist"},
     {Phase::kRecovering, Phase::kFounding, "the last member is lost", "Persist"}});

PresentEpoch::Stage stage_in(Phase phase) {
  switch (phase) {
    case Phase::kActive: return PresentEpoch::Stage::kOpen;
    case Phase::kDraining: return PresentEpoch::Stage::kDraining;
    case Phase::kFreezing: return PresentEpoch::Stage::kFreezing;
    case Phase::kFounding:
    case Phase::kStarting:
    case Phase::kEnding:
    case Phase::kBroken:
    case Phase::kRecovering: break;
  }
  return PresentEpoch::Stage::kClosed;
}

}  // namespace

const char* text(Phase phase) {
  switch (phase) {
    case Phase::kFounding: return "founding";
    case Phase::kActive: return "active";
    case Phase::kDraining: return "draining";
    case Phase::kStarting: return "starting";
    case Phase::kFreezing: return "freezing";
    case Phase::kEnding: return "ending";
    case Phase::kBroken: return "broken";
    case Phase::kRecovering: return "recovering";
  }
  return "unknown";
}

void Epochs::enter(Phase next) {
  came_from_ = phase_;
  phase_ = kEpochTransitions.step(phase_, next);
  present_.enter(stage_in(phase_));
}

Status Epochs::report(PeerId peer, const protocol::StateReport& report) {
  if (report.epoch != present_.number()) return present_.check(report.epoch);
  const Announced& announced = present_.announced();
  if (!announced.freeze && !announced.current.end)
    return violation("StateReport without FreezeRequest");
  if (phase_ != Phase::kFreezing) return {};  // the end is decided: this report is repeated
  PCCL_ASSERT(membership_.is_member(peer) && announced.freeze);
  protocol::StateReport known{report.epoch, {}};
  std::set<OpKey> seen;
  for (const protocol::OpReport& op : report.ops) {
    if (!present_.operations().was_begun(peer, op.op) || !seen.insert(op.op).second) continue;
    const Status status = present_.check(op);
    if (!status.ok()) return status;
    known.ops.push_back(op);
  }
  reports_.try_emplace(peer, std::move(known));  // its first report stays valid
  return {};
}

std::vector<uint32_t> Epochs::silent_ranks() const {
  std::vector<uint32_t> ranks;
  for (const PeerId member : membership_.members()) {
    if (!reports_.contains(member)) ranks.push_back(*membership_.rank(member));
  }
  return ranks;
}

// ---- From the group ----

// In kRecovering, the link is noted: members that have already resumed cannot report it. In kActive
// and kDraining, the epoch is frozen. In all other phases, the present epoch is over or will end
// anyway.
void Epochs::reconfigure() {
  relinked_while_recovering_ |= phase_ == Phase::kRecovering;
  freeze_if_running();
}

void Epochs::change(std::vector<protocol::Settled> together) {
  PCCL_ASSERT(!change_ && !membership_.members().empty());
  change_ = true;
  together_ = std::move(together);
}

void Epochs::give_up_change() {
  PCCL_ASSERT(phase_ != Phase::kStarting);  // the record of the change may become durable
  change_ = false;
  planned_.reset();
  present_.open_posting();
  if (phase_ == Phase::kDraining) enter(Phase::kActive);
}

void Epochs::regroup(std::vector<PeerId> members) {
  PCCL_ASSERT(order_.empty() && !members.empty());
  change();
  order_ = std::move(members);
  // In an epoch that has continued, the members may be about to begin earlier operations again. So
  // it is not known which ones are open.
  if (present_.start().generation != present_.number()) freeze_if_running();
}

// The loss ends the epoch, unless it has ended before, or a record has to become durable first.
void Epochs::give_up_regroup() {
  order_.clear();
  change_ = false;
  if (phase_ == Phase::kDraining) {
    present_.open_posting();
    enter(Phase::kActive);
  }
}

void Epochs::renew() {
  PCCL_ASSERT(phase_ == Phase::kActive && planned_ && !change_);
  freeze();
}

void Epochs::remove(Losses::Loss loss) {
  const PeerId peer = loss.member.peer;
  PCCL_ASSERT(membership_.find(peer) == nullptr);
  present_.lose(loss.member, loss.cause);
  losses_.add(std::move(loss));
  PCCL_ASSERT(losses_.size() + membership_.members().size() == present_.start().members.size());
  reports_.erase(peer);
  recovered_.erase(peer);
  if (membership_.members().empty()) return extinct();
  if (phase_ == Phase::kStarting) stay();
}

void Epochs::waiting_gone(PeerId peer) {
  PCCL_ASSERT(!membership_.is_member(peer));
  if (phase_ != Phase::kStarting || !plan_.start) return;
  const auto& joining = plan_.start->joined;
  if (std::find(joining.begin(), joining.end(), peer) != joining.end()) stay();
}

// The last member is lost, so no EpochEnd is sent.
void Epochs::extinct() {
  PCCL_ASSERT(present_.number() && losses_.size() == present_.start().members.size());
  MembershipRecord record;
  record.group = group_;
  context_.persist(std::move(record));
  context_.log(
      losses_.level(), {LogEvent::kEpochEnds, group_},
      "epoch " + text(present_.number()) + group_text(group_) + " is over: no member is left");
  enter(Phase::kFounding);
  change_ = freeze_sent_ = false;
  order_.clear();
  losses_.clear();
  reports_.clear();
  recovered_.clear();
  plan_ = {};
  planned_.reset();
  present_.forget();
}

void Epochs::freeze() {
  PCCL_ASSERT(present_.number() && !present_.announced().freeze && !freeze_sent_);
  PCCL_ASSERT(!present_.announced().current.end);
  enter(Phase::kFreezing);
  reports_.clear();
  present_.freeze({});
}

std::string Epochs::waits_for() const {
  if (phase_ == Phase::kDraining) return present_.waits().in_flight();
  if (phase_ != Phase::kFreezing || silent_ranks().empty()) return {};
  return membership_.ranks_text(silent_ranks()) + " did not report the operations in flight";
}

std::string Epochs::asked(PeerId member) const {
  if (runs()) return present_.asked(member);
  const bool owes_report = phase_ == Phase::kFreezing && freeze_sent_ && !reports_.contains(member);
  return owes_report ? "the operations of epoch " + text(present_.number()) : std::string();
}

Epochs::Turn Epochs::advance(bool may_end, bool may_change, bool syncs) {
  syncs_ = syncs;
  if (phase_ == Phase::kRecovering) return awaits_members() ? Turn::kNone : continue_recovered();
  if (context_.ends) reconfigure();
  if (phase_ == Phase::kFreezing) {
    advance_freezing();
    if (may_end && !awaits_reports() && liars().empty()) plan_end();
  } else if (context_.ends) {
    return Turn::kNone;
  } else if (phase_ == Phase::kFounding) {
    if (const auto founders = membership_.founders(quorum_.founders)) plan_start(*founders);
  } else if (change_ && (may_change || !order_.empty() || phase_ != Phase::kActive)) {
    return advance_change();
  }
  return Turn::kNone;
}

// One freeze request names all members that were lost in a step. Members that are lost later are
// added to it, but it is not sent again.
void Epochs::advance_freezing() {
  PCCL_ASSERT(present_.announced().freeze->lost.size() <= losses_.size());
  present_.freeze(losses_.members());
  if (freeze_sent_) return;
  freeze_sent_ = true;
  present_.flush();
  for (const PeerId member : membership_.members())
    connections_.send(member, *present_.announced().freeze);
  // After a restart, a recovered member may have reported before this request. The log line names
  // only the others.
  const std::vector<uint32_t> silent = silent_ranks();
  const std::string who = silent.empty() ? "nobody" : membership_.ranks_text(silent);
  context_.log(LogLevel::kInfo, {LogEvent::kEpochEnding, group_},
               "epoch " + text(present_.number()) + " ends, asking " + who);
}

Epochs::Turn Epochs::advance_change() {
  PCCL_ASSERT(change_ && present_.number());
  if (phase_ == Phase::kActive) {
    enter(Phase::kDraining);
    present_.drain();
  }
  const bool drained = phase_ == Phase::kDraining && present_.operations().drained();
  if (!drained && phase_ != Phase::kBroken) return Turn::kNone;
  if (!order_.empty()) {
    PCCL_ASSERT(order_.size() == membership_.members().size());
    plan_start(order_);
    return Turn::kNone;
  }
  std::vector<PeerId> members = membership_.members();
  PCCL_ASSERT(members.size() <= protocol::kMembersMax);
  const auto newcomers = membership_.pending(protocol::kMembersMax - members.size());
  if (drained && newcomers.empty() && losses_.empty() && !present_.is_kept() && !planned_) {
    give_up_change();
    return Turn::kUnchanged;
  }
  members.insert(members.end(), newcomers.begin(), newcomers.end());
  if (members.size() >= quorum_.min_peers) plan_start(members);
  return Turn::kNone;
}

// ---- First durable, then sent ----

void Epochs::persist(EpochPlan plan) {
  PCCL_ASSERT(phase_ == Phase::kStarting || phase_ == Phase::kEnding);
  plan_ = std::move(plan);
  plan_.lost = losses_.size();
  plan_.token = context_.persist(basis_.record(group_, plan_));
}

// A generation has the number of its first epoch.
void Epochs::plan_start(const std::vector<PeerId>& members) {
  PCCL_ASSERT(!members.empty() && members.size() <= protocol::kMembersMax);
  PCCL_ASSERT(phase_ == Phase::kBroken || present_.operations().drained());
  present_.flush();
  protocol::EpochStart numbers;
  numbers.epoch = numbers.generation = context_.new_epoch();
  numbers.together = together_;
  EpochPlan plan;
  plan.start = basis_.start(std::move(numbers), members, planned_ ? &*planned_ : nullptr);
  enter(Phase::kStarting);
  persist(std::move(plan));
}

// The record of the plan that is given up may be or become durable. A master that restarts then
// would begin the planned epoch. So the group waits until a record is durable in which the planned
// epoch has not begun.
void Epochs::stay() { persist({}); }

void Epochs::plan_end() {
  EpochPlan plan;
  plan.end = basis_.end(reports_, syncs_);
  if (plan.end->continuation != protocol::Continuation::kNothing) {
    protocol::EpochStart numbers;
    numbers.epoch = context_.new_epoch();
    numbers.generation = present_.start().generation;
    numbers.together = present_.start().together;
    plan.start =
        basis_.start(std::move(numbers), membership_.members(), planned_ ? &*planned_ : nullptr);
  }
  enter(Phase::kEnding);
  persist(std::move(plan));
}

Epochs::Turn Epochs::persisted(uint64_t token) {
  if (token != plan_.token) return Turn::kNone;  // the plan was given up
  if (phase_ == Phase::kStarting && plan_.start) {
    start();
    return Turn::kStarted;
  }
  if (phase_ == Phase::kStarting) {
    enter(came_from_);
    const bool drains = phase_ == Phase::kDraining;
    if (drains && losses_.end_the_epoch()) {
      freeze();
    } else if (drains && !change_) {
      give_up_regroup();
    }
  }
  if (phase_ != Phase::kEnding) return Turn::kNone;
  if (!plan_.start || (losses_.size() == plan_.lost && order_.empty())) return end();
  plan_end();  // more members were lost, or a reconfigure was agreed on: nothing may continue
  return Turn::kNone;
}

void Epochs::start() {
  PCCL_ASSERT(plan_.start && !plan_.end && plan_.lost == losses_.size());
  PCCL_ASSERT(!context_.persisting.contains(plan_.token));
  change_ = false;
  order_.clear();
  for (const protocol::Member& member : plan_.start->members) {
    connections_.enter(member.peer, ConnectionPhase::kMember);
  }
  begin_epoch();
}

Epochs::Turn Epochs::end() {
  PCCL_ASSERT(plan_.end && plan_.end->epoch == present_.number());
  PCCL_ASSERT(!context_.persisting.contains(plan_.token));
  plan_.end->lost = basis_.named_losses();  // may be more members than in the plan
  plan_.end->text = basis_.lost_text();
  present_.close(*plan_.end);
  freeze_sent_ = false;
  if (!plan_.start) {
    enter(Phase::kBroken);
    return Turn::kEnded;
  }
  begin_epoch();
  return Turn::kReconfigured;
}

void Epochs::begin_epoch() {
  const protocol::EpochStart& start = *plan_.start;
  membership_.admit(ids(start.members), context_.now);
  present_.open(start);
  const bool is_first = start.joined.size() == start.members.size();
  context_.log(losses_.level(), {is_first ? LogEvent::kFounded : LogEvent::kEpochBegins, group_},
               "epoch " + text(start.epoch) + group_text(group_) + " begins with " +
                   count_text(start.members.size(), "member") +
                   change_text(start.joined.size(), start.left.size()));
  losses_.clear();
  planned_.reset();
  enter(Phase::kActive);
}

// ---- After a restart ----

void Epochs::restore(const MembershipRecord& record) {
  PCCL_ASSERT(phase_ == Phase::kFounding && record.group == group_);
  present_.restore(record);
  const auto& end = record.current.end;
  for (const protocol::Member& member : record.start.members) {
    if (!membership_.is_member(member.peer)) losses_.add({member, end ? end->text : ""});
  }
  enter(Phase::kRecovering);
}

Status Epochs::recover(const protocol::Resume& resume) {
  PCCL_ASSERT(recovering() && membership_.is_member(resume.peer));
  Status status = check(resume);
  if (status.ok() && present_.in_generation(resume.epoch))
    status = check_decisions(context_.options.decisions, present_.start().generation, resume);
  if (!status.ok()) return status;
  recovered_.insert_or_assign(resume.peer, resume);
  return {};
}

Epochs::Turn Epochs::continue_recovered() {
  const bool over = present_.announced().current.end.has_value();
  enter(over ? Phase::kBroken : Phase::kActive);
  present_.recover(recovered_);
  context_.log(LogLevel::kInfo, {LogEvent::kEpochRecovered, group_},
               "epoch " + text(present_.number()) + group_text(group_) +
                   " goes on: all its members are back, " +
                   std::to_string(membership_.members().size()));
  const bool reconfigures =
      !losses_.empty() || relinked_while_recovering_ ||
      std::any_of(recovered_.begin(), recovered_.end(), [this](const auto& at) {
        return at.second.epoch == present_.number() && at.second.needs_reconfiguration;
      });
  if (!over && reconfigures) freeze();
  return Turn::kRecovered;
}

}  // namespace pccl::master
