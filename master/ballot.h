// Ballot: the joint calls of one group: who has voted for what, one open ballot at a time
// (PROTOCOL.md, section 5). Every micro-consensus of a run is this same vote. What a complete
// ballot decides is the business of others; they settle it, and the ballot says who is to be told
// what. Invariants: a voter has at most one vote open; in a group that is not broken all open votes
// have the same number; a number that was settled before some member voted for it is answered alike
// when it does.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/protocol/messages.h"

namespace pccl::master {

class Ballot {
 public:
  using Answers = std::vector<std::pair<PeerId, protocol::Answer>>;

  Ballot() = default;
  // A new generation: `voters` in rank order.
  explicit Ballot(std::vector<PeerId> voters);
  // The group is broken: numbers no longer match between voters, and need not.
  void break_up();
  void lose(PeerId voter);
  // After a restart: what a voter brings back, its number and what it was answered last. A broken
  // group is broken up before.
  void restore(PeerId voter, uint32_t answered, const std::optional<protocol::Answer>& last);
  // A renewal of the epoch: open votes are void and will be cast again. `voters` in rank order.
  void renew(std::vector<PeerId> voters);

  enum class Cast {
    kCounted,   // it waits for the others
    kDiffers,   // likewise, but it is of another kind than theirs: mismatch() says how
    kAnswered,  // that number was settled before: last_answer() is for this voter
    kRepeated,  // it was counted before, on a connection that broke
    kRefused,   // not counted: in a broken group only update_topology is; refuse() answers it
  };
  // kProtocol if the vote is out of turn.
  Result<Cast> cast(PeerId voter, const protocol::Vote& vote);
  // REQUIRES: cast() has refused this vote.
  protocol::Answer refuse(PeerId voter, const protocol::Vote& vote, const Status& why);

  // Of the open ballot, nothing if there is none.
  std::optional<protocol::JointKind> kind() const;
  bool is_complete() const;
  bool is_complete(protocol::JointKind of) const { return kind() == of && is_complete(); }
  // Whether this is the number of an open vote of this voter.
  bool is_open(PeerId voter, uint32_t number) const;
  bool is_open(PeerId voter, protocol::JointKind kind) const;  // whether it has an open vote for it
  const protocol::Vote& vote(PeerId voter) const;              // REQUIRES: voted
  std::vector<uint32_t> missing() const;                       // ranks that have not voted
  std::string mismatch() const;  // each kind with its ranks, the rarer first
  // If open votes are of different kinds, this is the mistake of newcomers when all other voters
  // have voted alike. It is everybody's when those differ, or when there are no others.
  struct Difference {
    bool everybodys = false;
    std::vector<PeerId> misfits;
  };
  Difference difference(const std::vector<PeerId>& newcomers) const;
  bool has_voted(PeerId voter) const;  // it has an open vote

  // Ends the open ballot. `answer` but for number and kind, which are each voter's own.
  Answers settle(const protocol::Answer& answer);
  // Answers the open votes that are not for this kind.
  Answers settle_others(protocol::JointKind kind, const protocol::Answer& answer);
  // What the voter was told last in this generation, or null.
  const protocol::Answer* last_answer(PeerId voter) const;

 private:
  struct Voter {
    uint32_t next = 0;  // the number of its next vote, or of the open one
    std::optional<protocol::Vote> vote;
    std::optional<protocol::Answer> last_answer;
  };
  Status check(const Voter& voter, const protocol::Vote& vote) const;
  std::vector<std::pair<uint32_t, const Voter*>> by_rank() const;
  const protocol::Answer* settled_without(uint32_t number) const;
  const protocol::Answer* brought_back(const protocol::Vote& vote) const;
  template <typename Which>
  Answers settle_if(const protocol::Answer& answer, Which which);
  protocol::Answer& tell(Voter& voter, const protocol::Vote& vote, protocol::Answer answer);

  std::vector<PeerId> order_;       // of ranks: who is lost stays, so that ranks do not shift
  std::map<PeerId, Voter> voters_;  // who is left
  size_t open_ = 0;                 // votes of theirs
  std::map<uint32_t, protocol::Answer> settled_;  // numbers that not all have voted for
  bool broken_ = false;
};

}  // namespace pccl::master
