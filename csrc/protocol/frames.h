// frames: what frames of a lane say beyond moving an operation (PROTOCOL.md, section 6), as plain
// values: the hello that each end of a connection says first. csrc/net/framing.h has their bytes.
#pragma once

#include <cstdint>

#include "csrc/base/ids.h"
#include "csrc/protocol/messages.h"

namespace pccl::protocol {

// The content of kHello and kHelloOk, as the sender sees it.
struct LaneHello {
  uint64_t run_id = 0;
  PeerId self;
  PeerId other;
  uint64_t machine = 0;  // equal at both ends: they are on one; 0: unknown
  VersionRange versions = kSpoken;
  uint32_t serial = 0;   // of the link, among the connections that its dialler has made; from 1
  bool further = false;  // one more lane of the link with this serial
  bool operator==(const LaneHello&) const = default;
};

}  // namespace pccl::protocol
