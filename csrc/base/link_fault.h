// LinkFault: why a peer cannot be reached. The reasons are coarse, so that they reveal nothing to
// an outsider about the network of the peer that tried. A plain value. It is set where a dial
// fails, and never parsed from a text.
#pragma once

#include <cstdint>

namespace pccl {

enum class LinkFault : uint8_t {
  kOther = 0,
  kRefused = 1,           // the machine answers, but no process listens there
  kNoAnswer = 2,          // no answer in time, or no route
  kUnknownName = 3,       // the host name has no address
  kAnotherProgram = 4,    // the program that answers does not speak our protocol
  kAnotherPeer = 5,       // another peer answers, of this run or of another one
  kOnlySmallPackets = 6,  // large packets do not arrive
};

}  // namespace pccl
