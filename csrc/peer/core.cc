// The life of a peer, in order: join, Hello, Welcome, Register, EpochStart; then calls, verdicts
// and epochs until the peer leaves, is kicked, or loses its master. The table of phases is in
// membership.cc. The parts reach each other only through this file. For example, an EpochEnd first
// breaks the group, then settles the operations, then stops the transfers of shared state.

#include "csrc/peer/core.h"

#include <algorithm>
#include <utility>

#include "csrc/peer/blocking.h"
#include "csrc/peer/connection.h"
#include "csrc/peer/joining.h"
#include "csrc/peer/joint.h"
#include "csrc/peer/link_probe.h"
#include "csrc/peer/master_search.h"
#include "csrc/peer/membership.h"
#include "csrc/peer/operations.h"
#include "csrc/peer/registration.h"
#include "csrc/peer/reporter.h"
#include "csrc/peer/state/state_sync.h"
#include "csrc/peer/token_choice.h"

namespace pccl::peer {

using protocol::JointKind;

namespace {

// The error of a removed peer. If the peer was never admitted, the reason of the master, `why`,
// names the remedy already.
std::string removed_text(const std::string& why, bool was_member) {
  return "this process was removed from the run: " + why +
         (was_member ? "; call destroy_process_group(), then join again" : "");
}

// Number of violations after which the peer gives up its master: the master would go on breaking
// the protocol.
constexpr int kViolationsMax = 3;
// Builds without NDEBUG check the invariants after every step if there are at most this many
// operations, and less often if there are more, so that a step stays cheap.
[[maybe_unused]] constexpr size_t kOpsCheckedAlways = 64;

}  // namespace

struct PeerCore::Impl {
  explicit Impl(Options options) {
    options.join_timeout = std::min(options.join_timeout, kForever);
    options.master_timeout = std::min(options.master_timeout, kForever);
    context.options = std::move(options);
    context.settings = settings_of_first(context.options.given);
  }

  void on(const JoinCalled& event);
  void on(const OpCalled& event);
  void on(const OpStaged& event) { operations.staged(event.handle, event.status); }
  void on(const JointCalled& event);
  void on(const JointAwaited& event) {
    if (joint.open() && joint.open()->handle == event.handle) joint.await(!repeats_vote);
  }
  void on(const JointGivenUp& event);
  void on(const JointConcluded& event) { sync.concluded(event.handle); }
  void on(const LeaveCalled& event);
  void on(const TopologyAsked&) { membership.topology_asked(operations.in_flight()); }
  void on(const WaitsSeen& event) { blocking.seen(event); }
  void on(const TelemetrySampled& event) { reporter.sampled(event.telemetry); }
  void on(const MasterConnected& event);
  void on(const MasterClosed& event);
  void on(const MasterSent& event);
  void on(const TokenRead& event) { tokens.read(event.number); }
  void on(const Listening& event);
  void on(const LinkChanged& event) {
    if (membership.welcomed()) membership.link_changed(event.report, !resuming);
  }
  void on(const RateMeasured& event) {
    if (membership.welcomed()) membership.rate_measured(event.link);
  }
  void on(const OpTransferred& event);
  void on(const OpProgressed& event) {
    operations.progressed(event.epoch, event.op, event.finished, event.absent);
    sync.progressed(event.epoch, event.op);
  }
  void on(const OpAgreed& event) { operations.agreed(event.epoch, event.op); }
  void on(const OpDrained& event);
  void on(const OpFailed& event);
  void on(const LinkSampled& event) { probe.sampled(event); }
  void on(const PieceRequested& event) { sync.requested(event); }
  void on(const PieceChecked& event) { sync.checked(event); }
  void on(const TimePassed& event);

