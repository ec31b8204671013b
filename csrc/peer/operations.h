// Operations is the set of collectives and transfers of this peer, each from the application's call
// to the one FinishOp that returns its memory. It numbers them per tag, starts them on the ring,
// announces them to the master, and applies the master's verdicts. It belongs to the PeerCore. This
// peer itself chooses an outcome only for a receive that succeeded, and for an operation that all
// members have reported as done (PROTOCOL.md, section 3). If the generation continues in a new
// epoch, an operation without an outcome is drained and started again under its number.
// Invariants:
//   1. An operation that the ring has started is finished as aborted only after it is drained.
//   2. An operation that was frozen as not done never becomes done in that epoch.
//   3. Every number that is taken is announced to the master (Begin) unless the epoch is ending, so
//      that the numbers of a rank never shift unnoticed.
//   4. Calls are held only while a call of update_topology or optimize_topology is open. There are
//      at most kOpsOpenMax held calls and open operations together, and the bytes of their tags are
//      counted.
//   5. Each deadline in the queue belongs to an open operation, and no returned operation has one.
//   6. An open operation has a number that was taken. A verdict that came before the call of its
//      operation is kept only until that number is taken.
//   7. An operation that restarts waits for its drain or for the next epoch, and for nothing else.
//   8. A drain without an outcome belongs to an open operation that restarts. A drain with an
//      outcome belongs to an operation of this generation that is no longer open, or to an earlier
//      generation.
//   9. The numbers belong to the present generation, and the verdicts to the present epoch.
//  10. An operation is parked from its number until its data is staged, or until it ends. A parked
//      operation is announced, but not on the ring. For its neighbours it is like an operation that
//      was not called yet: none of its data moves, and their messages for it are kept. An operation
//      whose data cannot be staged stays parked and has requested its abort.
//  11. A receive from any source is no operation and has no number until its send is found
//      (any_source.h). Invariant 4 counts it as an open operation.
//  12. An operation whose abort proposal was answered is not returned before its verdict or the end
//      of the epoch. If it was not done at the answer, it never becomes done in this epoch, even if
//      it was not called yet (asked_).
//  13. If an operation is called while this peer fetches the shared state (PROTOCOL.md, section 6),
//      this peer is absent from it at every start of the operation, even if the state has arrived
//      by then: the application has made the tensor without the state.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/status.h"
#include "csrc/peer/any_source.h"
#include "csrc/peer/drains.h"
#include "csrc/peer/membership.h"
#include "csrc/peer/operation.h"
#include "csrc/peer/verdict_log.h"

namespace pccl::peer {

class Operations {
 public:
  Operations(Context& context, const Membership& membership)
      : context_(context),
        membership_(membership),
        any_source_(context, membership),
        drains_(context) {}

  // `fetches`: this peer does not have the shared state yet. REQUIRES: a member
  void call(const OpRequest& request, bool fetches = false);
  // See OpStaged.
  void staged(Handle handle, const Status& status);
  // A call of update_topology or optimize_topology is open. From here on, calls are held.
  void close_posting() {
    PCCL_ASSERT(!closed_);
    closed_ = true;
  }
  // That call has ended. Held calls start in the present epoch, in the order of the calls.
  // REQUIRES: posting is closed.
  void open_posting();
  bool settled() const { return open_.empty(); }
  uint64_t verdicts_seen() const { return verdicts_.seen(); }
  void begin_generation();  // numbers start at zero. REQUIRES: settled()
  // A new epoch of the same generation has begun. Each open operation starts again in this epoch,
  // as soon as the operation is drained.
  void reconfigure();
  bool reconfigured() const;  // all open operations have begun

  // The answer to FreezeRequest. An operation that is not done now never becomes done in this
  // epoch.
  protocol::StateReport freeze();
  Status on_verdicts(const protocol::Verdicts& verdicts);
  Status on_abort_proposal(const protocol::AbortProposal& what);
  Status on_send_begun(const protocol::SendBegun& send);
  Status check(const protocol::EpochEnd& end) const;
  // REQUIRES: check() was ok, Membership::end() was called
  void on_epoch_end(const protocol::EpochEnd& end);

  // Events from the ring. False: the operation is not one of the application.
  bool transferred(Epoch epoch, OpKey key, protocol::AbsentRanks absent);
  void progressed(Epoch epoch, OpKey key, uint64_t finished, protocol::AbsentRanks absent);
  void agreed(Epoch epoch, OpKey key);
  bool drained(Epoch epoch, OpKey key);
  bool failed(Epoch epoch, OpKey key, const Status& why);

  // This peer is out of the run: every operation ends with `why`, once it is drained.
  void end(const Status& why);
  bool drained_all() const { return drains_.all().empty(); }

