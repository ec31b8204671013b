// The life of a connection: Accepted, then its first message (Hello or Resume), then messages that
// its phase allows (the table is in connections.cc), until it closes or a forbidden message makes
// the master close it. Messages go to the peer's group (group.cc). settle() carries out the
// consequences at the end of every step.

#include "master/core.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "master/group/groups.h"
#include "master/group/joint.h"
#include "master/group/wait_texts.h"
#include "master/members/admission.h"
#include "master/members/telemetries.h"
#include "master/members/token_admission.h"
#include "master/run_view.h"
#include "master/runs/host_exit.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

uint32_t incarnation_of(PeerId peer) { return static_cast<uint32_t>(peer.value >> 32); }

std::string refusal_text(const std::string& who, const protocol::Reject& reject) {
  return "refused " + who + ": " + reject.text;
}

}  // namespace

struct MasterCore::Impl {
  explicit Impl(Options options) { context.options = std::move(options); }
  void restore(const RunRecord& remembered);

  void on(const Accepted& event) {
    connections.accept(event.connection, event.seen_host, event.seen_loopback, event.holder);
  }
  void on(const Revoked& event);
  void on(const Received& event);
  void on(const Closed& event);
  void on(const Persisted& event);
  void on(const RingPlanned& event);
  void on(const TimePassed& event);
  void on(const Draining&);
  void on(const HostExits& event) { exit.begin(event.patience, now); }
  void on(const TurnedAway& event) {
    quiet = true;
    const std::string who = "a peer at " + event.seen_host;
    context.history.refused(
        {now, History::Cause::kVersion, {}, who, refusal_text(who, event.reject)});
  }
  void on(const Ended& event) { end_run(event.why, LogLevel::kInfo); }
  void on(const RegroupAgreed& event);
  void on(const Watched&) {
    quiet = true;
    telemetries.watched();
    ask_members();
  }

  // The first message of a connection. Returns kProtocol if the message is impossible.
  Status admit(ConnectionId id, const protocol::Hello& hello);
  Status admit(ConnectionId id, const protocol::Resume& resume);
  template <typename M>
  Status admit(ConnectionId, const M&) {
    return violation(
        "the first message is neither Hello nor Resume");  // the table forbids it earlier
  }
  // From a peer.
  Status on(Group& group, PeerId peer, const protocol::Leave&);
  Status on(Group& group, PeerId peer, const protocol::JointAbort& abort);
  Status on(Group& group, PeerId peer, const protocol::Telemetry& telemetry) {
    telemetries.on(peer, telemetry);
    group.report(telemetries.new_scalars(peer));
    return {};
  }
  template <typename M>
  Status on(Group& group, PeerId peer, const M& message) {
    if constexpr (requires { group.on(peer, message); }) return group.on(peer, message);
    return violation("a message that only masters send");  // the table forbids it earlier
  }

  bool refused(ConnectionId id, const protocol::Hello& hello);
  void note_refusal(ConnectionId id, const protocol::Hello& hello, const protocol::Reject& reject);
  void agree_on(const protocol::RunSettings& settings);
  // The settings of the run; null before its first peer.
  const protocol::RunSettings* agreed() const { return next_beat ? &context.settings : nullptr; }
  void welcome(ConnectionId id, PeerId peer, const protocol::Hello& hello);
  Status back_from_nowhere(ConnectionId id, const protocol::Resume& resume);
  void set_holder(Group& group, PeerId peer, const std::optional<Holder>& shown);

  Status receive(ConnectionId id, const protocol::Message& message);
  bool handle_held();
  void reject(ConnectionId id, const protocol::Reject& reject);
  void punish(ConnectionId id, const Status& why);
  void cut_off(ConnectionId id, const std::string& why);
  void warn_closed(ConnectionId id, const std::string& why);
  Group* group_of(PeerId peer);  // null if it is in none; touches the group
  std::string describe(ConnectionId id);
  bool is_ours(PeerId peer) const;
  void settle();
  void ask_members();  // for their numbers, if somebody watches the run
  void look_at_exit();
  void dismiss_all();
  bool watch_members();  // returns whether any was removed
  void end_run(const std::string& why, LogLevel level);
  void end_if_exceeded();
  void notice_stop();
  void forget_groups();
  void check() const;
  void check_sometimes();

