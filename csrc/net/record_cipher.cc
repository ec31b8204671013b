#include "csrc/net/record_cipher.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <string_view>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/net/openssl.h"

namespace pccl::net {
namespace {

constexpr uint8_t kSealedType = 23;  // of all sealed records: application_data

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

// HKDF-Expand-Label without context (RFC 8446, section 7.1).
bool expand(const Key& secret, std::string_view label, std::span<std::byte> out) {
  static EVP_KDF* const kdf = EVP_KDF_fetch(openssl_context(), "TLS13-KDF", nullptr);
  EVP_KDF_CTX* const context = EVP_KDF_CTX_new(kdf);
  if (context == nullptr) return false;
  std::array<char, 7> digest = {"SHA256"};
  std::array<char, 6> prefix = {'t', 'l', 's', '1', '3', ' '};
  int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(
          OSSL_KDF_PARAM_KEY, const_cast<std::byte*>(secret.bytes.data()), secret.bytes.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_PREFIX, prefix.data(), prefix.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_LABEL, const_cast<char*>(label.data()),
                                        label.size()),
      OSSL_PARAM_construct_end(),
  };
  const bool derived = EVP_KDF_derive(context, raw(out.data()), out.size(), params) == 1;
  EVP_KDF_CTX_free(context);
  return derived;
}

// The cipher of a suite. It is never freed, because a thread may still use it when the process
// ends.
const EVP_CIPHER* fetched(RecordCipher::Suite suite) {
  static EVP_CIPHER* const aes = EVP_CIPHER_fetch(openssl_context(), "AES-128-GCM", nullptr);
  static EVP_CIPHER* const chacha =
      EVP_CIPHER_fetch(openssl_context(), "ChaCha20-Poly1305", nullptr);
  return suite == RecordCipher::Suite::kAes128Gcm ? aes : chacha;
}

constexpr size_t key_bytes(RecordCipher::Suite suite) {
  return suite == RecordCipher::Suite::kAes128Gcm ? 16 : 32;
}

}  // namespace

void RecordCipher::Free::operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }

RecordCipher::RecordCipher(Suite suite, Use use, const Key& traffic_secret)
    : suite_(suite), use_(use), secret_(traffic_secret) {}

std::optional<RecordCipher> RecordCipher::make(Suite suite, Use use, const Key& traffic_secret) {
  RecordCipher made(suite, use, traffic_secret);
  if (!made.install()) return std::nullopt;
  return made;
}

// Derives the key and the first nonce from the secret.
bool RecordCipher::install() {
  contexts_.clear();  // nothing is sealed with a part of two keys
  next_ = taken_ = 0;
  return expand(secret_, "iv", iv_) && add_worker();
}

bool RecordCipher::add_worker() {
  const EVP_CIPHER* const cipher = fetched(suite_);
  Context context(EVP_CIPHER_CTX_new());
  Key key;
  const std::span bytes = std::span(key.bytes).first(key_bytes(suite_));
  const bool made = context && cipher != nullptr && expand(secret_, "key", bytes) &&
                    EVP_CipherInit_ex2(context.get(), cipher, raw(bytes.data()), raw(iv_.data()),
                                       use_ == Use::kSeal ? 1 : 0, nullptr) == 1;
  if (made) contexts_.push_back(std::move(context));
  return made;
}

bool RecordCipher::replace() {
  Key next;
  const bool derived = expand(secret_, "traffic upd", next.bytes);
  secret_ = next;
  if (derived) return install();
  contexts_.clear();
  return false;
}

bool RecordCipher::prepare(size_t workers) {
  if (contexts_.empty()) return false;
  while (contexts_.size() < workers) {
    if (!add_worker()) return false;
  }
  return true;
}

uint64_t RecordCipher::take(uint64_t count) {
  taken_ = next_;
  next_ += count;
  return taken_;
}

// The nonce of a record is iv_, with the number of the record added to its last 8 bytes by XOR.
bool RecordCipher::begin(EVP_CIPHER_CTX* context, uint64_t number,
                         std::span<const std::byte> header) const {
  std::array<std::byte, kNonceBytes> nonce = iv_;
  for (size_t i = 0; i < sizeof number; ++i) {
    nonce[kNonceBytes - 1 - i] ^= static_cast<std::byte>(number >> (8 * i));
  }
  int size = 0;
  return EVP_CipherInit_ex2(context, nullptr, nullptr, raw(nonce.data()), -1, nullptr) == 1 &&
         EVP_CipherUpdate(context, nullptr, &size, raw(header.data()),
                          static_cast<int>(header.size())) == 1;
}

bool RecordCipher::seal(uint8_t type, std::span<const std::byte> content,
                        std::span<std::byte> record) {
  return !contexts_.empty() && seal(take(1), 0, type, content, record);
}

bool RecordCipher::seal(uint64_t number, size_t worker, uint8_t type,
                        std::span<const std::byte> content, std::span<std::byte> record) const {
  PCCL_ASSERT(use_ == Use::kSeal && content.size() <= kPlainBytesMax);
  PCCL_ASSERT(record.size() == content.size() + kExtraBytes);
  PCCL_ASSERT(taken_ <= number && number < next_ && worker < contexts_.size());
  const size_t length = record.size() - kHeaderBytes;
  record[0] = std::byte{kSealedType};
  record[1] = record[2] = std::byte{3};  // TLS 1.2, as all records of TLS 1.3
  record[3] = static_cast<std::byte>(length >> 8);
  record[4] = static_cast<std::byte>(length);
  EVP_CIPHER_CTX* const context = contexts_[worker].get();
  std::byte* const out = record.data() + kHeaderBytes;
  const auto content_bytes = static_cast<int>(content.size());
  int size = 0;
  return begin(context, number, record.first(kHeaderBytes)) &&
         (content.empty() ||
          EVP_CipherUpdate(context, raw(out), &size, raw(content.data()), content_bytes) == 1) &&
         EVP_CipherUpdate(context, raw(out + content.size()), &size, &type, 1) == 1 &&
         EVP_CipherFinal_ex(context, raw(out + content.size() + 1), &size) == 1 &&
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kTagBytes, out + content.size() + 1) ==
             1;
}

std::optional<std::span<std::byte>> RecordCipher::open(std::span<std::byte> record) {
  if (contexts_.empty()) return std::nullopt;
  return open(take(1), 0, record);
}

std::optional<std::span<std::byte>> RecordCipher::open(uint64_t number, size_t worker,
                                                       std::span<std::byte> record) const {
  PCCL_ASSERT(use_ == Use::kOpen && record.size() >= kHeaderBytes);
  PCCL_ASSERT(taken_ <= number && number < next_ && worker < contexts_.size());
  const std::span body = record.subspan(kHeaderBytes);
  if (body.size() < kTagBytes) return std::nullopt;
  const std::span content = body.first(body.size() - kTagBytes);
  EVP_CIPHER_CTX* const context = contexts_[worker].get();
  unsigned char* const at = raw(content.data());
  int size = 0;
  const bool verified =
      begin(context, number, record.first(kHeaderBytes)) &&
      (content.empty() ||
       EVP_CipherUpdate(context, at, &size, at, static_cast<int>(content.size())) == 1) &&
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, kTagBytes, body.last(kTagBytes).data()) ==
          1 &&
      EVP_CipherFinal_ex(context, at + content.size(), &size) == 1;
  if (!verified) return std::nullopt;
  return content;
}

}  // namespace pccl::net
