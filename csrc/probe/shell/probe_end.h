// ProbeEnd: one end of `pccl probe`. It carries out the effects of its core, ServerCore or
// ClientCore: it connects, sends and receives on lanes, moves the data of a trial and counts it.
// The process that owns it has one loop, and so one thread that moves data, as a peer has. It
// belongs to that loop; call it on the loop only.
//
// The normal course of a server: listen(); the first frame of a connection goes to the core, which
// admits it, joins it to a trial, or closes it. A connection whose first frame does not come in
// time, or that does not prove a key, is closed (net::PendingConnections).
// The normal course of a client: dial(); the core ends it with Over.
// Failure: a fault costs its connection, and the core gets an event.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "csrc/base/result.h"
#include "csrc/net/keys.h"
#include "csrc/net/socket.h"
#include "csrc/probe/events.h"

namespace pccl::probe {

class ProbeEnd {
 public:
  struct Options {
    // By the id of a token: the keys of all clients (server), or the key of this client alone.
    // Empty: plain text, without any proof of identity.
    std::map<std::string, net::Key> keys;
    std::string about = {};  // of a server: sent to each client; 1 to kAboutBytesMax bytes
  };
  struct Callbacks {
    std::function<void(const std::string& host, const std::string& text)> on_note = {};
    std::function<void(const Ready&)> on_ready = {};
    std::function<void(const Trial&, const TrialResult& here, const TrialResult& there)>
        on_measured = {};
    std::function<void(const Over&)> on_over = {};
  };
  ProbeEnd(net::Loop& loop, std::unique_ptr<Core> core, Options options, Callbacks callbacks);
  ~ProbeEnd();

  // Returns the port. kSystem if it cannot listen there.
  Result<uint16_t> listen(const Endpoint& at);
  void dial(const Endpoint& server);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pccl::probe
