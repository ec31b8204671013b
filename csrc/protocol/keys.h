// keys: the secret keys in the messages of the control plane, and the public names of the
// connections that they are for. csrc/net/keys.h derives keys. Plain values.
#pragma once

#include <array>
#include <cstdint>

#include "csrc/base/ids.h"

namespace pccl::protocol {

// 256 secret bits. They are in no log and in no error.
struct Key {
  std::array<uint64_t, 4> words{};
  bool operator==(const Key&) const = default;
};

// The key of one peer: the keys of all links that the peer accepts are derived from it.
// `incarnation`: of the master that made it.
struct AcceptingKey {
  uint32_t incarnation = 0;
  Key key;
};

// Names the two ends of a connection, and so identifies its key. Each Dial of a master has a
// different `number`.
struct LaneIdentity {
  PeerId dialler;
  PeerId acceptor;
  uint32_t incarnation = 0;  // of the master that made the key
  uint64_t number = 0;
  bool operator==(const LaneIdentity&) const = default;
};

// A dialler shows this first, before it proves that it has the key. Nothing of it is secret.
struct LaneIntroduction {
  LaneIdentity identity;
  uint32_t serial = 0;   // as in the hello that follows (frames.h)
  bool further = false;  // likewise
  bool operator==(const LaneIntroduction&) const = default;
};

// With this, a peer can dial the acceptor of the identity.
struct LaneCredential {
  LaneIdentity identity;
  Key key;
  bool operator==(const LaneCredential&) const = default;
};

}  // namespace pccl::protocol
