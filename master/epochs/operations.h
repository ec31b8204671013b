// Operations: the operations that the members of one epoch have begun and finished (PROTOCOL.md,
// section 3). It is optimistic: a Begin gets no answer. The table learns from Begin and Done. It
// settles an operation when all members are done, when two descriptions of it differ, when a member
// gives it up, or when a joint update_topology ends it. If only newcomers describe it differently
// from all other members, it names them as misfits instead.
// Epochs owns it. It is pure.
// Invariants:
// 1. An operation is settled once.
// 2. A settled operation is remembered until all members have begun it, so that a late Begin is not
//    taken for a new operation. It is forgotten then.
// 3. An operation is open only as long as some member whose Done counts is not done.
// 4. All counts (open operations, members that have begun or finished one) match the table.
// 5. An abort proposal belongs to an operation of this epoch that some member is done with.
// 6. A settled operation no longer remembers which members had begun it in an earlier epoch.
// 7. Verdicts, abort proposals and misfits are taken in the step that made them.
// 8. A member that has left is done with every open operation that concerns it, and a member whose
//    posting is closed has begun it. The last member that has not left has no open question for a
//    send.
// Failure: a forbidden message returns kProtocol, and the connection of its sender is closed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/messages.h"
#include "master/epochs/any_source.h"
#include "master/members/newcomer.h"
#include "master/runs/records.h"
#include "master/text_format.h"

namespace pccl::master {

class Operations {
 public:
  Operations() = default;
  // `members` in rank order, as are their names.
  Operations(Epoch epoch, std::vector<PeerId> members, RankNames names = {});
  Operations(Epoch epoch, const std::vector<protocol::Member>& members)
      : Operations(epoch, ids(members), names_of(members)) {}

  // `newcomers`: Membership::newcomers(). If a newcomer and the other members differ, this is
  // judged only after all the others have begun the operation.
  Status begin(PeerId peer, OpKey op, const protocol::OpInfo& info,
               const std::vector<PeerId>& newcomers = {}, Instant now = {});
  // Whether begin() would accept this.
  Status check_begin(PeerId peer, OpKey op, const protocol::OpInfo& info) const;
  Status done(PeerId peer, OpKey op);
  // A member gives up an operation. If that member is done, others may have committed the operation
  // by now: it is settled only after a member that is not done has agreed to abort.
  // take_proposals() returns the abort proposals. `missing`: describes the present calls of the
  // given ranks.
  using Missing = std::function<std::string(const std::vector<uint32_t>& ranks)>;
  Status abort(PeerId peer, const protocol::AbortRequest& request, const Missing& missing = {});
  bool has_begun(PeerId peer, OpKey op) const;
  // Likewise, or it was begun in an earlier epoch of the generation and is to be begun again.
  bool was_begun(PeerId peer, OpKey op) const;
  bool knows(OpKey op) const { return table_.contains(op); }
  // The waits of the members: for each one, its oldest open operation that others have not begun.
  // `waiting`: the ranks that wait in it; `missing`: the ranks that have not begun it. `facing`
  // describes the receiver of a send that waits in a send to the sender.
  struct Waiting {
    OpKey key;
    std::string name;
    Instant since;
    std::vector<uint32_t> waiting, missing;
    std::string facing;
  };
  std::vector<Waiting> waits() const;
  // Whether the operation is open, and the member has begun it.
  bool is_in(PeerId peer, OpKey op) const;
  // Whether the operation is known, concerns the member, and the member has yet to begin it.
  bool awaits(PeerId peer, OpKey op) const;
  // The newcomers, since the last call, whose description of an operation differs from all others.
  // The operation stays open: its epoch is to end without the newcomers.
  std::vector<Misfit> take_misfits() { return std::exchange(misfits_, {}); }

  // Open operations that either a newcomer or the other members have begun and the other side has
  // not. They are named as "all_reduce(...) (#0)"; empty: none. A transfer counts only if it
  // concerns the newcomer.
  struct Standoff {
    bool shares = false;  // the newcomer and another member have begun the same operation,
    // and a third member that it concerns has not begun it; or another newcomer has not begun a
    // transfer that concerns these two
    bool held_up = false;
    std::string awaited;  // begun by some other members, not by the newcomer
    std::string
        // begun by all other members that it concerns: only the newcomer is missing
        awaited_by_all;
    std::string alone;  // begun by the newcomer, by none of the others that it concerns
  };
  Standoff standoff(PeerId newcomer, const std::vector<PeerId>& newcomers) const;
  // Whether `peer` has begun this operation and is not done, and the operation concerns a member
  // that is no newcomer.
  bool holds_up(PeerId peer, OpKey op, const std::vector<PeerId>& newcomers) const;

