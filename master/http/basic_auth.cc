#include "master/http/basic_auth.h"

#include <openssl/crypto.h>

#include <cstdint>
#include <string>

#include "csrc/base/secret.h"
#include "csrc/base/token.h"
#include "csrc/net/keys.h"

namespace pccl::master::http {
namespace {

constexpr std::string_view kScheme = "basic ";

// Returns nothing if `text` is no base64 (RFC 4648, section 4). The padding may be missing.
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  size_t bit_count = 0;
  for (const char letter : text) {
    const size_t value = kLetters.find(letter);
    if (value == std::string_view::npos) return std::nullopt;
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xffff;
    bit_count += 6;
    if (bit_count < 8) continue;
    bit_count -= 8;
    bytes += static_cast<char>(bits >> bit_count);
  }
  return bytes;
}

bool is_scheme(std::string_view text) {
  if (text.size() != kScheme.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char lower = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] + 32) : text[i];
    if (lower != kScheme[i]) return false;
  }
  return true;
}

}  // namespace

std::optional<Holder> proven_by(std::string_view authorization, const Keyring& keyring) {
  if (!is_scheme(authorization.substr(0, kScheme.size()))) return std::nullopt;
  auto credentials = from_base64(authorization.substr(kScheme.size()));
  if (!credentials) return std::nullopt;
  const size_t colon = credentials->find(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto shown = Secret::from_base64url(std::string_view(*credentials).substr(colon + 1));
  const std::string id = credentials->substr(0, colon);
  wipe(*credentials);
  const auto token = keyring.find(id);
  if (!shown || token == keyring.end()) return std::nullopt;
  const net::Key wanted = net::http_key(token->second.secret.bytes());
  if (CRYPTO_memcmp(wanted.bytes.data(), shown->bytes().data(), wanted.bytes.size()) != 0)
    return std::nullopt;
  return Holder{id, token->second.name};
}

}  // namespace pccl::master::http
