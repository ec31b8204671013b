#include "csrc/base/token.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace pccl {
namespace {

Status refusal(std::string why) { return {Code::kInvalidArgument, std::move(why), {}}; }

}  // namespace

bool is_token_id(std::string_view text) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return text.size() >= kTokenIdBytesMin && text.size() <= kTokenIdBytesMax &&
         std::all_of(text.begin(), text.end(), allowed);
}

Result<Token> parse_token(std::string_view text) {
  if (!text.starts_with(kTokenPrefix))
    return refusal("is no token: a token begins with " + std::string(kTokenPrefix));
  text.remove_prefix(kTokenPrefix.size());
  const std::string_view id = text.substr(0, text.find('.'));
  if (!is_token_id(id)) {
    return refusal("has an id that is not " + std::to_string(kTokenIdBytesMin) + " to " +
                   std::to_string(kTokenIdBytesMax) + " lowercase letters and digits");
  }
  const size_t before = std::min(text.size(), id.size() + 1);
  std::optional<Secret> secret = Secret::from_base64url(text.substr(before));
  if (!secret) return refusal("has a secret that is damaged: was it copied as a whole?");
  return Token{std::string(id), std::move(*secret)};
}

}  // namespace pccl
