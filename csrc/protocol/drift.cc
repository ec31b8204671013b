#include "csrc/protocol/drift.h"

#include <algorithm>
#include <bit>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"

namespace pccl::protocol {
namespace {

constexpr size_t kKeysNamedMax = 4;

// "\"a\", \"b\" and 3 more".
std::string keys_text(const std::vector<uint32_t>& keys, const StateEntries& entries) {
  std::string out;
  for (size_t at = 0; at < std::min(keys.size(), kKeysNamedMax); ++at)
    out += (at == 0 ? "\"" : ", \"") + entries[keys[at]].key + "\"";
  if (keys.size() <= kKeysNamedMax) return out;
  return out + " and " + std::to_string(keys.size() - kKeysNamedMax) + " more";
}

}  // namespace

std::vector<uint32_t> differing(const StateEntries& own, const StateEntries& elected) {
  std::vector<uint32_t> positions = lacking(own, elected);
  auto at = own.begin();
  std::erase_if(positions, [&](uint32_t position) {
    const std::string& key = elected[position].key;
    while (at != own.end() && at->key < key) ++at;
    return at == own.end() || at->key != key;
  });
  return positions;
}

std::optional<Drift> drift_of(const Correction& correction) {
  const Offer& offer = correction.offer;
  const bool took_the_step = correction.last && offer.revision == correction.revision &&
                             offer.revision > *correction.last &&
                             offer.revision - *correction.last == 1;
  if (!took_the_step || offer.strategy != SyncStrategy::kEnforcePopular) return std::nullopt;
  const StateEntries& elected = correction.elected;
  std::vector<uint32_t> keys = differing(correction.own, elected);
  std::erase_if(keys, [&](uint32_t position) { return elected[position].key == kProgressKey; });
  if (keys.empty()) return std::nullopt;
  Drift drift{correction.revision, keys_text(keys, elected)};
  for (const uint32_t position : keys) drift.bytes += bytes_of(elected[position]).value_or(0);
  return drift;
}

bool is_announced(uint64_t count) {
  PCCL_ASSERT(count > 0);
  return std::has_single_bit(count);
}

std::string drift_text(const std::string& whom, const Drift& drift) {
  PCCL_ASSERT(drift.count > 0);
  return whom + " drifts: its result differs from that of the others, and sync_shared_state has " +
         "corrected " + drift.keys + " (" + count_text(drift.bytes, "byte") + ") at revision " +
         std::to_string(drift.revision) + " (" + count_text(drift.count, "correction") + " so far)";
}

std::string drift_warning(const std::string& whom, const Drift& drift) {
  return drift_text(whom, drift) + ": " + kDriftAdvice;
}

}  // namespace pccl::protocol
