// LinkFault: why a peer cannot be reached, in words so few that they tell a stranger nothing of the
// network around whoever tried. It is set where a dial fails; nobody reads it out of a text.
#pragma once

#include <cstdint>

namespace pccl {

enum class LinkFault : uint8_t {
  kOther = 0,
  kRefused = 1,           // the machine is there, and nobody listens
  kNoAnswer = 2,          // nothing came back in time, or no way leads there
  kUnknownName = 3,       // the host name has no address
  kAnotherProgram = 4,    // what answers does not speak our protocol
  kAnotherPeer = 5,       // what answers is another peer, of this run or of another
  kOnlySmallPackets = 6,  // larger ones do not arrive
};

}  // namespace pccl
