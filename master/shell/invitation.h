// Invitation: the master of the process that hosts a reconfigure asks the master of another listed
// process whether that process takes part (rendezvous.h). An answer comes only if it does not. It
// belongs to the loop that created it; call it on that loop only.
// Normal case: the constructor begins to connect; the other master sends a Ping now and then; the
// owner destroys the object when the run has begun.
// Failure: on_declined or on_unreachable, once. A master that sends nothing for a whole `silence`
// is unreachable.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "csrc/base/result.h"
#include "csrc/net/socket.h"
#include "csrc/net/stream.h"
#include "csrc/protocol/codec.h"
#include "csrc/protocol/keepalive_timer.h"
#include "csrc/protocol/messages.h"

namespace pccl::master {

class Invitation {
 public:
  struct Callbacks {
    // Both may destroy this object.
    std::function<void(const protocol::Reject&)> on_declined;
    std::function<void(const Status& why)> on_unreachable;
  };
  // Makes the channel of a new connection, with a handshake until `by` if it is encrypted.
  using Dial = std::function<Result<net::Channel>(net::Socket, Instant by)>;
  Invitation(net::Loop& loop, const protocol::Hello& hello, Endpoint to, Duration silence,
             const Dial& dial, Callbacks callbacks);
  ~Invitation();

 private:
  void connected(Result<net::Socket> socket);
  void greet();
  void received(std::span<const std::byte> bytes);
  void beat();
  void fail(const Status& why);

  net::Loop& loop_;
  const protocol::Message hello_;
  const Endpoint to_;
  const Duration silence_;
  const Dial dial_;
  const Callbacks callbacks_;
  protocol::Decoder decoder_;
  protocol::KeepaliveTimer keepalive_;  // counts beats without input, once it is connected
  net::Timer timer_;
  std::unique_ptr<net::Connector> connector_;
  std::unique_ptr<net::Stream> stream_;
  bool over_ = false;
};

}  // namespace pccl::master