  void on_time();
  std::optional<Instant> deadline() const;

  void describe(protocol::Resume& resume) const;
  void repeat_requests();  // after Resumed

  // Whether this operation has begun in the present epoch, and waits for its outcome: it is not to
  // be aborted or begun again, and the application does not have its result.
  bool waits(OpKey key) const;
  std::optional<OpKey> waiting(Handle handle) const;  // likewise; nothing: it does not wait

  bool posting_closed() const { return closed_; }
  // Whether there is an operation whose outcome the application does not have yet.
  bool in_flight() const;
  // Whether there is an operation without an outcome that this peer is done with.
  bool any_done() const {
    return std::any_of(open_.begin(), open_.end(),
                       [](const auto& at) { return at.second.state == Operation::State::kDone; });
  }
  size_t size() const {
    return open_.size() + held_.size() + drains_.all().size() + any_source_.size();
  }
  void check() const;  // asserts the invariants

 private:
  struct CalledOp {
    Handle handle = 0;
    protocol::OpInfo info;
    Duration timeout{0};
    Epoch members;  // the first epoch with the members that the application saw at the call
    bool parked = false;
    int8_t priority = 0;
    Status unfit{};                     // why its data cannot be staged
    std::optional<Instant> deadline{};  // none: the timeout begins at the start
    bool absent = false;                // as in Operation
  };
  using Open = std::map<OpKey, Operation>;

  Status check_room(const OpRequest& request) const;
  // The oldest receive from any source takes the send, or an older open send of the same sender.
  void take_send(const protocol::SendBegun& send);
  // `refused`, unless it is ok: the operation takes its number, but does not start. It is aborted
  // for all ranks alike.
  void post(CalledOp call, const Status& refused = {});
  // Posts a call. But if the members have changed, and the call means something else now, it fails.
  void release(CalledOp call);
  void begin(OpKey key, Operation& op);  // in the present epoch
  void start(OpKey key, Operation& op);
  void open_lanes(const ring::Task& task);
  void restart(OpKey key);
  void recheck(OpKey key);
  // The epoch is over, but the generation is not. The operation begins again after its first `kept`
  // elements.
  void repeat_later(OpKey key, Operation& op, uint64_t kept);
  Status check(const protocol::Kept& kept) const;
  protocol::AbortRequest abort_request(OpKey key, Code code, std::string text) const;
  void request_abort(OpKey key, Operation& op, Code code, std::string text);
  Status settle(const protocol::Verdict& verdict);
  void hand_back(OpKey key, Operation& op);                 // committed: returns the memory
  Open::iterator finish(Open::iterator at);                 // committed
  Open::iterator abort(Open::iterator at, Status outcome);  // finished once drained
  Open::iterator remove(Open::iterator at);
  void end_deadline(OpKey key, Operation& op) {
    if (!op.deadline) return;
    const size_t erased = deadlines_.erase({*op.deadline, key});
    PCCL_ASSERT(erased == 1);
    op.deadline.reset();
  }
  void uncount_tag(const protocol::OpInfo& info) {
    PCCL_ASSERT(tag_bytes_ >= protocol::carried_bytes(info));
    tag_bytes_ -= protocol::carried_bytes(info);
  }
  Operation* find(Epoch epoch, OpKey key);
  bool was_called(OpKey key) const {
    const auto next = next_.find(key.tag);
    return next != next_.end() && key.sequence < next->second;
  }
  // The text of an operation that fails only here.
  std::string unfit(const protocol::OpInfo& info, OpKey key, const Status& why) const;
  Status lost(const protocol::OpInfo& info, OpKey key) const;  // the error of a broken group
  void check(OpKey key, const Operation& op) const;

  Context& context_;
  const Membership& membership_;
  AnySource any_source_;
  Drains drains_;
  bool closed_ = false;
  std::deque<CalledOp> held_;
  std::map<TagId, uint32_t> next_;
  Epoch generation_;      // of the numbers in next_
  Epoch verdicts_epoch_;  // of verdicts_
  Open open_;             // operations of this epoch that are not settled
  VerdictLog verdicts_;
  // Operations whose abort proposal was answered in this epoch before they began in it.
  std::map<OpKey, protocol::AbortRequest> asked_;
  std::set<std::pair<Instant, OpKey>> deadlines_;
  std::map<Handle, OpKey> parked_;  // the parked operations of open_
  size_t tag_bytes_ = 0;            // sum of carried_bytes() over held_ and open_
  Epoch lanes_epoch_;               // the epoch of with_lanes_
  std::set<PeerId> with_lanes_;     // peers that OpenLanes was emitted for
};

}  // namespace pccl::peer
