// keys: the secret keys that keep strangers out of the connections between peers, and how one is
// derived from another (PROTOCOL.md, section 1). The master draws a seed at each start. From it
// follows the accepting key of each peer, which the master tells that peer alone. A peer that is to
// dial another one gets a key for this one link: derived from the accepting key of the other peer
// and from an identity that it shows. So the acceptor can compute the same key from the identity,
// and nobody else can. Pure values and functions: any thread may call them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "csrc/protocol/messages.h"

namespace pccl::protocol {

inline constexpr size_t kKeyBytes = sizeof(Key::words);
std::array<std::byte, kKeyBytes> bytes_of(const Key& key);  // little-endian words
Key key_of(std::span<const std::byte, kKeyBytes> bytes);

// The identity as the text that TLS carries, and back; nullopt if it is no such text.
std::string encode(const LaneIdentity& identity);
std::optional<LaneIdentity> decode_lane_identity(std::string_view text);

// Derivations, each by HKDF-SHA256 with a label of its own.
Key accepting_key(const Key& seed, PeerId peer);
Key lane_key(const Key& accepting, uint64_t run_id, const LaneIdentity& identity);

}  // namespace pccl::protocol
