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
//   4. Calls are held only while a vote for update_topology is open. Calls held and operations open
//      are at most kOpsOpenMax, and the bytes of their tags are counted.
//   5. Each deadline in the queue belongs to an open operation, and no returned operation has one.
//   6. An open operation has a number that was taken. A verdict that came before the call of its
//      operation is kept only until that number is taken.
//   7. A running operation has been announced, and is on the ring unless its abort was requested.
//      A done operation is on the ring or is a barrier. In a frozen epoch none is running.
//   8. After the end of an epoch no open operation is announced until the next epoch begins.
//   9. An operation that restarts waits for its drain or for the next epoch, and for nothing else.
//  10. A drain without an outcome belongs to an open operation that restarts. A drain with an
//      outcome belongs to an operation of this generation that is no longer open, or to an earlier
//      generation.
//  11. The numbers belong to the present generation, and the verdicts to the present epoch.
//  12. An operation that is parked is on the ring as parked, or waits to be. It is parked until its
//      data is staged, and an operation whose data cannot be staged has requested its abort.
//  13. A receive from any source is no operation and has no number until its send is found
//      (any_source.h). It counts in 4 like an open operation.
//  14. Only an all-reduce with `keep` starts after its first element. It starts where the parts end
//      that it has kept.
//  15. This peer is absent from an operation that was called while it fetched the shared state
//      (PROTOCOL.md, section 6), at every start of the operation, even if the state is here by
//      then: the application has made the tensor without it.
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
#include "csrc/peer/membership.h"
#include "csrc/peer/verdict_log.h"

namespace pccl::peer {

class Operations {
 public:
  Operations(Context& context, const Membership& membership)
      : context_(context), membership_(membership), any_source_(context, membership) {}

  // `fetches`: this peer has yet to fetch the shared state. REQUIRES: a member
  void call(const OpRequest& request, bool fetches = false);
  // See OpStaged.
  void staged(Handle handle, const Status& status);
  // A vote for update_topology is open. From here on, calls are held.
  void close_posting() {
    PCCL_ASSERT(!closed_);
    closed_ = true;
  }
  // The vote is answered. Held calls start in the present epoch, in the order of the calls.
  // REQUIRES: posting is closed.
  void open_posting();
  bool settled() const { return open_.empty(); }
  uint64_t verdicts_seen() const { return verdicts_.seen(); }
  void begin_generation();  // numbers start at zero. REQUIRES: settled()
  // A new epoch of the same generation. Every open operation begins in it as soon as it is drained.
  void reconfigure();
  bool reconfigured() const;  // all open operations have begun

  protocol::StateReport freeze();  // answer to FreezeRequest: unfinished operations stay so
  Status on_verdicts(const protocol::Verdicts& verdicts);
  Status on_abort_proposal(const protocol::AbortProposal& what);
  Status on_send_begun(const protocol::SendBegun& send);
  Status check(const protocol::EpochEnd& end) const;
  // REQUIRES: check() was ok, Membership::end() was called
  void on_epoch_end(const protocol::EpochEnd& end);

  // From the ring. False: not an operation of the application.
  bool transferred(Epoch epoch, OpKey key, protocol::AbsentRanks absent);
  void progressed(Epoch epoch, OpKey key, uint64_t finished, protocol::AbsentRanks absent);
  void agreed(Epoch epoch, OpKey key);
  bool drained(Epoch epoch, OpKey key);
  bool failed(Epoch epoch, OpKey key, const Status& why);

  // This peer is out of the run: every operation ends with `why`, once it is drained.
  void end(const Status& why);
  bool drained_all() const { return draining_.empty(); }

  void on_time();
  std::optional<Instant> deadline() const;

  void describe(protocol::Resume& resume) const;
  void repeat_requests();  // after Resumed

  bool posting_closed() const { return closed_; }
  // Whether this peer is done with some operation that has no outcome yet.
  bool any_done() const {
    return std::any_of(open_.begin(), open_.end(),
                       [](const auto& at) { return at.second.state == State::kDone; });
  }
  size_t size() const {
    return open_.size() + held_.size() + draining_.size() + any_source_.size();
  }
  void check() const;  // asserts the invariants

  enum class State {
    kCalled,
    kRunning,
    kDone,    // here
    kFrozen,  // not done, and never done in this epoch
    kRestart,
    kSettled,  // it has its outcome and is no longer open
  };

