// basic_auth: HTTP Basic (RFC 7617) with tokens. The user is the id of a token. The password is
// derived from the secret of the token (net::http_key), in base64url, so that it opens these pages
// only: a proxy or a scraper that keeps it cannot join a run. `pccl token http-password` prints
// both. Pure functions of the keyring.
#pragma once

#include <optional>
#include <string_view>

#include "master/runs/keyring.h"
#include "master/runs/records.h"

namespace pccl::master::http {

// The holder of the token whose password this header has. Nothing if the header has none. The time
// of the comparison does not depend on the password.
std::optional<Holder> proven_by(std::string_view authorization, const Keyring& keyring);

}  // namespace pccl::master::http