  // A member asks for sends to it under a tag, from any sender.
  Status await_send(PeerId peer, const protocol::AwaitSend& question) {
    const Status status = any_source_.await(peer, question);
    end_questions_of_last();
    return status;
  }
  bool asks_for_sends(PeerId peer) const { return any_source_.asks(peer); }
  // Whether the member asks for a send, or is in an open operation.
  bool waits(PeerId peer) const;
  // Whether the member is in an open operation, or asks for a send.
  bool is_in_any(PeerId peer) const;
  // Whether it was in an operation when the epoch before ended, and has yet to begin it again.
  bool is_to_repeat(PeerId peer) const;
  // The members, without newcomers, that are in open operations which concern `peer` and which it
  // has not begun, and the first of these operations, as "all_reduce(...) (#0)"; empty: none.
  struct Awaited {
    std::set<PeerId> by;
    std::string call;
  };
  Awaited awaited(PeerId peer, const std::vector<PeerId>& newcomers) const;
  // The send that a member asks for, newcomers aside; empty: none.
  std::string asked_send(const std::vector<PeerId>& newcomers) const;
  AnySource::Answers take_answers() { return any_source_.take_answers(); }

  // A member has left, and the epoch continues. Aborts the operations that concern this member and
  // that it is not done with: the open ones, and all that begin later.
  void leave(PeerId peer);
  // The member waits for an update_topology that is sure to change the group. Aborts the operations
  // that it has not begun: the open ones, and all that begin until open_posting().
  void close_posting(PeerId voter);
  void open_posting() { closed_.clear(); }
  // Whether an open operation still needs the data of this peer, a member that has left.
  bool needs(PeerId left) const;
  // Its data may be lost: aborts these operations.
  void abort_all_with(PeerId left);

  // A joint update_topology: aborts the open operations that some member has not begun. The rest
  // continues.
  void drain();
  bool drained() const { return open_ == 0; }
  // An operation that all members which it concerns have begun, and that has no outcome yet:
  // "all_reduce(...) (t, #1)". Empty: there is none.
  std::string under_way() const;
  // "3 operations are in flight, for instance all_reduce(...) (t, #1)"; empty when drained.
  std::string in_flight() const;

  // The abort proposals to send since the last call, with the member that each is for.
  std::vector<std::pair<PeerId, protocol::AbortProposal>> take_proposals();
  // The open abort proposals to a member that has resumed and may not have received them.
  std::vector<protocol::AbortProposal> proposals(PeerId peer) const;
  // The verdicts since the last call, in order.
  std::vector<protocol::Verdict> take_settled();
  // The survivors whose reports count when the epoch ends. Only the receiver's counts for a
  // transfer.
  std::vector<PeerId> concerned(OpKey op, const std::vector<PeerId>& survivors) const;
  bool is_transfer(OpKey op) const;  // whether a known operation is a send
  bool keeps(OpKey op) const;        // OpInfo::keep of a known operation
  // A member has resumed: it has begun all settled operations but those that it has yet to call,
  // and asks again for sends.
  void catch_up(PeerId peer, const std::vector<protocol::Uncalled>& uncalled);
  // An operation that was settled before a restart of the master. `not_begun`: the members that
  // have yet to call it. All others are assumed to have begun it. If one begins it, a report was
  // wrong, and it is a new operation. Ignored if it is known, if it is a send that does not concern
  // two members, or if there are too many.
  void restore_settled(const protocol::Uncalled& op, const std::set<PeerId>& not_begun);
  // The table for the continuation in the next epoch. It keeps the settled operations that some
  // member has yet to begin.
  Operations reconfigured(Epoch epoch, const std::vector<PeerId>& members,
                          RankNames names = {}) const;
  Operations reconfigured(Epoch epoch, const std::vector<protocol::Member>& members) const {
    return reconfigured(epoch, ids(members), names_of(members));
  }
  // The end of the epoch before has committed these: they do not begin again.
  void not_repeated(const std::vector<OpKey>& committed) {
    for (const OpKey op : committed) begun_before_.erase(op);
  }
  size_t open_count() const { return open_; }
  size_t known_count() const { return table_.size(); }  // including settled ones
  // Whether it is the table of this epoch with these members, in rank order.
  bool is_of(Epoch epoch, const std::vector<protocol::Member>& members) const;
  // Asserts the invariants. REQUIRES: the end of a step.
  void check() const;

