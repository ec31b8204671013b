// frames: the content of lane frames that does not belong to an operation (PROTOCOL.md, section 6),
// as plain values: the hello that each end of a connection sends first. csrc/net/framing.h defines
// its bytes. Any thread may use them.
#pragma once

#include <cstdint>

#include "csrc/base/ids.h"
#include "csrc/protocol/messages.h"

namespace pccl::protocol {

// Returns the serial number of a new connection between two peers. It is above `last`, which is at
// least the serial number of the last connection that is known to be dead. The peer with the higher
// id makes the odd numbers, and the other peer the even ones. So no two connections have the same
// number, and each number tells which peer made the connection.
inline uint32_t next_serial(uint32_t last, bool by_higher) {
  return last + ((last % 2 == 1) == by_higher ? 2 : 1);
}
inline bool made_by_higher(uint32_t serial) { return serial % 2 == 1; }

// The content of kHello and kHelloOk, as the sender sees it.
struct LaneHello {
  uint64_t run_id = 0;
  PeerId self;
  PeerId other;
  uint64_t machine = 0;  // equal at both ends: both are on one machine; 0: unknown
  VersionRange versions = kSpoken;
  uint32_t serial = 0;   // of the link: next_serial()
  bool further = false;  // a further lane of the link with this serial number
  bool operator==(const LaneHello&) const = default;
};

}  // namespace pccl::protocol
