// Epochs: the sequence of epochs of one peer group (PROTOCOL.md, sections 2 to 5). An epoch is
// founded, changed by agreement, or ended by a loss. This class keeps the operations of the current
// epoch, sends verdicts to its members, and sends freeze requests to the survivors of a loss. The
// table of phases is in epochs.cc.
// Group owns it. It gets agreed changes, and losses of members with their reasons, from group.cc.
// The consequences follow in advance(), at the end of every step.
// Invariants:
// 1. A new membership, and verdicts after a loss, are sent only after they are durable.
// 2. The members of the present epoch are those at its beginning, less those lost since. Its
//    operations and its verdicts know the same members.
// 3. There is an epoch if and only if there are members.
// 4. While a membership is decided (kStarting, kEnding), its record is being made durable.
// 5. A planned start names only peers that are still here. Those that join are connected.
// 6. A freeze request exists if and only if the epoch is ending (kFreezing, kEnding). At the end of
//    a step it is sent, and names all members lost so far.
// 7. The end of the present epoch is known if and only if the group is broken.
// 8. Only members have reported or are recovered. When the epoch ends, all of them have reported.
// 9. A group drains only for an agreed change.
// 10. Each open operation has room among the verdicts (kVerdictsMax).
// 11. A member that has left while the epoch runs ends no epoch: its operations know that it has
//     left, and the next epoch is without it.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/result.h"
#include "master/epochs/operations.h"
#include "master/epochs/resume.h"
#include "master/epochs/routes.h"
#include "master/members/connections.h"
#include "master/members/membership.h"

namespace pccl::master {

class Epochs {
 public:
  enum class Phase {
    kFounding,
    kActive,
    kDraining,
    kStarting,
    kFreezing,
    kEnding,
    kBroken,
    kRecovering,  // after a restart: the members are recovered and send their reports
  };
  // The result of advance() or persisted(), for the joint calls of the group.
  enum class Turn {
    kNone,
    kStarted,       // a new generation was sent to its members: it answers those that voted for it
    kReconfigured,  // a new epoch of the same generation was sent to its members
    kEnded,         // the end of the epoch was sent to the survivors
    kUnchanged,     // the change is no longer needed: the epoch continues
    kRecovered,     // all members are recovered or lost
  };

  Epochs(GroupId group, Context& context, Connections& connections, Membership& membership)
      : group_(group), context_(context), connections_(connections), membership_(membership) {}

  Phase phase() const { return phase_; }
  Epoch current() const { return announced_.current.epoch; }
  // A member was lost since the generation began, and only a change of membership helps.
  bool needs_reconfiguration() const { return !continues() || broken(); }
  // No new call is possible, though a kept operation may still be running.
  bool broken() const { return phase_ == Phase::kBroken || keeps(); }
  // A member was lost, and the end of its epoch is not durable yet.
  bool losing() const {
    const bool starts = phase_ == Phase::kStarting && plan_.came_from != Phase::kBroken;
    if (starts) return ends_for_losses();
    return !lost_.empty() && (phase_ == Phase::kFreezing || phase_ == Phase::kEnding);
  }
  // Members have left, and the epoch continues without them.
  bool goes_on_without_some() const { return runs() && !lost_.empty() && !ends_for_losses(); }
  bool changing() const { return change_; }
  // A change was agreed on, and only more peers are missing.
  bool waits_for_peers() const {
    const bool may_start =
        phase_ == Phase::kBroken || (phase_ == Phase::kDraining && operations_.drained());
    return change_ && may_start && membership_.members().size() < quorum_.min_peers;
  }
  bool recovering() const { return phase_ == Phase::kRecovering; }
  const protocol::EpochStart& start_of_epoch() const { return announced_.start; }
  Epoch generation() const { return announced_.start.generation; }
  // The groups that agreed on the present generation together.
  const std::vector<protocol::Settled>& together() const { return announced_.start.together; }
  // All members at the beginning of the epoch, in rank order.
  std::vector<PeerId> ranked() const { return ids(announced_.start.members); }
  // Whether a message that belongs to `epoch` still counts.
  bool in_generation(Epoch epoch) const {
    const bool reconfigured = announced_.start.generation != announced_.start.epoch;
    return epoch == current() || (reconfigured && epoch == announced_.previous.epoch);
  }

  // ---- From members: kProtocol if not allowed; ignored if it crossed the end of the epoch ----
  Status begin(PeerId peer, const protocol::Begin& begin);
  Status done(PeerId peer, const protocol::Done& done);
  Status abort(PeerId peer, const protocol::AbortRequest& request,
               const Operations::Missing& missing = {});
  // While an epoch ends, nothing is taken any more: the receiver asks again in the next one.
  Status await_send(PeerId peer, const protocol::AwaitSend& question) {
    const bool runs = phase_ == Phase::kActive || phase_ == Phase::kDraining;
    if (question.epoch != current() || !runs) return check(question.epoch);
    return operations_.await_send(peer, question);
  }
  Status report(PeerId peer, const protocol::StateReport& report);
  Status acknowledge(PeerId peer, Epoch epoch, uint64_t verdict_index);
  // Whether resume() or recover() would accept this; changes nothing.
  Status check(const protocol::Resume& resume) const;
  // A member has resumed. Takes over its open operations. Returns the messages it has missed, in
  // order.
  Result<std::vector<protocol::Message>> resume(const protocol::Resume& resume);

