// Epochs: the epochs of one peer group, one after another: founded, changed by agreement, ended by
// a loss (PROTOCOL.md, sections 2 to 5). Holds what the members of the present one have posted,
// tells them what became of it, and asks the survivors when one is lost. The table of phases is in
// epochs.cc. Whether a change was agreed on, who is lost and why, is for group.cc to say; what
// follows from it happens in advance(), at the end of every step. Invariant: nobody is told of a
// new membership, or of verdicts after a loss, before both are durable.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "master/connections.h"
#include "master/membership.h"
#include "master/operations.h"
#include "master/resume.h"

namespace pccl::master {

class Epochs {
 public:
  enum class Phase {
    kFounding,
    kActive,
    kDraining,
    kStarting,
    kAsking,
    kEnding,
    kBroken,
    kGathering,  // after a restart: the members come back and say what they know
  };
  // What advance() or persisted() has brought about, for the joint calls of the group.
  enum class Turn {
    kNone,
    kStarted,    // members were told of a new generation: it answers those that voted for it
    kRenewed,    // members were told of a new epoch of the same generation
    kEnded,      // survivors were told that the epoch is over
    kUnchanged,  // there is nothing to change any more: the epoch goes on
    kGathered,   // all members are back, or lost
  };

  Epochs(GroupId group, Context& context, Connections& connections, Membership& membership);

  Phase phase() const { return phase_; }
  Epoch current() const { return told_.current.epoch; }
  // A member was lost since the generation began, and only a change helps.
  bool disturbed() const { return !goes_on() || broken(); }
  // Nothing can be called any more, though something that is kept may be going on.
  bool broken() const { return phase_ == Phase::kBroken || keeps(); }
  // A member was lost in an epoch whose end is not durable yet.
  bool losing() const {
    const bool starts = phase_ == Phase::kStarting && plan_.came_from != Phase::kBroken;
    return !lost_.empty() && (phase_ == Phase::kAsking || phase_ == Phase::kEnding || starts);
  }
  bool changing() const { return change_; }
  bool gathering() const { return phase_ == Phase::kGathering; }
  Epoch generation() const { return told_.start.generation; }
  // With which groups the present generation was agreed on.
  const std::vector<protocol::Settled>& together() const { return told_.start.together; }
  // All who were members when the epoch began, in rank order.
  std::vector<PeerId> ranked() const { return ids(told_.start.members); }
  // Whether what was said in `epoch` to its members still counts.
  bool in_generation(Epoch epoch) const {
    const bool renewed = told_.start.generation != told_.start.epoch;
    return epoch == current() || (renewed && epoch == told_.previous.epoch);
  }

  // ---- From members: kProtocol if it may not be said; void if it has crossed the end ----
  Status begin(PeerId peer, const protocol::Begin& begin);
  Status done(PeerId peer, const protocol::Done& done);
  Status abort(PeerId peer, const protocol::AbortRequest& request);
  Status report(PeerId peer, const protocol::Report& report);
  Status acknowledge(PeerId peer, Epoch epoch, uint64_t verdict_index);
  // Whether resume() or gather() may take this; changes nothing.
  Status check(const protocol::Resume& resume) const;
  // A member is back: what it has missed, in order. What it has open is taken over.
  Result<std::vector<protocol::Message>> resume(const protocol::Resume& resume);

  // ---- After a restart ----
  // What was durable. REQUIRES: founding; the membership was restored, with members.
  void restore(const MembershipRecord& record);
  // A member is back. Replaces what it said before. kProtocol if it cannot be. REQUIRES: gathering.
  Status gather(const protocol::Resume& resume);
  void scatter(PeerId peer) { gathered_.erase(peer); }  // its connection has closed again
  // What the members brought back. REQUIRES: kGathered has just been returned.
  std::map<PeerId, protocol::Resume> take_gathered() { return std::exchange(gathered_, {}); }

  // ---- From the group ----
  // A link between members was made anew: what was on the old one is gone, and the epoch with it.
  void renew();
  // update_topology was agreed on, by these groups together.
  void change(std::vector<protocol::Settled> together = {});
  void give_up_change();                                              // by who had agreed
  void lose(const protocol::Member& member, const std::string& why);  // REQUIRES: removed
  void waiting_gone(PeerId peer);  // registered, not a member: no longer to be chosen
  // Takes every step that is due. `may_end`: nothing that the end would overtake is being recorded.
  // `may_change`: the votes for a change that was agreed on stand, after a renewal again.
  Turn advance(const Quorum& quorum, bool may_end, bool may_change);
  Turn persisted(uint64_t token);
  void flush();  // tells the members what was settled
  const Operations& operations() const { return operations_; }
  // Newcomers whose description of an operation is another than that of all other members.
  std::vector<Misfit> take_misfits() { return operations_.take_misfits(); }
  // Members that do not acknowledge what they are told.
  std::vector<PeerId> laggards() const;

  // Why the group is broken. REQUIRES: broken(), or kStarting from there.
  const std::string& end_text() const {
    return (told_.current.end ? told_.current : told_.previous).end->text;
  }
  // "3 operations are in flight, ...", "rank 2 has not reported": what a change waits for.
  std::string waits_for() const;

 private:
  struct Plan {
    uint64_t token = 0;
    std::optional<protocol::EpochEnd> end;
    std::optional<protocol::EpochStart> start;
    size_t lost = 0;  // when so many were lost
    Phase came_from = Phase::kFounding;
  };

  void enter(Phase next);
  bool goes_on() const;             // the epoch, if it has to end now, is renewed with everything
  bool keeps() const;               // it is itself a renewal, with what is kept
  Status check(Epoch epoch) const;  // kProtocol if it is none of the past
  Status take_over(const protocol::Resume& resume);
  void plan_start(const std::vector<PeerId>& members);
  void plan_end();
  void stay();  // in the epoch that there is: the plan is given up
  void persist(Plan plan);
  protocol::EpochStart start_with(const std::vector<PeerId>& members, Epoch generation);
  uint32_t longest_way(const std::vector<PeerId>& ring) const;
  // What the members will have been told when the plan has been carried out.
  Told told_by(const Plan& plan) const;
  void start();
  Turn end();
  void begin_epoch();  // tells the members of the plan
  std::vector<protocol::Member> lost_members() const;
  void ask();
  void extinct();
  void advance_asking();
  bool all_gathered() const;
  Turn go_on();  // from what was gathered
  void rebuild_verdicts();
  void break_off(PeerId peer, const Status& why);
  void take_settled();  // into the list of verdicts
  void compared(bool is_transfer);
  Turn advance_change();
  std::vector<uint32_t> silent_ranks() const;
  std::string lost_text() const;

  const GroupId group_;
  Context& context_;
  Connections& connections_;
  Membership& membership_;

  Phase phase_ = Phase::kFounding;
  Told told_;
  Operations operations_;
  bool change_ = false;
  std::vector<protocol::Settled> together_;  // who has agreed on that change
  Quorum quorum_;
  Plan plan_;
  struct Lost {
    protocol::Member member;
    std::string why;
  };
  std::vector<Lost> lost_;  // since the epoch began
  bool asked_ = false;      // Ask was sent
  std::map<PeerId, protocol::Report> reports_;
  std::map<PeerId, protocol::Resume> gathered_;
  bool disturbed_while_gathering_ = false;  // a link was made anew
};

const char* text(Epochs::Phase phase);

}  // namespace pccl::master
