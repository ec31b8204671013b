// StateSync is the peer-to-peer transfers of one sync_shared_state call, on both of their ends
// (PROTOCOL.md, section 5.3). It belongs to the PeerCore. Entries arrive in staging buffers and are
// verified there. They are installed only after the master's Answer. The transfers are operations
// of the ring, but the master does not count them.
// Invariants:
//   1. busy() until the ring borrows no memory any more, however the call ended.
//   2. A running transfer belongs to the plan that has started, and to the present epoch.
//   3. While transfers run, the transfers to this peer that are not complete are counted.
//   4. Without a plan nothing of a plan is left: no keys, no Fetched, no count.
//   5. Entries are verified once all have arrived, and only then. The verification of a void plan
//      keeps the next plan from starting.
//   6. Staged entries are kept only until the next plan.
//   7. A Fetched is about the present plan.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/peer/joint.h"

namespace pccl::peer {

class StateSync {
 public:
  StateSync(Context& context, const Membership& membership)
      : context_(context), membership_(membership) {}

  // Starts this peer's transfers of the plan, as soon as no transfer of an earlier plan is under
  // way. kProtocol if the plan does not fit the call.
  Status on_plan(const protocol::SyncPlan& plan, const Joint::OpenCall& call);

  // From the ring and the shell. False: not a transfer of shared state.
  bool transferred(Epoch epoch, OpKey key);
  bool drained(Epoch epoch, OpKey key);
  bool failed(Epoch epoch, OpKey key, const Status& why);
  void verified(Handle handle, const Status& status);  // once for each VerifyState

  void stop();         // the epoch is over: running transfers are drained
  void reconfigure();  // the same, and another plan for this call may come
  // A restarted master has forgotten its plan. It may send a different one for the same call.
  void master_restarted();
  // The call, a sync_shared_state, is answered. Returns the entries to install if it succeeded.
  // Running transfers are drained.
  FinishJoint settle(const Status& status, const protocol::Answer& answer);
  bool busy() const { return !transfers_.empty(); }

  void repeat() const;  // after Resumed

  // The call of the plan that is being carried out, if there is one.
  std::optional<Handle> planned() const {
    return plan_ ? std::optional<Handle>(handle_) : std::nullopt;
  }
  void check() const;  // asserts the invariants

  enum class State { kRunning, kDraining, kFinished };  // of a transfer

 private:
  struct Running {
    bool receives = false;
    State state = State::kRunning;
  };
  using Transfers = std::map<std::pair<Epoch, OpKey>, Running>;

  // Verified entries in staging buffers whose plan is void, because the epoch has ended.
  struct Staged {
    uint64_t revision = 0;
    std::vector<protocol::StateEntry> entries;
    std::vector<uint32_t> keys;
  };

  std::string check(const protocol::SyncPlan& plan, const Joint::OpenCall& call) const;
  void start_when_clear();
  void start(const protocol::SyncPlan& plan, const protocol::Transfer& transfer, Handle handle);
  static void enter(Running& transfer, State next);  // REQUIRES: the table allows it
  void finish(Transfers::iterator at);
  void say_fetched(Code code, std::string text);
  void forget_plan();
  void verify_when_complete();

  Context& context_;
  const Membership& membership_;
  Transfers transfers_;
  std::optional<protocol::SyncPlan> plan_;
  Handle handle_ = 0;
  std::vector<uint32_t> fetched_keys_;  // ascending
  size_t receiving_ = 0;                // transfers to this peer that are not complete
  bool started_ = false;                // whether the plan has started
  bool verified_ = false;
  std::optional<Staged> staged_;
  bool may_be_replaced_ = false;
  std::optional<Handle> verifying_;  // the call whose staging is being read
  bool verifies_old_plan_ = false;   // that verification is for a void plan
  std::optional<protocol::Fetched> said_;
};

}  // namespace pccl::peer
