#include "csrc/base/secret.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace pccl {

std::optional<Secret> Secret::from_hex(std::string_view text) {
  if (text.size() != 2 * kBytes) return std::nullopt;
  Secret secret;
  for (size_t i = 0; i < kBytes; ++i) {
    uint8_t byte = 0;
    const char* const end = text.data() + 2 * i + 2;
    if (std::from_chars(end - 2, end, byte, 16).ptr != end) return std::nullopt;
    secret.bytes_[i] = std::byte{byte};
  }
  return secret;
}

std::optional<Secret> Secret::from_base64url(std::string_view text) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  if (text.size() != (kBytes * 8 + 5) / 6) return std::nullopt;
  Secret secret;
  uint32_t bits = 0;
  size_t bit_count = 0, bytes = 0;
  for (const char letter : text) {
    const size_t value = kLetters.find(letter);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    bit_count += 6;
    if (bit_count < 8) continue;
    bit_count -= 8;
    secret.bytes_[bytes++] = static_cast<std::byte>(bits >> bit_count);
    bits &= (1u << bit_count) - 1;
  }
  if (bits != 0) return std::nullopt;  // the last character has bits that belong to no byte
  return secret;
}

Secret Secret::from_bytes(std::span<const std::byte, kBytes> bytes) {
  Secret secret;
  std::copy(bytes.begin(), bytes.end(), secret.bytes_.begin());
  return secret;
}

// The compiler may drop an ordinary write to memory that is not read again. It keeps the writes of
// OPENSSL_cleanse().
Secret::~Secret() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

Secret::Secret(Secret&& other) noexcept : bytes_(other.bytes_) {
  OPENSSL_cleanse(other.bytes_.data(), other.bytes_.size());
}

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this == &other) return *this;
  bytes_ = other.bytes_;
  OPENSSL_cleanse(other.bytes_.data(), other.bytes_.size());
  return *this;
}

void wipe(std::string& text) { OPENSSL_cleanse(text.data(), text.size()); }

}  // namespace pccl