  Context context;
  Connections connections{context};
  Groups groups{context, connections};
  Telemetries telemetries{context, connections};
  HostExit exit;
  Instant now;
  std::optional<Instant> next_beat;  // none: the run has no peers
  uint64_t beats = 0;
  bool restored = false;  // some group was restored with members
  bool awake = false;     // a step was taken
  Instant grace_until;    // see Context::was_paused
  bool quiet = false;     // this step changed nothing that other groups could wait for
  size_t unchecked = 0;   // steps since the last check
  const RunView view{context, connections, groups, exit, telemetries, restored};
};

// The first step follows at once, and the wait for the members begins with it.
void MasterCore::Impl::restore(const RunRecord& remembered) {
  PCCL_ASSERT(!awake && groups.empty());
  for (const auto& [id, record] : remembered.memberships) {
    if (record.members.empty()) continue;
    PCCL_ASSERT(record.current.epoch.value >> 32 < context.options.incarnation);
    restored = true;
    agree_on(record.settings);
    groups.begin(id).restore(record);
  }
  for (const auto& [id, record] : remembered.shared_states) groups.begin(id).restore(record);
}

// ---- Admission ----

Status MasterCore::Impl::admit(ConnectionId id, const protocol::Hello& hello) {
  if (!refused(id, hello)) welcome(id, context.new_peer(), hello);
  return {};
}

bool MasterCore::Impl::refused(ConnectionId id, const protocol::Hello& hello) {
  if (context.ends) {
    reject(id, {Code::kMasterLost, protocol::kFarewellText});
    return true;
  }
  const Group* group = groups.find(hello.group);
  auto refusal = refuse_version_of_run(hello.versions, hello.library, context.options.run,
                                       context.options.version);
  if (!refusal) {
    refusal = refuse(hello, agreed(), group ? &group->view().membership : nullptr,
                     group ? group->view().quorum : Quorum{}, groups.size());
  }
  if (!refusal) return false;
  note_refusal(id, hello, *refusal);
  reject(id, *refusal);
  return true;
}

void MasterCore::Impl::note_refusal(ConnectionId id, const protocol::Hello& hello,
                                    const protocol::Reject& reject) {
  const Group* group = groups.find(hello.group);
  const bool split = group != nullptr && is_of_other_launch(hello, group->view().membership);
  context.history.refused({now,
                           reject.code == Code::kProtocol ? History::Cause::kVersion
                           : split                        ? History::Cause::kOtherLaunch
                                                          : History::Cause::kTerms,
                           hello.group, hello.name.empty() ? describe(id) : printable(hello.name),
                           refusal_text(describe(id), reject)});
}

void MasterCore::Impl::agree_on(const protocol::RunSettings& settings) {
  PCCL_ASSERT(!agreed() || *agreed() == settings);
  context.settings = settings;
  next_beat = now + protocol::beat_of(context.settings.peer_timeout);
}

void MasterCore::Impl::welcome(ConnectionId id, PeerId peer, const protocol::Hello& hello) {
  Group& group = groups.begin(hello.group);
  if (!group.view().has_members() && hello.rank >= 0) {
    // A peer that has this rank is not connected (refused() has checked this): its process was
    // restarted.
    if (const auto holder = group.view().membership.wished_by(hello.rank)) {
      group.give_up(*holder, "another process was started with its rank");
    }
  }
  if (!agreed()) agree_on(settings_of_first(hello.settings));
  const Connections::Connection& connection = *connections.find(id);
  Membership::Peer about;
  about.seen_host = connection.seen_host;
  about.seen_loopback = connection.seen_loopback;
  about.wish = hello.rank;
  about.holder = connection.holder;
  about.launch = hello.launch;
  about.name = hello.name;
  group.welcome(peer, std::move(about), {hello.founders, hello.min_peers});
  PCCL_ASSERT(view.group_of(peer) == &group);
  connections.admit(id, peer, hello.group, ConnectionPhase::kWelcomed);
  const bool adopted = incarnation_of(peer) != context.options.incarnation;
  if (adopted) {
    connections.send(id, protocol::Resumed{context.options.incarnation, context.accepting(peer)});
  } else {
    connections.send(
        id, protocol::Welcome{peer, context.options.run_id, context.options.incarnation,
                              connection.seen_host, context.options.loopback_only,
                              context.options.version, context.accepting(peer), context.settings});
  }
}

