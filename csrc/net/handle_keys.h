// handle_keys: the keys by which the processes of a reconfigure authenticate each other, if they
// share no token. Each handle has a public key of X25519 (RFC 7748), and its process keeps the
// private key. The dialler and the acceptor of a connection derive the same secret from the own
// private and the other public key. So a connection proves that each end has made its handle.
// Any thread may call the functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "csrc/base/token.h"
#include "csrc/net/keys.h"
#include "csrc/protocol/rendezvous.h"

namespace pccl::net {

// The two keys of one handle. They are made together, and the private one is wiped at the end.
struct HandleKey {
  Key secret;
  std::string shown;  // the public key, as in a ReconfigureHandle
};

HandleKey make_handle_key();

// A dialler shows the identity of this token, which has both public keys, and proves the secret of
// both. Nothing if `other` is no public key.
std::optional<Token> handle_token(const HandleKey& own, std::string_view other);

// The two public keys of an identity that handle_token() has made; nothing if it is another one.
struct HandleIdentity {
  std::string dialler, acceptor;
};
std::optional<HandleIdentity> handle_identity(std::string_view identity);

// The key of a connection whose dialler shows this public key to the owner of `own`. Nothing if
// `dialler` is no public key.
std::optional<Key> handle_control_key(const HandleKey& own, std::string_view dialler);

}  // namespace pccl::net
