// Group: one peer group of a run, with its peers, epochs, joint calls and shared state. An event of
// one of these parts can have effects on another part, and the group carries them over. Groups owns
// it, on the thread of the MasterCore. A loss in a group does not affect another group; only
// joint.cc looks at several groups. Every message of a registered peer ends up here, after core.cc
// has checked that the phase of its connection allows it.
// Invariants:
// 1. The group, its connections and the index of all peers agree on the peers that are here, on
//    those that are connected, and on the phase of each.
// 2. The voters are the members, with the same ranks. While members are recovered, there are no
//    votes.
// 3. An open vote belongs to the present epoch.
// 4. While the group drains, all members have an open vote for update_topology, or a reconfigure is
//    under way. While members fetch a shared state, or wait for its record, all members have an
//    open vote for sync_shared_state.
// 5. Messages are held only while members are recovered, or while the group decides, and only of
//    connected members.
// 6. At the end of a step all due work is done: no complete ballot waits for this group alone, no
//    draining group has no open operation, no ending epoch has all reports, and no group with all
//    its members is still recovering.
// 7. A peer that has left is not here. The others keep a link to such a peer only as long as an
//    open operation needs its data.
// 8. While links are measured, or a plan is sought, all members have an open vote for
//    optimize_topology.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "master/epochs/decision_mac.h"
#include "master/epochs/epochs.h"
#include "master/epochs/present_epoch.h"
#include "master/group/announced_ballots.h"
#include "master/group/ballot.h"
#include "master/group/cycle_watch.h"
#include "master/group/dialling.h"
#include "master/group/group_view.h"
#include "master/group/held_messages.h"
#include "master/group/notices.h"
#include "master/group/optimization.h"
#include "master/group/overdue_members.h"
#include "master/group/plan_call.h"
#include "master/group/regrouping.h"
#include "master/group/ruling.h"
#include "master/group/state_call.h"
#include "master/group/wait_texts.h"
#include "master/members/connections.h"
#include "master/members/membership.h"
#include "master/state/agreement.h"

namespace pccl::master {

// Why a member is removed, and the line in the log. The level shows how unexpected that is.
struct Removal {
  LossCause cause = LossCause::kRemoved;
  LogLevel level = LogLevel::kWarning;
  LogEvent event = LogEvent::kLost;
};
inline constexpr Removal kByItself{LossCause::kLeft, LogLevel::kInfo, LogEvent::kLeft};
inline constexpr Removal kByEnd{LossCause::kEnded, LogLevel::kInfo, LogEvent::kLost};

class Group {
 public:
  Group(GroupId id, Context& context, Connections& connections);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  GroupId id() const { return id_; }
  const GroupView& view() const { return view_; }
  const Optimization& optimization() const { return optimization_; }
  const PlanCall& plan_call() const { return plan_call_; }
  const AnnouncedBallots& announced() const { return announced_; }
  size_t held_bytes() const { return held_.bytes(); }
  void set_holder(PeerId peer, std::optional<Holder> holder) {
    membership_.set_holder(peer, std::move(holder));
  }

  // ---- Joining and leaving ----
  // `quorum` is used only if the group is empty.
  void welcome(PeerId peer, Membership::Peer about, const Quorum& quorum);
  // The peer's connection has closed. `breach`: the rule that the peer broke; empty: none.
  void away(PeerId peer, const std::string& breach);
  bool may_resume_after_breach(PeerId member) {
    return membership_.may_resume_after_breach(member);
  }
  // Checks whether back() would accept this message, and changes nothing. Returns kProtocol if the
  // message is impossible.
  Status check(const protocol::Resume& resume) const;
  // The peer has resumed, and the new connection is already assigned to it. Sends it the messages
  // that it missed. Returns kProtocol if the message is impossible.
  Status back(const protocol::Resume& resume);
  void leave(PeerId peer);  // by the peer's own decision
  // Sends each peer the last message of an ending master, which closes its connection. dismiss()
  // then takes all peers out.
  void say_farewell();
  void dismiss();
  // Declares the peer lost, whether it is a member or not.
  void give_up(PeerId peer, const std::string& why, LossCause cause = LossCause::kRemoved);