Group* MasterCore::Impl::group_of(PeerId peer) {
  const Group* group = view.group_of(peer);
  return group == nullptr ? nullptr : &groups.touch(group->id());
}

bool MasterCore::Impl::is_ours(PeerId peer) const {
  const auto counter = static_cast<uint32_t>(peer.value);
  const uint32_t incarnation = incarnation_of(peer);
  if (counter == 0 || incarnation > context.options.incarnation) return false;
  return incarnation < context.options.incarnation || counter <= context.peers;
}

Status MasterCore::Impl::admit(ConnectionId id, const protocol::Resume& resume) {
  if (const auto version = refuse_version_of_run(resume.versions, "", context.options.run,
                                                 context.options.version)) {
    reject(id, *version);
    return {};
  }
  if (resume.run_id != context.options.run_id || !is_ours(resume.peer)) {
    reject(id,
           {Code::kMasterLost, "the master was started anew and does not know this peer: run \"" +
                                   context.options.run + "\" is another one now; join again"});
    return {};
  }
  Group* group = group_of(resume.peer);
  if (group == nullptr) return back_from_nowhere(id, resume);
  if (resume.epoch > group->view().present.number()) {
    reject(id, {Code::kMasterLost,
                "the journal of the master is older than this peer, which was in epoch " +
                    text(resume.epoch) + " of run \"" + context.options.run +
                    "\" already: join again"});
    return {};
  }
  const std::optional<Holder>& shown = connections.find(id)->holder;
  const std::optional<Holder>& before = group->view().membership.find(resume.peer)->holder;
  if (const auto refusal = refuse_return(resume.peer, before, shown)) {
    reject(id, *refusal);
    return {};
  }
  // The check comes first: Connections::admit() closes the present connection of the peer, and that
  // one may belong to a different process.
  const Status status = group->check(resume);
  if (!status.ok()) return status;
  set_holder(*group, resume.peer, connections.find(id)->holder);
  const bool member = group->view().membership.is_member(resume.peer);
  const bool registered = group->view().membership.find(resume.peer)->order != 0;
  connections.admit(id, resume.peer, group->id(),
                    member       ? ConnectionPhase::kMember
                    : registered ? ConnectionPhase::kRegistered
                                 : ConnectionPhase::kWelcomed);
  return group->back(resume);
}

// The log line lets the owner of the master revoke the earlier token, once all its peers show a
// different one.
void MasterCore::Impl::set_holder(Group& group, PeerId peer, const std::optional<Holder>& shown) {
  const std::optional<Holder> before = group.view().membership.find(peer)->holder;
  group.set_holder(peer, shown);
  if (before && shown && before->token != shown->token) {
    const Membership& membership = group.view().membership;
    context.log(LogLevel::kInfo, {LogEvent::kTokenChanged, group.id(), membership.name(peer)},
                membership.describe(peer) + " shows the token " + shown->token +
                    " now, and no longer " + before->token);
  }
}

void MasterCore::Impl::on(const Revoked& event) {
  for (const ConnectionId id : connections.pending_with(event.tokens))
    reject(id, {Code::kAuthentication, "its token was revoked"});
  groups.each([&](Group& group) {
    for (const PeerId peer : group.view().membership.holders_of(event.tokens)) {
      const std::string name = group.view().membership.find(peer)->holder->name;
      group.give_up(peer, "its token, of \"" + name + "\", was revoked, so it needs another one");
    }
  });
}

