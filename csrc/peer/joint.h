// Joint: the joint call under way: one at a time per process, numbered within the generation
// (PROTOCOL.md, section 5). What an answer means for the group is not its business.
#pragma once

#include <optional>

#include "csrc/peer/membership.h"

namespace pccl::peer {

class Joint {
 public:
  struct Call {
    Handle handle = 0;
    Duration timeout{0};
    protocol::Vote vote;
    std::optional<Instant> deadline;
    bool given_up = false;              // JointAbort was sent
    std::optional<FinishJoint> result;  // settled; what is lent is still being drained
  };

  Joint(Context& context, const Membership& membership)
      : context_(context), membership_(membership) {}

  // kInvalidState when another one is under way. `may_vote`: else repeat() follows. REQUIRES: a
  // member.
  Status call(const JointCalled& call, bool may_vote);
  // The one under way, or null. Invalid after finish().
  const Call* open() const { return open_ ? &*open_ : nullptr; }
  bool waits_for(protocol::JointKind kind) const {
    return open_ && !open_->result && open_->vote.kind == kind;
  }

  // An answer that we have had: it has crossed a reconnection.
  bool repeated(const protocol::Answer& answer) const { return answer.number < answered(); }
  // kProtocol if it answers nothing.
  Status check(const protocol::Answer& answer) const;
  // REQUIRES: open, not settled. `answer`: none of an EpochStart.
  void settle(FinishJoint result, const std::optional<protocol::Answer>& answer = {});
  void finish();  // tells the application. REQUIRES: open, settled
  // A new generation: numbers from zero. REQUIRES: nothing open that is not settled.
  void begin_generation();
  // What the master has to be told after a restart: it was agreed on by several groups.
  void agreed(const std::vector<protocol::Settled>& together, bool pending);

  void give_up();  // to the master: do not wait for the others any longer
  void on_time();
  std::optional<Instant> deadline() const;

  uint32_t answered() const { return next_ - (open_ && !open_->result ? 1 : 0); }
  void describe(protocol::Resume& resume) const;
  void repeat();  // after Resumed, and in a renewal: what is open is cast again

 private:
  protocol::JointAbort abort() const { return {open_->vote.number, open_->vote.epoch}; }

  Context& context_;
  const Membership& membership_;
  uint32_t next_ = 0;
  std::optional<Call> open_;
  // In this generation, while numbers match between members: until the group is broken.
  std::optional<protocol::Answer> last_answer_;
  std::vector<protocol::Settled> together_;  // of the last call of several groups
  bool pending_ = false;                     // its answer
};

}  // namespace pccl::peer
