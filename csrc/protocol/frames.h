// frames: what frames of a lane say beyond moving an operation (PROTOCOL.md, section 6), as plain
// values: the hello that each end of a connection says first. csrc/net/framing.h has their bytes.
#pragma once

#include <cstdint>

#include "csrc/base/ids.h"
#include "csrc/protocol/messages.h"

namespace pccl::protocol {

// The serial number of a new connection between two peers: above `last`, which is at least that of
// the last one that is known to be dead. The higher id of the two makes odd ones, the lower one
// even ones: no two connections have the same, and each says who has made it.
inline uint32_t next_serial(uint32_t last, bool by_higher) {
  return last + ((last % 2 == 1) == by_higher ? 2 : 1);
}
inline bool made_by_higher(uint32_t serial) { return serial % 2 == 1; }

// The content of kHello and kHelloOk, as the sender sees it.
struct LaneHello {
  uint64_t run_id = 0;
  PeerId self;
  PeerId other;
  uint64_t machine = 0;  // equal at both ends: they are on one; 0: unknown
  VersionRange versions = kSpoken;
  uint32_t serial = 0;   // of the link: next_serial()
  bool further = false;  // one more lane of the link with this serial
  bool operator==(const LaneHello&) const = default;
};

}  // namespace pccl::protocol
