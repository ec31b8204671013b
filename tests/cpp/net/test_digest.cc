#include "csrc/net/digest.h"

#include <gtest/gtest.h>

namespace pccl::net {
namespace {

// FIPS 180-2, B.1, and the digest of no bytes.
TEST(Digest, IsTheOneOfTheStandard) {
  EXPECT_EQ(sha256_base64("abc"), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
  EXPECT_EQ(sha256_base64(""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
}

}  // namespace
}  // namespace pccl::net
