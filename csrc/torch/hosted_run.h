// HostedRun: the run of a group whose rank 0 is this process. The master of the run is inside this
// process. All hosted runs of a process share one master, if it listens where they want it and
// admits the same peers. It ends with the last of them.
// Any thread may call the methods. end() and the destructor block, and their caller should not hold
// the GIL. In a forked child both do nothing.
// Failure: the constructor raises OSError if the master cannot listen there.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "csrc/base/clock.h"

namespace pccl::torch_layer {

class HostedRun {
 public:
  struct Options {
    std::string host;    // where the master listens; empty: on every address
    std::string token;   // the text of the token that all peers have; empty: they need none
    bool drawn = false;  // the token was made for this run: that of an earlier run serves as well
    std::string name;    // of the run; a number is added if the master had a run of this name
  };
  explicit HostedRun(const Options& options);
  ~HostedRun();
  HostedRun(const HostedRun&) = delete;
  HostedRun& operator=(const HostedRun&) = delete;

  uint16_t port() const { return port_; }
  const std::string& token() const { return token_; }
  const std::string& name() const { return name_; }

  // Sets and reads whether join() gives up: a rank cannot come, and the caller knows the reason.
  void give_up() { in_vain_ = true; }
  bool in_vain() const { return in_vain_; }

  // Announces the end to the peers of the run. Returns at once.
  void start_ending();
  // Waits until all peers of the run know that it has ended, or `at_most` has passed. Then the
  // master ends, too, if this was its last run. Idempotent.
  void end(Duration at_most);

 private:
  struct Master;
  struct Masters;
  static Masters& masters();
  std::shared_ptr<Master> master() const;

  const uint64_t forks_;
  uint16_t port_ = 0;
  std::string token_;
  std::string name_;
  std::atomic<bool> in_vain_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<Master> master_;  // null after end()
};

}  // namespace pccl::torch_layer
