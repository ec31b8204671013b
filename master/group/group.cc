#include "master/group/group.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/codec.h"
#include "master/epochs/operation_waits.h"
#include "master/group/cycle_text.h"
#include "master/text_format.h"

namespace pccl::master {

using protocol::Answer;
using protocol::JointKind;

Group::Group(GroupId id, Context& context, Connections& connections)
    : id_(id),
      context_(context),
      connections_(connections),
      present_(id, context, connections, membership_),
      epochs_(id, context, connections, quorum_, membership_, present_),
      agreement_(id, context, connections),
      optimization_(id, context, connections, membership_),
      view_{id,       context, connections, quorum_,    membership_,
            present_, epochs_, ballot_,     agreement_, cycle_watch_},
      cycle_watch_(view_),
      overdue_(view_),
      state_call_(view_, agreement_, overdue_),
      plan_call_(view_, context, epochs_, optimization_),
      regrouping_(view_, context, connections, present_, epochs_),
      notices_(view_, context, connections, membership_),
      dialling_(context, connections, membership_),
      held_(context),
      announced_(id) {}

// ---- Joining and leaving ----

void Group::welcome(PeerId peer, Membership::Peer about, const Quorum& quorum) {
  if (membership_.empty()) quorum_ = quorum;
  const bool fresh = context_.group_of.emplace(peer, id_).second;
  PCCL_ASSERT(fresh);
  membership_.welcome(peer, std::move(about));
}

Status Group::on(PeerId peer, const protocol::Register& message) {
  const Membership::Peer& about = *membership_.find(peer);
  if (about.order != 0) return {};  // repeated on a new connection
  if (!are_numeric(message.others))
    return violation("Register with a further address that is a name, or has no port");
  const std::string unfit = refuse_host(message.host, about);
  if (!unfit.empty()) return refuse(peer, unfit), Status{};
  const auto linked = membership_.register_peer(peer, message);
  connections_.enter(peer, ConnectionPhase::kRegistered);
  for (const PeerId other : linked) dialling_.link(other, peer);
  context_.log(LogLevel::kInfo, {LogEvent::kRegistered, id_, membership_.name(peer)},
               membership_.describe(peer) + " waits to be admitted" + group_text(id_, " to"));
  return {};
}

void Group::away(PeerId peer, const std::string& breach) {
  PCCL_ASSERT(!connections_.connected(peer));
  membership_.set_connected(peer, false, breach);
  if (!membership_.is_member(peer)) return epochs_.waiting_gone(peer);
  context_.log(LogLevel::kInfo, {LogEvent::kDisconnected, id_, membership_.name(peer)},
               membership_.describe(peer) + " is not connected");
  epochs_.forget_recovered(peer);
  forget_messages(peer);
  lose_if_cut_off(peer);
}

Status Group::check(const protocol::Resume& resume) const {
  if (membership_.is_member(resume.peer)) return epochs_.check(resume);
  if (!resume.epoch) return {};
  return violation("Resume in an epoch of a peer that was not admitted");
}

Status Group::back(const protocol::Resume& resume) {
  const PeerId peer = resume.peer;
  PCCL_ASSERT(connections_.connected(peer));
  const bool warned = !membership_.find(peer)->breach.empty();
  const LogLevel level = warned ? LogLevel::kWarning : LogLevel::kInfo;
  membership_.set_connected(peer, true);
  membership_.raise({peer}, resume.standing);
  notices_.connected_again(peer);
  cycle_watch_.forget(peer);  // it repeats its report
  std::vector<protocol::Message> messages;
  if (membership_.is_member(peer) && epochs_.recovering()) {
    held_.forget(peer);
    // its missed messages follow when all are recovered
    const Status status = epochs_.recover(resume);
    if (!status.ok()) return status;
  } else if (membership_.is_member(peer)) {
    Result<std::vector<protocol::Message>> missed = present_.resume(resume);
    if (!missed.ok()) return missed.status();
    messages = std::move(missed.value());
  } else if (resume.epoch) {
    return violation("Resume in an epoch of a peer that was not admitted");
  }
  protocol::Resumed resumed{context_.options.incarnation, context_.accepting(peer)};
  if (membership_.is_member(peer)) resumed.members = membership_.members();
  connections_.send(peer, std::move(resumed));
  for (protocol::Message& message : messages) connections_.send(peer, std::move(message));
  const bool in_step =
      membership_.is_member(peer) && !epochs_.recovering() && present_.in_generation(resume.epoch);
  const Answer* answer = in_step ? ballot_.last_answer(peer) : nullptr;
  if (answer != nullptr && answer->number >= resume.joint_answered) send(peer, *answer);
  if (membership_.is_member(peer) && agreement_.plan()) connections_.send(peer, *agreement_.plan());
  if (agreement_.awaits_list(peer))
    connections_.send(peer, protocol::ListRequest{agreement_.number()});
  dialling_.repeat(peer, left_);
  context_.log(level, {LogEvent::kReconnected, id_, membership_.name(peer)},
               membership_.describe(peer) + " is connected again");
  return {};
}

void Group::leave(PeerId peer) {
  connections_.close(peer);
  if (!membership_.is_member(peer)) return drop(peer, "it left");
  if (!epochs_.may_continue_without()) return lose(peer, "it left", kByItself);
  leave_without_end(peer, membership_.describe(peer) + " has left (destroy_process_group)");
}

// The link to a peer that has left is needed until the last operation with its data has an outcome.
void Group::forget_left() {
  for (auto at = left_.begin(); at != left_.end();) {
    const PeerId peer = *at++;
    if (present_.needs(peer)) continue;
    left_.erase(peer);
    dialling_.forget(peer);
  }
}

void Group::say_farewell() {
  PCCL_ASSERT(view_.is_settled() && context_.ends);
  for (const auto& [peer, about] : membership_.peers()) {
    connections_.send(peer, protocol::Farewell{});
    connections_.close(peer);
  }
}

void Group::dismiss() {
  std::vector<PeerId> peers;
  for (const auto& [peer, about] : membership_.peers()) peers.push_back(peer);
  for (const PeerId peer : peers) {
    membership_.is_member(peer) ? lose(peer, "the master ends", kByEnd)
                                : drop(peer, "the master ends");
  }
}

void Group::give_up(PeerId peer, const std::string& why, LossCause cause) {
  membership_.is_member(peer) ? lose(peer, why, {cause}) : drop(peer, why);
}

void Group::lose(PeerId peer, const std::string& reason, Removal as) {
  PCCL_ASSERT(!reason.empty());
  const std::string why = membership_.describe(peer) + " lost: " + reason;
  connections_.send(peer, protocol::Kicked{why});
  epochs_.lose(remove_member(peer, why, as), why, as.level, as.cause);
  dialling_.forget(peer);
  after_removal(peer, why);
}

protocol::Member Group::remove_member(PeerId peer, const std::string& why, Removal as) {
  PCCL_ASSERT(membership_.is_member(peer));
  protocol::Member member = membership_.member(peer);
  const std::string name = membership_.name(peer);
  connections_.close(peer);
  take_out(peer, why);
  ballot_.lose(peer);
  forget_messages(peer);
  context_.log(as.level, {as.event, id_, name}, why);
  return member;
}

void Group::after_removal(PeerId peer, const std::string& why) {
  PCCL_ASSERT(view_.has_members() == static_cast<bool>(present_.number()));
  regrouping_.lose(peer, why);
  overdue_.lose(peer);
  optimization_.lose(peer);
  if (view_.has_members()) return;
  left_.clear();
  ballot_ = {};
  agreement_.cancel();
  optimization_.cancel();
  state_call_.end();
}

// The program of a fixed world ends rank by rank. So this leave is no loss, and the epoch
// continues. Joint calls end as after a loss, because all members have to make them.
void Group::leave_without_end(PeerId peer, const std::string& why) {
  const auto& members = membership_.members();
  const bool linked_with_all = std::all_of(members.begin(), members.end(), [&](PeerId other) {
    return other == peer || membership_.links.linked(peer, other);
  });
  const protocol::Member member = remove_member(peer, why, kByItself);
  epochs_.leave(member, why);
  after_removal(peer, why);
  if (!view_.has_members()) return;
  left_.insert(peer);
  close_posting_of_voters();
  if (!linked_with_all) lose_data_of(peer);
}

// If no operation is open, nobody needs the data of a member that leaves.
void Group::regroup(Regroup agreed) {
  for (const PeerId member : regrouping_.agree(std::move(agreed))) {
    const std::string why = regrouping_.why_left_out();
    const std::string text = membership_.describe(member) + " lost: " + why;
    const bool at_once = epochs_.may_continue_without() && present_.operations().open_count() == 0;
    if (at_once) connections_.send(member, protocol::Kicked{text});
    at_once ? leave_without_end(member, text) : lose(member, why, kByItself);
  }
  regrouping_.begin();
}

void Group::drop(PeerId peer, const std::string& why) {
  PCCL_ASSERT(!membership_.is_member(peer));
  const Membership::Peer& about = *membership_.find(peer);
  const LogLevel level =
      !about.breach.empty() || about.held_up ? LogLevel::kWarning : LogLevel::kInfo;
  const std::string text = membership_.describe(peer) + " is no longer waited for: " + why;
  const std::string name = membership_.name(peer);
  notices_.gives_up(peer);
  connections_.send(peer, protocol::Kicked{text});
  connections_.close(peer);
  take_out(peer, text);
  epochs_.waiting_gone(peer);
  dialling_.forget(peer);
  context_.log(level, {LogEvent::kGivenUp, id_, name}, text);
}

void Group::refuse(PeerId peer, const std::string& why) {
  context_.history.refused({context_.now, History::Cause::kTerms, id_, membership_.name(peer),
                            "refused " + membership_.describe(peer) + ": " + why});
  connections_.send(peer, protocol::Reject{Code::kInvalidArgument, why});
  connections_.close(peer);
  drop(peer, "refused: " + why);
}

void Group::take_out(PeerId peer, const std::string& why) {
  PCCL_ASSERT(!connections_.connected(peer) && context_.group_of.contains(peer));
  notices_.forget(peer);
  if (const auto forgotten = membership_.remove(peer, why)) context_.group_of.erase(*forgotten);
}

// ---- Links ----

Status Group::on(PeerId peer, const protocol::LinkReport& message) {
  const PeerId other = message.peer;
  if (other == peer) return violation("LinkReport of a peer about itself");
  if (left_.contains(other)) {
    if (message.state != protocol::LinkState::kUp && membership_.is_member(peer))
      lose_data_of(other);
    return {};
  }
  const bool members = membership_.is_member(peer) && membership_.is_member(other);
  switch (dialling_.on(peer, message)) {
    case Links::News::kNone: break;
    case Links::News::kMade:
      if (members) epochs_.reconfigure();
      break;
    case Links::News::kDead:
      if (message.state == protocol::LinkState::kUnreachable) notices_.set_due();
      if (members) lose_if_cut_off(other);
      break;
  }
  return {};
}

// After a restart no peer is connected, so a missing connection proves nothing. The same holds
// after a pause of this process, because the peers received nothing from it.
void Group::lose_if_cut_off(PeerId peer) {
  if (!epochs_.recovering() && !context_.was_paused && membership_.lost_at_once(peer))
    lose(peer, membership_.loss_text(peer), {LossCause::kConnection});
}

// Data that was on its way from a member that has left may be lost with the link.
void Group::lose_data_of(PeerId left) {
  present_.cut_off(left);
  forget_left();
}

// ---- Operations ----

Status Group::on(PeerId peer, const protocol::Begin& message) {
  // A receive from any source, called before the vote, may find its send only now.
  const bool answers = message.info.receiver == peer && present_.operations().knows(message.op);
  const auto voted =
      ballot_.has_voted(peer) ? std::optional(ballot_.vote(peer).kind) : std::nullopt;
  if (voted && closes_posting(*voted) && !answers)
    return violation("Begin after a vote for " + std::string(text(*voted)));
  const Status status = present_.begin(peer, message);
  if (!status.ok()) return status;
  membership_.called(peer, last_call(peer, message.op, message.info, context_.now));
  overdue_.called(peer);
  notices_.called(peer, message.op, message.info);
  optimization_.note(peer, message.info, present_.start().one_shot_bytes);
  return status;
}

// A newcomer that gives up does not abort the operation for the others: it is removed instead. An
// abort with kMembershipChanged is no mistake of the newcomer: after a loss the operation may no
// longer mean the same.
Status Group::on(PeerId peer, const protocol::AbortRequest& message) {
  const auto& newcomers = membership_.newcomers();
  if (message.epoch == present_.number() && epochs_.phase() == Epochs::Phase::kActive &&
      message.code != Code::kMembershipChanged && membership_.is_newcomer(peer) &&
      present_.waits().holds_up(peer, message.op, newcomers)) {
    remove({peer, "it gave up its first operation, which the others wait for: " + message.text});
    return {};
  }
  return present_.abort(peer, message,
                        [this](const auto& ranks) { return WaitTexts(view_).missing(ranks); });
}

Status Group::on(PeerId peer, const protocol::AwaitSend& message) {
  const bool asked = present_.waits().asks_for_sends(peer);
  Status status = present_.await_send(peer, message);
  const bool asks = present_.waits().asks_for_sends(peer);
  if (asks && !asked && !view_.is_in_joint_call(peer))
    membership_.called(peer, {LastCall::AnySend{}, context_.now});
  if (asked && !asks) membership_.stopped_asking(peer, context_.now);
  return status;
}

Status Group::on(PeerId peer, const protocol::Blocked& message) {
  if (message.epoch == present_.number()) cycle_watch_.told(peer, message);
  return present_.check(message.epoch);
}

Status Group::on(PeerId peer, const protocol::StateReport& message) {
  return epochs_.report(peer, message);
}

Status Group::on(PeerId peer, const protocol::Ping& message) {
  connections_.send(peer, protocol::Pong{message.counter, 0, {}});
  if (epochs_.recovering()) return {};
  return present_.acknowledge(peer, message.epoch, message.verdict_index);
}

Status Group::on(PeerId peer, const protocol::Pong& message) {
  if (epochs_.recovering()) return {};
  return present_.acknowledge(peer, message.epoch, message.verdict_index);
}

// ---- Joint calls ----

// All members have voted, `last` as the last one. After a restart of the master, the times of some
// calls are not known.
void Group::count_latecomer(PeerId last) {
  Latecomers::Begins begins{last, context_.now, {}, context_.now};
  const auto& members = membership_.members();
  for (const PeerId member : members) {
    const LastCall& call = membership_.find(member)->last_call;
    if (!std::holds_alternative<protocol::JointKind>(call.call)) return;
    begins.first_at = std::min(begins.first_at, call.at);
    if (member != last) begins.before_last_at = std::max(begins.before_last_at, call.at);
  }
  if (members.size() > 1) present_.called_together(begins);
}

Status Group::on(PeerId peer, const protocol::Vote& message) {
  PCCL_ASSERT(!epochs_.recovering() && membership_.is_member(peer));
  if (message.epoch < present_.number()) return {};  // it crossed the EpochStart
  if (message.epoch != present_.number()) return violation("Vote in a future epoch");
  if (regrouping_.under_way()) return violation("Vote after a call of reconfigure");
  if (!well_formed(message.offer))
    return violation("Vote with an offer that is not sorted by key, or senseless");
  Result<Ballot::Cast> cast = ballot_.cast(peer, message);
  if (!cast.ok()) return cast.status();
  overdue_.called(peer);
  switch (cast.value()) {
    case Ballot::Cast::kCounted:
    case Ballot::Cast::kDiffers:
      membership_.called(peer, {message.kind, context_.now});
      if (ballot_.is_complete()) count_latecomer(peer);
      break;
    case Ballot::Cast::kRepeated: break;
    case Ballot::Cast::kAnswered:
      PCCL_ASSERT(ballot_.last_answer(peer) != nullptr);
      took_part(*ballot_.last_answer(peer), peer);
      send(peer, *ballot_.last_answer(peer));
      break;
    case Ballot::Cast::kRefused:
      send(peer, ballot_.refuse(peer, message, epochs_.end_status()));
      break;
  }
  if (epochs_.continues_without_some()) close_posting_of_voters();
  carry_out(ballot_.rule_on_kinds(membership_.newcomers()));
  return {};
}

void Group::answer(const Answer& answer) {
  PCCL_ASSERT(answer.code != Code::kOk || answer.text.empty());
  const std::optional<JointKind> kind = ballot_.kind();
  if (answer.code != Code::kOk && kind)
    context_.log(LogLevel::kInfo, {LogEvent::kJointCallFailed, id_},
                 std::string(text(*kind)) + ": " + answer.text);
  if (kind == JointKind::kSyncSharedState) note_outcome(answer);
  for (auto& [peer, own] : ballot_.settle(answer)) {
    membership_.joint_call_ended(peer, own.code, context_.now);
    took_part(own, peer);
    send(peer, std::move(own));
  }
  if (kind) notices_.ended(*kind);
  agreement_.cancel();
  optimization_.cancel();
  state_call_.end();
  if (kind == JointKind::kSyncSharedState && answer.code == Code::kOk) overdue_.synced();
  epochs_.give_up_change();
  notices_.answered();
  PCCL_ASSERT(!ballot_.kind() && !agreement_.for_voters() && !epochs_.changing());
}

// The history of the run records a refused sync_shared_state of all members, for the diagnosis.
void Group::note_outcome(const Answer& answer) {
  if (answer.code == Code::kOk) return context_.history.agreed(id_);
  if (answer.code != Code::kSharedState) return;
  context_.history.refused({context_.now, History::Cause::kState, id_, "all members",
                            "sync_shared_state: " + answer.text});
}

// The other members are informed as about any loss. The newcomer and they get a text about the
// mistake.
void Group::remove(const Misfit& misfit) {
  PCCL_ASSERT(membership_.is_member(misfit.peer) && !misfit.why.empty());
  std::string why = "as a newcomer it was removed: " + misfit.why;
  if (misfit.may_be_call) {
    why +=
        ". The first call of a newcomer has to be the one that the members make after "
        "update_topology, with the same model: build and load it before init_process_group";
  }
  lose(misfit.peer, why);
}

void Group::carry_out(const Ruling& ruling) {
  for (const Misfit& misfit : ruling.misfits) remove(misfit);
  if (ruling.answer) answer(*ruling.answer);
}

void Group::took_part(const Answer& answer, PeerId peer) {
  if (answer.code != Code::kOk) return;
  membership_.raise({peer}, protocol::standing_after(answer.kind));
  overdue_.took_part(peer);
}

std::optional<bool> Group::announced_of(const Group& other) const {
  return announced_.answer(other.id(),
                           [&](const auto& ballot) { return other.view().votes_in(ballot); });
}

// An update_topology that has to leave out members is sure to change the group. So its voters begin
// no operation before it ends: operations that a voter has not begun abort now, and no member waits
// for them.
void Group::close_posting_of_voters() {
  for (const PeerId member : membership_.members()) {
    if (ballot_.is_open(member, JointKind::kUpdateTopology)) present_.close_posting(member);
  }
}

// A sync_shared_state that all survivors have voted for continues, in a broken group too.
void Group::reconfigured() {
  const bool syncs = ballot_.is_complete(JointKind::kSyncSharedState);
  if (epochs_.broken() && syncs) {
    ballot_.break_up(ballot_.vote(membership_.members()[0]).number);
  } else if (epochs_.broken()) {
    break_up();
  }
  PCCL_ASSERT(ballot_.size() == membership_.members().size());
  ballot_.reconfigure(membership_.members(), membership_.rank_names());
  agreement_.interrupt(present_.last_losses());
}

// From now on update_topology is the only joint call that can begin, and a sync_shared_state can
// only continue. An open are_peers_pending is answered with true if all members have asked it.
void Group::break_up() {
  PCCL_ASSERT((epochs_.broken() || epochs_.continues_without_some()) && view_.has_members());
  const bool all_ask = ballot_.is_complete(JointKind::kArePeersPending);
  ballot_.break_up();
  Answer answer;
  if (all_ask) {
    answer.pending = true;
    return this->answer(answer);
  }
  answer.code = epochs_.end_status().code;
  answer.text = epochs_.end_status().message;
  for (auto& [peer, own] : ballot_.settle_others(JointKind::kUpdateTopology, answer)) {
    membership_.joint_call_ended(peer, own.code, context_.now);
    send(peer, std::move(own));
  }
  agreement_.cancel();
  optimization_.cancel();
  state_call_.end();
}

// ---- The shared state ----

Status Group::on(PeerId peer, const protocol::StateList& message) {
  if (message.epoch != present_.number()) return {};  // its vote is void, or its call has ended
  const std::string why = agreement_.on_list(peer, message);
  if (why.empty()) return {};
  if (!membership_.is_newcomer(peer)) return violation("StateList: " + why);
  remove({peer, why});
  return {};
}

Status Group::on(PeerId peer, const protocol::Fetched& message) {
  if (message.code != Code::kOk && overdue_.is_new_to_sync(peer) && agreement_.expects(peer)) {
    remove({peer, "it could not take the state of the run: " + message.text, false});
    return {};
  }
  if (epochs_.phase() == Epochs::Phase::kActive) finish(agreement_.fetched(peer, message));
  return {};
}

Status Group::on(PeerId peer, const protocol::Fetching& message) {
  if (agreement_.expects(peer) && agreement_.plan()->number == message.number)
    overdue_.took_part(peer);
  return {};
}

void Group::finish(const Agreement::Outcome& outcome) {
  if (outcome && ballot_.kind() == JointKind::kSyncSharedState) answer(*outcome);
}

// The timeout of a newcomer does not end a call of the other members, even if they have not made it
// yet: the newcomer is removed, and they continue without it.
bool Group::gives_up_as_newcomer(PeerId peer, JointKind kind) {
  if (!membership_.is_newcomer(peer) &&
      !(kind == JointKind::kSyncSharedState && overdue_.was_new_to_sync(peer)))
    return false;
  remove({peer, std::string("it gave up its first call, ") + text(kind) +
                    ", by its own timeout or because it was interrupted"});
  PCCL_ASSERT(!membership_.is_member(peer));
  return true;
}

void Group::give_up_call(JointKind kind) {
  PCCL_ASSERT(!is_of_all_groups(kind));
  carry_out(kind == JointKind::kSyncSharedState ? state_call_.give_up() : plan_call_.give_up());
}

// ---- Members that make no call ----

bool Group::watch_newcomers(const std::string& awaited_by_others) {
  std::vector<Misfit> wrong = present_.take_misfits();
  const std::vector<Misfit> overdue = overdue_.overdue_newcomers(awaited_by_others);
  wrong.insert(wrong.end(), overdue.begin(), overdue.end());
  for (const Misfit& misfit : wrong) {
    if (membership_.is_member(misfit.peer)) remove(misfit);
  }
  return !wrong.empty();
}

bool Group::watch_late_members() {
  const std::vector<Misfit> late = overdue_.late_members();
  for (const Misfit& misfit : late) {
    lose(misfit.peer, "it was late, and the others go on without it: " + misfit.why +
                          ". If a step may take longer, give all peers a longer one");
  }
  return !late.empty();
}

bool Group::watch_cycles() {
  const std::vector<CycleWatch::Cycle> due = cycle_watch_.look();
  for (const CycleWatch::Cycle& cycle : due) {
    if (cycle.certain) {
      present_.end_cycle(cycle.operations(), cycle_text(view_, cycle.links) + "; " + kCycleAdvice);
    } else {
      notices_.warn_of(cycle);
    }
  }
  return !due.empty();
}

std::optional<Instant> Group::deadline() const {
  std::optional<Instant> first;
  for (const auto& one : {overdue_.deadline(), optimization_.deadline(), cycle_watch_.deadline()}) {
    if (one && (!first || *one < *first)) first = one;
  }
  return first;
}

// ---- After a restart ----

void Group::restore(const MembershipRecord& record) {
  PCCL_ASSERT(record.group == id_ && membership_.empty());
  if (record.members.empty()) return;
  quorum_ = {record.founders, record.min_peers};
  membership_.restore(record.start.members, record.members);
  for (const auto& [peer, about] : membership_.peers()) context_.group_of[peer] = id_;
  epochs_.restore(record);
}

void Group::restore(const SharedStateRecord& record) {
  PCCL_ASSERT(record.group == id_);
  agreement_.restore({record.revision, record.hash});
}

Status Group::hold(PeerId peer, const protocol::Message& message) {
  PCCL_ASSERT(epochs_.recovering() || deciding());
  PCCL_ASSERT(membership_.is_member(peer) && connections_.connected(peer));
  return held_.hold(peer, message);
}

std::vector<HeldMessages::Held> Group::take_held() {
  if (epochs_.recovering() || deciding()) return {};
  return held_.take();
}

void Group::restore_ballot() {
  PCCL_ASSERT(!epochs_.recovering() && view_.has_members());
  ballot_ = Ballot(ids(present_.start().members), membership_.rank_names());
  for (const PeerId peer : ids(present_.start().members)) {
    if (!membership_.is_member(peer)) ballot_.lose(peer);
  }
  PCCL_ASSERT(ballot_.size() == membership_.members().size());
  if (epochs_.broken()) ballot_.break_up();
  announced_.add(present_.start().together, false);
  for (const auto& [peer, resume] : epochs_.take_recovered()) {
    if (!connections_.connected(peer)) forget_messages(peer);  // what it reported is impossible
    announced_.add(resume.together, resume.pending);
    const bool counts = present_.in_generation(resume.epoch);
    if (counts) ballot_.restore(peer, resume.joint_answered, resume.last_answer);
  }
}

// ---- Time and progress ----

std::vector<PeerId> Group::tick() {
  notices_.set_due();
  cycle_watch_.set_changed();
  for (const Membership::Lost& lost :
       membership_.tick(context_.settings.peer_timeout,
                        [this](PeerId peer) { return connections_.received_lately(peer); })) {
    give_up(lost.peer, lost.why, lost.cause);
    if (!lost.refusal.empty()) notices_.refused(lost.refusal);
  }
  dialling_.tick();
  // Now loses the cut-off members that lose_if_cut_off() has spared because this process was
  // paused.
  const std::vector<PeerId> members = membership_.members();
  for (const PeerId peer : members) lose_if_cut_off(peer);
  return present_.unresponsive_members();
}

void Group::persisted(uint64_t token) {
  finish(agreement_.persisted(token));
  on_turn(epochs_.persisted(token));
}

void Group::advance() {
  const bool parts = epochs_.continues_without_some() && !ballot_.broken();
  if (parts && !agreement_.recording()) break_up();
  if (epochs_.phase() == Epochs::Phase::kActive && agreement_.idle() &&
      ballot_.is_complete(JointKind::kSyncSharedState)) {
    carry_out(state_call_.begin());
  }
  carry_out(plan_call_.advance());
  on_turn(epochs_.advance(!agreement_.recording(), ballot_.is_complete(JointKind::kUpdateTopology),
                          ballot_.is_complete(JointKind::kSyncSharedState)));
  if (epochs_.phase() != Epochs::Phase::kActive) optimization_.interrupt();
  notices_.update();
}

void Group::on_turn(Epochs::Turn turn) {
  if (turn != Epochs::Turn::kNone) cycle_watch_.set_changed();
  switch (turn) {
    case Epochs::Turn::kNone: break;
    case Epochs::Turn::kStarted:
      PCCL_ASSERT(!agreement_.for_voters());  // they have voted for update_topology
      notices_.ended(JointKind::kUpdateTopology);
      for (const PeerId member : membership_.members()) {
        if (!ballot_.has_voted(member)) continue;
        membership_.joint_call_ended(member, Code::kOk, context_.now);
        membership_.raise({member}, protocol::Standing::kCalled);
        notices_.updated(member);
      }
      ballot_ = Ballot(membership_.members(), membership_.rank_names());
      regrouping_.begun();
      notices_.begun();
      break;
    case Epochs::Turn::kReconfigured: reconfigured(); break;
    case Epochs::Turn::kEnded: break_up(); break;
    case Epochs::Turn::kUnchanged: answer({}); break;
    case Epochs::Turn::kRecovered: restore_ballot(); break;
  }
}

void Group::flush() {
  forget_left();
  present_.flush();
  for (const OpKey op : present_.take_ended()) notices_.ended(op);
}

}  // namespace pccl::master
