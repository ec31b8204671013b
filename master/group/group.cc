#include "master/group/group.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/dtype.h"
#include "csrc/protocol/codec.h"
#include "master/text_format.h"

namespace pccl::master {

using protocol::Answer;
using protocol::JointKind;

Group::Group(GroupId id, Context& context, Connections& connections)
    : id_(id),
      context_(context),
      connections_(connections),
      epochs_(id, context, connections, membership_),
      agreement_(id, context, connections),
      optimization_(id, context, connections, membership_),
      held_(context) {}

// ---- Joining and leaving ----

void Group::welcome(PeerId peer, Membership::Peer about, const Quorum& quorum) {
  if (membership_.empty()) quorum_ = quorum;
  const bool fresh = context_.group_of.emplace(peer, id_).second;
  PCCL_ASSERT(fresh);
  membership_.welcome(peer, std::move(about));
}

Status Group::on(PeerId peer, const protocol::Register& message) {
  if (membership_.find(peer)->order != 0) return {};  // repeated on a new connection
  const auto elsewhere = [](const Endpoint& at) { return !is_unicast(at.host) || at.port == 0; };
  if (std::any_of(message.others.begin(), message.others.end(), elsewhere))
    return violation("Register with an address that is not one machine's");
  const auto linked = membership_.register_peer(peer, message);
  connections_.enter(peer, ConnectionPhase::kRegistered);
  for (const PeerId other : linked) dial_first(other, peer);
  context_.log(LogLevel::kInfo,
               membership_.describe(peer) + " waits to be admitted" + group_text(id_, " to"));
  return {};
}

void Group::dial(PeerId dialler, PeerId target) {
  protocol::Dial dial = membership_.dial(dialler, target);
  dial.credential = context_.credential(dialler, target);
  connections_.send(dialler, std::move(dial));
}

void Group::dial_first(PeerId a, PeerId b) {
  membership_.links.dials(a, b) ? dial(a, b) : dial(b, a);
}

void Group::away(PeerId peer, bool warned) {
  PCCL_ASSERT(!connections_.connected(peer));
  membership_.set_connected(peer, false, warned);
  if (!membership_.is_member(peer)) return epochs_.waiting_gone(peer);
  context_.log(LogLevel::kInfo, membership_.describe(peer) + " is not connected");
  epochs_.forget_recovered(peer);
  held_.forget(peer);
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
  const LogLevel level = membership_.find(peer)->warned ? LogLevel::kWarning : LogLevel::kInfo;
  membership_.set_connected(peer, true);
  membership_.raise({peer}, resume.standing);
  notices_.erase(peer);
  std::vector<protocol::Message> messages;
  if (membership_.is_member(peer) && epochs_.recovering()) {
    held_.forget(peer);
    // its missed messages follow when all are recovered
    const Status status = epochs_.recover(resume);
    if (!status.ok()) return status;
  } else if (membership_.is_member(peer)) {
    Result<std::vector<protocol::Message>> missed = epochs_.resume(resume);
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
      membership_.is_member(peer) && !epochs_.recovering() && epochs_.in_generation(resume.epoch);
  const Answer* answer = in_step ? ballot_.last_answer(peer) : nullptr;
  if (answer != nullptr && answer->number >= resume.joint_answered)
    connections_.send(peer, *answer);
  if (membership_.is_member(peer) && agreement_.plan()) connections_.send(peer, *agreement_.plan());
  if (agreement_.awaits_list(peer))
    connections_.send(peer, protocol::ListRequest{agreement_.number()});
  repeat_links(peer);
  context_.log(level, membership_.describe(peer) + " is connected again");
  return {};
}

// Repeats messages about links that the peer may have missed. A superfluous Dial or Forget does no
// harm.
void Group::repeat_links(PeerId peer) {
  for (const Membership::Gone& gone : membership_.gone()) {
    connections_.send(peer, protocol::Forget{gone.peer});
  }
  if (membership_.find(peer)->order == 0) return;  // not registered yet: it has no links
  for (const auto& [other, about] : membership_.peers()) {
    if (other == peer || about.order == 0 || membership_.links.linked(peer, other)) continue;
    if (membership_.links.dials(peer, other)) dial(peer, other);
  }
}

void Group::leave(PeerId peer) {
  connections_.close(peer);
  if (!membership_.is_member(peer)) return drop(peer, "it left");
  epochs_.may_go_on_without() ? leave_without_end(peer) : lose(peer, "it left", LogLevel::kInfo);
}

bool Group::is_busy() const {
  const auto& peers = membership_.peers();
  return std::any_of(peers.begin(), peers.end(), [this](const auto& at) {
    return !membership_.is_member(at.first) || is_in_call(at.first);
  });
}

// The link to such a peer is needed until the last operation with its data has an outcome.
void Group::forget_left() {
  for (auto at = left_.begin(); at != left_.end();) {
    const PeerId peer = *at++;
    if (epochs_.needs(peer)) continue;
    left_.erase(peer);
    send_forget(peer);
  }
}

void Group::say_farewell() {
  PCCL_ASSERT(settled() && context_.ends);
  for (const auto& [peer, about] : membership_.peers()) {
    connections_.send(peer, protocol::Farewell{});
    connections_.close(peer);
  }
}

void Group::dismiss() {
  std::vector<PeerId> peers;
  for (const auto& [peer, about] : membership_.peers()) peers.push_back(peer);
  for (const PeerId peer : peers) {
    membership_.is_member(peer) ? lose(peer, "the master ends", LogLevel::kInfo)
                                : drop(peer, "the master ends");
  }
}

void Group::give_up(PeerId peer, const std::string& why) {
  membership_.is_member(peer) ? lose(peer, why) : drop(peer, why);
}

void Group::lose(PeerId peer, const std::string& reason, LogLevel level) {
  PCCL_ASSERT(!reason.empty());
  const std::string why = membership_.describe(peer) + " lost: " + reason;
  connections_.send(peer, protocol::Kicked{why});
  const protocol::Member member = remove_member(peer, why, level);
  epochs_.lose(member, why, level);
  send_forget(peer);
  after_removal(peer);
}

protocol::Member Group::remove_member(PeerId peer, const std::string& why, LogLevel level) {
  PCCL_ASSERT(membership_.is_member(peer));
  protocol::Member member = membership_.member(peer);
  connections_.close(peer);
  take_out(peer, why);
  ballot_.lose(peer);
  held_.forget(peer);
  context_.log(level, why);
  return member;
}

void Group::after_removal(PeerId peer) {
  PCCL_ASSERT(has_members() == static_cast<bool>(epochs_.current()));
  new_to_sync_.erase(peer);
  optimization_.lose(peer);
  if (has_members()) return;
  left_.clear();
  ballot_ = {};
  agreement_.cancel();
  optimization_.cancel();
  gave_up_sync_ = false;
}

void Group::drop(PeerId peer, const std::string& why) {
  PCCL_ASSERT(!membership_.is_member(peer));
  const Membership::Peer& about = *membership_.find(peer);
  const LogLevel level = about.warned || about.held_up ? LogLevel::kWarning : LogLevel::kInfo;
  const std::string text = membership_.describe(peer) + " is no longer waited for: " + why;
  if (const std::string obstacle = membership_.obstacle(peer); !obstacle.empty())
    last_obstacle_ = obstacle;
  connections_.send(peer, protocol::Kicked{text});
  connections_.close(peer);
  take_out(peer, text);
  epochs_.waiting_gone(peer);
  send_forget(peer);
  context_.log(level, text);
}

void Group::take_out(PeerId peer, const std::string& why) {
  PCCL_ASSERT(!connections_.connected(peer) && context_.group_of.contains(peer));
  notices_.erase(peer);
  announced_newcomers_.erase(peer);
  hindered_.erase(peer);
  if (const auto forgotten = membership_.remove(peer, why)) context_.group_of.erase(*forgotten);
}

void Group::send_forget(PeerId peer) {
  PCCL_ASSERT(membership_.find(peer) == nullptr);
  for (const auto& [other, about] : membership_.peers()) {
    if (about.order != 0) connections_.send(other, protocol::Forget{peer});
  }
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
  const std::string text_before = membership_.links.view(peer, other).text;
  const uint32_t dead_before = membership_.links.dead_serial(peer, other);
  const bool was_trying = membership_.links.view(peer, other).unreachable();
  const bool was_dialling = membership_.links.dials(peer, other);
  switch (membership_.links.report(peer, message)) {
    case Links::News::kNone: return {};
    case Links::News::kMade:
      if (members) epochs_.reconfigure();
      return {};
    case Links::News::kDead: break;
  }
  if (message.state == protocol::LinkState::kUnreachable) {
    notices_due_ = true;
    if (message.text != text_before) log_unreachable(peer, message);
    if (!membership_.links.view(other, peer).unreachable()) dial(other, peer);
    // It made the last connection and began to dial before this master was restarted. The other
    // end may not know the key of a credential of that time.
    if (!was_dialling && membership_.links.dials(peer, other)) dial(peer, other);
  } else if (membership_.links.dead_serial(peer, other) > dead_before) {
    dial_first(peer, other);
  } else if (was_trying && membership_.links.dials(peer, other)) {
    // It has had a link in the meantime, so it does not try any more. The other side's word about
    // that link came first, and then it was not told to dial.
    dial(peer, other);
  }
  if (members) lose_if_cut_off(other);
  return {};
}

// Only the log has the whole text. The other peer receives only the kind of fault.
void Group::log_unreachable(PeerId peer, const protocol::LinkReport& message) {
  context_.log(LogLevel::kInfo, membership_.describe(peer) + " cannot reach " +
                                    membership_.describe(message.peer) + ": " + message.text);
}

// After a restart no peer is connected, so a missing connection proves nothing. The same holds
// after a pause of this process, in which peers received nothing from it.
void Group::lose_if_cut_off(PeerId peer) {
  if (!epochs_.recovering() && !context_.was_paused && membership_.lost_at_once(peer))
    lose(peer, "its process ended or its network broke");
}

// ---- Operations ----

Status Group::on(PeerId peer, const protocol::Begin& message) {
  // A receive from any source was called before the vote, and has found its send since.
  const bool answers = message.info.receiver == peer && epochs_.operations().knows(message.op);
  const auto voted =
      ballot_.has_voted(peer) ? std::optional(ballot_.vote(peer).kind) : std::nullopt;
  if (voted && closes_posting(*voted) && !answers)
    return violation("Begin after a vote for " + std::string(text(*voted)));
  const Status status = epochs_.begin(peer, message);
  if (!status.ok()) return status;
  membership_.called(peer, last_call(peer, message.op, message.info, context_.now));
  lateness_.restart(peer);
  note_size(peer, message.info);
  return status;
}

// All members begin it, and one of them counts. A small all-reduce does not go by a plan. The time
// of another one depends on its bytes on the wire.
void Group::note_size(PeerId peer, const protocol::OpInfo& info) {
  if (info.kind != protocol::OpKind::kAllReduce || membership_.members().front() != peer) return;
  const auto elements = static_cast<double>(info.count);
  const uint64_t width = element_bytes(info.dtype);
  if (elements * static_cast<double>(width) > epochs_.start_of_epoch().one_shot_bytes)
    optimization_.note_size(elements * bits_on_wire(info.format, width) / 8);
}

// A newcomer that gives up does not abort the operation for the others: it is removed instead.
// kMembershipChanged is nobody's mistake: after a loss the operation may no longer mean the same.
Status Group::on(PeerId peer, const protocol::AbortRequest& message) {
  const auto& newcomers = membership_.newcomers();
  if (message.epoch == epochs_.current() && epochs_.phase() == Epochs::Phase::kActive &&
      message.code != Code::kMembershipChanged && membership_.is_newcomer(peer) &&
      epochs_.operations().holds_up(peer, message.op, newcomers)) {
    remove({peer, "it gave up its first operation, which the others wait for: " + message.text});
    return {};
  }
  return epochs_.abort(peer, message, [this](const auto& ranks) { return missing_text(ranks); });
}

Status Group::on(PeerId peer, const protocol::StateReport& message) {
  return epochs_.report(peer, message);
}

Status Group::on(PeerId peer, const protocol::Ping& message) {
  connections_.send(peer, protocol::Pong{message.counter, 0, {}});
  if (epochs_.recovering()) return {};
  return epochs_.acknowledge(peer, message.epoch, message.verdict_index);
}

Status Group::on(PeerId peer, const protocol::Pong& message) {
  if (epochs_.recovering()) return {};
  return epochs_.acknowledge(peer, message.epoch, message.verdict_index);
}

// ---- Joint calls ----

Status Group::on(PeerId peer, const protocol::Vote& message) {
  PCCL_ASSERT(!epochs_.recovering() && membership_.is_member(peer));
  if (message.epoch < epochs_.current()) return {};  // it crossed the EpochStart
  if (message.epoch != epochs_.current()) return violation("Vote in a future epoch");
  if (message.budget_ms > protocol::kProbeBudgetMax)
    return violation("Vote with a budget of " + std::to_string(message.budget_ms) + " ms");
  if (message.max_bytes > 0 && message.max_bytes < protocol::kProbesBytesMin)
    return violation("Vote with max_bytes of " + std::to_string(message.max_bytes));
  if (!well_formed(message.offer))
    return violation("Vote with an offer that is not sorted by key, or senseless");
  Result<Ballot::Cast> cast = ballot_.cast(peer, message);
  if (!cast.ok()) return cast.status();
  lateness_.restart(peer);
  switch (cast.value()) {
    case Ballot::Cast::kCounted:
    case Ballot::Cast::kDiffers: membership_.called(peer, {message.kind, context_.now}); break;
    case Ballot::Cast::kRepeated: break;
    case Ballot::Cast::kAnswered:
      PCCL_ASSERT(ballot_.last_answer(peer) != nullptr);
      took_part(*ballot_.last_answer(peer), peer);
      connections_.send(peer, *ballot_.last_answer(peer));
      break;
    case Ballot::Cast::kRefused:
      connections_.send(peer, ballot_.refuse(peer, message, epochs_.end_status()));
      break;
  }
  if (epochs_.goes_on_without_some()) close_posting_of_voters();
  judge_votes();
  return {};
}

void Group::answer(const Answer& answer) {
  PCCL_ASSERT(answer.code != Code::kOk || answer.text.empty());
  if (answer.code != Code::kOk && ballot_.kind()) {
    context_.log(LogLevel::kInfo, std::string(text(*ballot_.kind())) + ": " + answer.text);
  }
  const std::optional<JointKind> kind = ballot_.kind();
  for (auto& [peer, own] : ballot_.settle(answer)) {
    membership_.joint_call_ended(peer, own.code, context_.now);
    took_part(own, peer);
    connections_.send(peer, std::move(own));
  }
  if (kind) announce(wait_report_.end(*kind, context_.now));
  agreement_.cancel();
  optimization_.cancel();
  gave_up_sync_ = false;
  if (kind == JointKind::kSyncSharedState && answer.code == Code::kOk) new_to_sync_.clear();
  epochs_.give_up_change();
  short_of_peers_ = false;  // the callers get the reason
  PCCL_ASSERT(!ballot_.kind() && !agreement_.for_voters() && !epochs_.changing());
}

void Group::took_part(const Answer& answer, PeerId peer) {
  if (answer.code != Code::kOk) return;
  membership_.raise({peer}, protocol::standing_after(answer.kind));
  probation_.restart(peer);  // its next call gets the full time again
}

bool Group::would_change() const {
  PCCL_ASSERT(membership_.members().size() <= protocol::kMembersMax);
  const size_t room = protocol::kMembersMax - membership_.members().size();
  return epochs_.needs_reconfiguration() || !membership_.pending(room).empty();
}

protocol::Settled Group::settled_ballot() const {
  PCCL_ASSERT(ballot_.is_complete());
  const PeerId first = membership_.members()[0];
  const PeerId voter = epochs_.broken() ? first : PeerId{};
  return {id_, epochs_.generation(), voter, ballot_.vote(first).number};
}

// Whether the open ballot of this group is `ballot`.
bool Group::votes_in(const protocol::Settled& ballot) const {
  if (ballot.group != id_ || ballot.generation != epochs_.generation()) return false;
  if (ballot.voter && !membership_.is_member(ballot.voter)) return false;
  const auto& members = membership_.members();
  return std::all_of(members.begin(), members.end(), [&](PeerId member) {
    return (ballot.voter && member != ballot.voter) || ballot_.is_open(member, ballot.number);
  });
}

std::optional<bool> Group::announced_of(const Group& other) const {
  const auto all = announced_ballots_.find(other.id());
  if (all == announced_ballots_.end()) return std::nullopt;
  for (const AnnouncedBallot& announced : all->second) {
    if (other.votes_in(announced.ballot)) return announced.pending;
  }
  return std::nullopt;
}

std::vector<GroupId> Group::announced_groups() const {
  std::vector<GroupId> groups;
  for (const auto& [group, announced] : announced_ballots_) groups.push_back(group);
  return groups;
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
  PCCL_ASSERT(!epochs_.recovering() && has_members());
  ballot_ = Ballot(epochs_.ranked(), membership_.rank_names());
  for (const PeerId peer : epochs_.ranked()) {
    if (!membership_.is_member(peer)) ballot_.lose(peer);
  }
  PCCL_ASSERT(ballot_.size() == membership_.members().size());
  if (epochs_.broken()) ballot_.break_up();
  const auto note = [this](const std::vector<protocol::Settled>& together, bool pending) {
    for (const protocol::Settled& ballot : together) {
      if (ballot.group == id_) continue;
      const AnnouncedBallot announced{ballot, pending};
      std::vector<AnnouncedBallot>& of_it = announced_ballots_[ballot.group];
      if (std::find(of_it.begin(), of_it.end(), announced) == of_it.end())
        of_it.push_back(announced);
    }
  };
  note(epochs_.together(), false);
  for (const auto& [peer, resume] : epochs_.take_recovered()) {
    note(resume.together, resume.pending);
    const bool counts = epochs_.in_generation(resume.epoch);
    if (counts) ballot_.restore(peer, resume.joint_answered, resume.last_answer);
  }
}

// ---- Time and progress ----

std::vector<PeerId> Group::tick() {
  notices_due_ = true;
  for (const Membership::Lost& lost : membership_.tick(context_.peer_timeout, [this](PeerId peer) {
         return connections_.received_lately(peer);
       })) {
    give_up(lost.peer, lost.why);
    if (lost.refusal.empty()) continue;
    for (const PeerId member : membership_.members()) notify(member, lost.refusal);
    hindered_.clear();
  }
  // Members that were spared because this process was paused.
  const std::vector<PeerId> members = membership_.members();
  for (const PeerId peer : members) lose_if_cut_off(peer);
  return epochs_.unresponsive_members();
}

void Group::persisted(uint64_t token) {
  finish(agreement_.persisted(token));
  on_turn(epochs_.persisted(token));
}

void Group::advance() {
  const bool parts = epochs_.goes_on_without_some() && !ballot_.broken();
  if (parts && !agreement_.recording()) break_up();
  if (epochs_.phase() == Epochs::Phase::kActive && agreement_.idle() &&
      ballot_.is_complete(JointKind::kSyncSharedState)) {
    begin_agreement();
  }
  advance_optimization();
  on_turn(epochs_.advance(quorum_, !agreement_.recording(),
                          ballot_.is_complete(JointKind::kUpdateTopology),
                          ballot_.is_complete(JointKind::kSyncSharedState)));
  if (epochs_.phase() != Epochs::Phase::kActive) optimization_.interrupt();
  if (notices_due_) notify_waiting();
}

void Group::on_turn(Epochs::Turn turn) {
  switch (turn) {
    case Epochs::Turn::kNone: break;
    case Epochs::Turn::kStarted:
      PCCL_ASSERT(!agreement_.for_voters());  // they have voted for update_topology
      announce(wait_report_.end(JointKind::kUpdateTopology, context_.now));
      last_obstacle_.clear();
      for (const PeerId member : membership_.members()) {
        if (!ballot_.has_voted(member)) continue;
        membership_.joint_call_ended(member, Code::kOk, context_.now);
        membership_.raise({member}, protocol::Standing::kCalled);
        if (short_of_peers_) notify(member, "update_topology goes on: enough peers are there");
      }
      short_of_peers_ = false;
      ballot_ = Ballot(membership_.members(), membership_.rank_names());
      for (const PeerId member : membership_.members()) {
        notices_.erase(member);
        announced_newcomers_.erase(member);
        if (!membership_.find(member)->held_up) continue;
        membership_.set_held_up(member, false);
        context_.log(LogLevel::kWarning, membership_.describe(member) + " is admitted");
      }
      break;
    case Epochs::Turn::kReconfigured: reconfigured(); break;
    case Epochs::Turn::kEnded: break_up(); break;
    case Epochs::Turn::kUnchanged: answer({}); break;
    case Epochs::Turn::kRecovered: restore_ballot(); break;
  }
}

void Group::notify_waiting() {
  notices_due_ = false;
  const std::vector<PeerId> waiting = membership_.waiting();
  for (const PeerId peer : waiting) {
    const std::string why = why_waiting(peer);
    if (!notify(peer, why)) continue;
    membership_.set_held_up(peer, true);
    tell_of_newcomer(peer, why);
    context_.log(LogLevel::kWarning, membership_.describe(peer) + " is not admitted yet: " + why);
  }
  const bool was_short = std::exchange(short_of_peers_, short_of_peers());
  // Usually nobody waits. Looking at each pair of peers would cost more than the rest of a tick.
  if (short_of_peers_ || !waiting.empty() || !hindered_.empty()) {
    for (const PeerId member : membership_.members()) notify_hindered(member);
  }
  if (short_of_peers_ && !was_short)
    context_.log(LogLevel::kWarning, why_hindered(membership_.members()[0]));
}

void Group::notify_hindered(PeerId member) {
  std::string why = why_hindered(member);
  if (!short_of_peers_ && !why.empty()) {
    hindered_.insert(member);
  } else if (!short_of_peers_ && hindered_.erase(member) > 0) {
    why = "the newcomer that could not be admitted can be reached now, or is gone";
  }
  notify(member, std::move(why));
}

bool Group::notify(PeerId peer, std::string why) {
  PCCL_ASSERT(membership_.find(peer) != nullptr);
  if (why.empty() || notices_[peer] == why) return false;
  connections_.send(peer, protocol::Notice{why});
  notices_[peer] = std::move(why);
  return true;
}

bool Group::deserted() const { return membership_.empty() && !agreement_.recording(); }

bool Group::settled() const {
  const Epochs::Phase phase = epochs_.phase();
  const bool deciding = phase == Epochs::Phase::kStarting || phase == Epochs::Phase::kFreezing ||
                        phase == Epochs::Phase::kEnding || phase == Epochs::Phase::kRecovering;
  const auto& peers = membership_.peers();
  return !deciding && !agreement_.recording() &&
         std::all_of(peers.begin(), peers.end(),
                     [](const auto& at) { return at.second.connected; });
}

// ---- Invariants ----

void Group::check() const {
  membership_.check();
  epochs_.check();
  ballot_.check();
  agreement_.check();
  optimization_.check();
  probation_.check();
  lateness_.check();
  for (const auto& [peer, about] : membership_.peers()) check_peer(peer, about);
  check_votes();
  check_nothing_is_due();
  held_.check();
  PCCL_ASSERT(held_.empty() || epochs_.recovering() || deciding());
  for (const PeerId peer : held_.senders()) {
    PCCL_ASSERT(membership_.is_member(peer) && membership_.find(peer)->connected);
  }
  for (const auto& [peer, notice] : notices_) PCCL_ASSERT(membership_.find(peer) != nullptr);
  for (const PeerId peer : left_) {
    PCCL_ASSERT(membership_.find(peer) == nullptr && epochs_.needs(peer));
  }
  for (const PeerId peer : hindered_) PCCL_ASSERT(membership_.is_member(peer));
  for (const PeerId peer : new_to_sync_) PCCL_ASSERT(membership_.is_member(peer));
  for (const auto& [group, ballots] : announced_ballots_) {
    PCCL_ASSERT(group != id_ && !ballots.empty() && ballots.front().ballot.group == group);
  }
}

void Group::check_peer(PeerId peer, const Membership::Peer& about) const {
  const auto group = context_.group_of.find(peer);
  PCCL_ASSERT(group != context_.group_of.end() && group->second == id_);
  PCCL_ASSERT(about.connected == connections_.connected(peer));
  if (!about.connected) return;
  const Connections::Connection& connection = *connections_.find(connections_.of(peer));
  PCCL_ASSERT(connection.group == id_);
  const bool registered = about.order != 0;
  PCCL_ASSERT(connection.phase == (membership_.is_member(peer) ? ConnectionPhase::kMember
                                   : registered                ? ConnectionPhase::kRegistered
                                                               : ConnectionPhase::kWelcomed));
}

void Group::check_nothing_is_due() const {
  const bool all_sync = ballot_.is_complete(JointKind::kSyncSharedState);
  const bool all_update = ballot_.is_complete(JointKind::kUpdateTopology);
  switch (epochs_.phase()) {
    case Epochs::Phase::kActive:
      PCCL_ASSERT(!all_sync || !agreement_.idle());
      PCCL_ASSERT(!all_update || !epochs_.changing());
      PCCL_ASSERT(!ballot_.is_complete(JointKind::kOptimizeTopology) || optimization_.under_way());
      break;
    case Epochs::Phase::kDraining:
      PCCL_ASSERT(!epochs_.operations().drained() || epochs_.waits_for_peers());
      break;
    case Epochs::Phase::kFreezing:
      PCCL_ASSERT(epochs_.awaits_reports() || agreement_.recording());
      break;
    case Epochs::Phase::kRecovering: PCCL_ASSERT(epochs_.awaits_members()); break;
    case Epochs::Phase::kFounding:
    case Epochs::Phase::kStarting:
    case Epochs::Phase::kEnding:
    case Epochs::Phase::kBroken: break;
  }
}

void Group::check_votes() const {
  const auto& members = membership_.members();
  PCCL_ASSERT(ballot_.size() == (epochs_.recovering() ? 0 : members.size()));
  if (epochs_.recovering()) return;
  for (const PeerId member : members) {
    PCCL_ASSERT(ballot_.is_voter(member, *membership_.rank(member)));
    if (ballot_.has_voted(member)) PCCL_ASSERT(ballot_.vote(member).epoch == epochs_.current());
  }
  const Epochs::Phase phase = epochs_.phase();
  if (phase == Epochs::Phase::kDraining) {
    PCCL_ASSERT(ballot_.is_complete(JointKind::kUpdateTopology));
  }
  if (optimization_.under_way()) PCCL_ASSERT(ballot_.is_complete(JointKind::kOptimizeTopology));
  const bool syncs = agreement_.recording() || phase == Epochs::Phase::kActive;
  if (syncs && agreement_.for_voters()) {
    PCCL_ASSERT(ballot_.is_complete(JointKind::kSyncSharedState));
  }
}

}  // namespace pccl::master