  // ---- After a restart, while the members are recovered ----
  void restore(const MembershipRecord& record);
  void restore(const SharedStateRecord& record);

  // ---- Held messages ----
  // The next membership is being made durable. Until then it is not decided whether this epoch
  // continues.
  bool deciding() const { return epochs_.phase() == Epochs::Phase::kStarting; }
  // Holds a member's message while other members are recovered or while this group is deciding.
  // Held messages are processed later in their order. Returns kProtocol if the member sent more
  // messages than a member can have to send meanwhile.
  Status hold(PeerId peer, const protocol::Message& message);
  std::vector<HeldMessages::Held> take_held();  // the messages that are due for processing

  // ---- From a peer: kProtocol if the message is not allowed now ----
  Status on(PeerId peer, const protocol::Register& message);
  Status on(PeerId peer, const protocol::LinkReport& message);
  Status on(PeerId peer, const protocol::LinkRates& message) {
    return membership_.links.measured(peer, message);
  }
  Status on(PeerId peer, const protocol::Begin& message);
  Status on(PeerId peer, const protocol::Done& message) {
    overdue_.took_part(peer);  // it gets data, although a transfer of the state may wait behind it
    return present_.done(peer, message);
  }
  Status on(PeerId peer, const protocol::AbortRequest& message);
  Status on(PeerId peer, const protocol::AbortAnswer& message) {
    return present_.answer(peer, message);
  }
  Status on(PeerId peer, const protocol::AwaitSend& message);
  Status on(PeerId peer, const protocol::Blocked& message);
  Status on(PeerId peer, const protocol::StateReport& message);
  Status on(PeerId peer, const protocol::Vote& message);
  Status on(PeerId peer, const protocol::StateList& message);
  Status on(PeerId peer, const protocol::Fetched& message);
  Status on(PeerId peer, const protocol::Fetching& message);
  Status on(PeerId peer, const protocol::ProbeReport& message) {
    return optimization_.on(peer, message);
  }
  void report(const std::vector<protocol::Scalar>& scalars) { present_.report(scalars); }
  Status on(PeerId peer, const protocol::Ping& message);
  Status on(PeerId peer, const protocol::Pong& message);

  // ---- Reconfigure ----
  // See regrouping.h.
  void regroup(Regroup agreed);

  // ---- Newcomers (probation.h) ----
  // Removes newcomers that behave differently from all other members, or make no call for too long.
  // Returns whether it has removed any. `awaited_by_others`: see joint.h; empty if the group is not
  // new.
  bool watch_newcomers(const std::string& awaited_by_others);
  // Removes members that are late: in no call, while most of the others have waited for them for
  // call_timeout. Returns whether it has removed any.
  bool watch_late_members();
  // Removes members whose reports on an operation contradict each other, or who give none. Returns
  // whether it has removed any.
  bool remove_liars() {
    std::vector<Misfit> liars = epochs_.liars();
    for (Misfit& liar : present_.take_liars()) liars.push_back(std::move(liar));
    for (Misfit& silent : overdue_.unanswering_members()) liars.push_back(std::move(silent));
    for (const Misfit& liar : liars) {
      if (membership_.is_member(liar.peer)) lose(liar.peer, liar.why);
    }
    return !liars.empty();
  }
  // Ends the operations of members that wait for each other, so that none of them can continue.
  // Returns whether there were any.
  bool watch_cycles();
  // If the peer is a newcomer, removes it because it gives up waiting for a joint call of this
  // kind. Returns false if the peer is no newcomer.
  bool gives_up_as_newcomer(PeerId peer, protocol::JointKind kind);
  // A member gives up the open joint call of this kind. REQUIRES: it is no call of all groups.
  void give_up_call(protocol::JointKind kind);
  std::optional<Instant> deadline() const;
  // This process could not receive for a while: all members get their full time again.
  void excuse_members() {
    overdue_.excuse_all();
    cycle_watch_.excuse_all();
  }

  // ---- What members wait for ----
  // Announces a wait that has lasted longer than peer_timeout, and later its end. `waits`: the
  // present waits, from described_waits().
  void report(const std::vector<Wait>& waits) { notices_.report(waits); }
  const Notices& notices() const { return notices_; }

