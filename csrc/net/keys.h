// keys: the keys by which the two ends of a connection authenticate each other, and their
// derivation from the common knowledge of both ends (PROTOCOL.md, section 2). Pure functions of
// bytes (HKDF with SHA-256, RFC 5869).
//   - A peer and the master derive control_key() from the secret of the peer's token. The two ends
//     of `pccl probe` derive probe_key() from the secret of a token.
//   - A browser shows a password that is http_key() of the secret of a token
//     (master/http/basic_auth.h).
//   - Two processes of a reconfigure derive handle_secret() from the keys of their handles
//     (handle_keys.h), and then control_key() from it.
//   - The master draws a seed at each start. The accepting key of each peer is derived from the
//     seed, and the master sends it to that peer alone. A peer that is to dial an acceptor gets an
//     identity and its lane_key() from the master. The acceptor derives the same key from the
//     identity that the dialler shows. So dialler and acceptor need no further message, and a peer
//     cannot use the key of a different peer.
// A label in the derivation keeps the kinds of keys apart. It has no number of a protocol version,
// because two versions that can speak with each other have to derive the same key.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "csrc/protocol/keys.h"

namespace pccl::net {

// Key: 32 secret bytes. Every copy wipes its memory when it is destroyed. Keys have no text and no
// comparison, so that neither a log nor the time of a comparison reveals a key.
struct Key {
  std::array<std::byte, 32> bytes{};

  Key() = default;
  explicit Key(const std::array<std::byte, 32>& from) : bytes(from) {}
  explicit Key(const protocol::Key& key);
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key();
};

// The key of a connection to the master.
Key control_key(std::span<const std::byte> secret);
// The key of a connection of `pccl probe`.
Key probe_key(std::span<const std::byte> secret);
// The password for the pages of a master, for HTTP Basic. It is as secret as a key, and opens
// nothing else.
Key http_key(std::span<const std::byte> secret);

// The secret of a connection between two handles. `agreed`: the result of X25519; `identity`: the
// public keys of both.
Key handle_secret(const Key& agreed, const std::string& identity);

protocol::Key accepting_key(const protocol::Key& seed, PeerId peer);
// The key of the lanes with this identity (a dialler and an acceptor) in one life of the run.
protocol::Key lane_key(const protocol::Key& accepting, uint64_t run_id,
                       const protocol::LaneIdentity& identity);

// SipHash-2-4 of these bytes (Aumasson and Bernstein, 2012), with the first 16 bytes of the key. A
// tenth of the time of an HMAC for messages of 100 bytes. Any thread may use it.
uint64_t mac(const protocol::Key& key, std::span<const std::byte> bytes);

// The bytes that represent an introduction on the wire: its fields in order, little-endian.
inline constexpr size_t kLaneIntroductionBytes = 33;
std::string encode(const protocol::LaneIntroduction& introduction);
// nullopt if the number of bytes is not kLaneIntroductionBytes, if an id is 0, if both ids are the
// same, or if `further` is neither 0 nor 1.
std::optional<protocol::LaneIntroduction> decode_lane_introduction(std::string_view bytes);

}  // namespace pccl::net
