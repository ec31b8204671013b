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
  // The entries of an offer that has only a digest. They may be missing if all offer the same.
  const protocol::EntryList* entries = nullptr;
};

// The hash of the state that is offered.
uint64_t digest_of(const protocol::Offer& offer);

struct Election {
  std::string refusal;  // why nothing can be agreed on, for all voters; empty: agreed
  AgreedState agreed;
  protocol::EntryList entries;  // layout and hashes of the elected state
  std::vector<uint32_t> keys;   // that some receiver lacks, ascending
  // In rank order. Receivers lack entries. Sources have the whole state, and were trained here if
  // any such peer was: a newcomer's claim is not trusted.
  std::vector<PeerId> sources, receivers;
  std::string gone;  // the lost members with the whole state, if there are no sources
};

// The newcomers that have to be removed before the election: the members cannot accept their
// offers, and overwriting them would lose something. A newcomer here is a peer that was not trained
// in this group while others were.
std::vector<Misfit> misfits(const std::vector<OfferOf>& offers,
                            const std::optional<AgreedState>& recorded);

// The election rule:
// 1. If some offers that may be sent were trained here, only those count.
// 2. The highest revision among them wins, whatever the votes. If there is a record, this is the
//    record's revision or the next one. An offer beyond that refuses the call for all. No revision
//    is next to the highest number.
// 3. If that revision has several contents, the one that most offers have wins, then the one of the
//    lowest rank.
// So no peer that may send is set back.
// REQUIRES: at least one offer; all are well-formed; no misfits.
Election elect(const std::vector<OfferOf>& offers, const std::optional<AgreedState>& recorded);

// Whether one of the offers is of this state.
bool has_state(const std::vector<OfferOf>& offers, const AgreedState& state);

// An election whose transfers a loss has interrupted, for the survivors among these offers, the
// offers of the election. Perhaps no survivor has the whole state.
Election resumed(const Election& interrupted, const std::vector<OfferOf>& offers);

// The plan for all sources and receivers. REQUIRES: not refused.
protocol::SyncPlan plan_of(uint32_t number, const Election& election);

// Whether the offer has entries that make sense, or a digest instead; and, if it is partial, can
// only receive.
bool well_formed(const protocol::Offer& offer);

}  // namespace pccl::master
