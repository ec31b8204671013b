// Token: the id and the secret that let a peer into the runs of a master. Its text is one line,
// "pccl1.<id>.<secret>". The id is public. The secret is 256 random bits, in base64url without
// padding. pccl_backend/_tokens.py has the same rules, and makes tokens. Pure: text in, a value or
// a refusal out. No refusal repeats any text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "csrc/base/result.h"
#include "csrc/base/secret.h"

namespace pccl {

inline constexpr std::string_view kTokenPrefix = "pccl1.";
inline constexpr size_t kTokenIdBytesMin = 8;
inline constexpr size_t kTokenIdBytesMax = 16;

struct Token {
  std::string id;
  Secret secret;
};

// Whether `text` can be the id of a token: 8 to 16 lowercase letters and digits.
bool is_token_id(std::string_view text);

// Returns the token, or kInvalidArgument with a phrase for an error text that first names the
// token, for example "is no token: a token begins with pccl1.".
Result<Token> parse_token(std::string_view text);

}  // namespace pccl
