#include "csrc/peer/time_account.h"

#include <algorithm>

namespace pccl::peer {

void TimeAccount::waited(uint64_t operation, Instant from, Instant to) {
  if (const auto at = known_.find(operation); at != known_.end()) {
    count(at->second, {from, to});
    known_.erase(at);
    return;
  }
  if (open_.size() == kOpenMax) {  // the oldest one stays a transfer
    totals_.transferring += open_.begin()->second.to - open_.begin()->second.from;
    open_.erase(open_.begin());
  }
  const auto [at, fresh] = open_.try_emplace(operation, Span{from, to});
  if (fresh) return;
  totals_.transferring += at->second.to - at->second.from;  // it waits for this call once more
  at->second = {from, to};
}

void TimeAccount::called(uint64_t operation, PeerId last, Instant at) {
  known(operation, {last, at, false});
}

void TimeAccount::failed(uint64_t operation) { known(operation, {{}, {}, true}); }

// The first of several reports counts: an operation that fails by a verdict has two.
void TimeAccount::known(uint64_t operation, const Call& call) {
  if (const auto at = open_.find(operation); at != open_.end()) {
    count(call, at->second);
    open_.erase(at);
    return;
  }
  known_.emplace(operation, call);
  if (known_.size() > kKnownMax) known_.erase(known_.begin());  // nobody waits for it any more
}

void TimeAccount::count(const Call& call, const Span& wait) {
  if (call.failed) {
    totals_.failing += wait.to - wait.from;
    return;
  }
  const Instant called = std::clamp(call.at, wait.from, wait.to);
  totals_.waiting += called - wait.from;
  totals_.transferring += wait.to - called;
  if (called == wait.from) return;
  auto& named = totals_.waiting_for;
  named[call.last] += called - wait.from;
  if (named.size() <= kNamedMax) return;
  const auto shorter = [](const auto& a, const auto& b) { return a.second < b.second; };
  named.erase(std::min_element(named.begin(), named.end(), shorter));
}

TimeTotals TimeAccount::totals(Instant now) const {
  TimeTotals totals = totals_;
  for (const auto& [operation, wait] : open_) totals.transferring += wait.to - wait.from;
  totals.all = now - start_;
  return totals;
}

}  // namespace pccl::peer
