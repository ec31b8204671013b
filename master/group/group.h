// Group: one peer group of a run, with its peers, epochs, joint calls and shared state. It carries
// the effects of one of these to the others. Groups owns it, on the thread of the MasterCore. A
// loss in a group does not affect another group; only joint.cc looks at several groups. Every
// message of a registered peer ends up here, after core.cc has checked that the phase of its
// connection allows it.
// Invariants:
// 1. The group, its connections and the index of all peers agree on who is here, who is connected,
//    and how far each has come.
// 2. The voters are the members, with the same ranks. While members are recovered, nobody votes.
// 3. An open vote belongs to the present epoch.
// 4. While the group drains, all members have an open vote for update_topology. While members fetch
//    a shared state, or wait for its record, all have one for sync_shared_state.
// 5. Messages are held only while the members are recovered or the group is deciding, and only for
//    connected members.
// 6. A notice is remembered only for a peer that is here.
// 7. At the end of a step everything that is due was done: no complete ballot waits for this group
//    alone, no draining group has no open operation, no ending epoch has all reports, and no group
//    still recovers that has all its members.
// 8. Newcomers to a sync_shared_state are members.
// 9. No peer is here that has left. The others keep a link to such a peer only as long as an open
//    operation needs its data.
// 10. While links are measured, or a plan is sought, all members have an open vote for
//    optimize_topology.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "master/epochs/epochs.h"
#include "master/group/ballot.h"
#include "master/group/held_messages.h"
#include "master/group/optimization.h"
#include "master/group/wait_report.h"
#include "master/members/membership.h"
#include "master/members/newcomer.h"
#include "master/state/agreement.h"

namespace pccl::master {

class Group {
 public:
  Group(GroupId id, Context& context, Connections& connections);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  GroupId id() const { return id_; }
  const Quorum& quorum() const { return quorum_; }
  const Membership& membership() const { return membership_; }
  void set_holder(PeerId peer, std::optional<Holder> holder) {
    membership_.set_holder(peer, std::move(holder));
  }
  const Ballot& ballot() const { return ballot_; }
  // All members have voted for this. False while the loss of a member is not yet durable, since
  // that member still counts: a restarted master would take it back, and it would wait for the
  // others in an older ballot.
  bool has_voted(protocol::JointKind kind) const {
    return ballot_.is_complete(kind) && !epochs_.losing();
  }
  const Agreement& agreement() const { return agreement_; }
  const Optimization& optimization() const { return optimization_; }
  const Epochs& epochs() const { return epochs_; }
  bool has_members() const { return !membership_.members().empty(); }

  // ---- Joining and leaving ----
  // `quorum` is used only if the group is empty.
  void welcome(PeerId peer, Membership::Peer about, const Quorum& quorum);
  // Its connection has closed. `warned`: the log has a warning about that.
  void away(PeerId peer, bool warned);
  // Whether back() would accept this; changes nothing. kProtocol if the message is impossible.
  Status check(const protocol::Resume& resume) const;
  // The peer has resumed, and the new connection is already assigned to it. Sends it what it
  // missed. kProtocol if the message is impossible.
  Status back(const protocol::Resume& resume);
  void leave(PeerId peer);  // by the peer's own decision
  // Whether some peer is in an operation or a joint call, or waits to be admitted.
  bool is_busy() const;
  // The master ends: its last message to each peer, which closes the connection. dismiss() then
  // takes all peers out.
  void say_farewell();
  void dismiss();
  // the peer is lost, whether it is a member or not
  void give_up(PeerId peer, const std::string& why);

  // ---- After a restart, while the members are recovered ----
  void restore(const MembershipRecord& record);
  void restore(const SharedStateRecord& record);

  // ---- Held messages ----
  // The next membership is being made durable. Until then it is open whether this epoch continues.
  bool deciding() const { return epochs_.phase() == Epochs::Phase::kStarting; }
  // Holds a member's message while other members are recovered or while this group is deciding.
  // Held messages are processed later in their order. kProtocol if the member has sent more than it
  // can have to send.
  Status hold(PeerId peer, const protocol::Message& message);
  std::vector<HeldMessages::Held> take_held();  // the messages that are due for processing