 private:
  enum class At : uint8_t { kNothing, kBegun, kDone };
  static bool transfers(const protocol::OpInfo& info) {
    return info.kind == protocol::OpKind::kSend;
  }
  static bool is_cut_off(const protocol::OpInfo& info, const std::vector<PeerId>& members);
  struct Op {
    protocol::OpInfo info;  // of the first Begin; without the part sizes once it is settled
    uint32_t first = 0;     // the rank whose Begin that was
    bool settled = false;
    // Taken from the reports of members after a restart of the master. It is assumed that the
    // members that did not report it have begun it.
    bool restored = false;
    uint32_t begun = 0;  // by how many of the members that it concerns
    uint32_t done = 0;
    std::vector<At> at;  // by rank
    Instant since;       // time of the first Begin
    bool faced = false;  // a send that this send faced has ended
    // The differing descriptions, by rank. These members are never done with the operation.
    std::map<uint32_t, protocol::OpInfo> otherwise;
    std::optional<protocol::AbortProposal> proposal;
  };
  using Table = std::map<OpKey, Op>;

  uint32_t rank(PeerId peer) const {
    const auto at = ranks_.find(peer);
    PCCL_ASSERT(at != ranks_.end());
    return at->second;
  }
  bool concerns(const Op& op, uint32_t rank) const;
  uint32_t parties(const Op& op) const;
  bool finished(const Op& op) const;  // all members whose Done counts are done
  // All members that it concerns have begun it, apart from those that have left.
  bool acknowledged(const Op& op) const;
  void abort_without(uint32_t left, bool although_done);
  void settle_without(Table::iterator at, uint32_t left);
  std::string without_text(Table::const_iterator at, uint32_t left) const;
  void settle_closed(Table::iterator at, const std::vector<uint32_t>& idle);
  std::optional<uint32_t> missed_by_left(const Op& op) const;
  std::optional<uint32_t> missed_by_closed(const Op& op) const;
  void end_questions_of_last();
  void mark_begun(Table::iterator at, uint32_t rank);
  bool awaits_receiver(OpKey key,
                       const Op& op) const;  // an open send that only its sender has begun
  void propose_abort(Op& op, const protocol::AbortRequest& request);
  void settle(Table::iterator at, protocol::Outcome outcome, Code code, const std::string& text);
  void forget_if_acknowledged(Table::iterator at);
  void erase(Table::iterator at);
  void forget_descriptions(Op& op);
  std::vector<uint32_t> ranks_at(const Op& op, At what) const;
  std::string name(const Op& op, OpKey key) const;
  bool faces(const Op& op, const Op& other) const;
  void mark_faced(const Op& op);
  std::string facing_text(const Op& op) const;  // empty if it faces no send
  protocol::PeerText who() const;
  Waiting wait_of(OpKey key, const Op& op, std::vector<uint32_t> waiting) const;
  std::string mismatch(const Op& op, OpKey key) const;
  void judge(Table::iterator at, const std::vector<PeerId>& newcomers);
  bool is_in(const std::vector<PeerId>& peers, uint32_t rank) const;
  // The numbers of members (without newcomers) concerned by it that have begun it, and that have
  // not.
  std::pair<size_t, size_t> others(const Op& op, const std::vector<PeerId>& newcomers) const;
  void check(OpKey key, const Op& op) const;
  void check_ranks() const;

  Epoch epoch_;
  std::vector<PeerId> members_;
  RankNames names_;
  std::map<PeerId, uint32_t> ranks_;
  Table table_;
  AnySource any_source_;
  std::set<uint32_t> left_;       // the ranks that have left
  std::set<uint32_t> closed_;     // the ranks whose posting is closed
  size_t open_ = 0;               // operations that are not settled
  std::vector<size_t> begun_by_;  // table entries begun, by rank
  // Bytes that the descriptions of open operations carry, by the rank that has given them.
  std::vector<size_t> carried_by_;
  std::vector<protocol::Verdict> settled_;
  std::vector<Misfit> misfits_;
  std::vector<std::pair<PeerId, protocol::AbortProposal>> proposals_;
  // The members that had begun an operation, not settled yet, in an earlier epoch of the
  // generation. They begin it again in this epoch.
  std::map<OpKey, std::set<PeerId>> begun_before_;
};

}  // namespace pccl::master
