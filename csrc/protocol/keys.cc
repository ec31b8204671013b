#include "csrc/protocol/keys.h"

#include <openssl/evp.h>
#include <openssl/kdf.h>

#include <memory>
#include <vector>

#include "csrc/base/assert.h"

namespace pccl::protocol {
namespace {

// Labels carry no version of the protocol: a key stays what it is when the messages change.
constexpr std::string_view kAcceptingLabel = "pccl accepting", kLaneLabel = "pccl lane";
constexpr size_t kIdentityBytes = 28;

template <typename T>
void append(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

template <typename T>
T take(std::string_view& from) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<T>(static_cast<unsigned char>(from[i])) << (8 * i);
  from.remove_prefix(sizeof(T));
  return value;
}

const unsigned char* raw(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// HKDF (RFC 5869) without salt. `info` says what the new key is for.
Key derive(const Key& from, const std::string& info) {
  const auto secret = bytes_of(from);
  std::array<std::byte, kKeyBytes> out;
  const std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)> context(
      EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr), &EVP_PKEY_CTX_free);
  size_t length = out.size();
  const bool fine =
      context && EVP_PKEY_derive_init(context.get()) > 0 &&
      EVP_PKEY_CTX_set_hkdf_md(context.get(), EVP_sha256()) > 0 &&
      EVP_PKEY_CTX_set1_hkdf_key(context.get(),
                                 reinterpret_cast<const unsigned char*>(secret.data()),
                                 static_cast<int>(secret.size())) > 0 &&
      EVP_PKEY_CTX_add1_hkdf_info(context.get(), raw(info), static_cast<int>(info.size())) > 0 &&
      EVP_PKEY_derive(context.get(), reinterpret_cast<unsigned char*>(out.data()), &length) > 0;
  PCCL_ASSERT(fine && length == out.size());  // it fails only for lack of memory
  return key_of(out);
}

}  // namespace

std::array<std::byte, kKeyBytes> bytes_of(const Key& key) {
  std::array<std::byte, kKeyBytes> bytes;
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(key.words[i / 8] >> (8 * (i % 8)));
  return bytes;
}

Key key_of(std::span<const std::byte, kKeyBytes> bytes) {
  Key key;
  for (size_t i = 0; i < bytes.size(); ++i)
    key.words[i / 8] |= std::to_integer<uint64_t>(bytes[i]) << (8 * (i % 8));
  return key;
}

std::string encode(const LaneIdentity& identity) {
  std::string out;
  append(out, identity.dialler.value);
  append(out, identity.acceptor.value);
  append(out, identity.incarnation);
  append(out, identity.number);
  PCCL_ASSERT(out.size() == kIdentityBytes);
  return out;
}

std::optional<LaneIdentity> decode_lane_identity(std::string_view text) {
  if (text.size() != kIdentityBytes) return std::nullopt;
  LaneIdentity identity;
  identity.dialler.value = take<uint64_t>(text);
  identity.acceptor.value = take<uint64_t>(text);
  identity.incarnation = take<uint32_t>(text);
  identity.number = take<uint64_t>(text);
  return identity;
}

Key accepting_key(const Key& seed, PeerId peer) {
  std::string info(kAcceptingLabel);
  append(info, peer.value);
  return derive(seed, info);
}

Key lane_key(const Key& accepting, uint64_t run_id, const LaneIdentity& identity) {
  std::string info(kLaneLabel);
  append(info, run_id);
  return derive(accepting, info + encode(identity));
}

}  // namespace pccl::protocol
