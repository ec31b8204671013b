// HostedRun: the run of a group whose rank 0 is this process. The master of the run is inside this
// process (hosted_master.h).
// Rank 0 may leave the group before the others, which still need the master. keep() lets the run
// continue until its last peer has left, and exit_all() lets the process wait for that.
// Any thread may call the methods. end(), exit_all() and the destructor block, and their caller
// should not hold the GIL. In a forked child they do nothing.
// Failure: the constructor raises OSError if the master cannot listen there.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/mutex.h"

namespace pccl::torch_layer {

class HostedMaster;

class HostedRun {
 public:
  struct Options {
    std::string host;   // where the master listens; empty: on every address
    std::string token;  // the text of the token that all peers have; empty: they need none
    // `token` was made for this run; the token of an older such run serves as well.
    bool drawn = false;
    std::string name;      // of the run; a number is added if the master had a run of this name
    Duration patience{0};  // exit_all() does not wait for peers that make no call for this time
  };
  explicit HostedRun(const Options& options);
  // A run of this name at a master that is there, for peers that a reconfigure lists. No other run
  // has the name. `key`: by which its peers reach the master, until the run has ended.
  HostedRun(std::shared_ptr<HostedMaster> master, std::string name, Duration patience,
            std::shared_ptr<const void> key);
  ~HostedRun();
  HostedRun(const HostedRun&) = delete;
  HostedRun& operator=(const HostedRun&) = delete;

  uint16_t port() const { return port_; }
  const std::string& token() const { return token_; }
  const std::string& name() const { return name_; }

  // Sets and reads whether join() gives up: some rank cannot join, and the caller knows the reason.
  void give_up() { in_vain_ = true; }
  bool in_vain() const { return in_vain_; }

  // Rank 0 has left the group. Keeps the run until its last peer has left, and returns at once.
  static void keep(std::shared_ptr<HostedRun> run);
  // For the exit of the process: waits until no kept run needs its master any more (host_exit.h),
  // or `interrupted` returns true. Then ends all kept runs, within `at_most`. After a second of
  // waiting, the log names the awaited peers.
  static void exit_all(const std::function<bool()>& interrupted, Duration at_most);

  // Announces the end to the peers of the run. Returns when the master has begun it, so that it
  // does not report the peer of this process as lost if that leaves next.
  void start_ending();
  // Waits until all peers of the run know that it has ended, or `at_most` has passed. Then the
  // master ends, too, if this was its last run. Idempotent.
  void end(Duration at_most);

 private:
  struct Kept;
  static Kept& kept_runs();
  HostedRun(const std::shared_ptr<HostedMaster>& master, const Options& options);
  static void wait_for_peers(const std::vector<std::shared_ptr<HostedRun>>& runs,
                             const std::function<bool()>& interrupted);
  static void tell_who_is_awaited(const std::vector<std::shared_ptr<HostedRun>>& runs);
  std::shared_ptr<HostedMaster> master() const;

  const uint64_t forks_;
  const Duration patience_;
  const uint16_t port_;
  const std::string token_;
  const std::string name_;
  const std::shared_ptr<const void> key_;
  std::atomic<bool> in_vain_{false};
  mutable Mutex mutex_;
  std::shared_ptr<HostedMaster> master_ PCCL_GUARDED_BY(mutex_);  // null after end()
};

}  // namespace pccl::torch_layer
