// Ballot: the joint calls of one group (PROTOCOL.md, section 5). It knows the vote of each member,
// with one open ballot at a time. Every small agreement of a run uses this same vote. Other classes
// decide the answer and settle a complete ballot; this class returns which answer each voter gets.
// Group owns it. It is pure.
// Invariants:
// 1. A voter has at most one open vote.
// 2. If the group is not broken, all open votes have the same number. (After a restart this holds
//    only if the members reported their numbers truly; a false report harms only their group.)
// 3. If a number was settled before some member voted for it, that member gets the same answer when
//    it votes.
// 4. An open vote has the voter's next number. The voter's last answer has a lower number.
// 5. open_ is the number of open votes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/protocol/messages.h"
#include "master/group/ruling.h"
#include "master/text_format.h"

namespace pccl::master {

class Ballot {
 public:
  using Answers = std::vector<std::pair<PeerId, protocol::Answer>>;

  Ballot() = default;
  // A new generation begins. `voters` and their names are in rank order.
  explicit Ballot(std::vector<PeerId> voters, RankNames names = {});
  // The group is broken: the voters' numbers may differ from now on. `continued`: the number of a
  // sync_shared_state that continues, because all voters have an open vote for it.
  void break_up(std::optional<uint32_t> continued = {});
  bool broken() const { return broken_; }
  void lose(PeerId voter);
  // After a restart: the voter's next number and its last answer. If the group is broken,
  // break_up() must be called first.
  void restore(PeerId voter, uint32_t answered, const std::optional<protocol::Answer>& last);
  // A new epoch of the same generation: open votes are void and will be cast again. `voters` in
  // rank order.
  void reconfigure(std::vector<PeerId> voters, RankNames names = {});

  enum class Cast {
    kCounted,   // it waits for the other votes
    kDiffers,   // it waits too, but its kind differs from an open vote: see mismatch()
    kAnswered,  // its number was settled before: last_answer() has the answer
    // this vote was counted before: the voter repeats it on a new connection, or because it now
    // waits for its background call
    kRepeated,
    kRefused,  // a broken group counts only update_topology: refuse() makes the answer
  };
  // Fails with kProtocol if the number is not the next number of the voter.
  Result<Cast> cast(PeerId voter, const protocol::Vote& vote);
  // Returns the answer to a refused vote. REQUIRES: cast() has returned kRefused for it.
  protocol::Answer refuse(PeerId voter, const protocol::Vote& vote, const Status& why);

  // Returns the kind of the open ballot; nothing if no ballot is open.
  std::optional<protocol::JointKind> kind() const;
  bool is_complete() const;
  bool is_complete(protocol::JointKind of) const { return kind() == of && is_complete(); }
  // Whether this voter has an open vote with this number.
  bool is_open(PeerId voter, uint32_t number) const;
  bool is_open(PeerId voter, protocol::JointKind kind) const;  // an open vote of this kind
  const protocol::Vote& vote(PeerId voter) const;              // REQUIRES: voted
  std::vector<uint32_t> missing() const;                       // ranks that have not voted
  // Returns a text with each kind and its ranks, the rarest kind first. REQUIRES: the open votes
  // are of different kinds.
  std::string mismatch() const;
  // Returns an empty ruling while all open votes have the same kind. If they differ, the voters
  // that are no newcomers decide. If all of them have voted for one kind, newcomers with another
  // kind are misfits. If their kinds differ, or all voters are newcomers, the ruling ends the
  // ballot with an error for all.
  Ruling rule_on_kinds(const std::vector<PeerId>& newcomers) const;
  bool has_voted(PeerId voter) const;  // it has an open vote

  static protocol::Answer timeout(std::string text);
  // Ends the open ballot. Each voter gets `answer` with the number and the kind of its own vote.
  Answers settle(const protocol::Answer& answer);
  // Answers the open votes for all kinds but `kind`.
  Answers settle_others(protocol::JointKind kind, const protocol::Answer& answer);
  // The voter's last answer in this generation, or null.
  const protocol::Answer* last_answer(PeerId voter) const;

  size_t size() const { return voters_.size(); }
  bool is_voter(PeerId peer, uint32_t rank) const;
  // Asserts the invariants.
  void check() const;

 private:
  struct Voter {
    uint32_t next = 0;  // the number of its open vote; without one, of its next vote
    std::optional<protocol::Vote> vote;
    std::optional<protocol::Answer> last_answer;
  };
  Status check(const Voter& voter, const protocol::Vote& vote) const;
  std::vector<std::pair<uint32_t, const Voter*>> by_rank() const;
  const protocol::Answer* settled_without(uint32_t number) const;
  const protocol::Answer* brought_back(const protocol::Vote& vote) const;
  template <typename Which>
  Answers settle_if(const protocol::Answer& answer, Which which);
  protocol::Answer& answer_voter(Voter& voter, const protocol::Vote& vote, protocol::Answer answer);

  std::vector<PeerId> order_;       // by rank; lost voters stay, so that ranks do not change
  RankNames names_;                 // by rank, lost voters included
  std::map<PeerId, Voter> voters_;  // the voters that are not lost
  size_t open_ = 0;                 // open votes
  // answers to numbers for which some voter has not voted yet
  std::map<uint32_t, protocol::Answer> settled_;
  bool broken_ = false;
  std::optional<uint32_t> continued_;  // broken: the number of the sync_shared_state that continues
  bool restored_ = false;  // some numbers are as the voters reported them after a restart
};

}  // namespace pccl::master
