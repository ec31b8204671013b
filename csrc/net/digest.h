// digest: SHA-256 for standards that name it. The checksums of pccl are in checksum.h. A pure
// function; any thread.
#pragma once

#include <string>
#include <string_view>

namespace pccl::net {

// The SHA-256 of a text, in base64 with padding, as a Content-Security-Policy has it.
std::string sha256_base64(std::string_view text);

}  // namespace pccl::net
