#include "csrc/net/openssl.h"

#include <openssl/err.h>
#include <openssl/provider.h>

namespace pccl::net {
namespace {

OSSL_LIB_CTX* make_context() {
  OSSL_LIB_CTX* const context = OSSL_LIB_CTX_new();
  if (context == nullptr || OSSL_PROVIDER_load(context, "default") != nullptr) return context;
  OSSL_LIB_CTX_free(context);
  return nullptr;
}

}  // namespace

OSSL_LIB_CTX* openssl_context() {
  static OSSL_LIB_CTX* const context = make_context();
  return context;
}

std::string take_openssl_error() {
  const unsigned long error = ERR_peek_error();
  const char* const reason = ERR_reason_error_string(error);
  ERR_clear_error();
  if (reason != nullptr) return reason;
  return error == 0 ? "no reason known" : "error " + std::to_string(error);
}

}  // namespace pccl::net
