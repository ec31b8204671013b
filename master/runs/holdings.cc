#include "master/runs/holdings.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::master {

void Holdings::set(ConnectionId connection, Party party, size_t bytes) {
  const auto known = held_.find(connection);
  if (known != held_.end()) {
    const Held before = known->second;
    PCCL_ASSERT(before.bytes > 0 && total_ >= before.bytes);
    total_ -= before.bytes;
    const auto sum = of_party_.find(before.party);
    PCCL_ASSERT(sum != of_party_.end() && sum->second >= before.bytes);
    sum->second -= before.bytes;
    if (sum->second == 0) of_party_.erase(sum);
    held_.erase(known);
  }
  if (bytes == 0) return;
  held_[connection] = {party, bytes};
  of_party_[party] += bytes;
  total_ += bytes;
}

void Holdings::check() const {
  size_t total = 0;
  for (const auto& [party, bytes] : of_party_) {
    size_t sum = 0;
    for (const auto& [connection, held] : held_) {
      if (held.party != party) continue;
      PCCL_ASSERT(held.bytes > 0);
      sum += held.bytes;
    }
    PCCL_ASSERT(sum == bytes && bytes > 0);
    total += sum;
  }
  for (const auto& [connection, held] : held_) PCCL_ASSERT(of_party_.contains(held.party));
  PCCL_ASSERT(total == total_);
}

size_t Holdings::of(ConnectionId connection) const {
  const auto known = held_.find(connection);
  return known == held_.end() ? 0 : known->second.bytes;
}

std::optional<ConnectionId> Holdings::excess() const {
  if (total_ <= bytes_max_) return std::nullopt;
  PCCL_ASSERT(!of_party_.empty());
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const Party party = std::max_element(of_party_.begin(), of_party_.end(), less)->first;
  std::optional<ConnectionId> largest;
  for (const auto& [connection, held] : held_) {
    if (held.party == party && (!largest || held.bytes > of(*largest))) largest = connection;
  }
  PCCL_ASSERT(largest.has_value());
  return largest;
}

}  // namespace pccl::master
