// token_channel: the dialler's end of a connection to a master. With a token, the connection is
// encrypted and proves the token. Without one, it is plain text, which is allowed on the loopback
// interface, and elsewhere only if the user has set PCCL_INSECURE. Call it on the loop of the
// socket.
// Failure: the texts are for the user, and name the remedy.
#pragma once

#include <string>

#include "csrc/base/endpoint.h"
#include "csrc/base/token.h"
#include "csrc/net/channel.h"

namespace pccl::net {

// `token`: null if there is none. `insecure`: PCCL_INSECURE is set. `by`: the deadline of the
// handshake. kAuthentication if there is no token and plain text is not allowed.
Result<Channel> channel_to_master(Socket socket, const Endpoint& master, const Token* token,
                                  bool insecure, Instant by);

// The reason why a connection to a master has ended, in words for the user if it is the token.
// `token`: the id of the token that the connection has shown.
Status explain_handshake(const Status& why, Tls::Refusal refusal, const Endpoint& master,
                         const std::string& token);

}  // namespace pccl::net
