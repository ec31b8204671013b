// token_admission: whether a token lets a peer in: onto a connection, into a run, and back into a
// run. Pure functions of the keyring and of the token that the peer has proven; the shell and the
// MasterCore call them. The text of a refusal has advice for its user.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "csrc/net/keys.h"
#include "csrc/protocol/messages.h"
#include "master/runs/keyring.h"
#include "master/runs/records.h"

namespace pccl::master {

// Refuses a peer without a token.
protocol::Reject needs_token();

// The key that a peer with this token has, and its holder once it has proven that key. Nothing if
// the keyring does not have the token.
std::optional<net::Key> key_of(const TokenId& shown, const Keyring& keyring);
std::optional<Holder> holder_of(const TokenId& proven, const Keyring& keyring);

// Nothing if this holder may enter the run in this role. The answer is the same whether the run
// exists or not. `connections`: of this token to the master, with the one that asks; none if they
// are not limited, because all peers share one token.
std::optional<protocol::Reject> refuse_token(const Holder& holder, const Keyring& keyring,
                                             const std::string& run, Role role,
                                             std::optional<size_t> connections);

// Nothing if the peer may resume. `before`: the token that it came with; `shown`: the one of its
// new connection. None: there was no keyring.
std::optional<protocol::Reject> refuse_return(PeerId peer, const std::optional<Holder>& before,
                                              const std::optional<Holder>& shown);

}  // namespace pccl::master