  // ---- After a restart ----
  // Restores the durable record. REQUIRES: phase kFounding; the membership is restored and not
  // empty.
  void restore(const MembershipRecord& record);
  // A member has resumed. Replaces its earlier report. kProtocol if it is impossible. REQUIRES:
  // kRecovering.
  Status recover(const protocol::Resume& resume);
  void forget_recovered(PeerId peer) { recovered_.erase(peer); }  // its connection has closed again
  // The reports of the recovered members. REQUIRES: kRecovered has just been returned.
  std::map<PeerId, protocol::Resume> take_recovered() {
    PCCL_ASSERT(!recovering());
    return std::exchange(recovered_, {});
  }

  // ---- From the group ----
  // A link between members was re-established. Data on the old connection is lost, so the epoch
  // must end.
  void reconfigure();
  // update_topology was agreed on, by these groups together. REQUIRES: there are members, and no
  // change was agreed on before.
  void change(std::vector<protocol::Settled> together = {});
  void give_up_change();  // on behalf of the voters
  // The next epoch shall have these routes, if it has these members. Without a change of the
  // members that was agreed on, renew() begins it.
  void plan(RoutePlan plan) { planned_ = std::move(plan); }
  bool has_plan() const { return planned_.has_value(); }
  // Another epoch of the same members begins, and nothing is lost. REQUIRES: active, has_plan()
  void renew();
  // `level`: of the log lines about it and about the next epoch. REQUIRES: it is already removed.
  void lose(const protocol::Member& member, const std::string& why,
            LogLevel level = LogLevel::kWarning) {
    remove(member, why, level, false);
    if (phase_ == Phase::kActive || phase_ == Phase::kDraining) freeze();
  }
  // Whether a member can leave now without an end of the epoch (Options::fixed_world). If not, an
  // epoch is ending already, or there is none, or the policy does not allow it.
  bool may_go_on_without() const {
    return context_.options.fixed_world && context_.policy == protocol::LossPolicy::kRaise &&
           !context_.ends && runs() && !keeps();
  }
  // The member has left, and the epoch continues. REQUIRES: it is already removed, and
  // may_go_on_without() was true.
  void leave(const protocol::Member& member, const std::string& why) {
    remove(member, why, LogLevel::kInfo, true);
    if (current()) operations_.leave(member.peer);
  }
  // Whether an open operation still needs this member, which has left.
  bool needs(PeerId left) const { return runs() && operations_.needs(left); }
  // A member has voted for update_topology, while others have left (Operations::close_posting).
  void close_posting(PeerId voter) {
    if (phase_ == Phase::kActive) operations_.close_posting(voter);
  }
  // The link of a member to one that has left is down: data may be lost. Aborts the open operations
  // with that one.
  void cut_off(PeerId left) {
    if (runs()) operations_.abort_all_with(left);
  }
  void waiting_gone(PeerId peer);  // a registered peer is gone and can no longer be admitted
  // Takes every step that is due. `may_end`: no record is being persisted that the end would
  // overtake. `may_change`: the votes for an agreed change are complete (after a reconfiguration
  // they are cast again). `syncs`: all members have an open vote for sync_shared_state, which
  // continues if the epoch ends.
  Turn advance(const Quorum& quorum, bool may_end, bool may_change, bool syncs = false);
  Turn persisted(uint64_t token);
  void flush();  // sends the new verdicts to the members
  // The operations that were settled since the last call.
  std::vector<OpKey> take_ended() { return std::exchange(ended_, {}); }
  const Operations& operations() const { return operations_; }
  // Newcomers that describe an operation differently from all other members.
  std::vector<Misfit> take_misfits() { return operations_.take_misfits(); }
  // Unresponsive members: they do not acknowledge verdicts.
  std::vector<PeerId> unresponsive_members() const;

  // Some member has not reported, or has not resumed after a restart.
  bool awaits_reports() const { return reports_.size() < membership_.members().size(); }
  bool awaits_members() const { return recovered_.size() < membership_.members().size(); }

