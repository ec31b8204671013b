// StateLists: the entries of the shared states that the voters of one sync_shared_state offer, by
// digest (PROTOCOL.md, section 5.3). A voter with many entries offers a digest only. If the digests
// differ, one voter of each digest is asked for its list: a trained voter if there is one. It
// belongs to an Agreement, and is pure.
// Invariants:
//   1. A known list has the digest under which it is stored, and is sorted by key.
//   2. No member is asked for a known list.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "master/state/election.h"

namespace pccl::master {

class StateLists {
 public:
  // Returns the voters to ask. Their lists are awaited from now on. `all`: voters are asked even if
  // all offers have the same digest.
  std::vector<PeerId> ask(const std::vector<OfferOf>& offers, bool all);
  bool awaits(PeerId peer) const { return asked_.contains(peer); }
  std::set<PeerId> awaited() const;
  bool awaits_any() const { return !asked_.empty(); }
  // Why the list is not the one that the peer has offered; empty if it is. REQUIRES: awaits(peer).
  std::string take(PeerId peer, const protocol::EntryList& entries);
  void add_to(std::vector<OfferOf>& offers) const;  // adds known lists to offers with only a digest
  void forget();                                    // the call is over

  void check() const;  // asserts the invariants

 private:
  std::map<PeerId, uint64_t> asked_;  // the voters, and the digests of their lists
  std::map<uint64_t, protocol::EntryList> known_;
};

}  // namespace pccl::master
