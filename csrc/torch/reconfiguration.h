// Reconfiguration: how a group whose application decides its members (enable_reconfigure) gets
// them. Each process has a master, from its first such group on, and gives out handles that lead to
// it. A reconfigure founds a new run at the master of the first listed handle (rendezvous.h). If
// that process hosts the present run, and all listed processes are members of it, the run goes on
// with them, and their links stay. The PcclBackend owns one.
// Any thread may call the methods. meet() blocks, lets other threads run Python, and raises
// KeyboardInterrupt on Ctrl-C.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/base/result.h"
#include "csrc/net/handle_keys.h"
#include "csrc/protocol/rendezvous.h"
#include "csrc/torch/hosted_master.h"
#include "csrc/torch/join_options.h"

namespace pccl::torch_layer {

class PeerSession;

class Reconfiguration {
 public:
  struct Options {
    HostedMaster::Options master;
    std::string advertised;  // the host of this process's master, for the others
    JoinOptions join;        // of each run; this class sets address, run, rank, size and timeout
  };
  explicit Reconfiguration(Options options);
  ~Reconfiguration();
  Reconfiguration(const Reconfiguration&) = delete;
  Reconfiguration& operator=(const Reconfiguration&) = delete;

  // The text of the handle of this process, which serves one call of meet().
  std::string handle() const;
  using Session = std::shared_ptr<PeerSession>;
  // Takes the session of the new members, which may be the present one.
  using Install = std::function<void(Session)>;
  // Meets the processes of these handles, in the order of the ranks. `present`: the session of the
  // present members; null: there are none. Raises ValueError for a list that makes no sense,
  // InvalidStateError if a call is under way or interrupt() ends it, and otherwise the error that
  // the peers agree on.
  void meet(int64_t uuid, const std::vector<std::string>& handles,
            std::chrono::milliseconds timeout, const Session& present, const Install& install);
  void interrupt();  // the call that is under way ends

 private:
  struct Meeting;
  using Handles = std::vector<protocol::ReconfigureHandle>;
  void check_process() const;  // raises InvalidStateError in a forked child
  using Key = std::shared_ptr<const net::HandleKey>;
  Key new_key() const;  // null: handles have none
  protocol::ReconfigureHandle own_handle() const PCCL_REQUIRES(mutex_);
  std::shared_ptr<Meeting> begin(int64_t uuid, Handles handles, std::chrono::milliseconds timeout);
  void call(const std::shared_ptr<Meeting>& meeting);
  bool may_regroup(const Meeting& meeting) const;
  // Returns null if the processes found another run.
  static Result<Session> regroup(Meeting& meeting, const Session& present);
  Result<Session> join(Meeting& meeting);
  static Status outcome(const Meeting& meeting, const Status& joined);
  void use_up(const Key& next);
  void note_members(const Handles& handles);
  void finish();

  const Options options_;
  const uint64_t forks_;
  const std::shared_ptr<HostedMaster> master_;
  const std::string group_;  // the name of this group in its handles
  mutable Mutex mutex_;
  uint64_t generation_ PCCL_GUARDED_BY(mutex_) = 1;
  Key key_ PCCL_GUARDED_BY(mutex_);                           // of the present handle
  std::shared_ptr<Meeting> meeting_ PCCL_GUARDED_BY(mutex_);  // null: none is under way
  // The groups of the processes that have met last, the host's first; empty: they have not met yet.
  std::vector<std::string> met_ PCCL_GUARDED_BY(mutex_);
  // The calls so far, by the group of their host.
  std::set<std::pair<std::string, int64_t>> used_ PCCL_GUARDED_BY(mutex_);
};

}  // namespace pccl::torch_layer
