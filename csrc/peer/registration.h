// Registration: this peer's report to the master about its listener, with its address for other
// peers. It belongs to the PeerCore, which decides when to open the listener and when to send the
// report.
//   - A master on another machine: the listener opens when the connection to the master is up, and
//     Register follows Hello. So joining takes one round trip less.
//   - A master on this machine: the listener opens after Welcome, which decides whether it is on
//     the loopback interface only.
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
  // `hosts`: numeric addresses of the listener's interfaces.
  void opened(uint16_t port, const std::vector<std::string>& hosts);
  bool ready() const { return listening_at_.has_value(); }
  void tell();  // REQUIRES: ready()

 private:
  Context& context_;
  bool opening_ = false;
  std::optional<protocol::Register> listening_at_;
};

}  // namespace pccl::peer
