#include "master/epochs/epochs.h"

#include <algorithm>
#include <set>

#include "csrc/base/transitions.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

// Bytes for one one-shot operation at each member: the larger the group, the smaller the tensors.
constexpr size_t kOneShotScratchBytes = 512u << 10;

using Phase = Epochs::Phase;

// A member lost in kFreezing, kEnding or kBroken is one survivor less. If a chosen peer is gone in
// kStarting, or a member is lost, it is made durable that the epoch continues. The freeze requests
// are sent after that.
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

bool Epochs::continues() const {
  if (context_.ends) return false;
  const bool enough = membership_.members().size() >= quorum_.min_peers;
  return lost_.empty() || (context_.policy == protocol::LossPolicy::kRetry && enough);
}

bool Epochs::keeps() const {
  return announced_.start.generation != announced_.start.epoch && announced_.previous.end &&
         announced_.previous.end->continuation == protocol::Continuation::kKept;
}

void Epochs::enter(Phase next) { phase_ = kEpochTransitions.step(phase_, next); }

// ---- From members ----

Status Epochs::check(Epoch epoch) const {
  if (epoch <= current()) return {};
  return violation("epoch " + text(epoch) + ", while the group is in epoch " + text(current()));
}

Status Epochs::begin(PeerId peer, const protocol::Begin& begin) {
  PCCL_ASSERT(membership_.is_member(peer));
  // A receive from any source may begin late. While the group drains, its send has ended.
  const bool late = phase_ == Phase::kDraining && operations_.knows(begin.op);
  const bool counts = phase_ == Phase::kActive || phase_ == Phase::kFreezing || late;
  if (begin.epoch != current() || !counts) return check(begin.epoch);
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

Status Epochs::done(PeerId peer, const protocol::Done& done) {
  PCCL_ASSERT(membership_.is_member(peer));
  const Status status = acknowledge(peer, done.epoch, done.verdict_index);
  const bool runs = phase_ == Phase::kActive || phase_ == Phase::kDraining;
  if (!status.ok() || done.epoch != current() || !runs) return status;
  return operations_.done(peer, done.op);
}

Status Epochs::abort(PeerId peer, const protocol::AbortRequest& request,
                     const Operations::Missing& missing) {
  PCCL_ASSERT(membership_.is_member(peer));
  const bool runs = phase_ == Phase::kActive || phase_ == Phase::kDraining;
  if (request.epoch != current() || !runs) return check(request.epoch);
  return operations_.abort(peer, request, missing);
}

Status Epochs::report(PeerId peer, const protocol::StateReport& report) {
  if (report.epoch != current()) return check(report.epoch);
  if (!announced_.freeze && !announced_.current.end)
    return violation("StateReport without FreezeRequest");
  if (phase_ != Phase::kFreezing) return {};  // after the decision it is a repetition
  PCCL_ASSERT(membership_.is_member(peer) && announced_.freeze);
  protocol::StateReport known{report.epoch, {}};
  std::set<OpKey> seen;
  for (const protocol::OpReport& op : report.ops) {
    if (operations_.was_begun(peer, op.op) && seen.insert(op.op).second) known.ops.push_back(op);
  }
  reports_.try_emplace(peer, std::move(known));  // its first report stays valid
  return {};
}

Status Epochs::acknowledge(PeerId peer, Epoch epoch, uint64_t verdict_index) {
  if (epoch != current() || !epoch) return check(epoch);
  if (announced_.current.verdicts.acknowledge(peer, verdict_index)) return {};
  return violation("verdict " + std::to_string(verdict_index) + " of epoch " + text(epoch) +
                   " acknowledged, which has " +
                   std::to_string(announced_.current.verdicts.next_index()));
}

Status Epochs::check(const protocol::Resume& resume) const {
  const bool whole = resume.verdict_index - resume.stable_index == resume.verdicts.size() &&
                     resume.stable_index <= resume.verdict_index;
  if (!whole || resume.ops.size() != resume.infos.size()) {
    return violation("Resume that contradicts itself");
  }
  if (resume.verdict_index > kVerdictIndexMax) return violation("Resume after too many verdicts");
  if (recovering()) return {};
  const auto messages = missed(announced_, resume);
  if (!messages.ok()) return messages.status();
  if (resume.epoch != current()) return {};
  for (size_t i = 0; i < resume.ops.size(); ++i) {
    const OpKey op = resume.ops[i].op;
    if (announced_.current.verdicts.contains(op) || operations_.has_begun(resume.peer, op))
      continue;
    Status status = operations_.check_begin(resume.peer, op, resume.infos[i]);
    if (!status.ok()) return status;
  }
  return {};
}

Result<std::vector<protocol::Message>> Epochs::resume(const protocol::Resume& resume) {
  PCCL_ASSERT(!recovering() && membership_.is_member(resume.peer));
  flush();
  Result<std::vector<protocol::Message>> messages = missed(announced_, resume);
  if (!messages.ok() || resume.epoch != current()) return messages;
  Status status = acknowledge(resume.peer, resume.epoch, resume.verdict_index);
  if (status.ok()) status = take_over(resume);
  if (!status.ok()) return status;
  operations_.catch_up(resume.peer, uncalled_by(resume));
  for (protocol::AbortProposal& proposal : operations_.proposals(resume.peer))
    messages.value().emplace_back(std::move(proposal));
  return messages;
}

// A lost Begin or Done counts as if it came now. The peer receives the verdicts of settled
// operations.
Status Epochs::take_over(const protocol::Resume& resume) {
  PCCL_ASSERT(resume.epoch == current() && resume.ops.size() == resume.infos.size());
  Status status;
  for (size_t i = 0; i < resume.ops.size() && status.ok(); ++i) {
    const protocol::OpReport& op = resume.ops[i];
    if (announced_.current.verdicts.contains(op.op)) continue;
    if (!operations_.has_begun(resume.peer, op.op)) {
      status = begin(resume.peer, {current(), op.op, resume.infos[i]});
    }
    if (!status.ok() || op.state != protocol::OpState::kDone) continue;
    if (operations_.has_begun(resume.peer, op.op))
      status = done(resume.peer, {current(), op.op, 0});
  }
  return status;
}

std::vector<protocol::Uncalled> Epochs::uncalled_by(const protocol::Resume& resume) const {
  const bool here = resume.epoch == current();
  if (!here && announced_.start.generation == current()) return {};  // its numbers begin anew
  std::vector<protocol::Uncalled> uncalled = resume.uncalled;
  std::set<OpKey> called;
  for (const protocol::OpReport& op : resume.ops) called.insert(op.op);
  const auto add_missed = [&](const VerdictLog& log, uint64_t seen) {
    uint64_t index = log.stable_index();
    for (const protocol::Verdict& verdict : log.kept()) {
      const bool aborted = verdict.outcome == protocol::Outcome::kAborted;
      if (index++ >= seen && aborted && !called.contains(verdict.op))
        uncalled.push_back({verdict.op, verdict.sender, verdict.receiver});
    }
  };
  if (resume.epoch == announced_.previous.epoch)
    add_missed(announced_.previous.verdicts, resume.verdict_index);
  add_missed(announced_.current.verdicts, here ? resume.verdict_index : 0);
  return uncalled;
}

// ---- From the group ----

// While members are recovered, those that have resumed before cannot report this link. In the other
// phases a new epoch is on its way.
void Epochs::reconfigure() {
  relinked_while_recovering_ |= phase_ == Phase::kRecovering;
  if (phase_ == Phase::kActive || phase_ == Phase::kDraining) freeze();
}

void Epochs::change(std::vector<protocol::Settled> together) {
  PCCL_ASSERT(!change_ && !membership_.members().empty());
  change_ = true;
  together_ = std::move(together);
}

void Epochs::give_up_change() {
  PCCL_ASSERT(phase_ != Phase::kStarting);  // its record may become durable
  change_ = false;
  planned_.reset();
  operations_.open_posting();
  if (phase_ == Phase::kDraining) enter(Phase::kActive);
}

void Epochs::renew() {
  PCCL_ASSERT(phase_ == Phase::kActive && planned_ && !change_);
  freeze();
}

void Epochs::remove(const protocol::Member& member, const std::string& why, LogLevel level,
                    bool left) {
  PCCL_ASSERT(membership_.find(member.peer) == nullptr);
  lost_.push_back({member, why, level, left});
  PCCL_ASSERT(lost_.size() + membership_.members().size() == announced_.start.members.size());
  announced_.current.verdicts.lose(member.peer);
  reports_.erase(member.peer);
  recovered_.erase(member.peer);
  if (membership_.members().empty()) return extinct();
  if (phase_ == Phase::kStarting) stay();
}

void Epochs::waiting_gone(PeerId peer) {
  PCCL_ASSERT(!membership_.is_member(peer));
  if (phase_ != Phase::kStarting || !plan_.start) return;
  const auto& joining = plan_.start->joined;
  if (std::find(joining.begin(), joining.end(), peer) != joining.end()) stay();
}

// No member is left to send an end to.
void Epochs::extinct() {
  PCCL_ASSERT(current() && lost_.size() == announced_.start.members.size());
  MembershipRecord record;
  record.group = group_;
  context_.persist(std::move(record));
  context_.log(level_of_losses(),
               "epoch " + text(current()) + group_text(group_) + " is over: no member is left");
  enter(Phase::kFounding);
  change_ = freeze_sent_ = false;
  lost_.clear();
  reports_.clear();
  recovered_.clear();
  plan_ = {};
  planned_.reset();
  announced_ = {};
  operations_ = {};
}

void Epochs::freeze() {
  PCCL_ASSERT(current() && !announced_.freeze && !announced_.current.end && !freeze_sent_);
  enter(Phase::kFreezing);
  reports_.clear();
  announced_.freeze = protocol::FreezeRequest{current(), {}};
}

std::string Epochs::waits_for() const {
  if (phase_ == Phase::kDraining) return operations_.in_flight();
  if (phase_ != Phase::kFreezing || silent_ranks().empty()) return {};
  return membership_.ranks_text(silent_ranks()) + " did not report the operations in flight";
}

Epochs::Turn Epochs::advance(const Quorum& quorum, bool may_end, bool may_change, bool syncs) {
  quorum_ = quorum;
  syncs_ = syncs;
  if (phase_ == Phase::kRecovering) return all_recovered() ? go_on() : Turn::kNone;
  if (context_.ends) reconfigure();
  if (phase_ == Phase::kFreezing) {
    advance_freezing();
    if (may_end && silent_ranks().empty()) plan_end();
  } else if (context_.ends) {
    return Turn::kNone;
  } else if (phase_ == Phase::kFounding) {
    if (const auto founders = membership_.founders(quorum.founders)) plan_start(*founders);
  } else if (change_ && (may_change || phase_ != Phase::kActive)) {
    return advance_change();
  }
  return Turn::kNone;
}

// The members lost in one step go into one freeze request. Later losses are added to it, but
// survivors that were asked are not asked again.
void Epochs::advance_freezing() {
  PCCL_ASSERT(announced_.freeze && announced_.freeze->epoch == current());
  std::vector<protocol::Member>& announced = announced_.freeze->lost;
  PCCL_ASSERT(announced.size() <= lost_.size());
  for (size_t i = announced.size(); i < lost_.size(); ++i) announced.push_back(lost_[i].member);
  if (freeze_sent_) return;
  freeze_sent_ = true;
  flush();
  for (const PeerId member : membership_.members()) connections_.send(member, *announced_.freeze);
  // Members that were recovered after a restart may have reported before this request.
  const std::vector<uint32_t> silent = silent_ranks();
  const std::string who = silent.empty() ? "nobody" : membership_.ranks_text(silent);
  context_.log(LogLevel::kInfo, "epoch " + text(current()) + " ends, asking " + who);
}

Epochs::Turn Epochs::advance_change() {
  PCCL_ASSERT(change_ && current());
  if (phase_ == Phase::kActive) {
    enter(Phase::kDraining);
    operations_.drain();
  }
  const bool drained = phase_ == Phase::kDraining && operations_.drained();
  if (!drained && phase_ != Phase::kBroken) return Turn::kNone;
  std::vector<PeerId> members = membership_.members();
  PCCL_ASSERT(members.size() <= protocol::kMembersMax);
  const auto newcomers = membership_.pending(protocol::kMembersMax - members.size());
  if (drained && newcomers.empty() && lost_.empty() && !keeps() && !planned_) {
    give_up_change();
    return Turn::kUnchanged;
  }
  members.insert(members.end(), newcomers.begin(), newcomers.end());
  if (members.size() >= quorum_.min_peers) plan_start(members);
  return Turn::kNone;
}

// ---- First durable, then sent ----

void Epochs::persist(Plan plan) {
  PCCL_ASSERT(phase_ == Phase::kStarting || phase_ == Phase::kEnding);
  plan_ = std::move(plan);
  const Announced announced = announced_by(plan_);
  MembershipRecord record;
  record.group = group_;
  record.policy = context_.policy;
  record.pattern = context_.pattern;
  record.peer_timeout_ms =
      static_cast<uint32_t>(context_.peer_timeout / std::chrono::milliseconds(1));
  record.first_call_timeout_ms =
      static_cast<uint32_t>(context_.first_call_timeout / std::chrono::milliseconds(1));
  record.call_timeout_ms =
      static_cast<uint32_t>(context_.call_timeout / std::chrono::milliseconds(1));
  record.founders = quorum_.founders;
  record.min_peers = quorum_.min_peers;
  record.previous = announced.previous.record();
  record.current = announced.current.record();
  record.start = announced.start;
  if (plan_.start) {
    for (const protocol::Member& member : plan_.start->members) {
      record.members.push_back(membership_.record(member.peer));
    }
  } else {
    for (const PeerId member : membership_.members()) {
      record.members.push_back(membership_.record(member));
    }
  }
  PCCL_ASSERT(record.start.epoch == record.current.epoch);
  PCCL_ASSERT(record.members.size() <= record.start.members.size());
  plan_.token = context_.persist(std::move(record));
}

void Epochs::plan_start(const std::vector<PeerId>& members) {
  PCCL_ASSERT(!members.empty() && members.size() <= protocol::kMembersMax);
  PCCL_ASSERT(phase_ == Phase::kBroken || operations_.drained());
  flush();
  Plan plan{0, {}, start_with(members, {}), lost_.size(), phase_};
  enter(Phase::kStarting);
  persist(std::move(plan));
}

// The given-up plan may be durable by now, or become durable, and a restarted master would begin
// with it. So nothing happens in the current epoch before it is durable that this epoch continues.
void Epochs::stay() { persist(Plan{0, {}, {}, lost_.size(), plan_.came_from}); }

void Epochs::plan_end() {
  const std::vector<PeerId>& survivors = membership_.members();
  PCCL_ASSERT(!survivors.empty() && reports_.size() == survivors.size());
  std::vector<OpKey> committed =
      decide(reports_, [&](OpKey op) { return operations_.concerned(op, survivors); });
  const auto announced = [this](OpKey op) { return announced_.current.verdicts.contains(op); };
  std::erase_if(committed, announced);
  std::vector<protocol::Kept> kept = decide_kept(
      reports_, committed, [&](OpKey op) { return operations_.keeps(op) && !announced(op); });
  using protocol::Continuation;
  Continuation continuation = Continuation::kNothing;
  if (this->continues() && !keeps()) {
    continuation = Continuation::kEverything;
  } else if ((!kept.empty() || syncs_) && survivors.size() >= quorum_.min_peers && !context_.ends) {
    continuation = Continuation::kKept;
  } else {
    kept.clear();
  }
  Plan plan{
      0,
      protocol::EpochEnd{current(), announced_losses(), committed, lost_text(), continuation, kept},
      {},
      lost_.size(),
      phase_};
  if (continuation != Continuation::kNothing)
    plan.start = start_with(survivors, announced_.start.generation);
  enter(Phase::kEnding);
  persist(std::move(plan));
}

// A generation has the number of its first epoch.
protocol::EpochStart Epochs::start_with(const std::vector<PeerId>& members, Epoch generation) {
  protocol::EpochStart start;
  start.epoch = context_.new_epoch();
  start.generation = generation ? generation : start.epoch;
  start.together = generation ? announced_.start.together : together_;
  start.min_peers = quorum_.min_peers;
  if (members.size() <= protocol::kOneShotMembersMax) {
    const size_t share = kOneShotScratchBytes / std::max<size_t>(members.size(), 1);
    start.one_shot_bytes =
        static_cast<uint32_t>(std::min<size_t>(context_.options.one_shot_bytes, share));
  }
  for (const PeerId peer : members) {
    start.members.push_back(membership_.member(peer));
    if (!membership_.is_member(peer)) start.joined.push_back(peer);
  }
  for (const Lost& lost : lost_) start.left.push_back(lost.member.peer);
  PCCL_ASSERT(start.epoch > current() && start.generation <= start.epoch);
  PCCL_ASSERT(members.size() == membership_.members().size() + start.joined.size());
  set_routes(start, membership_.links, {context_.pattern, context_.options.shares},
             {current() ? &announced_.start : nullptr, planned_ ? &*planned_ : nullptr});
  return start;
}

Announced Epochs::announced_by(const Plan& plan) const {
  Announced announced = announced_;
  announced.freeze.reset();
  if (plan.end) announced.current.end = plan.end;
  if (!plan.start) return announced;
  PCCL_ASSERT(plan.start->epoch > announced.current.epoch);
  announced.previous = std::move(announced.current);
  announced.current = {plan.start->epoch, VerdictLog(ids(plan.start->members)), {}};
  announced.start = *plan.start;
  return announced;
}

Epochs::Turn Epochs::persisted(uint64_t token) {
  if (token != plan_.token) return Turn::kNone;  // the plan was given up
  if (phase_ == Phase::kStarting && plan_.start) {
    start();
    return Turn::kStarted;
  }
  if (phase_ == Phase::kStarting) {
    enter(plan_.came_from);
    if (phase_ == Phase::kDraining && ends_for_losses()) freeze();
  }
  if (phase_ != Phase::kEnding) return Turn::kNone;
  if (!plan_.start || lost_.size() == plan_.lost) return end();
  plan_end();  // more were lost: this continuation is no longer valid
  return Turn::kNone;
}

void Epochs::start() {
  PCCL_ASSERT(plan_.start && !plan_.end && plan_.lost == lost_.size());
  PCCL_ASSERT(!context_.persisting.contains(plan_.token));
  operations_ = Operations(plan_.start->epoch, plan_.start->members);
  change_ = false;
  for (const protocol::Member& member : plan_.start->members) {
    connections_.enter(member.peer, ConnectionPhase::kMember);
  }
  begin_epoch();
}

Epochs::Turn Epochs::end() {
  PCCL_ASSERT(plan_.end && plan_.end->epoch == current());
  PCCL_ASSERT(!context_.persisting.contains(plan_.token));
  protocol::EpochEnd& end = *plan_.end;
  for (const OpKey op : end.committed) compared(operations_.is_transfer(op));
  end.lost = announced_losses();  // may be more than in the plan
  end.text = lost_text();
  for (const PeerId member : membership_.members()) connections_.send(member, end);
  membership_.operation_ended(std::nullopt, Code::kPeerLost, context_.now);
  freeze_sent_ = false;
  context_.log(LogLevel::kInfo, "epoch " + text(current()) + " is over: of " +
                                    count_text(operations_.open_count(), "open operation") + " " +
                                    std::to_string(end.committed.size()) + " committed");
  if (!plan_.start) {
    announced_ = announced_by(plan_);
    enter(Phase::kBroken);
    return Turn::kEnded;
  }
  operations_ = operations_.reconfigured(plan_.start->epoch, plan_.start->members);
  operations_.not_repeated(end.committed);
  begin_epoch();
  return Turn::kReconfigured;
}

void Epochs::begin_epoch() {
  const protocol::EpochStart& start = *plan_.start;
  membership_.admit(ids(start.members), context_.now);
  announced_ = announced_by(plan_);
  const LogLevel level = level_of_losses();
  lost_.clear();
  planned_.reset();
  PCCL_ASSERT(operations_.is_of(current(), start.members));
  enter(Phase::kActive);
  for (const protocol::Member& member : start.members) connections_.send(member.peer, start);
  context_.log(level, "epoch " + text(current()) + group_text(group_) + " begins with " +
                          count_text(start.members.size(), "member") +
                          change_text(start.joined.size(), start.left.size()));
}

// ---- After a restart ----

void Epochs::restore(const MembershipRecord& record) {
  PCCL_ASSERT(phase_ == Phase::kFounding && !membership_.members().empty());
  PCCL_ASSERT(record.group == group_ && record.start.epoch == record.current.epoch);
  quorum_ = {record.founders, record.min_peers};
  announced_.start = record.start;
  announced_.previous = AnnouncedEpoch::restored(record.previous, {});
  announced_.current = AnnouncedEpoch::restored(record.current, ids(record.start.members));
  for (const protocol::Member& member : record.start.members) {
    if (membership_.is_member(member.peer)) continue;
    lost_.push_back({member, record.current.end ? record.current.end->text : std::string()});
    announced_.current.verdicts.lose(member.peer);
  }
  PCCL_ASSERT(announced_.current.verdicts.members() == membership_.members().size());
  operations_ = Operations(current(), record.start.members);
  enter(Phase::kRecovering);
}

Status Epochs::recover(const protocol::Resume& resume) {
  PCCL_ASSERT(recovering() && membership_.is_member(resume.peer));
  const Status status = check(resume);
  if (!status.ok()) return status;
  recovered_.insert_or_assign(resume.peer, resume);
  return {};
}

bool Epochs::all_recovered() const {
  const auto& members = membership_.members();
  return std::all_of(members.begin(), members.end(),
                     [this](PeerId member) { return recovered_.contains(member); });
}

// The member that has received most verdicts has all that matter: all members know the verdicts
// that it no longer keeps.
void Epochs::rebuild_verdicts() {
  const protocol::Resume* best = nullptr;
  for (const auto& [peer, resume] : recovered_) {
    if (resume.epoch != current()) continue;
    if (best == nullptr || resume.verdict_index > best->verdict_index) best = &resume;
  }
  if (best == nullptr) return;
  announced_.current.verdicts =
      VerdictLog(membership_.members(), best->stable_index, best->verdicts);
}

// A member that calls such an operation later finds its verdict and sends only Begin. That must not
// be taken for a new operation.
void Epochs::rebuild_settled() {
  std::map<OpKey, std::set<PeerId>> not_begun;
  std::vector<protocol::Uncalled> all;
  for (const auto& [peer, resume] : recovered_) {
    for (const protocol::Uncalled& op : uncalled_by(resume)) {
      not_begun[op.op].insert(peer);
      all.push_back(op);
    }
  }
  for (const protocol::Uncalled& op : all) operations_.restore_settled(op, not_begun[op.op]);
}

// If the epoch is over, the durable list of verdicts is complete. Otherwise only the members'
// reports are left: their operations continue, and are settled if all members are done by now.
Epochs::Turn Epochs::go_on() {
  PCCL_ASSERT(recovered_.size() == membership_.members().size());
  const bool over = announced_.current.end.has_value();
  if (!over) rebuild_verdicts();
  if (!over) rebuild_settled();
  enter(over ? Phase::kBroken : Phase::kActive);
  bool needs_reconfiguration = !over && (!lost_.empty() || relinked_while_recovering_);
  for (const auto& [peer, resume] : recovered_) {
    if (over || resume.epoch != current()) continue;
    needs_reconfiguration |= resume.needs_reconfiguration;
    Status status = acknowledge(peer, resume.epoch, resume.verdict_index);
    if (status.ok()) status = take_over(resume);
    if (!status.ok()) break_off(peer, status);
  }
  take_settled();
  for (const auto& [peer, resume] : recovered_) {
    auto messages = missed(announced_, resume);
    if (!messages.ok()) {
      break_off(peer, messages.status());
      continue;
    }
    for (protocol::Message& message : messages.value()) connections_.send(peer, std::move(message));
  }
  context_.log(LogLevel::kInfo, "epoch " + text(current()) + group_text(group_) +
                                    " goes on: all its members are back, " +
                                    std::to_string(membership_.members().size()));
  if (needs_reconfiguration) freeze();
  return Turn::kRecovered;
}

void Epochs::break_off(PeerId peer, const Status& why) {
  PCCL_ASSERT(membership_.is_member(peer) && !why.ok());
  context_.log(LogLevel::kWarning,
               "closed the connection of " + membership_.describe(peer) + ": " + why.message);
  connections_.close(peer);
  membership_.set_connected(peer, false, true);
}

std::string Epochs::lost_text() const {
  if (context_.ends) return protocol::kFarewellText;
  if (lost_.empty() && keeps()) return end_status().message;  // no loss since it was broken
  std::string out;
  for (const Lost& lost : lost_) out += (out.empty() ? "" : "; ") + lost.why;
  const size_t left = membership_.members().size();
  if (left < quorum_.min_peers) out += "; " + shortage_text(left, quorum_.min_peers);
  return std::string(cut(out, protocol::kTextBytesMax));
}

// All members have taken part in a committed operation, unless it was a transfer.
void Epochs::compared(bool is_transfer) {
  constexpr auto kCompared = protocol::Standing::kCompared;
  if (is_transfer || membership_.lowest_standing() >= kCompared) return;
  membership_.raise(membership_.members(), kCompared);
}

void Epochs::take_settled() {
  std::vector<protocol::Verdict> settled = operations_.take_settled();
  for (const protocol::Verdict& verdict : settled) {
    if (verdict.outcome == protocol::Outcome::kAborted) {
      context_.log(LogLevel::kInfo, verdict.text);
    } else {
      compared(static_cast<bool>(verdict.sender));
    }
    membership_.operation_ended(verdict.op, verdict.code, context_.now);
    ended_.push_back(verdict.op);
  }
  announced_.current.verdicts.append(std::move(settled));
}

void Epochs::flush() {
  const uint64_t first = announced_.current.verdicts.next_index();
  take_settled();
  for (auto& [member, proposal] : operations_.take_proposals()) {
    if (membership_.is_member(member)) connections_.send(member, std::move(proposal));
  }
  const auto messages = announced_.current.verdicts.since(current(), first);
  PCCL_ASSERT(messages.has_value());
  for (const PeerId member : membership_.members()) {
    for (const protocol::Verdicts& some : *messages) connections_.send(member, some);
  }
  for (auto& [member, answer] : operations_.take_answers()) {
    if (membership_.is_member(member)) connections_.send(member, std::move(answer));
  }
}

std::vector<PeerId> Epochs::unresponsive_members() const {
  std::vector<PeerId> peers;
  if (!current()) return peers;
  for (const PeerId member : membership_.members()) {
    if (announced_.current.verdicts.unseen(member) > protocol::kOpsOpenMax) peers.push_back(member);
  }
  return peers;
}

}  // namespace pccl::master
