// Operations: the collectives and transfers of this peer, each from the application's call to the
// one FinishOp that returns its memory. Numbers them per tag, starts them on the ring, tells the
// master, and applies what the master decides: the outcome is never this peer's own to choose, but
// for a receive that went well, and for what all members have said that they are done with
// (PROTOCOL.md, section 3). In a renewal of the epoch what has no
// outcome is drained and started again under its number.
// Invariants: (1) what the ring has started is finished as aborted only once it is drained;
//             (2) what was frozen as not done never becomes done in that epoch;
//             (3) a number taken is told to the master (Begin) unless the epoch is ending, so that
//                 no rank's numbers shift unseen.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "csrc/peer/membership.h"
#include "csrc/peer/verdict_log.h"

namespace pccl::peer {

class Operations {
 public:
  Operations(Context& context, const Membership& membership)
      : context_(context), membership_(membership) {}

  void call(const OpRequest& request);  // REQUIRES: a member
  // A vote for update_topology: what is called from here on is held ...
  void close_posting() { closed_ = true; }
  // ... until its answer: then it starts, in order of calling, in the epoch of now.
  void open_posting();
  bool settled() const { return open_.empty(); }
  uint64_t verdicts_seen() const { return verdicts_.seen(); }
  void begin_generation();  // numbers from zero. REQUIRES: settled()
  // A new epoch of the same generation: what is open begins in it, as soon as it is drained.
  void renew();
  bool renewed() const;  // all of it has begun

  protocol::Report freeze();  // Ask: what is not done stays so
  Status on_verdicts(const protocol::Verdicts& verdicts);
  Status withhold(const protocol::Withhold& what);
  Status check(const protocol::EpochEnd& end) const;
  void on_epoch_end(const protocol::EpochEnd& end);  // REQUIRES: check(), membership broken

  // From the ring. False: no operation of the application.
  bool transferred(Epoch epoch, OpKey key);
  void progressed(Epoch epoch, OpKey key, uint64_t finished);
  void agreed(Epoch epoch, OpKey key);
  bool drained(Epoch epoch, OpKey key);
  bool failed(Epoch epoch, OpKey key, const Status& why);

  // This peer is out of the run: everything ends with `why`, once it is drained.
  void end(const Status& why);
  bool drained_all() const { return draining_.empty(); }

  void on_time();
  std::optional<Instant> deadline() const;

  void describe(protocol::Resume& resume) const;
  void repeat_requests() const;  // after Resumed

  enum class State { kRunning, kDone, kFrozen, kAgain };

 private:
  struct Op {
    Handle handle = 0;
    protocol::OpInfo info;
    State state = State::kRunning;
    bool begun = false;       // in this epoch: the master was told
    bool started = false;     // in this epoch: the ring has it
    bool returned = false;    // the application has its memory: it went well, whatever comes
    Epoch ended_in;           // kAgain: where it is being drained
    uint64_t finished = 0;    // of an operation that is kept: elements that are final here,
    std::vector<Part> parts;  // and those that are for all, from earlier epochs
    Duration timeout{0};
    std::optional<Instant> deadline;
    std::optional<protocol::AbortRequest> request;
  };
  struct Call {
    Handle handle = 0;
    protocol::OpInfo info;
    Duration timeout{0};
    Epoch members;  // unchanged since then: those that it was called for
  };
  struct Draining {
    Handle handle = 0;
    Status outcome;
    bool again = false;  // it has none: it starts again
    int left = 1;        // how often the ring has yet to say that it is drained
  };
  using Open = std::map<OpKey, Op>;

  static void enter(Op& op, State next);  // REQUIRES: the table in operation.cc allows it
  Status check_room(const OpRequest& request) const;
  // `refused`: it takes its number, but instead of starting it is aborted for all ranks alike.
  void post(Call call, const Status& refused = {});
  void release(Call call);        // posts what was held, if it still means the same
  void begin(OpKey key, Op& op);  // in the epoch of now
  void start(OpKey key, Op& op);
  void begin_again(OpKey key);
  void check_again(OpKey key);
  // The epoch is over, the generation is not: it begins again after what is kept of it.
  void repeat_later(OpKey key, Op& op, uint64_t kept);
  protocol::OpReport report(OpKey key, const Op& op) const;
  void add_part(Op& op, uint64_t end) const;
  Status check(const protocol::Kept& kept) const;
  protocol::AbortRequest abort_request(OpKey key, Code code, std::string text) const;
  void request_abort(OpKey key, Op& op, Code code, std::string text);
  Status settle(const protocol::Verdict& verdict);
  void hand_back(OpKey key, Op& op);                        // it is committed
  Open::iterator finish(Open::iterator at);                 // committed
  Open::iterator abort(Open::iterator at, Status outcome);  // finished once it is drained
  Open::iterator remove(Open::iterator at);
  Op* find(Epoch epoch, OpKey key);
  bool sends(const Op& op) const;
  bool receives(const Op& op) const;
  Status lost(const protocol::OpInfo& info, OpKey key) const;  // the error of a broken group

  Context& context_;
  const Membership& membership_;
  bool closed_ = false;
  std::deque<Call> held_;
  std::map<TagId, uint32_t> next_;
  Open open_;  // of this epoch, not settled
  std::map<std::pair<Epoch, OpKey>, Draining> draining_;
  VerdictLog verdicts_;
  std::set<std::pair<Instant, OpKey>> deadlines_;
  size_t tag_bytes_ = 0;  // of held_ and open_
};

}  // namespace pccl::peer
