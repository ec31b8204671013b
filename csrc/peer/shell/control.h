// Control is a peer's part of the peer loop: it steps the PeerCore, carries out its effects, and
// holds the memory and the completions of calls under way. Peer owns it. Its methods may be called
// from any thread. Their input goes through one inbox, in order. All messages of one turn of the
// loop leave in one send.
//
// It connects to the master, decodes its messages, steps the core and encodes the core's messages.
// It passes operations to the data plane, and completions to the application.
// Failures:
//   - The connection fails or carries invalid data: the core gets the error, and decides when
//     to retry.
//   - Memory does not fit its operation: the operation fails for all ranks, through the master.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <variant>
#include <vector>

#include "csrc/base/log.h"
#include "csrc/base/mutex.h"
#include "csrc/base/result.h"
#include "csrc/net/loop_share.h"
#include "csrc/net/stream.h"
#include "csrc/peer/core.h"
#include "csrc/peer/outbox.h"
#include "csrc/peer/shell/peer.h"
#include "csrc/peer/shell/state/shared_entries.h"
#include "csrc/peer/shell/token_file.h"
#include "csrc/peer/shell/wait_record.h"
#include "csrc/peer/shell/waiter.h"
#include "csrc/protocol/codec.h"

namespace pccl::ring {
class DataPlane;
}  // namespace pccl::ring

namespace pccl::peer {

class Control {
 public:
  // A join or joint call, shared by the waiting thread and the loop.
  struct WaitingCall {
    Waiter waiter;
    // sync_shared_state only:
    std::shared_ptr<SharedEntries> entries;
    // The waiting thread calls these functions, which may be empty. `on_decided`: the members have
    // voted, and the transfers of this state begin (see BeginPieces). `on_progress`: one more piece
    // is here.
    struct Decided {
      bool receives = false;
      uint64_t revision = 0, state_hash = 0;
    };
    std::function<void(const Decided&)> on_decided = {};
    OnProgress on_progress = {};
    // The caller does not wait any more, perhaps before the call has begun; used on the loop only.
    bool given_up = false;
  };

  // `on_reconfigured`: called on the loop each time an epoch begins after a loss without
  // update_topology (policy retry).
  // `token`: the proof for the master. If options.secured, it has a token. It also has the path of
  // the token's file if that file is to be watched.
  Control(net::Endpoint master, Options options, link::DriverOptions data, TokenSource token,
          const std::shared_ptr<ring::PeerThread>& thread,
          std::function<void(const Topology&)> on_reconfigured);
  ~Control();  // end() must have been called

  const Status& status() const;  // kSystem: a thread could not start
  bool on_loop() const { return loop_.on_loop(); }
  const std::shared_ptr<WaitRecord>& waits() const { return waits_; }

  // Calls. After end(), the completion is called immediately, or false is returned.
  // Returns the handle of the operation.
  Handle post(OpRequest request, ring::Memory memory, Completion completion);
  void staged(Handle handle, Status status);  // see OpStaged
  bool join(std::shared_ptr<WaitingCall> call);
  bool joint(JointCalled event, std::shared_ptr<WaitingCall> call);
  void give_up(const std::shared_ptr<WaitingCall>& call);
  void await(const std::shared_ptr<WaitingCall>& call);  // see JointAwaited
  void concluded(Handle call);                           // see JointConcluded
  // Asks the core, and waits for the loop. Returns the topology that the application sees from now
  // on; nothing if it sees the same as before (see SeenTopology). Inside a completion, it returns
  // nothing at once.
  std::optional<Topology> ask_topology();

  // Leaves the run. Waits until no tensors are borrowed and the master has been informed, or
  // `at_most` has passed. Then ends its part of the loop and fails all open calls. REQUIRES: called
  // once, and not on the loop.
  void end(Duration at_most);

  // The result has no topology. REQUIRES: not after end().
  Info info();
  // Sets these numbers in all later Telemetry. kInvalidArgument if there are then too many: nothing
  // has changed. REQUIRES: names and numbers within the limits of Telemetry.
  Status report(const std::vector<protocol::Scalar>& scalars);

 private:
  struct Posted {
    OpRequest request;
    ring::Memory memory;
    Completion completion;
  };
  struct Called {
    Event event;  // JoinCalled or JointCalled
    std::shared_ptr<WaitingCall> call;
  };
  struct GivenUp {
    std::shared_ptr<WaitingCall> call;
  };
  struct Awaited {
    std::shared_ptr<WaitingCall> call;
  };
  using Item = std::variant<Event, Posted, Called, GivenUp, Awaited, std::function<void()>>;

  struct LentOperation {
    ring::Memory memory;
    Completion completion;
    protocol::OpInfo info;
    Instant posted_at;
  };
  struct Past {
    protocol::OpInfo info;
    OpKey key;
    Code outcome = Code::kOk;
    Duration took{0}, committing{0};
  };

  bool push(Item item);
  void take_items();
  void take(Event& event) { step(event); }
  void take(Posted& posted);
  void take(Called& called);
  void take(GivenUp& given_up);
  void take(Awaited& awaited);
  Handle handle_of(const WaitingCall& call) const;  // 0: the call has ended
  void take(std::function<void()>& task) { task(); }

  void step(const Event& event);
  void finish_turn();  // sends the messages of this turn, arms the timer

