// Epochs: the sequence of epochs of one peer group (PROTOCOL.md, sections 2 to 5). An epoch is
// founded, changed by agreement, or ended by a loss. This class decides when to do so. It makes the
// decision durable, and then begins or ends the present epoch (present_epoch.h). After a loss it
// sends freeze requests to the survivors, and collects their state reports. The table of phases is
// in epochs.cc.
// Group owns it. group.cc informs it of agreed changes and of lost members. It acts on them in
// advance(), at the end of every step.
// Invariants:
// 1. A new membership, and verdicts after a loss, are sent only after they are durable.
// 2. The members of the present epoch are its members at the beginning, without those in `losses_`.
// 3. There is an epoch if and only if there are members.
// 4. In kStarting and kEnding, the record of `plan_` is being made durable.
// 5. A planned start names only peers that are still here. The newcomers among them are connected.
// 6. A freeze request exists if and only if the epoch is ending (kFreezing, kEnding). At the end of
//    a step it was sent. In kFreezing, it then names all members in `losses_`.
// 7. The EpochEnd of the present epoch was sent if and only if the phase is kBroken, or kStarting
//    after kBroken. In kRecovering, both are possible.
// 8. `reports_` and `recovered_` contain only members. In kEnding, all members have reported.
// 9. A group drains only for an agreed change.
// 10. leave() does not end the epoch: Operations notes that the member has left, and the next epoch
//     begins without this member.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/status.h"
#include "master/context.h"
#include "master/epochs/epoch_plan.h"
#include "master/epochs/losses.h"
#include "master/epochs/present_epoch.h"
#include "master/members/membership.h"

