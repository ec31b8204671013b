#include "csrc/protocol/state.h"

#include "csrc/base/ids.h"

namespace pccl::protocol {

// FNV-1a over 64-bit words. Most of the words are hashes already.
uint64_t state_hash(const std::vector<StateEntry>& entries) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&hash](uint64_t word) {
    hash = (hash ^ word) * 0x100000001b3;
    hash ^= hash >> 29;
  };
  for (const StateEntry& entry : entries) {
    mix(tag_id(entry.key).value);
    mix(entry.key.size());
    mix(static_cast<uint64_t>(entry.dtype));
    mix(entry.shape.size());
    for (const int64_t size : entry.shape) mix(static_cast<uint64_t>(size));
    mix(entry.hash);
  }
  return hash;
}

}  // namespace pccl::protocol
