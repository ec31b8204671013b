#include "master/state/state_lists.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/state.h"

namespace pccl::master {

std::vector<PeerId> StateLists::ask(const std::vector<OfferOf>& offers, bool all) {
  PCCL_ASSERT(asked_.empty());
  // The voter whose list counts for each digest. The digest is no cryptographic hash: a newcomer
  // can make a different list with the same digest. So a trained voter is preferred.
  std::map<uint64_t, const OfferOf*> chosen;
  const auto preference = [](const OfferOf& one) {
    return std::pair(one.trained, !one.offer->digest.has_value());  // a short list is in the offer
  };
  for (const OfferOf& one : offers) {
    const OfferOf*& best = chosen[digest_of(*one.offer)];
    if (best == nullptr || preference(one) > preference(*best)) best = &one;
  }
  const bool differ = chosen.size() > 1 || all;
  const bool some_list = std::any_of(offers.begin(), offers.end(),
                                     [](const OfferOf& one) { return !one.offer->digest; });
  std::vector<PeerId> peers;
  for (const OfferOf& one : offers) {
    const uint64_t digest = digest_of(*one.offer);
    if (chosen[digest] != &one) continue;
    if (!one.offer->digest) {
      known_.try_emplace(digest, one.offer->entries);
    } else if (!known_.contains(digest) && (differ || some_list)) {  // for a comparison
      asked_[one.peer] = digest;
      peers.push_back(one.peer);
    }
  }
  return peers;
}

std::set<PeerId> StateLists::awaited() const {
  std::set<PeerId> peers;
  for (const auto& [peer, digest] : asked_) peers.insert(peer);
  return peers;
}

std::string StateLists::take(PeerId peer, const protocol::EntryList& entries) {
  const auto at = asked_.find(peer);
  PCCL_ASSERT(at != asked_.end());
  if (!protocol::is_sensible(entries))
    return "its list of entries is not sorted by key, or has senseless shapes";
  if (protocol::state_hash(entries) != at->second)
    return "its list of entries is not the one that it has offered";
  known_[at->second] = entries;
  asked_.erase(at);
  return {};
}

void StateLists::add_to(std::vector<OfferOf>& offers) const {
  for (OfferOf& one : offers) {
    if (!one.offer->digest) continue;  // it has its own list
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
  PCCL_DCHECK(std::all_of(known_.begin(), known_.end(), [](const auto& list) {
    return protocol::is_sensible(list.second) && protocol::state_hash(list.second) == list.first;
  }));
}

}  // namespace pccl::master
