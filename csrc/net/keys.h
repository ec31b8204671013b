// keys: the keys by which the two ends of a connection prove who they are, and how they are derived
// from what both ends know. Pure functions of bytes (HKDF with SHA-256, RFC 5869).
//   - A peer and the master derive control_key() from the secret of the peer's token.
//   - The master gives each peer an accepting key. A peer that shall dial another one gets an
//     identity and lane_key(). The other one derives the same key from the identity that the
//     dialler shows. So the two need no further message, and a peer cannot use the key of another.
// A label in the derivation keeps the two kinds of keys apart. It has no number of a protocol
// version, because two versions that can speak with each other have to derive the same key.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "csrc/base/ids.h"

namespace pccl::net {

// Key: 32 secret bytes. Every copy wipes its memory when it ends. Keys have no text and no
// comparison, so that no log shows one and no clock tells one.
struct Key {
  std::array<std::byte, 32> bytes{};

  Key() = default;
  explicit Key(const std::array<std::byte, 32>& from) : bytes(from) {}
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key();
};

// The key of a connection to the master.
Key control_key(std::span<const std::byte> secret);

// LaneIdentity: the identity that the dialler of a lane shows. It names both ends. The nonce is
// drawn anew for each order to dial.
struct LaneIdentity {
  PeerId dialler, acceptor;
  std::array<std::byte, 16> nonce{};
  friend bool operator==(const LaneIdentity&, const LaneIdentity&) = default;
};

// The bytes that represent an identity on the wire: both ids, little-endian, then the nonce.
inline constexpr size_t kLaneIdentityBytes = 32;
std::string encode(const LaneIdentity& identity);
// nullopt if the number of bytes is another one, if an id is 0, or if both ids are the same.
std::optional<LaneIdentity> decode_lane_identity(std::string_view bytes);

// The key of a lane: of one pair of peers, one direction of dialling, and one life of the run.
Key lane_key(const Key& accepting_key, uint64_t run_id, const LaneIdentity& identity);

}  // namespace pccl::net
