// PeerSession: a peer::Peer inside a Python process. Such a process may fork, may exit without
// leaving its group and, in rank 0 of an env:// start, hosts its own run. All peers of a process
// share their threads. The objects of the process group share the session with the exit handler.
// Any thread may call it. join() and leave() block, and their caller should not hold the GIL. A
// forked child inherits the object but none of its threads: there usable() fails, and leave() and
// the destructor do nothing.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "csrc/base/mutex.h"
#include "csrc/base/result.h"
#include "csrc/peer/shell/peer.h"
#include "csrc/torch/hosted_run.h"
#include "csrc/torch/last_error.h"

namespace pccl::torch_layer {

class PeerSession {
 public:
  // Maximum time that the end of a hosted run waits until all peers have received its decisions and
  // its farewell. Some peers may be slow, or dead and not noticed yet. Peers that have not received
  // the farewell then search for a master.
  static constexpr Duration kEndTime = std::chrono::seconds(5);

  struct Request {
    net::Endpoint master;
    peer::Options peer;
    link::DriverOptions data;
    bool restore = true;          // PCCL_RESTORE: save overwritten bytes until the outcome is known
    bool check_callsite = false;  // PCCL_CHECK_CALLSITE: each operation has its call site
    std::shared_ptr<HostedRun> hosted;  // the run, if its master is in this process; else null
    peer::TokenSource token;
  };
  // kSystem if this process cannot open the files that a group of `size` peers needs. `hosts`: the
  // master of the run is in this process.
  static Status check_descriptors(size_t size, bool hosts);
  static Result<std::shared_ptr<PeerSession>> join(Request request,
                                                   const peer::Interrupted& interrupted);
  ~PeerSession();  // leaves

  // kInvalidState if this process cannot act for the peer: it has left, or it is a fork of the
  // process that joined.
  Status usable() const;
  // After leave() the peer still answers questions from its memory, and fails every operation that
  // is posted. REQUIRES: not in a forked child.
  peer::Peer& peer() { return *peer_; }
  bool restore() const { return restore_; }
  bool checks_callsite() const { return checks_callsite_; }
  std::shared_ptr<LastError> last_error() const {
    const Lock lock(mutex_);
    return last_error_;
  }
  // The operations so far set no error of this session any more.
  void forget_errors() {
    const Lock lock(mutex_);
    last_error_ = std::make_shared<LastError>();
  }

  // Idempotent. The master of a hosted run stays as long as other peers need it.
  void leave();
  // For the end of the process: leaves every group that still exists, waits for the peers of hosted
  // runs until `interrupted` returns true, and waits for the DevicePoller and for the
  // CompletionExecutor, each for at most kEndTime. `failed`: hosted runs end at once.
  static void leave_all(bool failed, const std::function<bool()>& interrupted);

 private:
  void end_hosted();
  PeerSession() = default;

  std::unique_ptr<peer::Peer> peer_;
  std::shared_ptr<HostedRun> hosted_;
  mutable Mutex mutex_;
  std::shared_ptr<LastError> last_error_ PCCL_GUARDED_BY(mutex_) = std::make_shared<LastError>();
  bool restore_ = true;
  bool checks_callsite_ = false;
  uint64_t forks_ = 0;
  std::atomic<bool> left_{false};
};

}  // namespace pccl::torch_layer
