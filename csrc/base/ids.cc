#include "csrc/base/ids.h"

#include <cstdio>

namespace pccl {

TagId tag_id(std::string_view tag) {
  if (tag.empty()) return TagId{0};
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : tag) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return TagId{hash == 0 ? 1 : hash};
}

std::string text(PeerId peer) {
  char out[32];
  std::snprintf(out, sizeof out, "%x.%u", static_cast<unsigned>(peer.value >> 32),
                static_cast<unsigned>(peer.value & 0xffffffff));
  return out;
}

std::string text(Epoch epoch) {
  char out[32];
  std::snprintf(out, sizeof out, "%x.%u", static_cast<unsigned>(epoch.value >> 32),
                static_cast<unsigned>(epoch.value & 0xffffffff));
  return out;
}

}  // namespace pccl
