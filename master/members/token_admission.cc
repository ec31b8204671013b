#include "master/members/token_admission.h"

#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/protocol/limits.h"

namespace pccl::master {

using protocol::Reject;

Reject needs_token() {
  return {Code::kAuthentication,
          "this master admits only peers that have a token: ask its owner for one (`pccl token "
          "new`), put it in a file that only you can read, and name the file in PCCL_SECRET_FILE"};
}

std::optional<net::Key> key_of(const TokenId& shown, const Keyring& keyring) {
  const auto token = keyring.find(shown);
  if (token == keyring.end()) return std::nullopt;
  return net::control_key(token->second.secret.bytes());
}

std::optional<Holder> holder_of(const TokenId& proven, const Keyring& keyring) {
  const auto token = keyring.find(proven);
  if (token == keyring.end()) return std::nullopt;
  return Holder{proven, token->second.name};
}

std::optional<Reject> refuse_token(const Holder& holder, const Keyring& keyring,
                                   const std::string& run, Role role,
                                   std::optional<size_t> connections) {
  const auto& [id, name] = holder;
  const auto token = keyring.find(id);
  if (token == keyring.end())
    return Reject{Code::kAuthentication, "the token " + id + " was revoked"};
  if (role == Role::kPeer && token->second.role == Role::kObserver) {
    return Reject{
        Code::kAuthentication,
        "the token " + id + " of \"" + name +
            "\" is that of an observer: it may show a run (`pccl status`), and no peer may "
            "join with it. Ask the owner of the master for the token of a peer (`pccl "
            "token new`)"};
  }
  const std::vector<std::string>& allowed = token->second.runs;
  if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), run) == allowed.end()) {
    return Reject{Code::kAuthentication,
                  "the token " + id + " of \"" + name +
                      "\" is for other runs: ask the owner of the master for one of this "
                      "run (`pccl token new`)"};
  }
  if (!connections || *connections <= protocol::kConnectionsPerTokenMax) return std::nullopt;
  return Reject{Code::kInvalidState,
                "the token " + id + " of \"" + name + "\" has " +
                    count_text(*connections - 1, "connection") + " to this master, and at most " +
                    std::to_string(protocol::kConnectionsPerTokenMax) +
                    " are allowed: give each person or machine a token of its own"};
}

// The ids of peers are no secret within a run. So a peer is taken back only with a token of its
// first name, which the journal keeps. A peer that came without a token gets the name of the token
// that it shows now.
// A master that was started again without its keyring takes back no peer that came with a token.
// Anybody could claim the id of the peer there, in plain text. The peer itself could not continue
// either: its links need new keys, and this master hands out none.
std::optional<Reject> refuse_return(PeerId peer, const std::optional<Holder>& before,
                                    const std::optional<Holder>& shown) {
  if (!before || (shown && shown->name == before->name)) return std::nullopt;
  if (!shown) {
    return Reject{Code::kAuthentication,
                  "peer " + text(peer) +
                      " came with a token, and this master was started again without a "
                      "keyring: start it with --keyring"};
  }
  return Reject{Code::kAuthentication, "peer " + text(peer) + " came with a token of another name"};
}

}  // namespace pccl::master
