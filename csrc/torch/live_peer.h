// LivePeer: a peer::Peer inside a Python process, which forks, exits without saying good-bye and,
// in rank 0 of an env:// start, hosts the master of its own run. Shared by the process group's
// objects and by the exit handler. Any thread may call it. join() and leave() block their caller,
// who should not hold the GIL. A forked child inherits the object but none of its threads: there
// usable() says so, and everything else does nothing.
#pragma once

#include <atomic>
#include <memory>

#include "csrc/peer/shell.h"
#include "master/shell.h"

namespace pccl::torch_layer {

class LivePeer {
 public:
  struct Request {
    net::Endpoint master;
    peer::Options peer;
    ring::Shell::Options data;
    bool restore =
        true;  // PCCL_RESTORE: keep what an operation overwrites until its outcome is known
    std::unique_ptr<master::Shell> hosted;  // ends after the peer has left
  };
  static Result<std::shared_ptr<LivePeer>> join(Request request,
                                                const peer::Interrupted& interrupted);
  ~LivePeer();  // leaves

  // kInvalidState when this process cannot speak for the peer any more: it has left, or it is a
  // fork of the one that joined.
  Status usable() const;
  // REQUIRES: not in a forked child. After leave() it answers what it still knows and fails what is
  // posted.
  peer::Peer& peer() { return *peer_; }
  bool restore() const { return restore_; }

  // Idempotent.
  void leave();
  // Leaves every group that is still there, and waits for the completers: for the end of the
  // process.
  static void leave_all();

 private:
  LivePeer() = default;

  std::unique_ptr<peer::Peer> peer_;
  std::unique_ptr<master::Shell> hosted_;
  bool restore_ = true;
  uint64_t forks_ = 0;
  std::atomic<bool> left_{false};
};

}  // namespace pccl::torch_layer
