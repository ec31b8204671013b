#include "csrc/net/token_channel.h"

#include <utility>

#include "csrc/net/handle_keys.h"
#include "csrc/net/keys.h"

namespace pccl::net {

Result<Channel> channel_to_master(Socket socket, const Endpoint& master, const Token* token,
                                  bool insecure, Instant by) {
  if (token == nullptr) {
    if (insecure || socket.is_loopback()) return Channel(std::move(socket));
    return Status{Code::kAuthentication,
                  "this process has no token, and the master at " + text(master) +
                      " is not on the loopback interface of this machine: ask the owner of the "
                      "master for a token (`pccl token new`), put it in a file that only you can "
                      "read, and name the file in PCCL_SECRET_FILE. If the master was started with "
                      "--insecure, set PCCL_INSECURE=1 here, but only in a network that you trust",
                  {}};
  }
  Result<Tls> tls = Tls::dial(token->id, control_key(token->secret.bytes()));
  if (!tls.ok()) return tls.status();
  return Channel(std::move(socket), std::move(tls.value()), by);
}

Status explain_handshake(const Status& why, Tls::Refusal refusal, const Endpoint& master,
                         const std::string& token) {
  if (why.code != Code::kAuthentication) return why;
  const std::string who = "the master at " + text(master), what = "token " + token;
  if (handle_identity(token)) {
    return {why.code,
            "the process at " + text(master) +
                " does not prove that it has made its handle: the handle was used already, or its "
                "process was started again, or the address is wrong, or somebody is in between (" +
                why.message + ")",
            {}};
  }
  switch (refusal) {
    case Tls::Refusal::kUnknownIdentity:
      return {why.code,
              who + " does not know the " + what +
                  ": it was revoked, or another master has made it, or somebody on the path has "
                  "forged this answer. Ask the owner of the master for another one (`pccl token "
                  "new`)",
              {}};
    case Tls::Refusal::kWrongKey:
      return {why.code,
              who + " has another secret for the " + what +
                  ": another master has made this token, or one of the two files was changed, or "
                  "somebody on the path has forged this answer. Copy the file of the token again, "
                  "or ask the owner of the master for another token (`pccl token new`)",
              {}};
    case Tls::Refusal::kPlainText:
      return {why.code,
              who + " speaks plain text, so it did not get the " + what +
                  ": it is another program, or a master that was started without a keyring, or "
                  "somebody on the path has forged this answer. Start it with --keyring; or, in a "
                  "network that you trust, unset PCCL_SECRET_FILE and set PCCL_INSECURE=1 here",
              {}};
    case Tls::Refusal::kOther: break;
  }
  return {why.code,
          who + " does not prove that it knows the " + what +
              ": the address is wrong, or somebody is in between (" + why.message + ")",
          {}};
}

}  // namespace pccl::net
