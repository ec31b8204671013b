// Shell of the master: a loop, a listener, a connection per peer, a MasterCore per run. Runs are
// made by the first Hello that names them, and forgotten when nobody is there and nothing is to be
// remembered. Used by the `pccl-master` executable, and embedded in rank 0 of an env:// start.
// Methods may be called from any thread but the loop's own.
// Failure: only open() fails; what a peer does wrong costs its connection.
#pragma once

#include <memory>
#include <string>

#include "csrc/base/status.h"
#include "csrc/net/socket.h"

namespace pccl::master {

// Whether only processes of this machine can reach a master that listens there.
bool is_loopback(const net::Endpoint& at);

class Shell {
 public:
  // Listens on `at`. kSystem when the address cannot be had.
  static Result<std::unique_ptr<Shell>> open(const net::Endpoint& at);
  // Ends at once; see drain().
  ~Shell();

  uint16_t port() const;
  // Waits until all that was decided has reached the peers, or `at_most` has passed.
  void drain(Duration at_most);

 private:
  struct Inside;
  Shell();
  std::unique_ptr<Inside> inside_;
};

}  // namespace pccl::master