  // Messages from the master that the phase allows. kProtocol if a message makes no sense.
  Status on_message(const protocol::Reject& reject);
  Status on_message(const protocol::Welcome& welcome);
  Status on_message(const protocol::Ping& ping) {
    context.send(protocol::Pong{ping.counter, operations.verdicts_seen(), membership.epoch()});
    return {};
  }
  Status on_message(const protocol::Dial& dial) { return membership.dial(dial); }
  Status on_message(const protocol::Forget& forget) {
    membership.forget(forget.peer);
    return {};
  }
  Status on_message(const protocol::Notice& notice) {
    joining.on_notice(notice.text);
    return {};
  }
  Status on_message(const protocol::EpochStart& start);
  Status on_message(const protocol::FreezeRequest& freeze);
  Status on_message(const protocol::Verdicts& verdicts) { return operations.on_verdicts(verdicts); }
  Status on_message(const protocol::AbortProposal& what) {
    return operations.on_abort_proposal(what);
  }
  Status on_message(const protocol::SendBegun& send) { return operations.on_send_begun(send); }
  Status on_message(const protocol::EpochEnd& end);
  Status on_message(const protocol::Answer& answer);
  Status on_message(const protocol::SyncPlan& plan) {
    return joint.open() ? sync.on_plan(plan, *joint.open()) : violation("SyncPlan without a call");
  }
  Status on_message(const protocol::Regrouped& answer) {
    const Status status = joint.on(answer);
    finish_joint_if_drained();
    return status;
  }
  Status on_message(const protocol::ListRequest& request) { return joint.list(request); }
  Status on_message(const protocol::Probe& told) { return probe.begin(told); }
  Status on_message(const protocol::Observe& observe) { return reporter.on(observe); }
  Status on_message(const protocol::Kicked& kicked);
  Status on_message(const protocol::Farewell&);
  Status on_message(const protocol::Resumed& resumed);
  // Only Pong comes here: Membership::check() has refused all other messages.
  Status on_message(const auto&) { return {}; }

  Status reconfigure(const protocol::EpochStart& start);
  void repeat_vote_when_restarted();
  void resume();
  void connection_lost(const std::string& why, bool planned = false, bool refused = false);
  bool may_change_token() const;
  void change_token_if_due();
  void on_violation(const Status& what);
  void finish_joint_if_drained();
  void end(const Status& calls_fail_with, const Status& gone_with);
  void end(const Status& why);
  void finish_ending();
  Status no_member(const char* what) const;
  std::string master() const { return context.master(); }
  std::optional<Instant> deadline() const;
  void check() const;
  void check_joint() const;

  Context context;
  TokenChoice tokens{context};
  Connection connection{context, tokens};
  MasterSearch search{context};
  Membership membership{context};
  Joining joining{context, membership};
  Operations operations{context, membership};
  Joint joint{context, membership};
  Blocking blocking{context, membership, operations, joint};
  StateSync sync{context, membership};
  LinkProbe probe{context, membership};
  Reporter reporter{context, membership};
  Registration registration{context};

