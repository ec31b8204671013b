// Operations: the operations that the members of one epoch have begun, and the progress of each
// member in them (PROTOCOL.md, section 3). It is optimistic: a Begin gets no answer. It settles an
// operation when all members are done, when two descriptions of the operation differ, when a member
// gives it up, when a member that is not done has left, or when a joint update_topology ends it. If
// all other members agree on the description, and only newcomers differ, the operation stays open,
// and these newcomers are misfits.
// PresentEpoch owns it. It is pure. The table is in op_table.h. OperationWaits (operation_waits.h)
// reads from it which members wait for others.
// Invariants:
// 1. An operation is settled at most once.
// 2. A settled operation is remembered until all members have begun it, so that a late Begin is not
//    taken for a new operation. Then it is forgotten.
// 3. While an operation is open, at least one member whose Done counts is not done.
// 4. All counts (open operations, members that have begun or finished an operation) match the
//    table.
// 5. An abort proposal belongs to an open operation of this epoch that members may have committed
//    without the master. A member that has answered that it is not done never becomes done.
// 6. A settled operation no longer remembers which members had begun it in an earlier epoch.
// 7. Verdicts, abort proposals, misfits and liars are taken in the step that made them.
// 8. A member that has left is done with every open operation that concerns it. A member whose
//    posting is closed has begun every open operation that concerns it. If every other member has
//    left or has its posting closed, a member has no open question for sends.
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
#include "master/epochs/latecomers.h"
#include "master/epochs/op_table.h"
#include "master/epochs/verdict.h"
#include "master/members/misfit.h"
#include "master/runs/records.h"
#include "master/text_format.h"

namespace pccl::master {

class OperationWaits;

class Operations {
 public:
  Operations() = default;
  // `members` and `names` are in rank order. `wan`: members may commit operations without the
  // master.
  Operations(Epoch epoch, std::vector<PeerId> members, RankNames names = {}, bool wan = false);
  explicit Operations(const protocol::EpochStart& start);

  // `newcomers`: Membership::newcomers(). If the description of a newcomer differs, it is judged
  // only after all other members have begun the operation.
  Status begin(PeerId peer, OpKey op, const protocol::OpInfo& info,
               const std::vector<PeerId>& newcomers = {}, Instant now = {});
  // Whether begin() would accept this.
  Status check_begin(PeerId peer, OpKey op, const protocol::OpInfo& info) const;
  Status done(PeerId peer, OpKey op);
  // A member gives up an operation. If members may have committed the operation already, all others
  // get abort proposals (take_proposals()), and the operation is settled when they have answered.
  Status abort(PeerId peer, const protocol::AbortRequest& request, const MissingText& missing = {});
  Status answer(PeerId peer, const protocol::AbortAnswer& answer);
  bool has_begun(PeerId peer, OpKey op) const { return table_.has_begun(peer, op); }
  // Whether has_begun() is true, or the member has begun the operation in an earlier epoch of the
  // generation and begins it again in this epoch.
  bool was_begun(PeerId peer, OpKey op) const {
    return table_.has_begun(peer, op) || table_.is_to_begin_again(peer, op);
  }
  bool knows(OpKey op) const { return table_.ops.contains(op); }
  std::optional<OpTable::OtherSite> other_site(PeerId peer, OpKey op,
                                               const protocol::OpInfo& info) const {
    return table_.other_site(peer, op, info);
  }
  OperationWaits waits() const;  // of the members; the result refers to this object
  // The misfits since the last call: newcomers that describe an operation differently from all
  // other members. The operation stays open: the caller removes the newcomers, which ends the
  // epoch.
  std::vector<Misfit> take_misfits() { return std::exchange(misfits_, {}); }
  // The members since the last call whose answers to an abort proposal contradict each other. The
  // operation stays open: the caller removes these members, which ends the epoch.
  std::vector<Misfit> take_liars() { return std::exchange(liars_, {}); }

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
  // that concern this member and that it has not begun: the open ones, and all that begin before
  // open_posting().
  void close_posting(PeerId voter);
  void open_posting() { closed_.clear(); }
  // Whether an open operation still needs the data of this peer, a member that has left.
  bool needs(PeerId left) const;
  // Aborts the open operations with this peer, because its data can be lost.
  void abort_all_with(PeerId left);

  // These operations belong to a cycle of waits. Aborts those that are open. `why`: describes the
  // cycle.
  void end_cycle(const std::vector<OpKey>& cycle, const std::string& why);

  // A joint update_topology: aborts the open operations that some member has not begun. The other
  // operations continue.
  void end_all(const std::string& why);  // a reconfigure has another list of members
  void drain();
  bool drained() const { return table_.open == 0; }

