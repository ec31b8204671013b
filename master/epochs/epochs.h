// Epochs: the sequence of epochs of one peer group (PROTOCOL.md, sections 2 to 5). An epoch is
// founded, changed by agreement, or ended by a loss. This class decides when, has the decision made
// durable, and then begins or ends the present epoch with it (present_epoch.h). It sends freeze
// requests to the survivors of a loss, and collects their reports. The table of phases is in
// epochs.cc.
// Group owns it. It gets agreed changes, and losses of members with their reasons, from group.cc.
// The consequences follow in advance(), at the end of every step.
// Invariants:
// 1. A new membership, and verdicts after a loss, are sent only after they are durable.
// 2. The members of the present epoch are those at its beginning, less those lost since.
// 3. There is an epoch if and only if there are members.
// 4. While a membership is decided (kStarting, kEnding), its record is being made durable.
// 5. A planned start names only peers that are still here. Those that join are connected.
// 6. A freeze request exists if and only if the epoch is ending (kFreezing, kEnding). At the end of
//    a step it is sent, and names all members lost so far.
// 7. The end of the present epoch is known if and only if the group is broken.
// 8. Only members have reported or are recovered. When the epoch ends, all of them have reported.
// 9. A group drains only for an agreed change.
// 10. A member that has left while the epoch runs ends no epoch: its operations know that it has
//     left, and the next epoch is without it.
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
    kStarted,       // a new generation was sent to its members: it answers those that voted for it
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
        basis_{context, quorum, membership, present, losses_} {}
  Epochs(const Epochs&) = delete;
  Epochs& operator=(const Epochs&) = delete;

  Phase phase() const { return phase_; }
  // A member was lost since the generation began, and only a change of membership helps.
  bool needs_reconfiguration() const { return !basis_.continues() || broken(); }
  // No new call is possible, though a kept operation may still be running.
  bool broken() const { return phase_ == Phase::kBroken || present_.is_kept(); }
  // A member was lost, and the end of its epoch is not durable yet.
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
  // A change was agreed on, and only more peers are missing.
  bool waits_for_peers() const {
    const bool may_start =
        phase_ == Phase::kBroken || (phase_ == Phase::kDraining && present_.operations().drained());
    return change_ && may_start && membership_.members().size() < quorum_.min_peers;
  }
  bool recovering() const { return phase_ == Phase::kRecovering; }
  // Some member has not sent its state report.
  bool awaits_reports() const { return reports_.size() < membership_.members().size(); }
  // Some member has not resumed after the restart.
  bool awaits_members() const { return recovered_.size() < membership_.members().size(); }
  // The reason why a change waits: "3 operations are in flight, ...", "rank 2 did not say ...".
  std::string waits_for() const;
  // See PlanBasis. REQUIRES: as there. A group that is starting after it was broken counts as
  // broken.
  Status end_status() const { return basis_.end_status(); }

  // ---- From members: kProtocol if not allowed ----
  Status report(PeerId peer, const protocol::StateReport& report);
  // Whether PresentEpoch::resume() or recover() would accept this; changes nothing.
  Status check(const protocol::Resume& resume) const {
    Status status = check_form(resume);
    return status.ok() && !recovering() ? present_.check(resume) : status;
  }

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
  // A new epoch of the same members begins, and nothing is lost. REQUIRES: active, and plan() was
  // called.
  void renew();
  // A member was lost. `level`: of the log lines about the loss and about the next epoch. REQUIRES:
  // the member is already removed from the membership.
  void lose(const protocol::Member& member, const std::string& why,
            LogLevel level = LogLevel::kWarning) {
    remove({member, why, level, false});
    freeze_if_running();
  }
  // Whether a member can leave now without an end of the epoch (Options::fixed_world). If not, an
  // epoch is ending already, or there is none, or the policy does not allow it.
  bool may_continue_without() const {
    return context_.options.fixed_world &&
           context_.settings.on_peer_loss == protocol::LossPolicy::kRaise && !context_.ends &&
           runs() && !present_.is_kept();
  }
  // The member has left, and the epoch continues. REQUIRES: it is already removed, and
  // may_continue_without() was true.
  void leave(const protocol::Member& member, const std::string& why) {
    PCCL_ASSERT(may_continue_without());
    remove({member, why, LogLevel::kInfo, true});
    if (present_.number()) present_.leave(member.peer);
  }
  void waiting_gone(PeerId peer);  // a registered peer is gone and can no longer be admitted
  // Takes every step that is due. `may_end`: no record is being persisted that the end would
  // overtake. `may_change`: the votes for an agreed change are complete (after a reconfiguration
  // they are cast again). `syncs`: all members have an open vote for sync_shared_state, which
  // continues if the epoch ends.
  Turn advance(bool may_end, bool may_change, bool syncs = false);
  Turn persisted(uint64_t token);

  // Asserts the invariants. REQUIRES: the end of a step.
  void check() const;

 private:
  void enter(Phase next);
  // Operations continue: the epoch is not ending, or a change that was agreed on is under way.
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
  Turn continue_recovered();  // from the recovered state
  void plan_start(const std::vector<PeerId>& members);
  void plan_end();
  void stay();  // in the current epoch: the plan is given up
  void persist(EpochPlan plan);
  void start();
  Turn end();
  void begin_epoch();  // the planned one
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
  Phase came_from_ = Phase::kFounding;  // the phase before
  bool change_ = false;
  bool syncs_ = false;
  std::vector<protocol::Settled> together_;  // the groups that agreed on that change
  EpochPlan plan_;
  std::optional<RoutePlan> planned_;
  Losses losses_;             // since the epoch began
  bool freeze_sent_ = false;  // the freeze request was sent
  Reports reports_;
  std::map<PeerId, protocol::Resume> recovered_;
  bool relinked_while_recovering_ = false;  // a link was re-established
  const PlanBasis basis_;                   // of the parts above
};

const char* text(Epochs::Phase phase);

}  // namespace pccl::master