  bool resuming = false;      // Resume was sent, and Resumed was not received yet
  bool dismissed = false;     // the master has sent Farewell to this member
  bool repeats_vote = false;  // the open vote is cast again once all operations have begun
  int violations = 0;
  uint64_t ping_counter = 0;
  Status ended;  // error of all calls from now on
  Status gone;
  bool lingers = false;  // Gone::lingers
  size_t unchecked = 0;  // steps since the last check
};

// ---- The application ----

void PeerCore::Impl::on(const JoinCalled& event) {
  joining.begin(event.handle);
  membership.enter(Phase::kConnecting);
  connection.open();
}

Status PeerCore::Impl::no_member(const char* what) const {
  if (membership.out()) return {ended.code, std::string(what) + ": " + ended.message, ended.peer};
  if (membership.phase() == Phase::kMember) return {};
  return {
      Code::kInvalidState, std::string(what) + " before this process was admitted to the run", {}};
}

void PeerCore::Impl::on(const OpCalled& event) {
  blocking.called();
  const Status status = no_member(text(event.request.kind));
  if (status.ok()) return operations.call(event.request, sync.fetches());
  context.emit(FinishOp{event.request.handle, status, {}, {}, {}});
}

void PeerCore::Impl::on(const JointCalled& event) {
  blocking.called();
  if (event.rendezvous && (!context.linked || resuming)) return context.emit(refused(event, {}));
  const bool updates = event.kind == JointKind::kUpdateTopology;
  Status status = no_member(text(event.kind));
  if (status.ok() && (!updates || dismissed) && !membership.broken().ok()) {
    status = membership.broken();
    status.message = std::string(text(event.kind)) + ": " + status.message;
  }
  const bool closes = closes_posting(event.kind);
  if (status.ok() && closes) membership.tell_rates();
  if (status.ok()) status = joint.call(event, !repeats_vote);
  if (status.ok()) {
    if (closes) operations.close_posting();
    return;
  }
  context.emit(refused(event, status));
}

void PeerCore::Impl::on(const JointGivenUp& event) {
  if (!joint.open() || joint.open()->handle != event.handle) return;
  if (sync.planned() == event.handle && sync.give_up()) return;
  joint.give_up();
}

void PeerCore::Impl::on(const LeaveCalled&) {
  if (membership.out()) return;
  if (membership.welcomed()) context.send(protocol::Leave{});
  lingers = context.settings.on_peer_loss == protocol::LossPolicy::kRaise && operations.any_done();
  end({Code::kInvalidState, "this process has left the run", {}}, {});
}

// ---- The connection to the master ----

void PeerCore::Impl::on(const MasterConnected& event) {
  if (membership.out()) return;
  connection.on_connected();
  context.linked = true;
  if (membership.welcomed()) return resume();
  membership.enter(Phase::kHandshaking);
  context.send(joining.hello());
  if (registration.ready()) return registration.tell();
  if (event.elsewhere) registration.open_listener(false);
}

void PeerCore::Impl::resume() {
  PCCL_ASSERT(!resuming && search.under_way());
  resuming = true;
  protocol::Resume resume;
  resume.versions = context.options.versions;
  resume.run = context.options.run;
  resume.run_id = membership.run_id();
  resume.peer = membership.self();
  resume.epoch = membership.epoch();
  resume.ended = membership.ended();
  operations.describe(resume);
  PCCL_ASSERT(resume.ops.size() == resume.infos.size());
  resume.needs_reconfiguration = membership.needs_reconfiguration();
  joint.describe(resume);
  resume.standing = context.standing;
  if (membership.phase() != Phase::kMember) resume.hello = joining.hello();
  context.send(std::move(resume));
}

void PeerCore::Impl::on(const MasterClosed& event) {
  if (membership.out()) return;
  connection.on_closed();
  if (event.why.code == Code::kProtocol) return on_violation(event.why);
  const bool refused = event.why.code == Code::kAuthentication;
  const bool planned = refused && tokens.refused(event.why.message);
  if (refused && !planned && !membership.welcomed() && joining.on_refusal()) return end(event.why);
  connection_lost(event.why.message, planned, event.refused);
}

// `planned`: the next connection shows another token, so a person has nothing to do.
void PeerCore::Impl::connection_lost(const std::string& why, bool planned, bool refused) {
  PCCL_ASSERT(!connection.up());
  resuming = false;
  if (membership.phase() == Phase::kHandshaking) membership.enter(Phase::kConnecting);
  if (joining.meets() && !planned) return end(host_lost(*joining.meets(), why));
  if (joint.meets() && !planned) return end(joint.host_lost(why));
  if (!membership.welcomed()) return search.failed(why);
  search.begin(why, planned, refused);
  if (const Status over = search.over(); !over.ok()) end(over);
}

// Whether the peer may connect again to show another token: only a peer that the master has
// answered is taken back.
bool PeerCore::Impl::may_change_token() const {
  return connection.up() && membership.welcomed() && !resuming;
}

void PeerCore::Impl::change_token_if_due() {
  if (!may_change_token() || !tokens.due()) return;
  context.note(LogLevel::kInfo, LogEvent::kTokenChanged,
               "this peer has a new token, and shows it to the " + master());
  connection.drop();
  connection_lost("this peer has a new token", true);
}

// Closes the connection and then resumes it, since the fault may be a temporary one. The peer ends
// if it is not a member yet, or after kViolationsMax violations.
void PeerCore::Impl::on_violation(const Status& what) {
  PCCL_ASSERT(what.code == Code::kProtocol);
  context.note(LogLevel::kWarning, LogEvent::kConnectionClosed,
               "the " + master() + " broke the protocol: " + what.message);
  if (membership.phase() != Phase::kMember || ++violations >= kViolationsMax) {
    return end({Code::kProtocol, "the " + master() + " broke the protocol: " + what.message, {}});
  }
  if (connection.up()) connection.drop();
  connection_lost(what.message);
}

void PeerCore::Impl::on(const MasterSent& event) {
  if (membership.out() || !connection.up()) return;
  connection.received();
  Status status = membership.check(event.message, resuming);
  if (status.ok())
    status = std::visit([&](const auto& message) { return on_message(message); }, event.message);
  if (!status.ok()) on_violation(status);
}

Status PeerCore::Impl::on_message(const protocol::Reject& reject) {
  const Phase phase = membership.phase();
  PCCL_ASSERT(resuming || phase < Phase::kMember);
  if (!resuming) {  // the Hello or the Register
    end({reject.code == Code::kOk ? Code::kProtocol : reject.code, reject.text, {}});
  } else if (reject.code == Code::kAuthentication && tokens.refused(reject.text)) {
    connection.drop();
    connection_lost(reject.text, true);
  } else if (phase != Phase::kMember) {
    end({Code::kMasterLost,
         "the connection to the " + master() + " broke while this process waited to be admitted (" +
             search.why() + "), and the master has given it up (" + reject.text + "): join again",
         {}});
  } else if (reject.code == Code::kKicked) {
    end({Code::kKicked, removed_text(reject.text, true), {}});
  } else {
    end({Code::kMasterLost,
         "the " + master() + " does not take this peer back: " + reject.text,
         {}});
  }
  return {};
}

Status PeerCore::Impl::on_message(const protocol::Welcome& welcome) {
  if (const Status bad = joining.check(welcome); !bad.ok()) return bad;
  membership.enter(Phase::kWelcomed);
  membership.welcome(welcome);
  joining.on_welcome();
  context.settings = welcome.settings;
  connection.welcomed();
  std::optional<protocol::AcceptingKey> accepting;
  if (welcome.accepting) accepting = {welcome.incarnation, *welcome.accepting};
  context.emit(AcceptAs{welcome.peer, welcome.run_id, welcome.version, accepting,
                        welcome.settings.peer_timeout});
  if (!registration.ready()) {
    registration.open_listener(welcome.loopback_only);
  } else {
    membership.enter(Phase::kRegistered);  // Register has followed the Hello
  }
  return {};
}

Status PeerCore::Impl::on_message(const protocol::Resumed& resumed) {
  PCCL_ASSERT(resuming && search.under_way());
  const bool restarted = resumed.incarnation > membership.incarnation();
  if (restarted) {
    sync.master_restarted();
    reporter.stop();
  }
  if (!membership.accept_incarnation(resumed.incarnation)) {
    connection.drop();
    connection_lost("that master is older than the one before");
    return {};
  }
  if (resumed.accepting.has_value() != membership.secured())
    return violation(resumed.accepting ? "Resumed with a key in a run that is not secured"
                                       : "Resumed without a key");
  resuming = false;
  if (restarted) membership.master_restarted(resumed.members);
  if (resumed.accepting) context.emit(AcceptWith{{resumed.incarnation, *resumed.accepting}});
  connection.welcomed();
  search.found();
  if (membership.phase() == Phase::kRegistered) registration.tell();
  operations.repeat_requests();
  if (!repeats_vote) joint.repeat();
  blocking.repeat();
  sync.repeat();
  membership.repeat_reports();
  return {};
}

Status PeerCore::Impl::on_message(const protocol::Kicked& kicked) {
  const bool was_member = membership.phase() == Phase::kMember;
  end({Code::kKicked, removed_text(kicked.text, was_member), {}});
  return {};
}

// If the epoch has ended before Farewell and nothing continues, no operation is in doubt. No
// warning is needed, since most programs end at this time as well. The group is then broken for
// good, and calls fail with this error. Only an operation whose verdict came before its call ends
// by that verdict.
Status PeerCore::Impl::on_message(const protocol::Farewell&) {
  context.note(LogLevel::kInfo, LogEvent::kMasterGone, protocol::kFarewellText);
  if (!membership.ended() ||
      membership.continues()) {  // this peer is no member yet, or operations are in doubt
    end({Code::kMasterLost, protocol::kFarewellText, {}});
    return {};
  }
  dismissed = true;
  connection.close();
  membership.be_dismissed();
  if (!joint.open() || joint.open()->result) return {};
  protocol::Answer answer;
  answer.number = joint.open()->vote.number;
  answer.kind = joint.open()->vote.kind;
  answer.code = Code::kMasterLost;
  answer.text = protocol::kFarewellText;
  return on_message(answer);
}

// ---- Joining ----

void PeerCore::Impl::on(const Listening& event) {
  if (membership.out()) return;
  if (!event.port.ok() && membership.welcomed()) context.send(protocol::Leave{});
  if (!event.port.ok()) return end(event.port.status());
  Result<uint16_t> port = event.port;
  registration.opened(port.value(), event.hosts);
  if (membership.phase() == Phase::kConnecting) return;  // Register follows the next Hello
  if (membership.phase() == Phase::kWelcomed) membership.enter(Phase::kRegistered);
  registration.tell();
}

// ---- Links and epochs ----

Status PeerCore::Impl::on_message(const protocol::EpochStart& start) {
  const bool newcomer = membership.phase() != Phase::kMember;
  if (newcomer && membership.phase() != Phase::kRegistered)
    return violation("EpochStart before Register");
  if (!newcomer && start.generation == membership.generation()) return reconfigure(start);
  if (!newcomer && !joint.waits_for(JointKind::kUpdateTopology))
    return violation("EpochStart without a vote");
  if (!operations.settled())
    return violation("EpochStart before the operations of the last were settled");
  probe.stop();
  const Status status = membership.begin(start);
  if (!status.ok()) return status;
  operations.begin_generation();
  joint.agreed(start.together, false);
  FinishJoint result;
  result.topology = membership.topology();
  if (newcomer) {
    membership.enter(Phase::kMember);
    joining.on_admission();
    joint.begin_generation();
    result.handle = joining.handle();
    context.emit(std::move(result));
  } else {
    context.took_part(protocol::Standing::kCalled);
    joint.settle(std::move(result));
    joint.begin_generation();
    finish_joint_if_drained();
  }
  return {};
}

Status PeerCore::Impl::reconfigure(const protocol::EpochStart& start) {
  if (!membership.continues()) {
    return violation("EpochStart of a reconfiguration after an epoch that does not continue");
  }
  const Status status = membership.begin(start);
  if (!status.ok()) return status;
  const bool broken = !membership.broken().ok();
  if (!start.left.empty() && !broken) context.emit(Reconfigured{membership.topology()});
  operations.reconfigure();
  repeats_vote = true;
  repeat_vote_when_restarted();
  return {};
}

// The vote leaves after the last Begin, because a vote for update_topology closes posting: the
// master expects no Begin after it.
void PeerCore::Impl::repeat_vote_when_restarted() {
  if (!repeats_vote || membership.frozen() || !operations.reconfigured()) return;
  repeats_vote = false;
  joint.repeat();
}

Status PeerCore::Impl::on_message(const protocol::FreezeRequest& freeze) {
  const Status status = membership.freeze(freeze);
  if (!status.ok()) return status;
  membership.tell_rates();
  context.send(operations.freeze());
  return {};
}

Status PeerCore::Impl::on_message(const protocol::EpochEnd& end) {
  Status status = operations.check(end);
  if (status.ok()) status = membership.end(end, !operations.settled() || joint.open() != nullptr);
  if (!status.ok()) return status;
  operations.on_epoch_end(end);
  membership.continues() ? sync.reconfigure() : sync.stop();
  probe.stop();
  // If nothing continues, no operation begins again, and the vote need not wait any longer.
  if (!membership.continues() && std::exchange(repeats_vote, false)) joint.repeat();
  return {};
}

// ---- Joint calls ----

Status PeerCore::Impl::on_message(const protocol::Answer& answer) {
  if (joint.repeated(answer)) return {};
  Status status = joint.check(answer);
  if (!status.ok()) return status;
  status = {answer.code, answer.text, {}};
  if (!status.ok()) status.message = std::string(text(answer.kind)) + ": " + answer.text;
  const bool syncs = answer.kind == JointKind::kSyncSharedState;
  FinishJoint result = syncs ? sync.settle(*joint.open(), status, answer) : FinishJoint{};
  result.status = status;
  if (status.ok()) {
    if (answer.kind == JointKind::kUpdateTopology) {
      result.topology = membership.seen().show_with_routes(membership.topology());
    }
    result.pending = answer.pending;
    result.plan = answer.plan;
    if (answer.plan) result.topology = membership.seen().with_routes(membership.topology());
    context.took_part(standing_after(answer.kind));
    if (syncs) {
      result.revision = answer.revision;
      result.state_hash = answer.state_hash;
    }
  }
  joint.settle(std::move(result), answer);
  finish_joint_if_drained();
  return {};
}

void PeerCore::Impl::finish_joint_if_drained() {
  if (!joint.open() || !joint.open()->result || sync.busy()) return;
  const JointKind kind = joint.open()->vote.kind;
  if (joint.awaits_operations() && !operations.drained_all()) return;
  joint.finish();
  if (closes_posting(kind)) operations.open_posting();
}

// ---- The ring ----

void PeerCore::Impl::on(const OpTransferred& event) {
  const auto& [epoch, op, absent] = event;
  PCCL_ASSERT(operations.transferred(epoch, op, absent) || sync.transferred(epoch, op) ||
              probe.transferred(epoch, op));
}

void PeerCore::Impl::on(const OpDrained& event) {
  // A committed operation is in none of these parts, because its memory was returned at once.
  if (!operations.drained(event.epoch, event.op) && !sync.drained(event.epoch, event.op))
    probe.drained(event.epoch, event.op);
  if (membership.out()) return finish_ending();
  repeat_vote_when_restarted();
  finish_joint_if_drained();
}

void PeerCore::Impl::on(const OpFailed& event) {
  const auto& [epoch, op, why] = event;
  PCCL_ASSERT(operations.failed(epoch, op, why) || sync.failed(epoch, op, why) ||
              probe.failed(epoch, op));
}

// ---- The end ----

void PeerCore::Impl::end(const Status& calls_fail_with, const Status& gone_with) {
  const bool joins = membership.phase() != Phase::kIdle && membership.phase() < Phase::kMember;
  PCCL_ASSERT(!calls_fail_with.ok());
  membership.enter(Phase::kEnding);
  ended = calls_fail_with;
  gone = gone_with;
  connection.close();
  if (joins) {
    context.emit(
        FinishJoint{.handle = joining.handle(), .status = ended, .topology = {}, .install = {}});
  }
  operations.end(ended);
  sync.stop();
  probe.stop();
  finish_ending();
}

void PeerCore::Impl::end(const Status& why) {
  search.give_up(why);
  end(why, why);
}

void PeerCore::Impl::finish_ending() {
  const bool drained = operations.drained_all() && !sync.busy() && !probe.busy();
  if (membership.phase() != Phase::kEnding || !drained) return;
  if (joint.open()) {
    if (!joint.open()->result) {
      const Status status =
          joint.meets() ? joint.outcome(ended) : no_member(text(joint.open()->vote.kind));
      joint.settle(FinishJoint{.status = status, .topology = {}, .install = {}});
    }
    joint.finish();
  }
  PCCL_ASSERT(operations.size() == 0);
  membership.enter(Phase::kGone);
  context.emit(Gone{gone, lingers});
}

// ---- Time ----

void PeerCore::Impl::on(const TimePassed&) {
  if (membership.phase() == Phase::kIdle || membership.out()) return;
  if (const Status status = joining.on_time(search.why()); !status.ok()) return end(status);
  const auto pass_time = [](auto&... part) { (part.on_time(), ...); };
  pass_time(operations, blocking, reporter, joint, sync, probe);
  if (joint.overdue()) return end(joint.host_lost("it does not answer"));
  if (const Status status = search.over(); !status.ok()) return end(status);
  const Connection::Due due = connection.on_time();
  if (due == Connection::Due::kPing) {
    context.send(protocol::Ping{++ping_counter, operations.verdicts_seen(), membership.epoch()});
  } else if (due == Connection::Due::kSilent) {
    connection.drop();
    connection_lost("silent for " + text(context.settings.peer_timeout));
  }
  change_token_if_due();
}

std::optional<Instant> PeerCore::Impl::deadline() const {
  if (membership.phase() == Phase::kIdle || membership.out()) return std::nullopt;
  std::optional<Instant> first = connection.deadline();
  const auto also = [&first](const auto& part) {
    const std::optional<Instant> at = part.deadline();
    if (at && (!first || *at < *first)) first = at;
  };
  const auto all = [&also](const auto&... part) { (also(part), ...); };
  all(joining, operations, blocking, reporter, joint, sync, probe, search);
  if (may_change_token()) also(tokens);
  return first;
}

// ---- Invariants ----

void PeerCore::Impl::check() const {
  const auto check_all = [](const auto&... part) { (part.check(), ...); };
  check_all(connection, tokens, search, membership, operations, joint, blocking, sync, probe);
  const Phase phase = membership.phase();
  const bool up = connection.up();
  PCCL_ASSERT(context.effects == nullptr && context.linked == up);
  PCCL_ASSERT(phase != Phase::kHandshaking || up);
  PCCL_ASSERT((phase != Phase::kIdle && phase != Phase::kConnecting && !membership.out()) || !up);
  PCCL_ASSERT(!resuming || membership.out() || (up && membership.welcomed()));
  const bool awaits_master = membership.welcomed() && !dismissed;
  PCCL_ASSERT(!awaits_master || search.under_way() == (!up || resuming));
  PCCL_ASSERT(!dismissed || (!up && !search.under_way() && operations.settled()));
  if (!membership.out()) return check_joint();
  PCCL_ASSERT(operations.settled() && !ended.ok());
  if (phase == Phase::kGone) {
    PCCL_ASSERT(operations.drained_all() && !sync.busy() && !probe.busy() && !joint.open());
  }
}

void PeerCore::Impl::check_joint() const {
  const Joint::OpenCall* const open = joint.open();
  const bool updates = open != nullptr && open->vote.kind == JointKind::kUpdateTopology;
  PCCL_ASSERT(operations.posting_closed() == (open && closes_posting(open->vote.kind)));
  PCCL_ASSERT(!open || membership.phase() == Phase::kMember);
  if (open != nullptr && open->result)
    PCCL_ASSERT(sync.busy() || (updates && !operations.drained_all()));
  const auto planned = sync.planned();
  PCCL_ASSERT(!planned || (open != nullptr && !open->result && open->handle == *planned));
  PCCL_ASSERT(!repeats_vote || membership.frozen() || !operations.reconfigured() ||
              !operations.drained_all());
}

// ---- The core ----

PeerCore::PeerCore(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
PeerCore::~PeerCore() = default;
PeerCore::PeerCore(PeerCore&&) noexcept = default;
void PeerCore::step(const Event& event, Instant now, Effects& effects) {
  PCCL_ASSERT(impl_->context.effects == nullptr && impl_->context.now <= now);
  impl_->context.now = now;
  impl_->context.effects = &effects;
  std::visit([&](const auto& what) { impl_->on(what); }, event);
  impl_->blocking.update();
  impl_->context.effects = nullptr;
  PCCL_DCHECK(!std::holds_alternative<TimePassed>(event) ||
              deadline().value_or(now + Duration{1}) > now);  // all due work is done
#ifndef NDEBUG
  if (++impl_->unchecked * kOpsCheckedAlways < impl_->operations.size()) return;
  impl_->unchecked = 0;
  check();
#endif
}

std::optional<Instant> PeerCore::deadline() const { return impl_->deadline(); }
const Status& PeerCore::broken() const { return impl_->membership.broken(); }
const protocol::RunSettings& PeerCore::settings() const { return impl_->context.settings; }
void PeerCore::check() const { impl_->check(); }

}  // namespace pccl::peer
