// keyring_lines: the lines of a keyring, as `pccl token` writes them, for tests. Pure functions.
#pragma once

#include <string>

namespace pccl::master {

inline const std::string kKeyringHead = "{\"pccl_keyring\":1}\n";

// The hexadecimal digits of a secret that has this byte everywhere, for example "a5".
inline std::string secret_hex(const std::string& byte) {
  std::string text;
  for (int i = 0; i < 32; ++i) text += byte;
  return text;
}

inline std::string token_line(const std::string& id, const std::string& secret,
                              const std::string& runs = "null") {
  return "{\"id\":\"" + id + "\",\"name\":\"alice\",\"runs\":" + runs +
         ",\"created\":1764000000,\"secret\":\"" + secret + "\"}\n";
}

}  // namespace pccl::master
