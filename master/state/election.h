// election: decides which shared state wins, which members lack entries of it, and which have all
// of it (PROTOCOL.md, section 5.3). Pure functions of the offers, in rank order, and of the last
// agreed state, so every answer can be checked on paper. Group and Agreement call them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/protocol/messages.h"
#include "master/members/misfit.h"

namespace pccl::master {

// The last agreed state of a group.
struct AgreedState {
  uint64_t revision = 0;
  uint64_t hash = 0;
  bool operator==(const AgreedState&) const = default;
};

struct OfferOf {
  PeerId peer;
  const protocol::Offer* offer = nullptr;
  // The state comes from this group: the peer has taken part in a sync_shared_state of the group
  // or, if there is no record, in any joint call or collective.
  bool trained = false;
  std::string name = {};  // of the peer
  // The entries of an offer that has only a digest. Null if they are unknown: they are not needed
  // if all offers have the same digest.
  const protocol::EntryList* entries = nullptr;
};

// The entries that the peer has offered; empty if they are unknown.
const std::vector<protocol::StateEntry>& entries_of(const OfferOf& one);

// The hash of the state that is offered.
uint64_t digest_of(const protocol::Offer& offer);

struct Election {
  std::string refusal;  // for all voters: why no state can be agreed on; empty: agreed
  AgreedState agreed;
  protocol::EntryList entries;  // layout and hashes of the elected state
  std::vector<uint32_t> keys;   // indices of `entries` that some receiver lacks, ascending
  // In rank order. Receivers lack entries. Sources have the whole state. If some of them were
  // trained here, only these are sources: a newcomer's claim is not trusted.
  std::vector<PeerId> sources, receivers;
  std::string gone;  // text: the members that were lost during the transfers
};

// The newcomers that have to be removed before the election: the members cannot accept the offer of
// such a newcomer, and to overwrite its state would lose data. A newcomer here is a peer that was
// not trained in this group while others were.
std::vector<Misfit> misfits(const std::vector<OfferOf>& offers,
                            const std::optional<AgreedState>& recorded);

// The election rule:
// 1. If some offers that may be sent were trained here, only these count.
// 2. The highest revision among the counted offers wins, even if only one offer has it. If there is
//    a record, only the recorded revision or the next one can win, and an offer with a higher
//    revision makes the call fail for all. The highest number has no next revision.
// 3. If offers of this revision differ in content, the content of the largest number of offers
//    wins. If two contents have the same number, the content of the lowest rank wins.
// So no peer whose offer may be sent goes back to a lower revision.
// REQUIRES: at least one offer; all are well-formed; no misfits.
Election elect(const std::vector<OfferOf>& offers, const std::optional<AgreedState>& recorded);

// Whether one of the offers is of this state.
bool has_state(const std::vector<OfferOf>& offers, const AgreedState& state);

// Continues an election after a loss has interrupted its transfers. `offers`: the offers of the
// survivors in the new ballot. The elected state stays the same; sources and receivers are found
// anew. Perhaps no survivor has the whole state.
Election resumed(const Election& interrupted, const std::vector<OfferOf>& offers);

// The plan for all sources and receivers. REQUIRES: not refused.
protocol::SyncPlan plan_of(uint32_t number, const Election& election);

// Whether the offer has sensible entries, or a digest instead of entries. A partial offer must be
// receive-only.
bool well_formed(const protocol::Offer& offer);

}  // namespace pccl::master