  // ---- From a peer: kProtocol if the message is not allowed now ----
  Status on(PeerId peer, const protocol::Register& message);
  Status on(PeerId peer, const protocol::LinkReport& message);
  Status on(PeerId peer, const protocol::LinkRates& message) {
    return membership_.links.measured(peer, message);
  }
  Status on(PeerId peer, const protocol::Begin& message);
  Status on(PeerId peer, const protocol::Done& message) { return epochs_.done(peer, message); }
  Status on(PeerId peer, const protocol::AbortRequest& message);
  Status on(PeerId peer, const protocol::AwaitSend& message);
  Status on(PeerId peer, const protocol::StateReport& message);
  Status on(PeerId peer, const protocol::Vote& message);
  Status on(PeerId peer, const protocol::StateList& message);
  Status on(PeerId peer, const protocol::Fetched& message);
  Status on(PeerId peer, const protocol::Fetching& message);
  Status on(PeerId peer, const protocol::ProbeReport& message) {
    return optimization_.on(peer, message);
  }
  Status on(PeerId peer, const protocol::Ping& message);
  Status on(PeerId peer, const protocol::Pong& message);

  // ---- Newcomers (newcomer.h) ----
  // Removes newcomers that do something else than all other members, or nothing for too long.
  // Returns whether it has removed any. `awaited_by_others`: the joint call of all groups in which
  // other groups wait.
  bool watch_newcomers(const std::string& awaited_by_others);
  // Removes members that are late: in no call, while most of the others have waited for them for
  // call_timeout. Returns whether it has removed any.
  bool watch_late_members();
  // No member of this group has taken part in anything yet.
  bool is_new() const { return membership_.highest_standing() == protocol::Standing::kNone; }
  // A newcomer that gives up waiting for a joint call of this kind is removed. False if the peer is
  // no newcomer.
  bool gives_up_as_newcomer(PeerId peer, protocol::JointKind kind);
  // A member gives up the open sync_shared_state. If only newcomers still fetch, they are removed,
  // and the call goes on among the others. Otherwise it ends for all, unless its answer is on its
  // way.
  void give_up_sync();
  // A member gives up the open optimize_topology, which ends for all.
  void give_up_optimization();
  // The operations for which optimize_topology waits when all have voted; empty: for none.
  std::string optimization_waits_for() const;
  std::optional<Instant> deadline() const;
  // Nothing could be received for a while: all members get their full time again.
  void excuse_members();

  // ---- What members wait for ----
  // "rank 0 (tokyo-3), which has been in update_topology for 12 s; for rank 2, which ...".
  std::string missing_text(const std::vector<uint32_t>& ranks) const;
  // Announces a wait that has lasted longer than peer_timeout, and its end. `joint_wait`: the wait
  // of the members in their joint call, which may be for other groups.
  void report_waits(const std::optional<Wait>& joint_wait);

  // ---- Time and progress ----
  // A tick has passed. Returns the members to disconnect because they acknowledge nothing.
  std::vector<PeerId> tick();
  void persisted(uint64_t token);
  void planned(const RingPlanned& found) { optimization_.planned(found.token, found.plan); }
  // A round of probes or a search for a plan is over its time.
  bool is_late_to_optimize() const {
    const auto deadline = optimization_.deadline();
    return deadline && *deadline <= context_.now;
  }
  void advance();  // takes every step that is due
  void flush();

  // ---- Joint calls, for joint.cc ----
  bool would_change() const;
  // Whether another ring is faster than the present one by enough. change() then begins an epoch
  // with it. REQUIRES: update_topology would change nothing else.
  bool finds_better_plan();
  void change(std::vector<protocol::Settled> together) { epochs_.change(std::move(together)); }
  // The open ballot. REQUIRES: all members have voted in it.
  protocol::Settled settled_ballot() const;
  // After a restart: whether the members of this group were answered, before the restart, in the
  // ballot that is now complete in `other`. That ballot was settled together with theirs, so it is
  // settled now, whatever happens to this group. Returns the answer to are_peers_pending (false for
  // update_topology), or nothing if the ballots were not settled together.
  std::optional<bool> announced_of(const Group& other) const;
  bool announces() const { return !announced_ballots_.empty(); }
  // groups that announced_of() may have an answer for
  std::vector<GroupId> announced_groups() const;
  void answer(const protocol::Answer& answer);  // to all voters

  // The group has no peers, and no record of it is being made durable.
  bool deserted() const;
  // Likewise, and it has no agreed state to remember.
  bool forgettable() const { return deserted() && !agreement_.recorded(); }
  // Every decision is durable and has been sent to all peers.
  bool settled() const;
  size_t held_bytes() const { return held_.bytes(); }
  // Asserts the invariants of the group and of its parts. REQUIRES: the end of a step.
  void check() const;

