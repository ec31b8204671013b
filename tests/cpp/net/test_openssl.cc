#include "csrc/net/openssl.h"

#include <gtest/gtest.h>
#include <openssl/crypto.h>
#include <openssl/err.h>

namespace pccl::net {
namespace {

TEST(Openssl, HasOneContextOfItsOwn) {
  EXPECT_NE(openssl_context(), nullptr);
  EXPECT_EQ(openssl_context(), openssl_context());
  EXPECT_NE(openssl_context(), OSSL_LIB_CTX_get0_global_default());
}

TEST(Openssl, TakesTheFirstErrorAndForgetsAll) {
  ERR_raise(ERR_LIB_EVP, ERR_R_MALLOC_FAILURE);
  ERR_raise(ERR_LIB_EVP, ERR_R_INTERNAL_ERROR);
  EXPECT_EQ(take_openssl_error(), "malloc failure");
  EXPECT_EQ(ERR_peek_error(), 0u);
  EXPECT_EQ(take_openssl_error(), "no reason known");
}

TEST(Openssl, SaysTheNumberOfAnErrorWithoutText) {
  const int library = ERR_get_next_error_library();
  ERR_raise(library, 77);
  EXPECT_EQ(take_openssl_error(), "error " + std::to_string(ERR_PACK(library, 0, 77)));
}

}  // namespace
}  // namespace pccl::net
