// Outbox: the messages to the master that have not left yet. The Begin of a collective waits for
// the next message for up to kHeldMax. A short collective is done before that. Then its Begin and
// Done leave together, which costs one send here and one wake-up at the master.
// The shell and the simulator own one each. It is pure: time comes in.
// Invariants:
// 1. Messages leave in the order of their arrival.
// 2. Nothing but a Begin is held, and no longer than kHeldMax.
// A send's Begin is not held: a receive from any source may wait for it.
#pragma once

#include <optional>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/protocol/messages.h"

namespace pccl::peer {

class Outbox {
 public:
  static constexpr Duration kHeldMax = std::chrono::milliseconds(1);

  void add(protocol::Message message, Instant now);
  bool empty() const { return messages_.empty(); }
  // Whether the messages are to leave at the end of this turn. If not, they leave at deadline().
  bool due(Instant now) const { return leaves_ && *leaves_ <= now; }
  std::optional<Instant> deadline() const { return leaves_; }  // nothing if it is empty
  std::vector<protocol::Message> take();
  void check() const;  // asserts the invariants

 private:
  std::vector<protocol::Message> messages_;
  std::optional<Instant> leaves_;
};

}  // namespace pccl::peer