 private:
  // The steps that a loss and a leave share. Returns the member that was removed.
  protocol::Member remove_member(PeerId peer, const std::string& why, LogLevel level);
  void after_removal(PeerId peer);
  void leave_without_end(PeerId peer);
  void forget_left();
  void lose_data_of(PeerId left);
  void close_posting_of_voters();
  // Loses a member; `level`: log level, by how unexpected the loss is.
  void lose(PeerId peer, const std::string& reason, LogLevel level = LogLevel::kWarning);
  void drop(PeerId peer, const std::string& why);  // a peer that is not a member
  void take_out(PeerId peer, const std::string& why);
  void remove(const Misfit& misfit);  // a newcomer
  bool others_wait() const;
  Probation::Seen seen_of(PeerId newcomer) const;
  bool is_new_to_sync(PeerId peer) const;
  bool may_be_seen_fetching() const;
  void see_fetching(std::vector<Probation::Seen>& all) const;
  std::vector<Probation::Seen> see_newcomers(const std::string& awaited_by_others) const;
  bool is_in_call(PeerId peer) const;
  bool goes_on(PeerId peer) const;
  std::optional<Probation::Seen> see_late(PeerId peer, const std::vector<PeerId>& members) const;
  std::vector<Probation::Seen> see_late_members() const;
  void judge_votes();
  void took_part(const protocol::Answer& answer, PeerId peer);
  bool trained_here(PeerId peer) const;
  void lose_if_cut_off(PeerId peer);  // rule 1 of section 4
  void log_unreachable(PeerId peer, const protocol::LinkReport& message);
  void send_forget(PeerId peer);
  void dial(PeerId dialler, PeerId target);
  void dial_first(PeerId a, PeerId b);
  void repeat_links(PeerId peer);
  void on_turn(Epochs::Turn turn);
  void break_up();
  void reconfigured();
  void finish(const Agreement::Outcome& outcome);
  void begin_agreement();
  void advance_optimization();
  void note_size(PeerId peer, const protocol::OpInfo& info);
  struct Budget;
  bool agree_on(const Budget& budget);
  bool budgets_agree();
  void end_optimization();
  void notify_waiting();
  void notify_hindered(PeerId member);
  // Returns false if this was the last notice to this peer, or there is nothing to say.
  bool notify(PeerId peer, std::string why);
  std::string why_waiting(PeerId peer) const;
  void tell_of_newcomer(PeerId newcomer, const std::string& why);
  bool short_of_peers() const;  // update_topology waits for more
  std::string why_hindered(PeerId member) const;
  std::string why_members_are_awaited() const;
  std::string why_no_founding() const;
  std::string last_call_of(uint32_t rank) const;
  bool is_in_last_call(PeerId member) const;  // it has no outcome yet
  bool is_in_joint_call(PeerId member) const;
  bool blocks(uint32_t rank) const;
  std::optional<PeerId> member_at(uint32_t rank) const;  // nothing if it is lost
  std::vector<Wait> operation_waits() const;
  void announce(const std::vector<WaitReport::Announcement>& all);
  void restore_ballot();
  bool votes_in(const protocol::Settled& ballot) const;
  void check_peer(PeerId peer, const Membership::Peer& about) const;
  void check_votes() const;
  void check_nothing_is_due() const;

  const GroupId id_;
  Context& context_;
  Connections& connections_;
  Quorum quorum_;
  Membership membership_;
  Epochs epochs_;
  Ballot ballot_;
  Agreement agreement_;
  Optimization optimization_;
  Probation probation_{"PCCL_FIRST_CALL_TIMEOUT"};  // of newcomers
  Probation lateness_{"PCCL_CALL_TIMEOUT"};         // of the other members
  // Members that were not trained here when a sync_shared_state was elected, while others were.
  // Only a sync_shared_state that succeeds changes that, whatever else they take part in.
  std::set<PeerId> new_to_sync_;
  bool gave_up_sync_ = false;  // a member has: then it ends if it cannot without them
  // Members that have left an epoch that goes on, and whose data some operation may still need: the
  // others keep their links to them.
  std::set<PeerId> left_;
  std::map<PeerId, std::string> notices_;  // the last notice to each waiting peer
  std::set<PeerId> announced_newcomers_;   // that wait; the members were told so
  std::set<PeerId> hindered_;  // members that were told that a newcomer cannot be admitted
  bool notices_due_ = false;
  WaitReport wait_report_;
  std::string last_obstacle_;    // of a peer that gave up before the group began
  bool short_of_peers_ = false;  // and the members were told so
  HeldMessages held_;
  struct AnnouncedBallot {
    protocol::Settled ballot;
    bool pending = false;
    bool operator==(const AnnouncedBallot&) const = default;
  };
  // The reports of the members after a restart, without duplicates. Per group, in order of arrival.
  std::map<GroupId, std::vector<AnnouncedBallot>> announced_ballots_;
};

}  // namespace pccl::master
