// RecordCipher: the key of one direction of a TLS 1.3 connection. It seals records, or opens them
// (RFC 8446, sections 5.2 and 7). Both ends derive the key from the same traffic secret.
// One thread at a time may use it. But several threads may at the same time seal, or open, records
// whose numbers came from take(), each thread as a different worker.
// Invariants:
//   1. The number of a record is used up before the first byte of the record is sealed or opened,
//      whatever fails then. So no two records are sealed with the same nonce.
//   2. open() returns bytes only after it has verified their tag.
//   3. A secret is wiped when the next one replaces it, and when the object is destroyed.
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
#include <vector>

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

  // Replaces the key by the next one (RFC 8446, 7.2). The present key cannot be derived from the
  // next one. False if OpenSSL refuses.
  bool replace();
  // Writes a record with this content. False if OpenSSL refuses.
  // REQUIRES: `content` has at most kPlainBytesMax bytes, and `record` has kExtraBytes bytes more.
  bool seal(uint8_t type, std::span<const std::byte> content, std::span<std::byte> record);
  // Decrypts a record in place. Returns the content, followed by one byte with the type of the
  // content, and by padding. Returns nullopt if the record is not the next one of the other end.
  // REQUIRES: `record` is a header, and as many bytes as the header announces.
  std::optional<std::span<std::byte>> open(std::span<std::byte> record);
  // Prepares the key for this number of workers. False if OpenSSL refuses.
  bool prepare(size_t workers);
  // Uses up the numbers of `count` records. Returns the first number.
  uint64_t take(uint64_t count);
  // Like seal() and open() above, for a record whose number came from the last take(). The workers
  // count from 0. REQUIRES: each number is used once; prepare() was called under this key.
  bool seal(uint64_t number, size_t worker, uint8_t type, std::span<const std::byte> content,
            std::span<std::byte> record) const;
  std::optional<std::span<std::byte>> open(uint64_t number, size_t worker,
                                           std::span<std::byte> record) const;
  // The number of records that this key has sealed or opened.
  uint64_t records() const { return next_; }

 private:
  static constexpr size_t kNonceBytes = 12;
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const;
  };
  using Context = std::unique_ptr<EVP_CIPHER_CTX, Free>;
  RecordCipher(Suite suite, Use use, const Key& traffic_secret);
  bool install();
  bool add_worker();
  bool begin(EVP_CIPHER_CTX* context, uint64_t number, std::span<const std::byte> header) const;

  Suite suite_;
  Use use_;
  Key secret_;
  std::vector<Context> contexts_;  // of each worker; none: the key seals and opens nothing
  std::array<std::byte, kNonceBytes> iv_{};
  uint64_t next_ = 0;   // number of the next record
  uint64_t taken_ = 0;  // the first number of the last take()
};

}  // namespace pccl::net
