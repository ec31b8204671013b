#include "csrc/net/handle_keys.h"

#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"
#include "csrc/net/openssl.h"

namespace pccl::net {
namespace {

constexpr std::string_view kPrefix = "handle.";
constexpr const char* kCurve = "X25519";
using Bytes = std::array<unsigned char, 32>;
using PkeyPtr = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using PkeyContextPtr = std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)>;

bool is_public_key(std::string_view text) {
  return is_hexadecimal(text, protocol::ReconfigureHandle::kKeyDigits);
}

Bytes bytes_of(std::string_view digits) {
  const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  Bytes out{};
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<unsigned char>(value(digits[2 * i]) * 16 + value(digits[2 * i + 1]));
  return out;
}

std::string digits_of(const Bytes& bytes) {
  std::string out;
  for (const unsigned char byte : bytes) {
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

const unsigned char* raw(const Key& key) {
  return reinterpret_cast<const unsigned char*>(key.bytes.data());
}

// The secret of both keys. Nothing if the other one is not a point of large order.
std::optional<Key> agree(const HandleKey& own, std::string_view other) {
  if (!is_public_key(other)) return std::nullopt;
  const Bytes point = bytes_of(other);
  const PkeyPtr mine(EVP_PKEY_new_raw_private_key_ex(openssl_context(), kCurve, nullptr,
                                                     raw(own.secret), own.secret.bytes.size()),
                     &EVP_PKEY_free);
  const PkeyPtr theirs(EVP_PKEY_new_raw_public_key_ex(openssl_context(), kCurve, nullptr,
                                                      point.data(), point.size()),
                       &EVP_PKEY_free);
  PCCL_ASSERT(mine != nullptr && theirs != nullptr);
  const PkeyContextPtr context(EVP_PKEY_CTX_new_from_pkey(openssl_context(), mine.get(), nullptr),
                               &EVP_PKEY_CTX_free);
  Key out;
  size_t size = out.bytes.size();
  const bool agreed =
      context != nullptr && EVP_PKEY_derive_init(context.get()) == 1 &&
      EVP_PKEY_derive_set_peer(context.get(), theirs.get()) == 1 &&
      EVP_PKEY_derive(context.get(), reinterpret_cast<unsigned char*>(out.bytes.data()), &size) ==
          1;
  if (agreed) return out;
  static_cast<void>(take_openssl_error());
  return std::nullopt;
}

// The secret of a token: that of both keys, for a dialler and an acceptor in these roles.
std::optional<Key> secret_of(const HandleKey& own, std::string_view other,
                             const std::string& identity) {
  const auto shared = agree(own, other);
  if (!shared) return std::nullopt;
  return handle_secret(*shared, identity);
}

std::string identity_of(std::string_view dialler, std::string_view acceptor) {
  return std::string(kPrefix).append(dialler).append(".").append(acceptor);
}

}  // namespace

HandleKey make_handle_key() {
  const PkeyPtr made(EVP_PKEY_Q_keygen(openssl_context(), nullptr, kCurve), &EVP_PKEY_free);
  HandleKey key;
  Bytes shown{};
  size_t own_size = key.secret.bytes.size(), shown_size = shown.size();
  auto* const own = reinterpret_cast<unsigned char*>(key.secret.bytes.data());
  const bool read = made != nullptr &&
                    EVP_PKEY_get_raw_private_key(made.get(), own, &own_size) == 1 &&
                    EVP_PKEY_get_raw_public_key(made.get(), shown.data(), &shown_size) == 1;
  PCCL_ASSERT(read);  // fails only without memory
  key.shown = digits_of(shown);
  return key;
}

std::optional<Token> handle_token(const HandleKey& own, std::string_view other) {
  std::string identity = identity_of(own.shown, other);
  const auto secret = secret_of(own, other, identity);
  if (!secret) return std::nullopt;
  return Token{std::move(identity), Secret::from_bytes(secret->bytes)};
}

std::optional<HandleIdentity> handle_identity(std::string_view identity) {
  if (!identity.starts_with(kPrefix)) return std::nullopt;
  const std::string_view rest = identity.substr(kPrefix.size());
  const size_t at = rest.find('.');
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view dialler = rest.substr(0, at), acceptor = rest.substr(at + 1);
  if (!is_public_key(dialler) || !is_public_key(acceptor)) return std::nullopt;
  return HandleIdentity{std::string(dialler), std::string(acceptor)};
}

std::optional<Key> handle_control_key(const HandleKey& own, std::string_view dialler) {
  const auto secret = secret_of(own, dialler, identity_of(dialler, own.shown));
  if (!secret) return std::nullopt;
  return control_key(secret->bytes);
}

}  // namespace pccl::net
