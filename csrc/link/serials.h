// Serials: the serial numbers of connections, as LinkCore knows them. They show which of two
// connections of a peer is the later one, and which side has dialled a connection. It is pure.
// Invariants:
//  1. A number given to a connection exceeds all numbers that are known of its peer.
//  2. The claims of one peer about its own connections do not use up the numbers of other peers:
//     those numbers follow only our own count.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "csrc/protocol/frames.h"
#include "csrc/protocol/messages.h"

namespace pccl::link {

class Serials {
 public:
  // The last number that is known of this peer's connections, or of our own. `dead`: connections of
  // the peer up to this number are dead.
  uint32_t last(PeerId peer, uint32_t dead) const;
  // Returns the number for a new connection that we have made to this peer. `higher`: our id is
  // higher than the id of the peer.
  uint32_t next(PeerId peer, uint32_t dead, bool higher);
  // The reason why `serial` cannot be the number of a connection of a peer whose last number is
  // `last`; empty if it can. `by_higher`: the side with the higher id has dialled it.
  static std::string refusal(uint32_t serial, uint32_t last, bool by_higher);
  // The dialler has completed a proof for its first lane `serial`, and has sent a valid hello.
  void completed(PeerId dialler, uint32_t serial);
  // Whether the dialler has completed a proof for this connection or for a later one. The numbers
  // of a dialler only grow.
  bool is_used(const protocol::LaneIntroduction& shown) const;
  void forget(PeerId peer);

 private:
  uint32_t made_ = 0;                     // grows with each connection that we have made
  std::map<PeerId, uint32_t> given_;      // last number given to a connection to this peer
  std::map<PeerId, uint32_t> completed_;  // highest number, by dialler
};

}  // namespace pccl::link
