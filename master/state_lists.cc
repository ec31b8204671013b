#include "master/state_lists.h"

#include <set>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/state.h"

namespace pccl::master {

std::vector<PeerId> StateLists::ask(const std::vector<OfferOf>& offers, bool all) {
  PCCL_ASSERT(asked_.empty());
  std::set<uint64_t> digests;
  for (const OfferOf& one : offers) digests.insert(digest_of(*one.offer));
  for (const OfferOf& one : offers) {  // a short list came with its offer
    if (!one.offer->digest) known_.try_emplace(digest_of(*one.offer), one.offer->entries);
  }
  std::vector<PeerId> peers;
  if (digests.size() < 2 && !all) return peers;
  for (const OfferOf& one : offers) {
    const uint64_t digest = digest_of(*one.offer);
    if (known_.contains(digest) || digests.erase(digest) == 0) continue;
    asked_[one.peer] = digest;
    peers.push_back(one.peer);
  }
  return peers;
}

std::string StateLists::take(PeerId peer, std::vector<protocol::StateEntry> entries) {
  const auto at = asked_.find(peer);
  PCCL_ASSERT(at != asked_.end());
  if (!protocol::is_sensible(entries))
    return "its list of entries is not sorted by key, or has senseless shapes";
  if (protocol::state_hash(entries) != at->second)
    return "its list of entries is not the one that it has offered";
  known_[at->second] = std::move(entries);
  asked_.erase(at);
  return {};
}

void StateLists::add_to(std::vector<OfferOf>& offers) const {
  for (OfferOf& one : offers) {
    const auto at = known_.find(digest_of(*one.offer));
    if (at != known_.end()) one.entries = &at->second;
  }
}

void StateLists::forget() {
  asked_.clear();
  known_.clear();
}

void StateLists::check() const {
  for (const auto& [peer, digest] : asked_) PCCL_ASSERT(!known_.contains(digest));
}

}  // namespace pccl::master
