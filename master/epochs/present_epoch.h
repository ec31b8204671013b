// PresentEpoch: the present epoch of one peer group, as its members know it (PROTOCOL.md, sections
// 3 and 7): its start, its operations, and the verdicts that were sent to them. Messages of members
// about operations come here, and a member that has resumed gets here the messages that it missed.
// The sequence of epochs is in epochs.h: Epochs begins and ends this one, and sets its stage.
// Group owns it.
// Invariants:
// 1. The operations and the verdicts know the same epoch and the same members, which are those of
//    the group.
// 2. There is an epoch if and only if there are members.
// 3. Each open operation has room among the verdicts (kVerdictsMax).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/result.h"
#include "master/epochs/operations.h"
#include "master/epochs/resume.h"

namespace pccl::master {

class Connections;
class Membership;
struct Context;

class PresentEpoch {
 public:
  // The messages about operations that count. The others crossed the message that began the stage.
  enum class Stage : uint8_t {
    kOpen,      // all
    kDraining,  // all, but no operation begins
    kFreezing,  // only Begin, so that the operations of a report are known
    kClosed,    // none
  };

  PresentEpoch(GroupId group, Context& context, Connections& connections, Membership& membership)
      : group_(group), context_(context), connections_(connections), membership_(membership) {}

  Epoch number() const { return announced_.current.epoch; }  // none: there is no epoch
  const protocol::EpochStart& start() const { return announced_.start; }
  const Announced& announced() const { return announced_; }
  const Operations& operations() const { return operations_; }
  OperationWaits waits() const;  // of its members; it refers to this object
  // This epoch is a continuation with kept operations only.
  bool is_kept() const {
    return announced_.start.generation != announced_.start.epoch && announced_.previous.end &&
           announced_.previous.end->continuation == protocol::Continuation::kKept;
  }
  // Whether a message that belongs to `epoch` still counts.
  bool in_generation(Epoch epoch) const {
    const bool reconfigured = announced_.start.generation != announced_.start.epoch;
    return epoch == number() || (reconfigured && epoch == announced_.previous.epoch);
  }
  // The losses that ended the epoch before this one, with their reasons; empty if there were none.
  std::string last_losses() const {
    const auto& end = announced_.previous.end;
    return !end || end->lost.empty() ? "" : end->text;
  }
  // Whether an open operation still needs this member, which has left.
  bool needs(PeerId left) const { return runs() && operations_.needs(left); }
  // Unresponsive members: they do not acknowledge verdicts.
  std::vector<PeerId> unresponsive_members() const;

  // ---- From members: kProtocol if not allowed; ignored if it crossed the end of the epoch ----
  Status begin(PeerId peer, const protocol::Begin& begin);
  Status done(PeerId peer, const protocol::Done& done);
  Status abort(PeerId peer, const protocol::AbortRequest& request, const MissingText& missing = {});
  // While an epoch ends, nothing is taken any more: the receiver asks again in the next one.
  Status await_send(PeerId peer, const protocol::AwaitSend& question) {
    if (question.epoch != number() || !runs()) return check(question.epoch);
    return operations_.await_send(peer, question);
  }
  Status acknowledge(PeerId peer, Epoch epoch, uint64_t verdict_index);
  Status check(Epoch epoch) const;  // kProtocol if it is in the future
  // Whether resume() would accept this; changes nothing.
  Status check(const protocol::Resume& resume) const;
  // A member has resumed. Takes over its open operations. Returns the messages it has missed, in
  // order.
  Result<std::vector<protocol::Message>> resume(const protocol::Resume& resume);

  // ---- From the group ----
  // A member has voted for update_topology, while others have left (Operations::close_posting).
  void close_posting(PeerId voter) {
    if (stage_ == Stage::kOpen) operations_.close_posting(voter);
  }
  // The link of a member to one that has left is down: data may be lost. Aborts the open operations
  // with that one.
  void cut_off(PeerId left) {
    if (runs()) operations_.abort_all_with(left);
  }
  void flush();  // sends the new verdicts to the members
  // The operations that were settled since the last call.
  std::vector<OpKey> take_ended() { return std::exchange(ended_, {}); }
  // Newcomers that describe an operation differently from all other members.
  std::vector<Misfit> take_misfits() { return operations_.take_misfits(); }

  // ---- From Epochs ----
  void enter(Stage stage) { stage_ = stage; }
  // The start is durable, and its members are admitted: sends it. If the generation continues, so
  // do the operations that were not committed.
  void open(const protocol::EpochStart& start);
  // The end is durable: sends it to the members.
  void close(const protocol::EpochEnd& end);
  void drain() { operations_.drain(); }
  void open_posting() { operations_.open_posting(); }
  // The freeze request names these losses. The caller sends it.
  void freeze(std::vector<protocol::Member> lost) {
    announced_.freeze = protocol::FreezeRequest{number(), std::move(lost)};
  }
  void lose(PeerId member) { announced_.current.verdicts.lose(member); }
  void leave(PeerId member) { operations_.leave(member); }  // REQUIRES: lose() was called
  void forget();                                            // no member is left
  // Restores the durable record. REQUIRES: the membership is restored and not empty.
  void restore(const MembershipRecord& record);
  // After a restart, all members have resumed, and the stage is entered. Takes over their reports,
  // and sends them the messages that they have missed. Breaks the connection of a member with an
  // impossible report.
  void recover(const std::map<PeerId, protocol::Resume>& resumed);

  // Asserts the invariants. REQUIRES: the end of a step.
  void check() const;
  // The work of a check(): the number of operations and verdicts.
  size_t weight() const {
    return operations_.known_count() + announced_.current.verdicts.kept().size() +
           announced_.previous.verdicts.kept().size();
  }

 private:
  bool runs() const { return stage_ == Stage::kOpen || stage_ == Stage::kDraining; }
  Status take_over(const protocol::Resume& resume);
  void rebuild(const std::map<PeerId, protocol::Resume>& resumed);
  void break_off(PeerId peer, const Status& why);
  void take_settled();  // appends them to the verdict log
  void compared(bool is_transfer);

  const GroupId group_;
  Context& context_;
  Connections& connections_;
  Membership& membership_;

  Stage stage_ = Stage::kClosed;
  Announced announced_;
  Operations operations_;
  std::vector<OpKey> ended_;  // for take_ended()
};

}  // namespace pccl::master
