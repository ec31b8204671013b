// Proofs: how the two ends of a connection to this master prove who they are. A peer proves one of
//   - a token of the keyring (keyring_file.h)
//   - the token that all peers of a hosted master share
//   - the key of its handle, for a reconfigure (csrc/net/handle_keys.h)
// Then all connections are encrypted. A master that has none of these admits all peers, in plain
// text. The Shell owns it, on its loop.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "csrc/base/token.h"
#include "csrc/net/channel.h"
#include "csrc/net/handle_keys.h"
#include "csrc/protocol/rendezvous.h"
#include "master/members/token_admission.h"
#include "master/runs/keyring.h"
#include "master/shell/keyring_file.h"

namespace pccl::master {

class Proofs {
 public:
  // `shared`: the token of all peers, if there is no keyring. `handles`: keys of handles serve.
  Proofs(std::optional<pccl::Token> shared, bool handles);

  Status open_keyring(net::Loop& loop, const std::string& path, KeyringFile::OnRevoked on_revoked);
  void close_keyring() { keyring_.reset(); }
  KeyringFile* keyring() const { return keyring_.get(); }  // null: there is none
  bool secured() const { return keyring_ != nullptr || !shared_.empty() || handles_; }

  // A connection from a peer: encrypted, if this master is secured.
  net::Channel accept(net::Socket socket) const;
  // The holder of a proven identity; nothing if it is no longer valid.
  std::optional<Holder> holder_of(const std::string& identity) const;
  // It has proven a key that anybody can make, and no token.
  static bool has_handle(const Holder& holder);
  // Nothing if the holder may enter the run in this role (token_admission.h).
  std::optional<protocol::Reject> refuse(const Holder& holder, const std::string& run, Role role,
                                         std::optional<size_t> connections) const;
  // Nothing if the peer that has proven this identity, if any, has made the handle.
  static std::optional<protocol::Reject> refuse_handle(const std::string& identity,
                                                       const protocol::ReconfigureHandle& handle);

  // The owner of this key can be reached by its handle as long as the key exists.
  void add(const std::shared_ptr<const net::HandleKey>& key);
  // A connection to the master of another process that has reconfigurable groups. `own`: the key of
  // the own handle, null if handles have none. The handshake may take until `by`.
  Result<net::Channel> dial(net::Socket socket, const protocol::ReconfigureHandle& to,
                            const net::HandleKey* own, Instant by) const;

 private:
  const Keyring& tokens() const { return keyring_ != nullptr ? keyring_->keyring() : shared_; }
  std::optional<net::Key> key_of_handle(std::string_view identity) const;

  std::unique_ptr<KeyringFile> keyring_;  // null: there is none
  Keyring shared_;                        // one token, or none
  const bool handles_;
  std::map<std::string, std::weak_ptr<const net::HandleKey>> keys_;  // by the public key
};

}  // namespace pccl::master
