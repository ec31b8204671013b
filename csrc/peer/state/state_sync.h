// StateSync transfers the pieces of one sync_shared_state call, at both ends (PROTOCOL.md, section
// 5.3). It belongs to the PeerCore. A receiver pulls: it asks a peer that has a piece, and that
// peer sends it. Each piece is verified as it arrives, and served to others from then on. The
// tensors are written only after the master's Answer. The transfers are operations of the ring, but
// they are not announced to the master. Swarm chooses the piece and the peer of each request.
// Invariants:
//   1. busy() is true until the ring borrows no memory any more, however the call ended.
//   2. A running transfer belongs to the plan that has started, and to the present epoch.
//   3. A request waits here only while the epoch lasts. At most kStateRequestsMax requests of each
//      peer wait.
//   4. Without a plan, nothing of a plan is left: no Fetched, no piece under way.
//   5. The next plan does not start while a check for a void plan is under way.
//   6. Verified pieces of a void plan are kept until the next plan, and beyond it if that plan has
//      the same content and keys.
//   7. A Fetched is about the present plan.
//   8. The time of the next log line is set exactly while a plan is carried out.
//   9. A report to the master is due only while a plan is carried out.
//  10. A fetch lasts from its begin until the application has concluded the call, because the
//      application does not have the state before. A loss or another plan does not end the fetch.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/peer/joint.h"
#include "csrc/peer/state/drift_watch.h"
#include "csrc/peer/state/piece_layout.h"
#include "csrc/peer/state/swarm.h"

namespace pccl::peer {

class StateSync {
 public:
  StateSync(Context& context, const Membership& membership)
      : context_(context), membership_(membership), drift_watch_(context) {}

  // Starts this peer's part in the plan, as soon as no transfer of an earlier plan is under way.
  // kProtocol if the plan does not fit the call.
  Status on_plan(const protocol::SyncPlan& plan, const Joint::OpenCall& call);

  // From the ring and the shell. False: the operation is not a transfer of shared state.
  bool transferred(Epoch epoch, OpKey key);
  void progressed(Epoch epoch, OpKey key);  // more bytes of a piece are here
  bool drained(Epoch epoch, OpKey key);
  bool failed(Epoch epoch, OpKey key, const Status& why);
  void requested(const PieceRequested& event);
  void checked(const PieceChecked& event);  // once for each CheckPiece

  void stop();         // the epoch is over: running transfers are drained
  void reconfigure();  // like stop(); another plan for this call may follow
  // A restarted master has forgotten its plan. It may send a different one for the same call.
  void master_restarted();
  // The call, a sync_shared_state, is answered. Returns the entries to install if it succeeded, and
  // which of them are corrections. Running transfers are drained.
  FinishJoint settle(const Joint::OpenCall& call, const Status& status,
                     const protocol::Answer& answer);
  bool busy() const { return !transfers_.empty(); }
  // The application has the outcome of this call.
  void concluded(Handle call) {
    if (fetching_ == call) fetching_.reset();
  }
  // This peer lacks the shared state: it is absent from the reductions that it calls now.
  bool fetches() const { return fetching_.has_value(); }

  // The application interrupts the call, or a thread of the call has failed. Returns whether this
  // peer has reported to the master (Fetched) that it can neither fetch nor send any more. Such a
  // report fails the call for all members, unless this peer is a newcomer.
  bool give_up();

  void repeat() const;  // after Resumed
  // Once a second it logs the progress of the transfers. It also reports to the master that they
  // continue: once a second, or more often if first_call_timeout is short.
  void on_time();
  std::optional<Instant> deadline() const;

  // The call of the plan that is being carried out, if there is one.
  std::optional<Handle> planned() const {
    return plan_ ? std::optional<Handle>(handle_) : std::nullopt;
  }
  void check() const;  // asserts the invariants

  // The digest of a transfer of this plan. The digests of both ends differ unless both carry out
  // the same plan.
  static uint64_t digest_of(const protocol::SyncPlan& plan);
  static uint64_t digest_of(uint64_t plan_digest, uint32_t what);

  enum class State { kRunning, kDraining, kFinished };  // of a transfer