  // The abort proposals since the last call, each with its receiver.
  std::vector<std::pair<PeerId, protocol::AbortProposal>> take_proposals() {
    return std::exchange(proposals_, {});
  }
  // The open abort proposals that a member has not answered. A member that has left owes nothing.
  std::vector<protocol::AbortProposal> proposals(PeerId peer) const {
    return table_.unanswered(peer);
  }
  bool asks() const { return table_.proposed > 0; }  // whether there are any
  // The first of them, as text; empty: none.
  std::string asked(PeerId peer) const {
    const auto all = proposals(peer);
    return all.empty() ? "" : table_.name(table_.ops.at(all[0].op).info, all[0].op);
  }
  // The verdicts since the last call, in order. `now`: the time at which they are sent.
  std::vector<protocol::Verdict> take_settled(Instant now);
  // The operations that were settled since the last call.
  using Ending = OpTable::Ending;
  std::vector<Ending> take_endings() { return std::exchange(endings_, {}); }
  // The open operations that end with the epoch: it commits them, or they do not continue.
  std::vector<Ending> endings_at(const protocol::EpochEnd& end) const;
  // The survivors whose reports decide on the operation when the epoch ends: only the receiver of a
  // transfer, or all survivors.
  std::vector<PeerId> concerned(OpKey op, const std::vector<PeerId>& survivors) const;
  // Whether a known operation is a send.
  bool is_transfer(OpKey op) const {
    const OpTable::Op* const known = table_.find(op);
    return known != nullptr && OpTable::transfers(known->info);
  }
  // OpInfo::keep of a known operation.
  bool keeps(OpKey op) const {
    const OpTable::Op* const known = table_.find(op);
    return known != nullptr && known->info.keep;
  }
  // Whether a member may report this. Only a lie has other values: a return of an operation that
  // members do not agree on, or elements outside of those that the operation reduces.
  Status check_report(const protocol::OpReport& report) const;
  // The reason why members are removed because of contradicting reports (verdict.h).
  std::string why_contradicting(OpKey op, const States& states) const;
  // A member has resumed. `uncalled`: the settled operations that it has not called yet. It counts
  // as having begun all others. Its questions for sends are forgotten: it asks again.
  void catch_up(PeerId peer, const std::vector<protocol::Uncalled>& uncalled);
  // Adds an operation that was settled before a restart of the master. `not_begun`: the members
  // that have not called it yet. All other members are assumed to have begun it. If one of them
  // does begin it, a report was wrong, and the Begin is for a new operation. Ignored if the
  // operation is known, if it is a send but not between two members, or if the table has too many
  // operations.
  void restore_settled(const protocol::Uncalled& op, const std::set<PeerId>& not_begun);
  // Returns the table for the next epoch of the generation. It keeps the settled operations that
  // some member has not begun yet.
  Operations reconfigured(Epoch epoch, const std::vector<PeerId>& members, RankNames names = {},
                          bool wan = false) const;
  Operations reconfigured(const protocol::EpochStart& start) const;
  // The end of the previous epoch has committed these operations: they do not begin again.
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
  // Each member that the operation concerns has begun it or has left.
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
  void give_up(Ops::iterator at, Code code, const std::string& text);
  void decide_proposal(Ops::iterator at);
  void settle(Ops::iterator at, protocol::Outcome outcome, Code code, const std::string& text);
  void forget_if_acknowledged(Ops::iterator at);
  void erase(Ops::iterator at);
  Latecomers::Begins begins_of(const Op& op) const;
  void forget_descriptions(Op& op);
  void mark_faced(const Op& op);
  std::string mismatch(const Op& op, OpKey key) const;
  void judge(Ops::iterator at, const std::vector<PeerId>& newcomers);
  void check(OpKey key, const Op& op) const;
  void check_ranks() const;

  OpTable table_;
  std::set<uint32_t> closed_;     // the ranks whose posting is closed
  std::vector<size_t> begun_by_;  // by rank: number of operations that it has begun
  std::vector<size_t> open_by_;   // by rank: number of open operations that it has begun
  // By rank: bytes of the tags and part sizes in its descriptions of open operations.
  std::vector<size_t> carried_by_;
  struct Settled {
    protocol::Verdict verdict;
    std::optional<Instant> last_at;  // the time of the last Begin; none: some have not begun it
  };
  std::vector<Settled> settled_;
  std::vector<Ending> endings_;
  std::vector<Misfit> misfits_, liars_;
  std::vector<std::pair<PeerId, protocol::AbortProposal>> proposals_;
};

}  // namespace pccl::master
