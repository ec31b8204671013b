// election: which shared state wins, and who fetches what from whom (PROTOCOL.md, section 5.3). A
// pure function of the offers, in rank order, and of what was agreed before: every answer can be
// checked on paper.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/protocol/messages.h"
#include "master/newcomer.h"

namespace pccl::master {

// What a group agreed on last.
struct AgreedState {
  uint64_t revision = 0;
  uint64_t hash = 0;
  bool operator==(const AgreedState&) const = default;
};

struct OfferOf {
  PeerId peer;
  const protocol::Offer* offer = nullptr;
  // Its state comes from this group: it has taken part in a sync_shared_state of it or, while there
  // is no record, in any joint call or collective.
  bool trained = false;
};

struct Election {
  std::string refusal;  // why nothing can be agreed on, for all voters alike; empty if it can
  AgreedState agreed;
  std::vector<protocol::StateEntry> entries;  // what the elected state looks like
  std::vector<protocol::Transfer>
      transfers;  // to each peer that lacks entries, from one that has all
};

// The newcomers among the offers, those that were not trained here while others were, that have to
// go before anybody is elected: the members cannot take their offers, and overwriting them would
// lose something.
std::vector<Misfit> misfits(const std::vector<OfferOf>& offers,
                            const std::optional<AgreedState>& recorded);

// The rule. While some offers that may be sent were trained here, only those count. The highest
// revision among them wins, whatever the votes: of a run with a record this is the record or the
// revision after it, and an offer beyond that refuses the call for all. Among several contents of
// that revision the one that most of them have wins, then the one of the lowest rank. So nobody who
// may send is set back.
// REQUIRES: at least one offer; each is well-formed; no misfits.
Election elect(const std::vector<OfferOf>& offers, const std::optional<AgreedState>& recorded);

// What one peer is told of an election: the transfers it takes part in.
protocol::SyncPlan plan_for(PeerId peer, uint32_t number, const Election& election);

// Sorted by key, no key twice.
bool well_formed(const protocol::Offer& offer);

}  // namespace pccl::master
