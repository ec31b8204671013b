#include "csrc/net/keys.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <bit>
#include <cstring>

#include "csrc/base/assert.h"
#include "csrc/net/openssl.h"

namespace pccl::net {
namespace {

constexpr size_t kMacKeyBytes = 16;  // SipHash takes no more

static_assert(std::endian::native == std::endian::little, "ids are copied as they lie in memory");

constexpr std::string_view kControlLabel = "pccl control";
constexpr std::string_view kProbeLabel = "pccl probe";
constexpr std::string_view kHttpLabel = "pccl http";
constexpr std::string_view kHandleLabel = "pccl handle";
constexpr std::string_view kAcceptingLabel = "pccl accepting";
constexpr std::string_view kLaneLabel = "pccl lane";

// HKDF without salt. With the arguments of this file, it fails only if memory is exhausted.
Key derive(std::span<const std::byte> secret, std::string info) {
  static EVP_KDF* const hkdf = EVP_KDF_fetch(openssl_context(), "HKDF", nullptr);
  EVP_KDF_CTX* const context = EVP_KDF_CTX_new(hkdf);
  PCCL_ASSERT(context != nullptr);
  std::string digest = "SHA256";
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<std::byte*>(secret.data()),
                                        secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
      OSSL_PARAM_construct_end(),
  };
  Key key;
  auto* const out = reinterpret_cast<unsigned char*>(key.bytes.data());
  const int derived = EVP_KDF_derive(context, out, key.bytes.size(), params);
  EVP_KDF_CTX_free(context);
  PCCL_ASSERT(derived == 1);
  return key;
}

template <typename T>
void append(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
void take(std::string_view& from, T& value) {
  std::memcpy(&value, from.data(), sizeof value);
  from.remove_prefix(sizeof value);
}

std::string encode(const protocol::LaneIdentity& identity) {
  std::string bytes;
  append(bytes, identity.dialler.value);
  append(bytes, identity.acceptor.value);
  append(bytes, identity.incarnation);
  append(bytes, identity.number);
  return bytes;
}

protocol::Key derive(const protocol::Key& from, std::string info) {
  const Key derived = derive(std::as_bytes(std::span(from.words)), std::move(info));
  protocol::Key key;
  std::memcpy(key.words.data(), derived.bytes.data(), derived.bytes.size());
  return key;
}

}  // namespace

Key::Key(const protocol::Key& key) {
  static_assert(sizeof key.words == sizeof bytes);
  std::memcpy(bytes.data(), key.words.data(), bytes.size());
}

Key::~Key() { OPENSSL_cleanse(bytes.data(), bytes.size()); }

Key control_key(std::span<const std::byte> secret) {
  PCCL_ASSERT(!secret.empty());
  return derive(secret, std::string(kControlLabel));
}

Key probe_key(std::span<const std::byte> secret) {
  return derive(secret, std::string(kProbeLabel));
}

Key http_key(std::span<const std::byte> secret) { return derive(secret, std::string(kHttpLabel)); }

Key handle_secret(const Key& agreed, const std::string& identity) {
  return derive(agreed.bytes, std::string(kHandleLabel) + identity);
}

// All parts after a label have a fixed length, so that no two inputs give the same bytes.
protocol::Key accepting_key(const protocol::Key& seed, PeerId peer) {
  std::string info(kAcceptingLabel);
  append(info, peer.value);
  return derive(seed, std::move(info));
}

protocol::Key lane_key(const protocol::Key& accepting, uint64_t run_id,
                       const protocol::LaneIdentity& identity) {
  std::string info(kLaneLabel);
  append(info, run_id);
  return derive(accepting, info + encode(identity));
}

uint64_t mac(const protocol::Key& key, std::span<const std::byte> bytes) {
  static EVP_MAC* const siphash = EVP_MAC_fetch(openssl_context(), "SIPHASH", nullptr);
  uint64_t out = 0;
  size_t length = sizeof out;
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &length),
                               OSSL_PARAM_construct_end()};
  EVP_MAC_CTX* const context = EVP_MAC_CTX_new(siphash);
  const auto* const secret = reinterpret_cast<const unsigned char*>(key.words.data());
  const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
  const bool made =
      context != nullptr && EVP_MAC_init(context, secret, kMacKeyBytes, params) == 1 &&
      EVP_MAC_update(context, data, bytes.size()) == 1 &&
      EVP_MAC_final(context, reinterpret_cast<unsigned char*>(&out), &length, sizeof out) == 1;
  EVP_MAC_CTX_free(context);
  PCCL_ASSERT(made && length == sizeof out);
  return out;
}

std::string encode(const protocol::LaneIntroduction& introduction) {
  std::string bytes = encode(introduction.identity);
  append(bytes, introduction.serial);
  append(bytes, static_cast<uint8_t>(introduction.further));
  PCCL_ASSERT(bytes.size() == kLaneIntroductionBytes);
  return bytes;
}

std::optional<protocol::LaneIntroduction> decode_lane_introduction(std::string_view bytes) {
  if (bytes.size() != kLaneIntroductionBytes) return std::nullopt;
  protocol::LaneIntroduction introduction;
  protocol::LaneIdentity& identity = introduction.identity;
  uint8_t further = 0;
  take(bytes, identity.dialler.value);
  take(bytes, identity.acceptor.value);
  take(bytes, identity.incarnation);
  take(bytes, identity.number);
  take(bytes, introduction.serial);
  take(bytes, further);
  introduction.further = further == 1;
  const bool names_two = identity.dialler && identity.acceptor;
  if (!names_two || identity.dialler == identity.acceptor || further > 1) return std::nullopt;
  return introduction;
}

}  // namespace pccl::net