  // The losses that ended the epoch before this one, with their reasons; empty if there were none.
  std::string last_losses() const {
    const auto& end = announced_.previous.end;
    return !end || end->lost.empty() ? "" : end->text;
  }
  // Why the group is broken: by a loss, or because the master ends. Without such an end: the
  // members that have left. REQUIRES: a member was lost or has left, or broken(), or kStarting from
  // there.
  Status end_status() const {
    if (!announced_.current.end && !keeps()) return {Code::kPeerLost, lost_text(), {}};
    const auto& end = (announced_.current.end ? announced_.current : announced_.previous).end;
    PCCL_ASSERT(end.has_value());
    return {context_.ends && end->lost.empty() ? Code::kMasterLost : Code::kPeerLost, end->text};
  }
  // The reason why a change waits: "3 operations are in flight, ...", "rank 2 did not say ...".
  std::string waits_for() const;

  // Asserts the invariants. REQUIRES: the end of a step.
  void check() const;
  // The work of a check(): the number of operations and verdicts.
  size_t weight() const {
    return operations_.known_count() + announced_.current.verdicts.kept().size() +
           announced_.previous.verdicts.kept().size();
  }

 private:
  struct Plan {
    uint64_t token = 0;
    std::optional<protocol::EpochEnd> end;
    std::optional<protocol::EpochStart> start;
    size_t lost = 0;  // number of lost members when the plan was made
    Phase came_from = Phase::kFounding;
  };

  void enter(Phase next);
  // Operations continue: the epoch is not ending, or a change that was agreed on is under way.
  bool runs() const {
    return phase_ == Phase::kActive || phase_ == Phase::kDraining ||
           (phase_ == Phase::kStarting && plan_.came_from == Phase::kDraining);
  }
  // Some of the losses end the epoch.
  bool ends_for_losses() const {
    return std::any_of(lost_.begin(), lost_.end(), [](const Lost& lost) { return !lost.left; });
  }
  void remove(const protocol::Member& member, const std::string& why, LogLevel level, bool left);
  bool continues() const;  // if the epoch has to end now, all its operations continue in the next
  bool keeps() const;      // this epoch is a continuation with kept operations
  Status check(Epoch epoch) const;  // kProtocol if it is in the future
  Status take_over(const protocol::Resume& resume);
  // The operations with a verdict that this member has yet to call, once it has received the
  // messages that it missed.
  std::vector<protocol::Uncalled> uncalled_by(const protocol::Resume& resume) const;
  void plan_start(const std::vector<PeerId>& members);
  void plan_end();
  void stay();  // in the current epoch: the plan is given up
  void persist(Plan plan);
  protocol::EpochStart start_with(const std::vector<PeerId>& members, Epoch generation);
  // The log that the members will have received once the plan is carried out.
  Announced announced_by(const Plan& plan) const;
  void start();
  Turn end();
  void begin_epoch();  // sends the start to the planned members
  // The losses that an EpochEnd names. There are none when the master ends: EpochEnd names that end
  // instead, because no update_topology repairs it.
  std::vector<protocol::Member> announced_losses() const {
    std::vector<protocol::Member> members;
    if (context_.ends) return members;
    for (const Lost& lost : lost_) members.push_back(lost.member);
    return members;
  }
  LogLevel level_of_losses() const {
    LogLevel level = LogLevel::kInfo;
    for (const Lost& lost : lost_) level = std::min(level, lost.level);
    return level;
  }
  void freeze();
  void extinct();
  void advance_freezing();
  bool all_recovered() const;
  Turn go_on();  // from the recovered state
  void rebuild_verdicts();
  void rebuild_settled();
  void break_off(PeerId peer, const Status& why);
  void take_settled();  // appends them to the verdict log
  void compared(bool is_transfer);
  Turn advance_change();
  std::vector<uint32_t> silent_ranks() const {
    std::vector<uint32_t> ranks;
    for (const PeerId member : membership_.members()) {
      if (!reports_.contains(member)) ranks.push_back(*membership_.rank(member));
    }
    return ranks;
  }
  std::string lost_text() const;
  bool is_founding() const;  // kFounding, or kStarting from there
  void check_members() const;
  void check_phase() const;
  void check_plan() const;
  void check_reports() const;

  const GroupId group_;
  Context& context_;
  Connections& connections_;
  Membership& membership_;

  Phase phase_ = Phase::kFounding;
  Announced announced_;
  Operations operations_;
  std::vector<OpKey> ended_;  // for take_ended()
  bool change_ = false;
  bool syncs_ = false;
  std::vector<protocol::Settled> together_;  // the groups that agreed on that change
  Quorum quorum_;
  Plan plan_;
  std::optional<RoutePlan> planned_;
  struct Lost {
    protocol::Member member;
    std::string why;
    LogLevel level = LogLevel::kInfo;
    bool left = false;  // by its own decision, and the epoch continues without it
  };
  std::vector<Lost> lost_;    // since the epoch began
  bool freeze_sent_ = false;  // the freeze request was sent
  std::map<PeerId, protocol::StateReport> reports_;
  std::map<PeerId, protocol::Resume> recovered_;
  bool relinked_while_recovering_ = false;  // a link was re-established
};

const char* text(Epochs::Phase phase);

}  // namespace pccl::master
