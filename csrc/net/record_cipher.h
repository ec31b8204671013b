// RecordCipher: the key of one direction of a TLS 1.3 connection. It seals records, or opens them
// (RFC 8446, sections 5.2 and 7). Both ends derive it from the same traffic secret.
// One thread at a time may use it.
// Invariants:
//   1. The number of a record is used up before the first byte of the record is sealed or opened,
//      whatever fails then. So no two records are sealed with the same nonce.
//   2. open() returns bytes only after it has verified their tag.
//   3. Secrets are wiped when the next one replaces them, and at the end.
// Failure: OpenSSL lacks memory, or a record is not from the other end. After a failure the
// connection must end, because the two ends may count differently. After a failed replace() the key
// seals and opens nothing.
#pragma once

#include <openssl/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "csrc/net/keys.h"

namespace pccl::net {

class RecordCipher {
 public:
  enum class Suite { kAes128Gcm, kChaCha20Poly1305 };
  enum class Use { kSeal, kOpen };
  static constexpr size_t kHeaderBytes = 5;  // of a record: type, version, length
  static constexpr size_t kTagBytes = 16;
  static constexpr size_t kPlainBytesMax = 16384;
  // A sealed record has this many bytes more than its content: header, type of the content, tag.
  static constexpr size_t kExtraBytes = kHeaderBytes + 1 + kTagBytes;

  // nullopt if OpenSSL refuses.
  static std::optional<RecordCipher> make(Suite suite, Use use, const Key& traffic_secret);

  // Replaces the key by the next one, from which this one cannot be derived (RFC 8446, 7.2).
  // False if OpenSSL refuses.
  bool replace();
  // Writes a record with this content. False if OpenSSL refuses.
  // REQUIRES: `record` has kExtraBytes more than `content`, of at most kPlainBytesMax.
  bool seal(uint8_t type, std::span<const std::byte> content, std::span<std::byte> record);
  // Decrypts a record where it lies. Returns its content, the type of the content after it, and
  // padding; nullopt if the record is not the next one of the other end.
  // REQUIRES: `record` is a header, and as many bytes as the header announces.
  std::optional<std::span<std::byte>> open(std::span<std::byte> record);
  // Records that this key has sealed or opened.
  uint64_t records() const { return next_; }

 private:
  static constexpr size_t kNonceBytes = 12;
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const;
  };
  RecordCipher(Suite suite, Use use, const Key& traffic_secret);
  bool install();
  bool begin(std::span<const std::byte> header);

  Suite suite_;
  Use use_;
  Key secret_;
  std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
  std::array<std::byte, kNonceBytes> iv_{};
  uint64_t next_ = 0;  // number of the next record
};

}  // namespace pccl::net
