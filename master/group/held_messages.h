// HeldMessages: the messages of members that cannot be processed yet, because other members are
// recovered after a restart or because the group is deciding on its next membership. They are
// processed later in their order. Group owns it. It is pure.
// Invariant: the bytes of all held messages are counted in the Context, for all groups together.
// Failure: a member that sends more messages than a member can have to send meanwhile gets
// kProtocol.
#pragma once

#include <map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/protocol/messages.h"
#include "master/context.h"

namespace pccl::master {

class HeldMessages {
 public:
  struct Held {
    PeerId peer;
    protocol::Message message;
  };
  explicit HeldMessages(Context& context) : context_(context) {}

  Status hold(PeerId peer, const protocol::Message& message);
  void forget(PeerId peer);
  std::vector<Held> take();  // all of them
  bool empty() const { return all_.empty(); }
  size_t bytes() const;
  std::vector<PeerId> senders() const;
  void check() const;  // asserts that no sender has sent too much

 private:
  struct OfPeer {
    std::vector<protocol::Message> messages;
    size_t bytes = 0;
  };
  void uncount(size_t bytes);

  Context& context_;
  std::map<PeerId, OfPeer> all_;
};

}  // namespace pccl::master