 private:
  struct Running {
    bool receives = false;
    PeerId peer;  // the other end
    uint32_t what = 0;
    State state = State::kRunning;
  };
  using Transfers = std::map<std::pair<Epoch, OpKey>, Running>;

  // The verified pieces of a plan that is void, because its epoch has ended.
  struct Kept {
    uint64_t revision = 0;
    protocol::EntryList entries;
    std::vector<uint32_t> keys;    // of the layout
    std::vector<uint32_t> wanted;  // the keys that this peer lacks
    Bits here;
    bool manifest = false;
    bool complete = false;
    uint64_t number = 0;  // number of the plan at this peer
  };

  std::string check(const protocol::SyncPlan& plan, const Joint::OpenCall& call) const;
  void start_when_clear();
  void start();
  bool runs() const { return started_ && !stopped_; }
  bool receives() const { return !wanted_keys_.empty(); }
  uint64_t digest(uint32_t what) const { return digest_of(plan_digest_, what); }
  uint64_t bytes_of(uint32_t what) const;
  OpKey key_of(PeerId source, PeerId destination, uint32_t sequence) const;
  ring::Task task_of(OpKey key, PeerId source, PeerId destination, uint32_t what) const;

  void ask();
  void ask_for_manifest();
  void ask_for_news();
  void request(PeerId peer, uint32_t what);
  enum class Served { kNow, kLater, kNever };
  Served serve(const PieceRequested& event);
  void serve_waiting();
  void drop(const PieceRequested& event);
  void drop_waiting();

  static void enter(Running& transfer, State next);  // REQUIRES: the table allows it
  void finish(Transfers::iterator at);
  void arrived(const Running& transfer, OpKey key);
  void check_later(const Running& transfer, OpKey key);
  void checked_old(const PieceChecked& event);
  void checked_piece(const PieceChecked& event);
  void checked_manifest(const PieceChecked& event);
  void refuse(const PieceChecked& event);
  void tell_progress() const;
  void fetched_more();
  void report_if_due();
  Duration report_every() const;
  void log_progress();
  void fail_if_lost();
  std::string names_of(const std::vector<uint32_t>& pieces) const;
  void say_if_complete();
  void say_fetched(Code code, std::string text);
  void forget_plan();

  Context& context_;
  const Membership& membership_;
  DriftWatch drift_watch_;
  Transfers transfers_;
  std::optional<protocol::SyncPlan> plan_;
  Handle handle_ = 0;
  uint64_t plans_ = 0;  // number of plans that have started at this peer
  uint64_t plan_digest_ = 0;
  PieceLayout layout_;
  Swarm swarm_;
  std::vector<uint32_t> wanted_keys_;       // ascending
  bool started_ = false, stopped_ = false;  // whether the plan was started, and was stopped
  bool verified_ = false;
  bool manifest_here_ = false;
  std::optional<std::vector<PeerId>> asked_for_manifest_;
  // The receivers that this peer has asked for their pieces.
  std::set<PeerId> asked_for_news_;
  // The parts that arrived before the manifest. They are checked when it is here.
  std::vector<std::pair<OpKey, Running>> unchecked_;
  std::vector<PieceRequested> waiting_;
  std::map<PeerId, size_t> dropped_;  // number of dropped requests, since the last plan began
  size_t sending_ = 0;                // pieces that are being sent
  std::map<PeerId, uint32_t> next_sequence_;  // by the peer that gets the request
  std::optional<Kept> kept_;
  bool may_be_replaced_ = false;
  // `lacked_bytes_`: bytes of the plan that this peer fetches. `done_bytes_`: those that are
  // verified.
  uint64_t lacked_bytes_ = 0, done_bytes_ = 0;
  uint64_t sent_bytes_ = 0;                     // bytes sent in this call
  uint64_t logged_done_ = 0, logged_sent_ = 0;  // as in the last log line
  std::optional<Instant> next_line_;            // of the next log line
  Instant reported_;                            // last report to the master, or begin of the plan
  std::optional<Instant> next_report_;          // when it is due; none: there is nothing to report
  size_t checking_ = 0;  // checks under way, of this plan or of a void one of the same call
  std::optional<protocol::Fetched> said_;
  std::optional<Handle> fetching_;  // the call that this peer fetches for
};

}  // namespace pccl::peer