// The peer is in no group. If it waited for its admission when the master was killed, it continues
// to wait; otherwise it was declared lost.
Status MasterCore::Impl::back_from_nowhere(ConnectionId id, const protocol::Resume& resume) {
  std::string why = "peer " + text(resume.peer) + " was declared lost";
  bool remembered = false;
  const auto at = context.group_of.find(resume.peer);
  const Group* left = at == context.group_of.end() ? nullptr : groups.find(at->second);
  if (left != nullptr) {
    for (const auto& gone : left->view().membership.gone()) {
      if (gone.peer == resume.peer) why = gone.why, remembered = true;
    }
  }
  const bool forgotten = incarnation_of(resume.peer) < context.options.incarnation && !remembered;
  if (forgotten && !resume.epoch && resume.hello) {
    if (!refused(id, *resume.hello)) welcome(id, resume.peer, *resume.hello);
  } else {
    reject(id, context.ends ? protocol::Reject{Code::kMasterLost, protocol::kFarewellText}
                            : protocol::Reject{Code::kKicked, why});
  }
  return {};
}

// The run of a reconfigure has one group. A connection that has closed meanwhile has no peer.
void MasterCore::Impl::on(const RegroupAgreed& event) {
  std::vector<PeerId> members;
  for (const ConnectionId id : event.members) {
    const Connections::Connection* const open = connections.find(id);
    members.push_back(open == nullptr ? PeerId{} : open->peer);
  }
  groups.begin({}).regroup({event.uuid, std::move(members)});
}

void MasterCore::Impl::reject(ConnectionId id, const protocol::Reject& reject) {
  PCCL_ASSERT(reject.code != Code::kOk && !reject.text.empty());
  context.log(LogLevel::kInfo, {LogEvent::kRefused}, refusal_text(describe(id), reject));
  connections.send(id, reject);
  connections.close(id);
}

// ---- Messages ----

std::string MasterCore::Impl::describe(ConnectionId id) {
  const Connections::Connection* const found = connections.find(id);
  PCCL_ASSERT(found != nullptr);
  const Connections::Connection& connection = *found;
  const Group* group = connection.peer ? view.group_of(connection.peer) : nullptr;
  if (group == nullptr) return "a peer at " + connection.seen_host;
  return group->view().membership.describe(connection.peer);
}

Status MasterCore::Impl::on(Group& group, PeerId peer, const protocol::Leave&) {
  group.leave(peer);
  return {};
}

Status MasterCore::Impl::on(Group& group, PeerId peer, const protocol::JointAbort& abort) {
  const Epoch current = group.view().present.number();
  if (abort.epoch < current) return {};  // the peer sent it before the EpochStart arrived there
  if (abort.epoch != current) return violation("JointAbort in a future epoch");
  if (group.deciding()) return group.hold(peer, abort);
  give_up_joint_call(groups, group, peer, abort.number);
  return {};
}

// Whether a message is about operations, or about nothing that is decided. Other groups, and the
// rest of this group, need to react to such a message only while the topology of its group is being
// changed.
bool is_about_operations(const protocol::Message& message) {
  return std::holds_alternative<protocol::Begin>(message) ||
         std::holds_alternative<protocol::Done>(message) ||
         std::holds_alternative<protocol::AbortRequest>(message) ||
         std::holds_alternative<protocol::AbortAnswer>(message) ||
         std::holds_alternative<protocol::AwaitSend>(message) ||
         std::holds_alternative<protocol::Ping>(message) ||
         std::holds_alternative<protocol::Pong>(message) ||
         std::holds_alternative<protocol::Telemetry>(message);
}

// Whether the master can judge this message only if it has the messages from before its restart.
bool is_decided(const protocol::Message& message) {
  return std::holds_alternative<protocol::Begin>(message) ||
         std::holds_alternative<protocol::Done>(message) ||
         std::holds_alternative<protocol::AbortRequest>(message) ||
         std::holds_alternative<protocol::AbortAnswer>(message) ||
         std::holds_alternative<protocol::AwaitSend>(message) ||
         std::holds_alternative<protocol::StateReport>(message) ||
         std::holds_alternative<protocol::Vote>(message) ||
         std::holds_alternative<protocol::JointAbort>(message) ||
         std::holds_alternative<protocol::StateList>(message) ||
         std::holds_alternative<protocol::Fetched>(message);
}

