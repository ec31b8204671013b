// logins: what a browser sends to prove a token, for tests. The values of Authorization headers:
// "Basic ", then user:password in base64. The passwords were computed with Python:
// Token.http_password() for secrets of 32 bytes a5 (alice) and 5a (bob).
#pragma once

#include <string>

namespace pccl::master {

inline const std::string kLoginOfAlice =
    "Basic YWxpY2UwMDA6VkFkejh4R3dTMTFJZlowWFlBTVpYQVFEWkhKLXBWei1weTBGNTJlV21FTQ==";
inline const std::string kLoginOfBob =
    "Basic Ym9iMDAwMDA6VElMZ1F0YmNSRExfMGpDUUVNZGFKVDZkRVFtbXBZVkxndUI1QXZVZkxVTQ==";
// The passwords of alice, with the id of bob and with an id that no token has.
inline const std::string kLoginOfBobWithWrongPassword =
    "Basic Ym9iMDAwMDA6VkFkejh4R3dTMTFJZlowWFlBTVpYQVFEWkhKLXBWei1weTBGNTJlV21FTQ==";
inline const std::string kLoginOfStranger =
    "Basic bWFsbG9yeTA6VkFkejh4R3dTMTFJZlowWFlBTVpYQVFEWkhKLXBWei1weTBGNTJlV21FTQ==";

}  // namespace pccl::master
