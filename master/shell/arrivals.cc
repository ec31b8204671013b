#include "master/shell/arrivals.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::master {

void Arrivals::add(ConnectionId id, const std::string& host, Proof proof, Instant now) {
  remove(id);
  (proof == Proof::kToken ? proven_ : strangers_).add(id.value, host, now);
}

void Arrivals::remove(ConnectionId id) {
  strangers_.remove(id.value);
  proven_.remove(id.value);
}

// Half of the places stay for strangers: otherwise the holder of one token could keep every
// newcomer from its handshake.
std::vector<ConnectionId> Arrivals::take_excess(size_t total, Instant now) {
  PCCL_ASSERT(total > 0);
  std::vector<ConnectionId> excess;
  const auto take = [&](net::PendingConnections& from, size_t most) {
    for (const uint64_t id : from.take_excess(most, now)) excess.push_back({id});
  };
  take(proven_, std::max<size_t>(total / 2, 1));
  take(strangers_, total - proven_.size());
  PCCL_ASSERT(size() <= total);
  return excess;
}

std::optional<Instant> Arrivals::deadline() const {
  const auto one = strangers_.deadline(), other = proven_.deadline();
  return one && other ? std::min(*one, *other) : one ? one : other;
}

}  // namespace pccl::master