Status MasterCore::Impl::receive(ConnectionId id, const protocol::Message& message) {
  Status status = connections.check(id, message);
  if (!status.ok()) return status;
  const Connections::Connection& connection = *connections.find(id);
  const PeerId peer = connection.peer;  // the call below may close the connection
  if (connection.phase == ConnectionPhase::kHandshaking) {
    return std::visit([&](const auto& content) { return admit(id, content); }, message);
  }
  if (const auto* pong = std::get_if<protocol::Pong>(&message)) {
    status = connections.confirm(id, pong->counter);
    if (!status.ok()) return status;
  }
  Group& group = groups.touch(connection.group);
  PCCL_ASSERT(group.view().membership.find(peer) != nullptr);
  if (group.view().epochs.recovering() && group.view().membership.is_member(peer) &&
      is_decided(message)) {
    return group.hold(peer, message);
  }
  status = std::visit([&](const auto& content) { return on(group, peer, content); }, message);
  if (is_about_operations(message)) {
    group.flush();
    quiet = status.ok() && !group.view().epochs.changing() && !group.view().epochs.losing() &&
            !group.optimization().waits();
  }
  return status;
}

void MasterCore::Impl::on(const Received& event) {
  if (connections.find(event.connection) == nullptr) return;  // closed by us meanwhile
  const Status status = receive(event.connection, event.message);
  if (!status.ok()) punish(event.connection, status);
}

// A member that holds more than its share is removed. One that breaks another rule loses its
// connection, but can resume, twice in an epoch: the bytes may have been damaged on the way
// (PROTOCOL.md, section 1).
void MasterCore::Impl::punish(ConnectionId id, const Status& why) {
  const PeerId peer = connections.find(id)->peer;
  Group* group = peer ? group_of(peer) : nullptr;
  const bool is_member = group != nullptr && group->view().membership.is_member(peer);
  if (!is_member) return cut_off(id, why.message);
  if (why.code == Code::kKicked) return group->give_up(peer, why.message);
  if (group->may_resume_after_breach(peer)) return cut_off(id, why.message);
  group->give_up(peer, "it broke rules again and again: " + why.message);
}

void MasterCore::Impl::cut_off(ConnectionId id, const std::string& why) {
  warn_closed(id, why);
  const PeerId peer = connections.find(id)->peer;
  connections.close(id);
  PCCL_ASSERT(!peer || !connections.connected(peer));
  Group* group = peer ? group_of(peer) : nullptr;
  if (group != nullptr) group->away(peer, why);
}

void MasterCore::Impl::warn_closed(ConnectionId id, const std::string& why) {
  context.log(LogLevel::kWarning, {LogEvent::kConnectionClosed},
              "closed the connection of " + describe(id) + ": " + why);
}

void MasterCore::Impl::on(const Closed& event) {
  const Connections::Connection* connection = connections.find(event.connection);
  if (connection == nullptr) return;  // closed by us
  if (event.refused) warn_closed(event.connection, event.why);
  const PeerId peer = connection->peer;
  connections.forget(event.connection);
  PCCL_ASSERT(!peer || !connections.connected(peer));
  Group* group = peer ? group_of(peer) : nullptr;
  if (group != nullptr) group->away(peer, event.refused ? event.why : std::string());
}

// ---- Time and progress ----

void MasterCore::Impl::on(const Persisted& event) {
  const auto persisted = context.persisting.extract(event.token);
  if (persisted.empty() || groups.find(persisted.mapped()) == nullptr) return;
  groups.touch(persisted.mapped()).persisted(event.token);
}

void MasterCore::Impl::on(const RingPlanned& event) {
  if (groups.find(event.group) != nullptr) groups.touch(event.group).planned(event);
}

