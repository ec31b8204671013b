#include "csrc/net/digest.h"

#include <openssl/evp.h>

#include <array>

#include "csrc/base/assert.h"
#include "csrc/net/openssl.h"

namespace pccl::net {

// It fails only if memory is exhausted.
std::string sha256_base64(std::string_view text) {
  std::array<unsigned char, 32> digest{};
  size_t bytes = 0;
  const int made = EVP_Q_digest(openssl_context(), "SHA256", nullptr, text.data(), text.size(),
                                digest.data(), &bytes);
  PCCL_ASSERT(made == 1 && bytes == digest.size());
  std::array<unsigned char, 4 * ((digest.size() + 2) / 3) + 1> base64{};  // ends with a zero byte
  const int length = EVP_EncodeBlock(base64.data(), digest.data(), static_cast<int>(bytes));
  return {reinterpret_cast<const char*>(base64.data()), static_cast<size_t>(length)};
}

}  // namespace pccl::net
