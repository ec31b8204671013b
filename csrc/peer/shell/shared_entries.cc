#include "csrc/peer/shell/shared_entries.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "csrc/memory/state_hash.h"

namespace pccl::peer {
namespace {

constexpr size_t kDimensionsMax = 64;
// Limit of an offer. It leaves room for the rest of its message.
constexpr size_t kOfferBytesMax = protocol::kMessageBytesMax - (64u << 10);

Status invalid(const std::string& what) {
  return {Code::kInvalidArgument, "shared state: " + what, {}};
}

// Upper bound of the bytes of one entry in a message.
size_t offered_bytes(const StateSpan& entry) {
  return 32 + entry.key.size() + 8 * entry.shape.size();
}

Status check(const StateSpan& entry) {
  const std::string name = "entry \"" + entry.key + "\"";
  if (entry.key.size() > protocol::kStateKeyBytesMax) {
    return invalid("the key \"" + entry.key.substr(0, 64) + "...\" has " +
                   std::to_string(entry.key.size()) + " bytes, at most " +
                   std::to_string(protocol::kStateKeyBytesMax) + " are allowed");
  }
  if (entry.shape.size() > kDimensionsMax) {
    return invalid(name + " has " + std::to_string(entry.shape.size()) + " dimensions, at most " +
                   std::to_string(kDimensionsMax) + " are allowed");
  }
  uint64_t bytes = element_bytes(entry.dtype);
  bool sensible = true;
  for (const int64_t size : entry.shape) {
    sensible = sensible && size >= 0 &&
               !__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes);
  }
  if (!sensible || bytes != entry.bytes.size()) {
    return invalid(name + " has " + std::to_string(entry.bytes.size()) + " bytes, its shape says " +
                   (sensible ? std::to_string(bytes) : "something else"));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<SharedEntries>> SharedEntries::make(std::vector<StateSpan> entries) {
  if (entries.size() > protocol::kStateKeysMax) {
    return invalid(std::to_string(entries.size()) + " entries, at most " +
                   std::to_string(protocol::kStateKeysMax) + " are allowed");
  }
  std::sort(entries.begin(), entries.end(),
            [](const StateSpan& a, const StateSpan& b) { return a.key < b.key; });
  size_t bytes = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Status status = check(entries[i]);
    if (!status.ok()) return status;
    if (i > 0 && entries[i].key == entries[i - 1].key) {
      return invalid("the key \"" + entries[i].key + "\" is there twice");
    }
    bytes += offered_bytes(entries[i]);
  }
  if (bytes > kOfferBytesMax) {
    return invalid("its keys and shapes take " + std::to_string(bytes) + " bytes, at most " +
                   std::to_string(kOfferBytesMax) + " are allowed: use shorter keys");
  }
  auto made = std::make_shared<SharedEntries>();
  for (const StateSpan& entry : entries) {
    const uint64_t hash = memory::state_hash(entry.bytes.data(), entry.bytes.size());
    made->offer_.entries.push_back({entry.key, entry.dtype, entry.shape, hash});
  }
  made->entries_ = std::move(entries);
  return made;
}

Result<std::vector<std::span<std::byte>>> SharedEntries::lend(const std::vector<uint32_t>& keys,
                                                              bool receives) {
  std::vector<std::span<std::byte>> spans;
  for (const uint32_t key : keys) {
    const std::span<std::byte> own = entries_[key].bytes;
    (receives ? bytes_received_ : bytes_sent_) += own.size();
    if (!receives) {
      spans.push_back(own);
      continue;
    }
    std::unique_ptr<std::byte[]>& staging = staging_[key];
    staging.reset(new (std::nothrow) std::byte[std::max<size_t>(own.size(), 1)]);
    if (staging == nullptr) {
      return Status{Code::kSystem,
                    "no memory to receive the " + std::to_string(own.size()) +
                        " bytes of entry \"" + entries_[key].key + "\"",
                    {}};
    }
    spans.emplace_back(staging.get(), own.size());
  }
  return spans;
}

Status SharedEntries::verify(const std::vector<uint32_t>& keys,
                             const std::vector<uint64_t>& hashes) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    const StateSpan& entry = entries_[keys[i]];
    if (memory::state_hash(staging_.at(keys[i]).get(), entry.bytes.size()) == hashes[i]) continue;
    return {Code::kSharedState,
            "entry \"" + entry.key +
                "\" arrived with another hash than was agreed on: its owner changed "
                "it during the call",
            {}};
  }
  return {};
}

void SharedEntries::install(const std::vector<uint32_t>& keys) {
  for (const uint32_t key : keys) {
    const std::span<std::byte> own = entries_[key].bytes;
    if (!own.empty()) std::memcpy(own.data(), staging_.at(key).get(), own.size());
  }
}

}  // namespace pccl::peer
