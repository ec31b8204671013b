#include "csrc/protocol/state.h"

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/base/ids.h"
#include "csrc/protocol/limits.h"

namespace pccl::protocol {

namespace {

// FNV-1a over 64-bit words, with one more shift for each word. Most of the words are hashes
// already.
constexpr uint64_t kNoWords = 0xcbf29ce484222325;

void take_in(uint64_t& hash, uint64_t word) {
  hash = (hash ^ word) * 0x100000001b3;
  hash ^= hash >> 29;
}

// The words of an entry that come before its hash.
void for_each_word(const StateEntry& entry, auto&& take) {
  take(tag_id(entry.key).value);
  take(entry.key.size());
  take(static_cast<uint64_t>(entry.dtype));
  take(entry.shape.size());
  for (const int64_t size : entry.shape) take(static_cast<uint64_t>(size));
}

}  // namespace

uint64_t state_hash(const StateEntries& entries) {
  uint64_t hash = kNoWords;
  for (const StateEntry& entry : entries) {
    for_each_word(entry, [&hash](uint64_t word) { take_in(hash, word); });
    take_in(hash, entry.hash);
  }
  return hash;
}

LayoutWords::LayoutWords(const StateEntries& entries) {
  counts_.reserve(entries.size());
  for (const StateEntry& entry : entries) {
    const size_t before = words_.size();
    for_each_word(entry, [this](uint64_t word) { words_.push_back(word); });
    counts_.push_back(static_cast<uint32_t>(words_.size() - before));
  }
}

uint64_t LayoutWords::state_hash(std::span<const uint64_t> hashes) const {
  PCCL_ASSERT(hashes.size() == counts_.size());
  uint64_t hash = kNoWords;
  const uint64_t* word = words_.data();
  for (size_t at = 0; at < hashes.size(); ++at) {
    for (uint32_t left = counts_[at]; left > 0; --left) take_in(hash, *word++);
    take_in(hash, hashes[at]);
  }
  return hash;
}

std::optional<uint64_t> bytes_of(const StateEntry& entry) {
  uint64_t bytes = element_bytes(entry.dtype);
  for (const int64_t size : entry.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes))
      return std::nullopt;
  }
  return bytes;
}

bool is_sensible(const StateEntries& entries) {
  uint64_t left = kStateBytesMax;
  const std::string* last = nullptr;
  for (const StateEntry& entry : entries) {
    const std::optional<uint64_t> bytes = bytes_of(entry);
    if (!bytes || *bytes > left || (last != nullptr && *last >= entry.key)) return false;
    left -= *bytes;
    last = &entry.key;
  }
  return true;
}

bool same_layout(const StateEntry& a, const StateEntry& b) {
  return a.key == b.key && a.dtype == b.dtype && a.shape == b.shape;
}

bool same_layouts(const StateEntries& a, const StateEntries& b) {
  if (&a == &b) return true;
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_layout);
}

bool is_part_of(const StateEntries& some, const StateEntries& all) {
  auto at = all.begin();
  for (const StateEntry& entry : some) {
    at = std::find_if(at, all.end(), [&](const StateEntry& one) { return one.key == entry.key; });
    if (at == all.end() || !same_layout(*at, entry)) return false;
    ++at;
  }
  return true;
}

std::vector<uint32_t> lacking(const StateEntries& own, const StateEntries& elected) {
  std::vector<uint32_t> positions;
  auto at = own.begin();
  for (uint32_t position = 0; position < elected.size(); ++position) {
    const StateEntry& entry = elected[position];
    while (at != own.end() && at->key < entry.key) ++at;
    if (at == own.end() || at->key != entry.key || at->hash != entry.hash)
      positions.push_back(position);
  }
  return positions;
}

}  // namespace pccl::protocol
