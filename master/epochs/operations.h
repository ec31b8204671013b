// Operations: the operations that the members of one epoch have begun and finished (PROTOCOL.md,
// section 3). It is optimistic: a Begin gets no answer. The table learns from Begin and Done. It
// settles an operation when all members are done, when two descriptions of it differ, when a member
// gives it up, or when a joint update_topology ends it. If only newcomers describe it differently
// from all other members, it names them as misfits instead.
// PresentEpoch owns it. It is pure. The table itself is in op_table.h, and operation_waits.h
// describes the waits of the members in it.
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
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/protocol/messages.h"
#include "master/epochs/any_source.h"
#include "master/epochs/op_table.h"
#include "master/members/misfit.h"
#include "master/runs/records.h"
#include "master/text_format.h"

namespace pccl::master {

class OperationWaits;

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
  // take_proposals() returns the abort proposals.
  Status abort(PeerId peer, const protocol::AbortRequest& request, const MissingText& missing = {});
  bool has_begun(PeerId peer, OpKey op) const { return table_.has_begun(peer, op); }
  // Likewise, or it was begun in an earlier epoch of the generation and is to be begun again.
  bool was_begun(PeerId peer, OpKey op) const {
    return table_.has_begun(peer, op) || table_.is_to_begin_again(peer, op);
  }
  bool knows(OpKey op) const { return table_.ops.contains(op); }
  OperationWaits waits() const;  // of the members; it refers to this object
  // The newcomers, since the last call, whose description of an operation differs from all others.
  // The operation stays open: its epoch is to end without the newcomers.
  std::vector<Misfit> take_misfits() { return std::exchange(misfits_, {}); }

  // A member asks for sends to it under a tag, from any sender.
  Status await_send(PeerId peer, const protocol::AwaitSend& question) {
    const Status status = table_.any_source.await(peer, question);
    end_questions_of_last();
    return status;
  }
  AnySource::Answers take_answers() { return table_.any_source.take_answers(); }

  // A member has left, and the epoch continues. Aborts the operations that concern this member and
  // that it is not done with: the open ones, and all that begin later.
  void leave(PeerId peer);
  // The member waits for an update_topology that is sure to change the group. Aborts the operations
  // that it has not begun: the open ones, and all that begin until open_posting().
  void close_posting(PeerId voter);
  void open_posting() { closed_.clear(); }
  // Whether an open operation still needs the data of this peer, a member that has left.
  bool needs(PeerId left) const;
  // Aborts the open operations with this peer, because its data can be lost.
  void abort_all_with(PeerId left);

  // A joint update_topology: aborts the open operations that some member has not begun. The rest
  // continues.
  void drain();
  bool drained() const { return table_.open == 0; }

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
  // A member has resumed: it has begun all settled operations but those that it has not called yet,
  // and it asks again for sends.
  void catch_up(PeerId peer, const std::vector<protocol::Uncalled>& uncalled);
  // An operation that was settled before a restart of the master. `not_begun`: the members that
  // have not called it yet. All others are assumed to have begun it. If one begins it, a report was
  // wrong, and it is a new operation. Ignored if it is known, if it is a send that does not concern
  // two members, or if there are too many.
  void restore_settled(const protocol::Uncalled& op, const std::set<PeerId>& not_begun);
  // The table for the continuation in the next epoch. It keeps the settled operations that some
  // member has not begun yet.
  Operations reconfigured(Epoch epoch, const std::vector<PeerId>& members,
                          RankNames names = {}) const;
  Operations reconfigured(Epoch epoch, const std::vector<protocol::Member>& members) const {
    return reconfigured(epoch, ids(members), names_of(members));
  }
  // The end of the epoch before has committed these: they do not begin again.
  void not_repeated(const std::vector<OpKey>& committed) {
    for (const OpKey op : committed) table_.begun_before.erase(op);
  }
  size_t open_count() const { return table_.open; }
  size_t known_count() const { return table_.ops.size(); }  // including settled ones
  // Whether it is the table of this epoch with these members, in rank order.
  bool is_of(Epoch epoch, const std::vector<protocol::Member>& members) const;
  // Asserts the invariants. REQUIRES: the end of a step.
  void check() const;

 private:
  using At = OpTable::At;
  using Op = OpTable::Op;
  using Ops = std::map<OpKey, Op>;

  bool finished(const Op& op) const;  // all members whose Done counts are done
  // All members that it concerns have begun it, apart from those that have left.
  bool acknowledged(const Op& op) const;
  void abort_without(uint32_t left, bool although_done);
  void settle_without(Ops::iterator at, uint32_t left);
  std::string without_text(Ops::const_iterator at, uint32_t left) const;
  void settle_closed(Ops::iterator at, const std::vector<uint32_t>& idle);
  std::optional<uint32_t> missed_by_left(const Op& op) const;
  std::optional<uint32_t> missed_by_closed(const Op& op) const;
  void end_questions_of_last();
  void mark_begun(Ops::iterator at, uint32_t rank);
  bool awaits_receiver(OpKey key,
                       const Op& op) const;  // an open send that only its sender has begun
  void propose_abort(Op& op, const protocol::AbortRequest& request);
  void settle(Ops::iterator at, protocol::Outcome outcome, Code code, const std::string& text);
  void forget_if_acknowledged(Ops::iterator at);
  void erase(Ops::iterator at);
  void forget_descriptions(Op& op);
  void mark_faced(const Op& op);
  std::string mismatch(const Op& op, OpKey key) const;
  void judge(Ops::iterator at, const std::vector<PeerId>& newcomers);
  void check(OpKey key, const Op& op) const;
  void check_ranks() const;

  OpTable table_;
  std::set<uint32_t> closed_;     // the ranks whose posting is closed
  std::vector<size_t> begun_by_;  // number of table entries that a rank has begun
  // Bytes that the descriptions of open operations carry, by the rank that has given them.
  std::vector<size_t> carried_by_;
  std::vector<protocol::Verdict> settled_;
  std::vector<Misfit> misfits_;
  std::vector<std::pair<PeerId, protocol::AbortProposal>> proposals_;
};

}  // namespace pccl::master