namespace pccl::master {

class Connections;

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
    kStarted,       // a new generation was sent to its members: this answers update_topology
    kReconfigured,  // a new epoch of the same generation was sent to its members
    kEnded,         // the end of the epoch was sent to the survivors
    kUnchanged,     // the change is no longer needed: the epoch continues
    kRecovered,     // all members are recovered or lost
  };

  Epochs(GroupId group, Context& context, Connections& connections, const Quorum& quorum,
         Membership& membership, PresentEpoch& present)
      : group_(group),
        context_(context),
        connections_(connections),
        quorum_(quorum),
        membership_(membership),
        present_(present),
        basis_{context, quorum, membership, present, losses_, order_} {}
  Epochs(const Epochs&) = delete;
  Epochs& operator=(const Epochs&) = delete;

  Phase phase() const { return phase_; }
  // Whether the operations would not all continue in a next epoch: the loss policy or min_peers
  // does not allow it after the losses, the group is broken, or the master ends.
  bool needs_reconfiguration() const { return !basis_.continues() || broken(); }
  // Every call but update_topology fails. A kept operation may still be running.
  bool broken() const { return phase_ == Phase::kBroken || present_.is_kept(); }
  // A member was lost, and the end of the present epoch is not durable yet.
  bool losing() const {
    const bool starts = phase_ == Phase::kStarting && came_from_ != Phase::kBroken;
    if (starts) return losses_.end_the_epoch();
    return !losses_.empty() && (phase_ == Phase::kFreezing || phase_ == Phase::kEnding);
  }
  // Members have left, and the epoch continues without them.
  bool continues_without_some() const {
    return runs() && !losses_.empty() && !losses_.end_the_epoch();
  }
  bool changing() const { return change_; }
  // A change was agreed on, and it waits only for more peers.
  bool waits_for_peers() const {
    const bool may_start =
        phase_ == Phase::kBroken || (phase_ == Phase::kDraining && present_.operations().drained());
    return change_ && may_start && membership_.members().size() < quorum_.min_peers;
  }
  bool recovering() const { return phase_ == Phase::kRecovering; }
  // The operations that the master has asked this member about, and waits for the answer; empty:
  // none.
  std::string asked(PeerId member) const;
  // Whether the master waits for the answer of any member.
  bool asks() const {
    return phase_ == Phase::kFreezing || (runs() && present_.operations().asks());
  }
  // Some member has not sent its state report.
  bool awaits_reports() const { return reports_.size() < membership_.members().size(); }
  // Some member has not resumed after the restart.
  bool awaits_members() const { return recovered_.size() < membership_.members().size(); }
  // Why a change or the end of the epoch waits: "3 operations are in flight, ..." or "rank 2 did
  // not report ..."; empty: for neither reason.
  std::string waits_for() const;
  // See PlanBasis::end_status(). REQUIRES: as there. A group that is starting after it was broken
  // counts as broken.
  Status end_status() const { return basis_.end_status(); }

  // ---- From members: kProtocol if not allowed ----
  Status report(PeerId peer, const protocol::StateReport& report);
  // Whether PresentEpoch::resume() or recover() would accept this message; changes nothing.
  Status check(const protocol::Resume& resume) const {
    Status status = check_form(resume);
    return status.ok() && !recovering() ? present_.check(resume) : status;
  }

  // ---- After a restart ----
  // Restores the durable record. REQUIRES: phase kFounding; the membership is restored and not
  // empty.
  void restore(const MembershipRecord& record);
  // A member has resumed. Replaces its earlier report. kProtocol if the report is impossible.
  // REQUIRES: kRecovering.
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
  // The members have agreed on update_topology. `together`: the ballots of all groups that were
  // settled together with theirs. REQUIRES: there are members, and no change was agreed on before.
  void change(std::vector<protocol::Settled> together = {});
  void give_up_change();  // the call ends without a change
  // These members, which are all that are to stay, have agreed on an epoch in this order. It begins
  // as soon as no operation is open. REQUIRES: no change was agreed on before.
  void regroup(std::vector<PeerId> members);
  void give_up_regroup();  // one of them is lost
  // Sets the routes of the next epoch. They are used only if that epoch has the members of the
  // plan. If no change was agreed on, renew() has to begin it.
  void plan(RoutePlan plan) { planned_ = std::move(plan); }
  // Ends the epoch, so that the next one begins with the planned routes and the same members. All
  // operations continue. REQUIRES: active, and plan() was called.
  void renew();
  // A member was lost. `level`: log level of the loss. The log line about the next epoch is at
  // least as severe. REQUIRES: the member is already removed from the membership.
  void lose(const protocol::Member& member, const std::string& why,
            LogLevel level = LogLevel::kWarning, LossCause cause = LossCause::kRemoved) {
    remove({member, why, level, false, cause});
    freeze_if_running();
  }
  // Whether the epoch continues if a member leaves now. This needs a fixed world
  // (Options::fixed_world), the loss policy kRaise, and an epoch that runs and is not kept
  // (PresentEpoch::is_kept()).
  bool may_continue_without() const {
    return context_.options.fixed_world &&
           context_.settings.on_peer_loss == protocol::LossPolicy::kRaise && !context_.ends &&
           runs() && !present_.is_kept();
  }
  // The member has left, and the epoch continues. REQUIRES: it is already removed, and
  // may_continue_without() was true.
  void leave(const protocol::Member& member, const std::string& why) {
    PCCL_ASSERT(may_continue_without());
    remove({member, why, LogLevel::kInfo, true, LossCause::kLeft});
    if (present_.number()) present_.leave(member.peer);
  }
  // A peer that is no member is gone or has lost its connection: it cannot be admitted now.
  void waiting_gone(PeerId peer);
  // The survivors whose state reports contradict each other: they are to be removed before the
  // epoch can end. A survivor may be named twice.
  std::vector<Misfit> liars() const {
    const bool reported = phase_ == Phase::kFreezing && !awaits_reports();
    return reported ? basis_.liars(reports_) : std::vector<Misfit>();
  }
  // Takes every step that is due. `may_end`: whether a frozen epoch may end now. It is false while
  // the record of a shared state is being persisted: the answer about this state has to leave
  // before the EpochEnd. `may_change`: all members have an open vote for update_topology (after a
  // reconfiguration they vote again). `syncs`: all members have an open vote for sync_shared_state.
  // This call continues if the epoch ends.
  Turn advance(bool may_end, bool may_change, bool syncs = false);
  Turn persisted(uint64_t token);

  // Asserts the invariants. REQUIRES: the end of a step.
  void check() const;

 private:
  void enter(Phase next);
  // The epoch runs: it is active, or an agreed change is under way (draining, or starting after
  // that).
  bool runs() const {
    return phase_ == Phase::kActive || phase_ == Phase::kDraining ||
           (phase_ == Phase::kStarting && came_from_ == Phase::kDraining);
  }
  void remove(Losses::Loss loss);
  void freeze_if_running() {
    if (phase_ == Phase::kActive || phase_ == Phase::kDraining) freeze();
  }
  void freeze();
  void extinct();
  void advance_freezing();
  Turn advance_change();
  Turn continue_recovered();  // all members have resumed
  void plan_start(const std::vector<PeerId>& members);
  void plan_end();
  void stay();  // gives up the plan: the present epoch continues
  void persist(EpochPlan plan);
  void start();
  Turn end();
  void begin_epoch();  // the planned epoch
  std::vector<uint32_t> silent_ranks() const;
  bool is_founding() const;  // kFounding, or kStarting from there
  void check_members() const;
  void check_phase() const;
  void check_plan() const;
  void check_reports() const;

  const GroupId group_;
  Context& context_;
  Connections& connections_;
  const Quorum& quorum_;
  Membership& membership_;
  PresentEpoch& present_;

  Phase phase_ = Phase::kFounding;
  Phase came_from_ = Phase::kFounding;  // the previous phase
  bool change_ = false;
  std::vector<PeerId> order_;  // the argument of regroup(); empty: none is under way
  bool syncs_ = false;
  std::vector<protocol::Settled> together_;  // the argument of change()
  EpochPlan plan_;
  std::optional<RoutePlan> planned_;
  Losses losses_;             // since the epoch began
  bool freeze_sent_ = false;  // the freeze request was sent
  Reports reports_;
  std::map<PeerId, protocol::Resume> recovered_;
  bool relinked_while_recovering_ = false;  // a link was re-established
  const PlanBasis basis_;                   // refers to the members above
};

const char* text(Epochs::Phase phase);

}  // namespace pccl::master
