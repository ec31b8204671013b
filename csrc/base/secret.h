// Secret: the 256 random bits of a token. An object wipes its memory when it is destroyed or moved
// from. It cannot be copied, so that no copy is made by mistake, and no function makes text of it.
// A plain value.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pccl {

class Secret {
 public:
  static constexpr size_t kBytes = 32;

  // Returns nothing if `text` is not 2 * kBytes hexadecimal digits.
  static std::optional<Secret> from_hex(std::string_view text);
  // Returns nothing if `text` is not kBytes bytes in base64url without padding (RFC 4648, section
  // 5).
  static std::optional<Secret> from_base64url(std::string_view text);

  static Secret from_bytes(std::span<const std::byte, kBytes> bytes);

  ~Secret();
  Secret(Secret&& other) noexcept;  // wipes `other`
  Secret& operator=(Secret&& other) noexcept;

  std::span<const std::byte, kBytes> bytes() const { return bytes_; }

 private:
  Secret() = default;
  std::array<std::byte, kBytes> bytes_{};
};

// Overwrites a text that has held a secret.
void wipe(std::string& text);

}  // namespace pccl
