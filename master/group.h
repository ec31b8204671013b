// Group: one peer group of a run: its peers, its epochs, its joint calls and its shared state, and
// what one of them means for the others. A loss here is nobody else's business; only joint.cc looks
// at several groups. Every message of a peer that is registered ends up here, after core.cc has
// seen that it may be said in the phase of its connection.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "master/agreement.h"
#include "master/ballot.h"
#include "master/epochs.h"
#include "master/membership.h"
#include "master/newcomer.h"

namespace pccl::master {

class Group {
 public:
  Group(GroupId id, Context& context, Connections& connections);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  GroupId id() const { return id_; }
  const Quorum& quorum() const { return quorum_; }
  const Membership& membership() const { return membership_; }
  const Ballot& ballot() const { return ballot_; }
  // All members have voted for this. While it is not durable that one was lost, that one counts: a
  // restarted master would take it back, and it would wait for the others in an older ballot.
  bool has_voted(protocol::JointKind kind) const {
    return ballot_.is_complete(kind) && !epochs_.losing();
  }
  const Agreement& agreement() const { return agreement_; }
  const Epochs& epochs() const { return epochs_; }
  bool has_members() const { return !membership_.members().empty(); }

  // ---- Coming and going ----
  // `quorum` counts while nobody else is here.
  void welcome(PeerId peer, Membership::Peer about, const Quorum& quorum);
  void away(PeerId peer);  // its connection has closed
  // Whether back() may take this; changes nothing. kProtocol if it says what cannot be.
  Status check(const protocol::Resume& resume) const;
  // It is back, and its connection is introduced: tells it what it missed. kProtocol if it says
  // what cannot be.
  Status back(const protocol::Resume& resume);
  void leave(PeerId peer);                            // by its own will
  void give_up(PeerId peer, const std::string& why);  // whatever it is here, it is lost

  // ---- After a restart, while the members come back ----
  void restore(const MembershipRecord& record);
  void restore(const SharedStateRecord& record);

  // ---- What cannot be heard yet ----
  // Whether the next membership is being made durable: then it is open whether this epoch goes on.
  bool deciding() const { return epochs_.phase() == Epochs::Phase::kStarting; }
  // What a member says while others come back, or while this group is deciding, waits until that is
  // over, and is then heard in its order. kProtocol if that is more than it may have to say.
  Status hold(PeerId peer, const protocol::Message& message);
  struct Held {
    PeerId peer;
    protocol::Message message;
  };
  std::vector<Held> take_held();  // what is to be heard now

  // ---- From a peer: kProtocol if it may not be said now ----
  Status hear(PeerId peer, const protocol::Register& message);
  Status hear(PeerId peer, const protocol::LinkReport& message);
  Status hear(PeerId peer, const protocol::Begin& message);
  Status hear(PeerId peer, const protocol::Done& message);
  Status hear(PeerId peer, const protocol::AbortRequest& message);
  Status hear(PeerId peer, const protocol::Report& message);
  Status hear(PeerId peer, const protocol::Vote& message);
  Status hear(PeerId peer, const protocol::Fetched& message);
  Status hear(PeerId peer, const protocol::Ping& message);
  Status hear(PeerId peer, const protocol::Pong& message);

  // ---- Newcomers (newcomer.h) ----
  // Removes those that do something else than all other members, or nothing for too long. Whether
  // it has removed any. `awaited_by_others`: the joint call of all groups that other groups wait
  // in.
  bool watch_newcomers(const std::string& awaited_by_others);
  // Nobody here has taken part in anything yet.
  bool is_new() const { return membership_.highest_standing() == protocol::Standing::kNone; }
  // A newcomer does not want to wait any longer for a joint call of this kind: it was removed.
  // False: it is no newcomer.
  bool gives_up_as_newcomer(PeerId peer, protocol::JointKind kind);
  std::optional<Instant> deadline() const { return probation_.deadline(); }
  // Time has passed in which nobody could be heard.
  void excuse_newcomers() { probation_.restart(); }

  // ---- Time and progress ----
  // A tick has passed. Returns members that are to be cut off: they acknowledge nothing.
  std::vector<PeerId> tick();
  void persisted(uint64_t token);
  void advance();  // takes every step that is due
  void flush() { epochs_.flush(); }

  // ---- Joint calls, for joint.cc ----
  bool would_change() const;
  void change(std::vector<protocol::Settled> together) { epochs_.change(std::move(together)); }
  // The open ballot, in which all have voted.
  protocol::Settled settled_ballot() const;
  // After a restart: what this group's members were told, before it, of the ballot that is complete
  // in another group, which was settled together with theirs; nothing if they were not. It is
  // settled then, however this group goes on. True: are_peers_pending, and they are.
  std::optional<bool> told_of(const Group& other) const;
  bool tells() const { return !told_of_.empty(); }
  std::vector<GroupId> tells_of() const;        // groups that told_of() may know something of
  void answer(const protocol::Answer& answer);  // to all who have voted

  // Nobody is here, and nothing is being made durable.
  bool deserted() const;
  // Likewise, and nothing is to be remembered.
  bool forgettable() const { return deserted() && !agreement_.recorded(); }
  // Whatever was decided is on its way to everybody.
  bool settled() const;

 private:
  // A member; `level` says how much of a surprise it is.
  void lose(PeerId peer, const std::string& reason, LogLevel level = LogLevel::kWarning);
  void drop(PeerId peer, const std::string& why);  // not a member
  void take_out(PeerId peer, const std::string& why);
  void remove(const Misfit& misfit);  // a newcomer
  Probation::Seen seen_of(PeerId newcomer) const;
  std::vector<Probation::Seen> see_newcomers(const std::string& awaited_by_others) const;
  void judge_votes();
  void took_part(const protocol::Answer& answer, PeerId peer);
  bool trained_here(PeerId peer) const;
  void forget_held(PeerId peer);
  void lose_if_cut_off(PeerId peer);  // rule 1 of section 4
  void log_unreachable(PeerId peer, const protocol::LinkReport& message);
  void tell_to_forget(PeerId peer);
  void dial(PeerId dialler, PeerId target);
  void dial_first(PeerId a, PeerId b);
  void repeat_links(PeerId peer);
  void on_turn(Epochs::Turn turn);
  void break_up();
  void finish(const Agreement::Outcome& outcome);
  void begin_agreement();
  void notify_waiting();
  void notify(PeerId peer, std::string why);  // once of the same
  std::string why_waiting(PeerId peer) const;
  void restore_ballot();
  bool votes_in(const protocol::Settled& ballot) const;

  const GroupId id_;
  Context& context_;
  Connections& connections_;
  Quorum quorum_;
  Membership membership_;
  Epochs epochs_;
  Ballot ballot_;
  Agreement agreement_;
  Probation probation_;
  std::map<PeerId, std::string> notices_;  // the last one of each who waits
  bool notices_due_ = false;
  struct HeldOf {
    std::vector<protocol::Message> messages;
    size_t bytes = 0;
  };
  std::map<PeerId, HeldOf> held_;
  struct ToldOf {
    protocol::Settled ballot;
    bool pending = false;
    bool operator==(const ToldOf&) const = default;
  };
  // As the members brought it back, each once. Of one group in the order in which it came.
  std::map<GroupId, std::vector<ToldOf>> told_of_;
};

}  // namespace pccl::master