 private:
  struct Op {
    Handle handle = 0;
    protocol::OpInfo info;
    State state = State::kCalled;
    bool begun = false;     // in this epoch: announced to the master
    bool started = false;   // in this epoch: posted to the ring
    bool returned = false;  // the application has its memory: success, whatever follows
    bool parked = false;    // its data is still to be staged
    bool absent = false;    // this peer contributes zeros
    protocol::AbsentRanks absent_ranks;  // with `keep`: of this epoch, if any element is final
    Epoch ended_in;                      // kRestart: it is being drained in this epoch
    uint64_t finished = 0;               // with `keep`: elements that are final here
    std::vector<Part> parts;             // with `keep`: elements final for all, from earlier epochs
    Duration timeout{0};
    std::optional<Instant> deadline;
    Instant done_at;  // kDone
    std::optional<protocol::AbortRequest> request;
  };
  struct CalledOp {
    Handle handle = 0;
    protocol::OpInfo info;
    Duration timeout{0};
    Epoch members;  // the first epoch with the members of the call
    bool parked = false;
    Status unfit{};                     // why its data cannot be staged
    std::optional<Instant> deadline{};  // it counts from an earlier time
    bool absent = false;                // as in Op
  };
  struct Draining {
    Handle handle = 0;
    Status outcome;
    bool again = false;  // no outcome: the operation starts again
    int left = 1;        // number of OpDrained still to come from the ring
  };
  using Open = std::map<OpKey, Op>;

  void enter(Op& op, State next) const;  // REQUIRES: the table in operation.cc allows it
  Status check_room(const OpRequest& request) const;
  void call_any_source(const OpRequest& request);
  // A send that has ended before its call here takes its number, and nothing else.
  bool end_early(OpKey key, const protocol::OpInfo& info);
  // The error of a receive from any source that has no send and was called by these members; ok if
  // it may wait.
  Status any_source_over(const OpRequest& request, Epoch members) const;
  Status on_no_sender(const protocol::SendBegun& answer);
  void end_any_source();  // if their group is broken, or has changed since their call
  // `refused`: the operation takes its number, but does not start. It is aborted for all ranks
  // alike.
  void post(CalledOp call, const Status& refused = {});
  void release(CalledOp call);    // posts a held call, if it still means the same
  void begin(OpKey key, Op& op);  // in the present epoch
  void start(OpKey key, Op& op);
  void open_lanes(const ring::Task& task);
  void restart(OpKey key);
  void recheck(OpKey key);
  // The epoch is over, but the generation is not. The operation begins again after its kept part.
  void repeat_later(OpKey key, Op& op, uint64_t kept);
  protocol::OpReport report(OpKey key, const Op& op) const;
  void add_part(Op& op, uint64_t end) const;
  Status check(const protocol::Kept& kept) const;
  protocol::AbortRequest abort_request(OpKey key, Code code, std::string text) const;
  void request_abort(OpKey key, Op& op, Code code, std::string text);
  Status settle(const protocol::Verdict& verdict);
  void hand_back(OpKey key, Op& op);                        // committed: returns the memory
  Open::iterator finish(Open::iterator at);                 // committed
  Open::iterator abort(Open::iterator at, Status outcome);  // finished once drained
  Open::iterator remove(Open::iterator at);
  void drain(Epoch epoch, OpKey key, Draining draining) {
    const bool fresh = draining_.emplace(std::pair{epoch, key}, std::move(draining)).second;
    PCCL_ASSERT(fresh);
  }
  void end_deadline(OpKey key, Op& op) {
    if (!op.deadline) return;
    const size_t erased = deadlines_.erase({*op.deadline, key});
    PCCL_ASSERT(erased == 1);
    op.deadline.reset();
  }
  void uncount_tag(const protocol::OpInfo& info) {
    PCCL_ASSERT(tag_bytes_ >= protocol::carried_bytes(info));
    tag_bytes_ -= protocol::carried_bytes(info);
  }
  Op* find(Epoch epoch, OpKey key);
  bool sends(const Op& op) const;
  bool receives(const Op& op) const;
  // The text of an operation that fails only here.
  std::string unfit(const protocol::OpInfo& info, OpKey key, const Status& why) const;
  Status lost(const protocol::OpInfo& info, OpKey key) const;  // the error of a broken group
  void check(OpKey key, const Op& op) const;

  Context& context_;
  const Membership& membership_;
  AnySource any_source_;
  bool closed_ = false;
  std::deque<CalledOp> held_;
  std::map<TagId, uint32_t> next_;
  Epoch generation_;      // of the numbers in next_
  Epoch verdicts_epoch_;  // of verdicts_
  Open open_;             // of this epoch, not settled
  std::map<std::pair<Epoch, OpKey>, Draining> draining_;
  VerdictLog verdicts_;
  std::set<std::pair<Instant, OpKey>> deadlines_;
  std::map<Handle, OpKey> parked_;  // the parked operations of open_
  size_t tag_bytes_ = 0;            // carried_bytes() of held_ and open_
  Epoch lanes_epoch_;               // of with_lanes_
  std::set<PeerId> with_lanes_;     // OpenLanes was emitted for them
};

}  // namespace pccl::peer
