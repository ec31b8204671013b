#include "csrc/base/secret.h"

#include <openssl/crypto.h>

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

// The compiler may drop an ordinary write to memory that is not read again. It keeps this one.
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
