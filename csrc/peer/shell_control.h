// Control: the control loop of a peer: steps its PeerCore, carries its effects out, and holds the
// memory and the completions of calls under way. Methods may be called from any thread; what they
// bring goes through one inbox, in order, and what one turn of the loop produces leaves in one
// send. The happy path: connect to the master, decode what it says, step, encode what is told; pass
// operations to the data plane and completions to the application. What can go wrong: the
// connection fails or carries nonsense (the core is told, and says when to try again); memory does
// not fit its operation (it fails for all ranks, by way of the master).
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <variant>
#include <vector>

#include "csrc/net/loop.h"
#include "csrc/net/stream.h"
#include "csrc/peer/shell.h"
#include "csrc/peer/shell_state.h"
#include "csrc/peer/shell_waiter.h"
#include "csrc/protocol/codec.h"

namespace pccl::peer {

class Control {
 public:
  // One join or joint call, shared by the thread that waits and the loop.
  struct Call {
    Waiter waiter;
    std::shared_ptr<SharedEntries> entries;  // sync_shared_state only
  };

  // `on_renewed`: members were lost and the rest goes on; called on the loop.
  Control(net::Endpoint master, Options options, ring::Shell::Options data,
          std::function<void(const Topology&)> on_renewed);
  ~Control();  // end() must have been called

  const Status& status() const { return loop_.status(); }  // kSystem: the loop could not start
  bool on_loop() const { return loop_.on_loop(); }

  // Calls. After end(): the completion is called at once, or false is returned.
  void post(OpRequest request, ring::Memory memory, Completion completion);
  bool join(std::shared_ptr<Call> call);
  bool joint(JointCalled event, std::shared_ptr<Call> call);
  void give_up(const std::shared_ptr<Call>& call);
  void seen(Epoch epoch);  // ranks that are named from here on are of this epoch

  // Leaves the run, waits until nothing is lent and the master has been told, or `at_most` has
  // passed; then ends both loops and fails what is left. Once, and not on a loop.
  void end(Duration at_most);

  // Topology is left out. REQUIRES: not after end().
  Info info();

 private:
  struct Posted {
    OpRequest request;
    ring::Memory memory;
    Completion completion;
  };
  struct Called {
    Event event;  // JoinCalled or JointCalled
    std::shared_ptr<Call> call;
  };
  struct GivenUp {
    std::shared_ptr<Call> call;
  };
  using Item = std::variant<Event, Posted, Called, GivenUp, std::function<void()>>;

  struct Operation {
    ring::Memory memory;
    Completion completion;
    protocol::OpInfo info;
    Instant posted_at;
  };
  struct Past {
    protocol::OpInfo info;
    OpKey key;
    Code outcome = Code::kOk;
    Duration took{0};
  };

  bool push(Item item);
  void take_items();
  void take(Event& event) { step(event); }
  void take(Posted& posted);
  void take(Called& called);
  void take(GivenUp& given_up);
  void take(std::function<void()>& task) { task(); }

  void step(const Event& event);
  void finish_turn();  // sends what was told, arms the timer

  void apply(ConnectMaster& effect);
  void apply(CloseMaster& effect);
  void apply(SendMaster& effect);
  void apply(Listen& effect);
  void apply(DialPeer& effect);
  void apply(ForgetPeer& effect);
  void apply(BeginEpoch& effect);
  void apply(StartOp& effect);
  void apply(EndOp& effect);
  void apply(SayDone& effect) { data_->done(effect.op); }
  void apply(VerifyState& effect);
  void apply(FinishOp& effect);
  void apply(FinishJoint& effect);
  void apply(EpochRenewed& effect);
  void apply(Gone& effect);
  void apply(Log& effect);

  void connected(Result<net::Socket> socket);
  void received(std::span<const std::byte> bytes);
  void closed(uint64_t stream, const Status& why);
  void flush();
  void notice_end();
  void tear_down();
  Result<ring::Memory> memory_of(const StartOp& start);
  protocol::OpInfo describe(const OpRequest& request) const;
  ring::Shell::Callbacks data_callbacks();

  const net::Endpoint master_;
  const Options options_;
  const std::function<void(const Topology&)> on_renewed_;
  net::Loop loop_;

  std::mutex inbox_mutex_;
  std::vector<Item> inbox_;
  bool closed_ = false;  // nothing is taken any more

  std::mutex end_mutex_;
  std::condition_variable end_changed_;
  bool gone_and_said_ = false;  // the core is gone, and the master has taken the last word

  // On the loop only.
  PeerCore core_;
  bool loopback_only_ = false;  // we listen on; written before the data plane is to listen
  std::unique_ptr<ring::Shell> data_;
  std::unique_ptr<net::Timer> timer_;
  std::optional<Instant> armed_;
  std::unique_ptr<net::Connector> connector_;
  std::map<uint64_t, std::unique_ptr<net::Stream>>
      streams_;  // the one to the master, and those closing
  uint64_t stream_count_ = 0;
  net::Stream* stream_ = nullptr;  // the one to the master
  protocol::Decoder decoder_;
  std::vector<std::byte> out_;
  std::vector<Item> taken_;
  Effects effects_;
  Handle handles_ = 0;
  Topology topology_;  // of the epoch; the application's view follows when its call returns
  PeerId self_;
  bool gone_ = false;
  std::unordered_map<Handle, Operation> operations_;
  std::map<Handle, std::shared_ptr<Call>> calls_;
  std::map<OpKey, Epoch> unposted_;  // started by the core, refused here, not ended yet
  std::deque<Past> history_;
};

}  // namespace pccl::peer