  void apply(ConnectMaster& effect);
  void apply(CloseMaster& effect);
  void apply(SendMaster& effect);
  void apply(ForgetTokens& effect);
  void apply(Listen& effect);
  void apply(AcceptAs& effect);
  void apply(DialPeer& effect);
  void apply(AcceptWith& effect);
  void apply(ForgetPeer& effect);
  void apply(BeginEpoch& effect);
  void apply(StartOp& effect);
  void apply(OpenLanes& effect);
  void apply(SampleLink& effect);
  void apply(EndOp& effect);
  void apply(SayDone& effect);
  void apply(BeginPieces& effect);
  void apply(CheckPiece& effect);
  void apply(SyncProgress& effect);
  void apply(ReturnPiece& effect);
  void apply(FinishOp& effect);
  void apply(FinishJoint& effect);
  void apply(Reconfigured& effect);
  void apply(ShowTopology& effect) { shown_ = std::move(effect.topology); }
  void apply(LookAtWaits&) { push(Event{waits_->look()}); }
  void apply(SampleTelemetry& effect);
  void apply(OpJudged& effect) {
    waits_->judged(effect.handle, effect.last, monotonic_now() + -effect.ago);
  }
  void apply(Gone& effect);
  void apply(Log& effect);

  void watch_token(TokenSource token);
  void connected(Result<net::Socket> socket, Instant by, uint32_t token);
  Result<net::Channel> channel(net::Socket socket, Instant by, uint32_t token);
  void received(std::span<const std::byte> bytes);
  void closed(uint64_t stream, const Status& why);
  void flush();
  void flush_or_hold();
  void on_data(ring::DataEvent event);
  void notice_end();
  void close_inputs();
  void fail_what_is_left();
  void start_transfer(StartOp& start);
  void lent(StartOp& start, uint64_t number, const Result<std::span<std::byte>>& span);
  void post_to_ring(StartOp& start, ring::Memory memory);
  protocol::OpInfo describe(const OpRequest& request) const;
  void set_log_context(std::optional<uint32_t> rank, Epoch epoch);
  void warn(const std::string& text) const;

  const net::Endpoint master_;
  const Options options_;
  const std::function<void(const Topology&)> on_reconfigured_;
  const std::shared_ptr<WaitRecord> waits_ = std::make_shared<WaitRecord>();  // of the application
  LogContext log_;  // for this peer's part of the loop
  net::LoopShare loop_;

  // The last handle; operations get theirs in the order of the inbox.
  std::atomic<Handle> handles_{0};
  Mutex inbox_mutex_;
  std::vector<Item> inbox_ PCCL_GUARDED_BY(inbox_mutex_);
  bool closed_ PCCL_GUARDED_BY(inbox_mutex_) = false;  // no item is accepted any more

  Mutex report_mutex_;
  std::vector<protocol::Scalar> scalars_ PCCL_GUARDED_BY(report_mutex_);
  TimeTotals time_at_sample_;     // at the last SampleTelemetry
  uint64_t moved_at_sample_ = 0;  // bytes of tensors, both ways, at the last SampleTelemetry

  Mutex end_mutex_;
  Condition end_changed_;
  // The core is gone, and its last messages have left.
  bool gone_and_said_ PCCL_GUARDED_BY(end_mutex_) = false;

  // On the loop only.
  PeerCore core_;
  std::unique_ptr<ring::DataPlane> data_;
  std::unique_ptr<net::Timer> timer_;
  std::optional<Instant> armed_;
  std::unique_ptr<net::Connector> connector_;
  std::map<uint64_t, std::unique_ptr<net::Stream>>
      streams_;  // the current stream to the master, and closing streams
  uint64_t stream_count_ = 0;
  net::Stream* stream_ = nullptr;  // the current stream to the master
  // The tokens that the core may want to show, by number; empty: this peer has none.
  std::map<uint32_t, std::shared_ptr<const Token>> tokens_;
  uint32_t token_count_ = 0;  // number of tokens that were read
  std::string token_id_;      // of the token that the current connection has shown
  protocol::Decoder decoder_;
  Outbox outbox_;
  bool held_ = false;  // outbox_ waits for outbox_timer_
  std::unique_ptr<net::Timer> outbox_timer_;
  std::vector<std::byte> out_;  // encoded messages, used within flush()
  std::vector<Item> taken_;
  Effects effects_;
  Topology topology_;  // of the present epoch; the application sees it when its call returns
  std::optional<Topology> shown_;  // used within ask_topology()
  PeerId self_;
  bool gone_ = false;
  bool lingers_ = false;  // Gone::lingers
  std::set<PeerId> links_up_;
  std::unordered_map<Handle, LentOperation> operations_;
  std::map<Handle, std::shared_ptr<WaitingCall>> calls_;
  // Operations that the core has started and not ended, but that the ring does not have. Either
  // they were refused here, or the caller's thread has not lent their memory yet.
  struct Unposted {
    Epoch epoch;
    uint64_t number = 0;  // number of this start
  };
  std::map<OpKey, Unposted> unposted_;
  uint64_t starts_ = 0;  // number of transfers that were started
  std::deque<Past> history_;

  std::unique_ptr<TokenWatch> token_watch_;  // null: there is no file to watch
};

}  // namespace pccl::peer
