// Registration is what this peer tells the master about its listener: where other peers reach it.
// It belongs to the PeerCore, which decides when to open the listener and when to tell the master.
//   - A master on another machine: the listener opens when the connection to the master is up, and
//     Register follows Hello. So joining takes one round trip less.
//   - A master on this machine: the listener opens after Welcome, which says whether it shall be on
//     the loopback interface.
// Invariant: Listen is emitted once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "csrc/peer/context.h"

namespace pccl::peer {

class Registration {
 public:
  explicit Registration(Context& context) : context_(context) {}

  void open_listener(bool loopback_only);  // no effect if it was called before
  // `hosts`: numeric addresses of the interfaces on which the listener accepts connections.
  void opened(uint16_t port, const std::vector<std::string>& hosts);
  bool ready() const { return listening_at_.has_value(); }
  void tell();  // REQUIRES: ready()

 private:
  Context& context_;
  bool opening_ = false;
  std::optional<protocol::Register> listening_at_;
};

}  // namespace pccl::peer
