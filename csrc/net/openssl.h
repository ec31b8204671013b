// openssl: the library context of OpenSSL that all keys and TLS connections of pccl use. It is a
// context of our own, with the default algorithms. The configuration of the machine, and the
// providers that Python or torch load, do not change these algorithms.
// Any thread may call these functions.
#pragma once

#include <openssl/types.h>

#include <string>

namespace pccl::net {

// The context; the same at every call, and never freed, because a thread may still use it when the
// process ends. Null if OpenSSL cannot load its algorithms: check_libraries() finds that out.
OSSL_LIB_CTX* openssl_context();

// Returns the reason of the first error that OpenSSL has recorded on this thread: "binder does not
// verify". OpenSSL then forgets all errors of this thread. The text never contains bytes of a
// connection.
std::string take_openssl_error();

}  // namespace pccl::net