// Notices that this process was stopped: the beat is late by half of peer_timeout, the time that
// peers wait for an unresponsive master. Before the first step there is no earlier beat to compare
// with.
void MasterCore::Impl::notice_stop() {
  const bool late = next_beat && now >= *next_beat + context.settings.peer_timeout / 2;
  if (late && awake) {
    grace_until = now + context.settings.peer_timeout;
    groups.each([](Group& group) { group.excuse_members(); });
  }
  awake = true;
  context.was_paused = now < grace_until;
}

void MasterCore::Impl::on(const TimePassed&) {
  quiet = true;
  if (!next_beat || now < *next_beat) return;
  quiet = false;
  // A late call counts as one beat, however late it is. So messages that have arrived meanwhile can
  // show that their senders live, before these count as silent.
  next_beat = now + protocol::beat_of(context.settings.peer_timeout);
  for (const ConnectionId id : connections.beat()) {
    const Connections::Connection* connection = connections.find(id);
    if (connection == nullptr) continue;
    Group* group = connection->peer ? group_of(connection->peer) : nullptr;
    if (group == nullptr) {
      connections.close(id);
    } else {
      group->give_up(connection->peer, "it was silent for " + text(context.settings.peer_timeout),
                     LossCause::kSilence);
    }
    PCCL_ASSERT(connections.find(id) == nullptr);
  }
  ask_members();
  if (++beats % static_cast<uint64_t>(protocol::beats_per_tick(context.settings.peer_timeout)) != 0)
    return;
  groups.each([](Group& group) {
    for (const PeerId peer : group.tick()) {
      PCCL_ASSERT(group.view().membership.is_member(peer));
      group.give_up(peer, "it has more than " + std::to_string(protocol::kOpsOpenMax) +
                              " verdicts not acknowledged");
    }
  });
  groups.each([this](Group& group) { group.report(described_waits(groups, group)); });
}

void MasterCore::Impl::ask_members() {
  std::vector<PeerId> members;
  for (const auto& [id, group] : groups.all()) {
    const auto& some = group.view().membership.members();
    members.insert(members.end(), some.begin(), some.end());
  }
  telemetries.update(members);
}

// Processes held messages. Returns whether there were any.
bool MasterCore::Impl::handle_held() {
  bool any = false;
  groups.each_due(quiet, [&](Group& group) {
    for (const HeldMessages::Held& held : group.take_held()) {
      any = true;
      groups.touch(group.id());
      if (!connections.connected(held.peer)) continue;
      const Status status = std::visit(
          [&](const auto& content) { return on(group, held.peer, content); }, held.message);
      if (!status.ok()) punish(connections.of(held.peer), status);
    }
  });
  return any;
}

bool MasterCore::Impl::watch_members() {
  bool any = false;
  groups.refresh();
  groups.each_due(quiet, [&](Group& group) {
    const bool is_new = group.view().has_members() && group.view().is_new();
    const bool removed = group.watch_newcomers(is_new ? awaited_by_others(groups) : "");
    const bool late = group.watch_late_members();
    const bool lied = group.remove_liars();
    if (group.watch_cycles() || late || lied || removed || group.optimization().is_late()) {
      any = true;
      groups.touch(group.id());
    }
    groups.refresh();  // a removal can end the wait in another group, which is judged next
  });
  return any;
}

// The peers are not asked to come back: they would fill the run again.
void MasterCore::Impl::end_run(const std::string& why, LogLevel level) {
  context.log(level, {LogEvent::kRunEnded}, "the run is ended: " + why);
  groups.each([&](Group& group) {
    std::vector<PeerId> peers;
    for (const auto& [peer, about] : group.view().membership.peers()) peers.push_back(peer);
    for (const PeerId peer : peers)
      group.give_up(peer, "the run was ended: " + why, LossCause::kEnded);
    PCCL_ASSERT(group.view().membership.empty());
  });
  quiet = false;
}

void MasterCore::Impl::end_if_exceeded() {
  if (context.excess.empty()) return;
  end_run(std::exchange(context.excess, {}), LogLevel::kError);
}

