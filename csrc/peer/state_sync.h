// StateSync: the peer-to-peer transfers of one sync_shared_state, on both of their ends
// (PROTOCOL.md, section 5.3). What arrives lands in staging; it is verified there, and installed
// only after the master's Answer. Transfers are operations of the ring that the master does not
// count. Invariant: busy() until nothing is lent to the ring any more, however the call ended.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "csrc/peer/joint.h"

namespace pccl::peer {

class StateSync {
 public:
  StateSync(Context& context, const Membership& membership)
      : context_(context), membership_(membership) {}

  // Starts what the plan asks of this peer, when nothing of an earlier one is under way any more.
  // kProtocol if it does not fit the call.
  Status on_plan(const protocol::SyncPlan& plan, const Joint::Call& call);

  // From the ring and the shell. False: no transfer of shared state.
  bool transferred(Epoch epoch, OpKey key);
  bool drained(Epoch epoch, OpKey key);
  bool failed(Epoch epoch, OpKey key, const Status& why);
  void verified(Handle handle, const Status& status);

  void stop();   // the epoch is over: what still runs is drained
  void renew();  // likewise, and another plan for the same call may come
  // It has forgotten what it planned, and may plan otherwise for the same call.
  void master_restarted();
  // The call is answered: what is to be installed if it went well. What still runs is drained.
  FinishJoint settle(const Status& status, const protocol::Answer& answer);
  bool busy() const { return !transfers_.empty(); }

  void repeat() const;  // after Resumed

 private:
  enum class State { kRunning, kDraining };
  struct Running {
    bool receives = false;
    State state = State::kRunning;
  };

  // What lies in staging, all of it verified, though its plan is void: the epoch was renewed.
  struct Staged {
    uint64_t revision = 0;
    std::vector<protocol::StateEntry> entries;
    std::vector<uint32_t> keys;
  };

  std::string check(const protocol::SyncPlan& plan, const Joint::Call& call) const;
  void start_when_clear();
  void start(const protocol::SyncPlan& plan, const protocol::Transfer& transfer, Handle handle);
  void say_fetched(Code code, std::string text);
  void forget_plan();
  void verify_when_complete();

  Context& context_;
  const Membership& membership_;
  std::map<std::pair<Epoch, OpKey>, Running> transfers_;
  std::optional<protocol::SyncPlan> plan_;
  Handle handle_ = 0;
  std::vector<uint32_t> fetched_keys_;  // ascending
  size_t receiving_ = 0;                // transfers to this peer that are not complete
  bool started_ = false;                // the plan was
  bool verified_ = false;
  std::optional<Staged> staged_;
  bool may_be_replaced_ = false;
  std::optional<Handle> verifying_;  // whose staging is being read,
  bool verifies_old_plan_ = false;   // for a plan that is void
  std::optional<protocol::Fetched> said_;
};

}  // namespace pccl::peer
