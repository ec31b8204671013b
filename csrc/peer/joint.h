// Joint is the joint call under way. A process has at most one, and its calls are numbered within
// the generation (PROTOCOL.md, section 5). Joint belongs to the PeerCore. It does not decide the
// effect of an answer on the group.
// A call with a rendezvous has no vote: other processes of the run may not take part in it, and so
// it has no number. If the master breaks off, this peer leaves the run.
// Invariants:
//   1. A vote that is not settled has the last number of the generation.
//   2. The result of a settled call carries its handle and its kind.
//   3. Only a call that is neither settled nor given up has a deadline.
//   4. The numbers belong to the present generation.
//   5. The latest answer has a lower number than the next call.
#pragma once

#include <optional>

#include "csrc/base/assert.h"
#include "csrc/base/status.h"
#include "csrc/peer/membership.h"

namespace pccl::peer {

class Joint {
 public:
  struct OpenCall {
    Handle handle = 0;
    Duration timeout{0};
    protocol::Vote vote;
    std::optional<Instant> deadline;
    bool given_up = false;                                // JointAbort was sent
    protocol::EntryList list = {};                        // see JointCalled
    std::optional<protocol::Rendezvous> rendezvous = {};  // likewise
    // Set when the call is settled. The call stays open while borrowed tensors are being drained.
    std::optional<FinishJoint> result;
    bool announced = false;  // the Regroup was sent; a reconfiguration does not repeat it

    const std::vector<protocol::StateEntry>& entries() const {
      return list.empty() ? vote.offer.entries : list.all();
    }
  };

  Joint(Context& context, const Membership& membership)
      : context_(context), membership_(membership) {}

  // kInvalidState if another call is under way. `may_vote`: the vote is cast now; if false,
  // repeat() casts it later. REQUIRES: a member.
  Status call(const JointCalled& call, bool may_vote);
  // The call under way, or null. The pointer is invalid after finish().
  const OpenCall* open() const { return open_ ? &*open_ : nullptr; }
  bool waits_for(protocol::JointKind kind) const {
    return open_ && !open_->result && open_->vote.kind == kind;
  }

  // The rendezvous of the call that waits for its answer; null: none. `overdue`: it waits longer
  // than it ever should.
  const protocol::Rendezvous* meets() const {
    return open_ && !open_->result && open_->rendezvous ? &*open_->rendezvous : nullptr;
  }
  // Why this peer is out of the run if the host of that call is lost: it has lost its master, too.
  Status host_lost(const std::string& why) const;
  // The error of that call if this peer is out of the run. The application knows no master.
  static Status outcome(const Status& ended) {
    return {ended.code == Code::kMasterLost ? Code::kPeerLost : ended.code, ended.message, {}};
  }
  bool overdue() const { return meets() != nullptr && *open_->deadline <= context_.now; }
  // The answer to such a call. kProtocol if there is none with this uuid.
  Status on(const protocol::Regrouped& answer);

  // Whether this peer has had this answer already. A reconnection can deliver an answer twice.
  bool repeated(const protocol::Answer& answer) const { return answer.number < answered(); }
  // kProtocol if no open call waits for this answer.
  Status check(const protocol::Answer& answer) const;
  // REQUIRES: open, not settled, and check() of the answer was ok. `answer`: none if an EpochStart
  // settles the call.
  void settle(FinishJoint result, const std::optional<protocol::Answer>& answer = {});
  // Whether the call returns only when the application has the outcomes of all earlier operations:
  // the present members may be other ones. REQUIRES: open, settled.
  bool awaits_operations() const {
    const bool same = open_->rendezvous && !open_->result->topology;
    return open_->vote.kind == protocol::JointKind::kUpdateTopology && !same;
  }
  // Returns the result to the application. REQUIRES: open, settled, and it borrows no tensors.
  void finish();
  // A new generation: numbers start at zero. REQUIRES: no open call that is not settled.
  void begin_generation();
  // Remembers the ballots of all groups that were settled together, since a restarted master needs
  // them. `pending`: the answer, if these were ballots of are_peers_pending.
  void agreed(const std::vector<protocol::Settled>& together, bool pending);

  // Answers the master with the entries that this peer has offered.
  Status list(const protocol::ListRequest& request) const;
  // From now on the application waits for the end of the call. If the vote said `background`, it is
  // cast again without that. `may_vote` as in call(). REQUIRES: open.
  void await(bool may_vote);
  void give_up();  // asks the master not to wait for the others any longer. REQUIRES: open
  void on_time();
  std::optional<Instant> deadline() const;

  uint32_t answered() const {
    const bool waits = open_ && !open_->result && !open_->rendezvous;
    PCCL_ASSERT(!waits || next_ > 0);
    return next_ - (waits ? 1 : 0);
  }
  void describe(protocol::Resume& resume) const;
  void repeat();  // after Resumed, and in a reconfiguration: casts the open vote again

  void check() const;  // asserts the invariants

 private:
  void cast();
  protocol::JointAbort abort() const { return {open_->vote.number, open_->vote.epoch}; }

  Context& context_;
  const Membership& membership_;
  uint32_t next_ = 0;
  Epoch generation_;  // the generation that the numbers belong to
  std::optional<OpenCall> open_;
  // The latest answer of this generation. Resume carries it to a restarted master, which gives it
  // to members that have missed it. In a broken group the numbers of the members may differ: then
  // settle() keeps an answer only if it holds for the other members, too.
  std::optional<protocol::Answer> last_answer_;
  // The ballots of the last call that several groups settled together.
  std::vector<protocol::Settled> together_;
  bool pending_ = false;  // the answer of that call, if it was are_peers_pending
};

// The end of a call that this peer cannot make now. One with a rendezvous goes elsewhere.
FinishJoint refused(const JointCalled& call, const Status& why);

}  // namespace pccl::peer
