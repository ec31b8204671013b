// Keyring: the tokens that a master knows. A token lets its holder into runs, as a peer or as an
// observer. It belongs to a person or a machine. It has a public id and a secret. `pccl token`
// writes the file, one JSON value a line, and shell/keyring_file.h reads it:
//
//   {"pccl_keyring":2,"tokens":1}
//   {"id":"k3v9x2mq7a1p","name":"alice","role":"peer","runs":null,"created":1764000000,
//    "secret":"64 hex digits"}       (on one line)
//
//   role: "peer" or "observer". runs: a list of names, or null for all runs. created: unix seconds.
//   Version 1 has no roles: all its tokens are those of peers.
//   tokens: their number. Each line is valid alone, so a file that was cut between two lines, for
//   example by a copy onto a full disk, would look whole and revoke the tokens that are missing.
//   The number shows that. A keyring that a person has written may leave it out.
//
// pccl_backend/command/keyring_file.py has the same rules. Pure: bytes in, a value or a refusal
// out. No refusal repeats any text of the file, because a damaged file may have a secret in any
// place. The only exception is an unknown role of a few letters, which cannot be a secret.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/base/secret.h"

namespace pccl::master {

// Maximum size of the file in bytes: room for some thousands of tokens.
inline constexpr size_t kKeyringBytesMax = 1u << 20;

// The permission that a token gives. A peer may also observe. An observer may only read snapshots.
enum class Role : uint8_t { kPeer, kObserver };

struct Token {
  std::string name;               // of the person or the machine
  std::vector<std::string> runs;  // the token is for these runs only; empty: for all runs
  Secret secret;
  Role role = Role::kPeer;
};

using TokenId = std::string;
using Keyring = std::map<TokenId, Token>;

// Fails with kInvalidArgument and a phrase that follows the name of the file, for example "is
// damaged in line 3: ...", and ends with advice.
Result<Keyring> parse_keyring(std::string_view text);

}  // namespace pccl::master