  // ---- Time and progress ----
  // A tick has passed. Returns the members to disconnect because they acknowledge nothing.
  std::vector<PeerId> tick();
  void persisted(uint64_t token);
  void planned(const RingPlanned& found) { optimization_.planned(found.token, found.plan); }
  void advance();  // takes every step that is due
  void flush();

  // ---- Joint calls, for joint.cc ----
  // See PlanCall. If it returns true, change() begins an epoch with the better plan.
  bool finds_better_plan() { return plan_call_.finds_better_plan(); }
  void change(std::vector<protocol::Settled> together) { epochs_.change(std::move(together)); }
  // After a restart: whether the members of this group were answered, before the restart, in the
  // ballot that is now complete in `other`. That ballot was settled together with theirs, so it is
  // settled now, independently of this group. Returns the answer to are_peers_pending (false for
  // update_topology), or nothing if the ballots were not settled together.
  std::optional<bool> announced_of(const Group& other) const;
  void answer(const protocol::Answer& answer);  // to all voters

  // Asserts the invariants of the group and of its parts. REQUIRES: the end of a step.
  void check() const;

 private:
  // The steps that a loss and a leave share. Returns the member that was removed.
  protocol::Member remove_member(PeerId peer, const std::string& why, Removal as);
  void after_removal(PeerId peer, const std::string& why);
  void leave_without_end(PeerId peer, const std::string& why);
  void forget_left();
  void lose_data_of(PeerId left);
  void close_posting_of_voters();
  // Loses a member.
  void lose(PeerId peer, const std::string& reason, Removal as = {});
  void drop(PeerId peer, const std::string& why);    // a peer that is not a member
  void refuse(PeerId peer, const std::string& why);  // likewise, with a Reject
  void take_out(PeerId peer, const std::string& why);
  void remove(const Misfit& misfit);  // a newcomer
  void forget_messages(PeerId peer) {
    held_.forget(peer);
    cycle_watch_.forget(peer);
  }
  void send(PeerId peer, protocol::Answer answer) {
    const Epoch generation = present_.start().generation;
    answer.mac = mac_of(context_.options.decisions, generation, answer);
    connections_.send(peer, std::move(answer));
  }
  void carry_out(const Ruling& ruling);
  void count_latecomer(PeerId last);
  void lose_if_cut_off(PeerId peer);  // rule 1 of section 4
  void took_part(const protocol::Answer& answer, PeerId peer);
  void on_turn(Epochs::Turn turn);
  // The fate of an open joint call if members have left or were lost. An update_topology continues
  // by itself. The other calls:
  //   the epoch continues      the members vote again, and the call continues
  //   members have left        sync_shared_state ends, unless its answer is on its way;
  //                            are_peers_pending is answered if all have asked it; every other
  //                            call fails
  //   a loss broke the group   sync_shared_state continues if all survivors have voted for it and
  //                            an epoch continues; are_peers_pending is answered if all have asked
  //                            it; every other call fails. An optimize_topology that continues
  //                            keeps its measurements
  void break_up();
  void reconfigured();
  void finish(const Agreement::Outcome& outcome);
  void note_outcome(const protocol::Answer& answer);
  void restore_ballot();
  void check_peer(PeerId peer, const Membership::Peer& about) const;
  void check_votes() const;
  void check_nothing_is_due() const;

  const GroupId id_;
  Context& context_;
  Connections& connections_;
  Quorum quorum_;
  Membership membership_;
  PresentEpoch present_;
  Epochs epochs_;
  Ballot ballot_;
  Agreement agreement_;
  Optimization optimization_;
  const GroupView view_;  // of the parts above, and of the next one
  CycleWatch cycle_watch_;
  OverdueMembers overdue_;
  StateCall state_call_;
  PlanCall plan_call_;
  Regrouping regrouping_;
  Notices notices_;
  Dialling dialling_;
  HeldMessages held_;
  AnnouncedBallots announced_;
  // Members that have left an epoch that continues, and whose data some operation may still need:
  // the others keep their links to them.
  std::set<PeerId> left_;
};

}  // namespace pccl::master