// The walk makes every group end its epoch. Then no operation is open that its members could still
// commit among themselves after the master is gone.
void MasterCore::Impl::on(const Draining&) {
  connections.request_confirmations();
  if (std::exchange(context.ends, true)) return;
  groups.each([](Group&) {});
}

// Every peer has confirmed all decisions, so all can be dismissed in one step.
void MasterCore::Impl::dismiss_all() {
  if (!context.ends || !view.is_settled()) return;
  groups.each([](Group& group) { group.say_farewell(); });
  groups.each([](Group& group) {
    group.dismiss();
    PCCL_ASSERT(group.view().membership.empty());
  });
}

void MasterCore::Impl::look_at_exit() {
  if (!exit.wants()) return;
  const auto& all = groups.all();
  const bool peers = !groups.with(Groups::Trait::kPeopled).empty();
  const bool busy = std::any_of(all.begin(), all.end(),
                                [](const auto& group) { return group.second.view().is_busy(); });
  exit.look(peers, busy, now);
}

void MasterCore::Impl::settle() {
  if (context.ends) quiet = false;
  groups.touch_overdue(now);
  if (watch_members()) quiet = false;
  end_if_exceeded();
  for (int round = 0; round < 2 && !quiet; ++round) {
    groups.each_due(quiet, [](Group& group) { group.advance(); });
    if (handle_held()) round = -1;
    settle_joint_calls(groups);
    if (watch_members()) round = -1;
    end_if_exceeded();
  }
  groups.each_due(quiet, [](Group& group) { group.flush(); });
  dismiss_all();
  forget_groups();
  quiet = false;
}

void MasterCore::Impl::forget_groups() {
  groups.forget(quiet);
  groups.end_step(quiet);
  if (!groups.with(Groups::Trait::kPeopled).empty()) return;
  PCCL_ASSERT(connections.assigned() == 0 && context.held_bytes == 0);
  next_beat.reset();
}

void MasterCore::Impl::check() const {
  if (!awake) return;  // the first step puts the restored values in order
  connections.check();
  groups.check();
  context.history.check();
  telemetries.check();
  const bool peopled = !groups.with(Groups::Trait::kPeopled).empty();
  PCCL_ASSERT(next_beat.has_value() == peopled);
  PCCL_ASSERT(protocol::check(give_all(context.settings)).ok());
  PCCL_ASSERT(context.excess.empty() && context.effects == nullptr);
  for (const auto& [token, group] : context.persisting) PCCL_ASSERT(token <= context.tokens);
}

void MasterCore::Impl::check_sometimes() {
  constexpr size_t kCheckedAlways = 100;  // up to this Groups::weight(), every step is checked
  if (++unchecked * kCheckedAlways < groups.weight()) return;
  unchecked = 0;
  check();
}

// ---- The core ----

MasterCore::MasterCore(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
MasterCore::MasterCore(Options options, const RunRecord& remembered)
    : MasterCore(std::move(options)) {
  impl_->restore(remembered);
}
MasterCore::~MasterCore() = default;
MasterCore::MasterCore(MasterCore&&) noexcept = default;
MasterCore& MasterCore::operator=(MasterCore&&) noexcept = default;

void MasterCore::step(const Event& event, Instant now, Effects& effects) {
  PCCL_ASSERT(impl_->context.effects == nullptr && !impl_->quiet);
  PCCL_ASSERT(!impl_->awake || now >= impl_->now);
  impl_->now = impl_->context.now = now;
  impl_->context.effects = &effects;
  impl_->notice_stop();
  std::visit([this](const auto& what) { impl_->on(what); }, event);
  impl_->settle();
  impl_->look_at_exit();
  impl_->context.effects = nullptr;
#ifndef NDEBUG
  impl_->check_sometimes();
#endif
}

void MasterCore::check() const { impl_->check(); }

std::optional<Instant> MasterCore::deadline() const {
  std::optional<Instant> first;
  for (const auto& one : {impl_->next_beat, impl_->groups.deadline(), impl_->exit.deadline()}) {
    if (one && (!first || *one < *first)) first = one;
  }
  return first;
}

const RunView& MasterCore::view() const { return impl_->view; }

}  // namespace pccl::master
