// PresentEpoch: the present epoch of one peer group, as its members know it (PROTOCOL.md, sections
// 3 and 7): its start, its operations, and the verdicts that were sent to the members. It processes
// the messages of members about operations, and finds the messages that a resumed member has
// missed. Epochs (epochs.h) decides on the sequence of epochs: it begins and ends the present
// epoch, and sets its stage.
// Group owns it.
// Invariants:
// 1. The table of operations has the number and the members of `start`, lost members included. The
//    verdict log has the members that the group has now.
// 2. There is an epoch if and only if there are members.
// 3. The open operations and the kept verdicts together are at most kVerdictsMax: each open
//    operation has room for its verdict.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/result.h"
#include "master/epochs/operations.h"
#include "master/epochs/resume.h"
#include "master/epochs/scalar_history.h"
#include "master/epochs/statistics.h"

namespace pccl::master {

class Connections;
class Membership;
struct Context;

class PresentEpoch {
 public:
  // The stage decides which messages about operations count. All others are ignored: they crossed
  // the message that began the stage.
  enum class Stage : uint8_t {
    kOpen,      // all
    kDraining,  // all, but no new operation begins
    kFreezing,  // only Begin, so that the operations of a report are known
    kClosed,    // none
  };

  PresentEpoch(GroupId group, Context& context, Connections& connections, Membership& membership)
      : group_(group), context_(context), connections_(connections), membership_(membership) {}

  Epoch number() const { return announced_.current.epoch; }  // none: there is no epoch
  const protocol::EpochStart& start() const { return announced_.start; }
  const Announced& announced() const { return announced_; }
  const Operations& operations() const { return operations_; }
  OperationWaits waits() const;  // of the members; the result refers to this object
  // This epoch is a continuation with kept operations only.
  bool is_kept() const {
    return announced_.start.generation != announced_.start.epoch && announced_.previous.end &&
           announced_.previous.end->continuation == protocol::Continuation::kKept;
  }
  // Whether `epoch`, the last epoch of a resumed member, belongs to this generation. A member lags
  // by at most one epoch.
  bool in_generation(Epoch epoch) const {
    const bool reconfigured = announced_.start.generation != announced_.start.epoch;
    return epoch == number() || (reconfigured && epoch == announced_.previous.epoch);
  }
  // The losses that ended the previous epoch, with their reasons; empty if there were none.
  std::string last_losses() const {
    const auto& end = announced_.previous.end;
    return !end || end->lost.empty() ? "" : end->text;
  }
  // Whether an open operation still needs this member, which has left.
  bool needs(PeerId left) const { return runs() && operations_.needs(left); }
  const Statistics& statistics() const { return statistics_; }
  const ScalarHistory& scalars() const { return scalars_; }
  const Latecomers& latecomers() const { return latecomers_; }
  // All members have made a joint call.
  void called_together(const Latecomers::Begins& begins);
  // The unresponsive members: each has more than kOpsOpenMax verdicts that it has not acknowledged.
  std::vector<PeerId> unresponsive_members() const;

  // ---- From members: kProtocol if not allowed; ignored if it crossed the end of the epoch ----
  Status begin(PeerId peer, const protocol::Begin& begin);
  Status done(PeerId peer, const protocol::Done& done);
  Status abort(PeerId peer, const protocol::AbortRequest& request, const MissingText& missing = {});
  Status answer(PeerId peer, const protocol::AbortAnswer& answer);
  // While the epoch ends, a question is ignored: the receiver asks again in the next epoch.
  Status await_send(PeerId peer, const protocol::AwaitSend& question) {
    if (question.epoch != number() || !runs()) return check(question.epoch);
    return operations_.await_send(peer, question);
  }
  Status acknowledge(PeerId peer, Epoch epoch, uint64_t verdict_index);
  void report(const std::vector<protocol::Scalar>& scalars);  // for the history alone
  Status check(Epoch epoch) const;                            // kProtocol if it is in the future
  // kProtocol if no honest member reports this (Operations::check_report).
  Status check(const protocol::OpReport& report) const { return operations_.check_report(report); }
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
  // The link between a member and `left`, a member that has left, is down: data may be lost. Aborts
  // the open operations with `left`.
  void cut_off(PeerId left) {
    if (runs()) operations_.abort_all_with(left);
  }
  // See Operations::end_cycle().
  void end_cycle(const std::vector<OpKey>& cycle, const std::string& why) {
    if (stage_ == Stage::kOpen) operations_.end_cycle(cycle, why);
  }
  // Ends all operations, because the group is about to have another list of members.
  void end_all(const std::string& why) {
    if (stage_ == Stage::kOpen) operations_.end_all(why);
  }
  void flush();  // sends the new verdicts, abort proposals and SendBegun to the members
  // The operations that were settled since the last call.
  std::vector<OpKey> take_ended() { return std::exchange(ended_, {}); }
  // Newcomers that describe an operation differently from all other members.
  std::vector<Misfit> take_misfits() { return operations_.take_misfits(); }
  // An operation whose abort proposal this member has not answered; empty: none.
  std::string asked(PeerId member) const { return operations_.asked(member); }
  // Members whose answers to an abort proposal contradict each other.
  std::vector<Misfit> take_liars() { return operations_.take_liars(); }

  // ---- From Epochs ----
  void enter(Stage stage) { stage_ = stage; }
  // `start` is durable, and its members are admitted: sends it to them. If the generation
  // continues, the operations that have not committed continue, too.
  void open(const protocol::EpochStart& start);
  // The end is durable: sends it to the members.
  void close(const protocol::EpochEnd& end);
  void drain() { operations_.drain(); }
  void open_posting() { operations_.open_posting(); }
  // Sets the lost members that the freeze request names. The caller sends the request.
  void freeze(std::vector<protocol::Member> lost) {
    announced_.freeze = protocol::FreezeRequest{number(), std::move(lost)};
  }
  void lose(const protocol::Member& member, LossCause cause);
  void leave(PeerId member) { operations_.leave(member); }  // REQUIRES: lose() was called
  void forget();                                            // no member is left
  // Restores the durable record. REQUIRES: the membership is restored and not empty.
  void restore(const MembershipRecord& record);
  // After a restart: all members have resumed, and the stage is entered. Takes over the reports of
  // the members, and sends each member the messages that it has missed. Closes the connection of a
  // member whose report is impossible.
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
  void take_settled();  // appends the new verdicts to the verdict log
  void count(const Operations::Ending& ending);
  void compared(bool is_transfer);

  const GroupId group_;
  Context& context_;
  Connections& connections_;
  Membership& membership_;

  Stage stage_ = Stage::kClosed;
  Announced announced_;
  Operations operations_;
  std::vector<OpKey> ended_;  // for take_ended()
  Statistics statistics_;
  ScalarHistory scalars_;
  Latecomers latecomers_;
};

}  // namespace pccl::master
