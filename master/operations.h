// Operations: what the members of one epoch have posted and finished, until it is settled and
// everybody has heard (PROTOCOL.md, section 3). Optimistic: nobody is answered when it begins; the
// table learns from Begin and Done, and settles an operation when all are done, when two
// descriptions of it differ, when somebody gives it up, or when a joint update_topology ends it.
// If only newcomers describe it otherwise than all other members, they are named as misfits
// instead. Invariants: an operation is settled once; a settled one is remembered until all have
// begun it, so that a late Begin is not taken for a new operation. Failure: what a peer may not say
// is kProtocol; its connection is closed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/protocol/limits.h"
#include "csrc/protocol/messages.h"
#include "master/newcomer.h"

namespace pccl::master {

class Operations {
 public:
  Operations() = default;
  // `members` in rank order.
  Operations(Epoch epoch, std::vector<PeerId> members);

  // `newcomers`: Membership::newcomers(). A difference between one of them and the rest is not
  // judged before the rest has called the operation.
  Status begin(PeerId peer, OpKey op, const protocol::OpInfo& info,
               const std::vector<PeerId>& newcomers = {});
  // Whether begin() may take this.
  Status check_begin(PeerId peer, OpKey op, const protocol::OpInfo& info) const;
  Status done(PeerId peer, OpKey op);
  // Of what others may have committed by now nothing is settled before one who is not done has said
  // that it will not be: asked() who that may be.
  Status abort(PeerId peer, const protocol::AbortRequest& request);
  bool has_begun(PeerId peer, OpKey op) const;
  // Likewise, or in an earlier epoch of the generation, to be begun again.
  bool was_begun(PeerId peer, OpKey op) const;
  bool knows(OpKey op) const { return table_.contains(op); }
  // A newcomer whose description of an operation is another than that of all others, since the last
  // call. That operation stays open: its epoch is to end without the newcomer.
  std::vector<Misfit> take_misfits() { return std::exchange(misfits_, {}); }

  // The operations that a newcomer or the others have open and the other side has not called. They
  // are named as "all_reduce(...) (#0)"; empty: there is none. Of transfers, those that concern it.
  struct Standoff {
    bool shares = false;   // one has been begun by the newcomer and by another member,
    bool held_up = false;  // and a third that it concerns has not begun it
    std::string awaited;   // begun by some other members, not by the newcomer
    std::string
        awaited_by_all;  // begun by all other members that it concerns: it waits for no other
    std::string alone;   // begun by the newcomer, by none of the others that it concerns
  };
  Standoff standoff(PeerId newcomer, const std::vector<PeerId>& newcomers) const;
  // Whether `peer` has begun this one, is not done with it, and it concerns a member that is no
  // newcomer.
  bool holds_up(PeerId peer, OpKey op, const std::vector<PeerId>& newcomers) const;

  // A joint update_topology: what some member has not begun ends here. The rest goes on.
  void drain();
  bool drained() const { return open_ == 0; }
  // "3 operations are in flight, for instance all_reduce(...) (t, #1)"; empty when drained.
  std::string in_flight() const;

  // Who was to be asked to withhold something since the last call, and for what.
  std::vector<std::pair<PeerId, protocol::Withhold>> take_asked();
  // The same of one who is back, and may not have heard it.
  std::vector<protocol::Withhold> asked(PeerId peer) const;
  // What was settled since the last call, in order.
  std::vector<protocol::Verdict> take_settled();
  // Those of `survivors` whose word counts when the epoch ends: of a transfer its receiver's alone.
  std::vector<PeerId> concerned(OpKey op, const std::vector<PeerId>& survivors) const;
  bool is_transfer(OpKey op) const;  // of one that is known: a send
  bool keeps(OpKey op) const;        // OpInfo::keep of one that is known
  // For the renewal of this epoch: what was settled, and who has yet to call it, goes on.
  Operations renewed(Epoch epoch, const std::vector<PeerId>& members) const;
  size_t open_count() const { return open_; }
  size_t known_count() const { return table_.size(); }  // settled ones included

 private:
  enum class At : uint8_t { kNothing, kBegun, kDone };
  struct Op {
    protocol::OpInfo info;  // of the first Begin
    bool settled = false;
    uint32_t begun = 0;  // how many of those it concerns
    uint32_t done = 0;
    std::vector<At> at;  // by rank
    // By rank, of those that describe it otherwise. They are never done with it.
    std::map<uint32_t, protocol::OpInfo> otherwise;
    std::optional<protocol::Withhold> withhold;
  };
  using Table = std::map<OpKey, Op>;

  uint32_t rank(PeerId peer) const { return ranks_.at(peer); }
  bool concerns(const Op& op, uint32_t rank) const;
  uint32_t parties(const Op& op) const;
  bool finished(const Op& op) const;  // by all whose Done counts
  void mark_begun(Table::iterator at, uint32_t rank);
  void ask_others(Op& op, const protocol::AbortRequest& request);
  void settle(Table::iterator at, protocol::Outcome outcome, Code code, std::string text);
  void forget_if_heard(Table::iterator at);
  void erase(Table::iterator at);
  std::vector<uint32_t> ranks_at(const Op& op, At what) const;
  std::string name(const Op& op, OpKey key) const;
  std::string mismatch(const Op& op, OpKey key) const;
  void judge(Table::iterator at, const std::vector<PeerId>& newcomers);
  bool is_in(const std::vector<PeerId>& peers, uint32_t rank) const;
  // How many of the members that it concerns, newcomers left out, have begun it, and have not.
  std::pair<size_t, size_t> others(const Op& op, const std::vector<PeerId>& newcomers) const;

  Epoch epoch_;
  std::vector<PeerId> members_;
  std::map<PeerId, uint32_t> ranks_;
  Table table_;
  size_t open_ = 0;               // not settled
  std::vector<size_t> begun_by_;  // entries of the table that each rank has begun
  std::vector<protocol::Verdict> settled_;
  std::vector<Misfit> misfits_;
  std::vector<std::pair<PeerId, protocol::Withhold>> asked_;
  // Who had begun what is not settled, in earlier epochs of the generation: it begins again there.
  std::map<OpKey, std::set<PeerId>> begun_before_;
};

}  // namespace pccl::master
