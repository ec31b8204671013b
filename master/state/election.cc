#include "master/state/election.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/state.h"
#include "master/text_format.h"

namespace pccl::master {

using protocol::Offer;
using protocol::StateEntry;
using protocol::SyncStrategy;

const std::vector<StateEntry>& entries_of(const OfferOf& one) {
  return one.entries != nullptr ? one.entries->all() : one.offer->entries;
}

namespace {

constexpr size_t kDifferencesNamedMax = 4;

bool same_content(const Offer& a, const Offer& b) {
  return a.revision == b.revision && digest_of(a) == digest_of(b);
}

std::string layout_text(const StateEntry& entry) {
  std::string out = std::string(text(entry.dtype)) + "[";
  for (size_t i = 0; i < entry.shape.size(); ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(entry.shape[i]);
  }
  return out + "]";
}

// A text about the first keys in which two layouts differ: how each key is in `a` and in `b`. Empty
// if none differs.
std::string difference(const std::vector<StateEntry>& a, const std::vector<StateEntry>& b,
                       const std::string& of_a, const std::string& of_b) {
  std::string out;
  size_t count = 0;
  const auto differs = [&](const std::string& key, const std::string& in_a,
                           const std::string& in_b) {
    if (++count > kDifferencesNamedMax) return;
    out += (out.empty() ? "\"" : "; \"") + key + "\" is " + in_a + " " + of_a + " and " + in_b +
           " " + of_b;
  };
  auto at_a = a.begin();
  auto at_b = b.begin();
  while (at_a != a.end() || at_b != b.end()) {
    if (at_b == b.end() || (at_a != a.end() && at_a->key < at_b->key)) {
      differs(at_a->key, layout_text(*at_a), "absent");
      ++at_a;
    } else if (at_a == a.end() || at_b->key < at_a->key) {
      differs(at_b->key, "absent", layout_text(*at_b));
      ++at_b;
    } else {
      if (!same_layout(*at_a, *at_b)) differs(at_a->key, layout_text(*at_a), layout_text(*at_b));
      ++at_a;
      ++at_b;
    }
  }
  if (count <= kDifferencesNamedMax) return out;
  return out + "; and " + std::to_string(count - kDifferencesNamedMax) + " more";
}

RankNames names_of(const std::vector<OfferOf>& offers) {
  RankNames names;
  names.reserve(offers.size());
  for (const OfferOf& one : offers) names.push_back(one.name);
  return names;
}

// Whether a peer with this offer can take over a state with the layout `of`: both layouts are the
// same, or a partial offer has a part of it.
bool fits(const OfferOf& one, const std::vector<StateEntry>& of) {
  return one.offer->partial ? protocol::is_part_of(entries_of(one), of)
                            : protocol::same_layouts(entries_of(one), of);
}

// The first rank whose offer has all entries of a state; nothing if all offers are partial.
std::optional<uint32_t> first_whole(const std::vector<OfferOf>& offers) {
  for (uint32_t rank = 0; rank < offers.size(); ++rank) {
    if (!offers[rank].offer->partial) return rank;
  }
  return std::nullopt;
}

// Why the layouts of the offers do not fit; empty if they do. It is also empty if all offers are
// partial: then no offer may be sent, and the election refuses the call for that reason.
std::string refuse_layouts(const std::vector<OfferOf>& offers) {
  const std::optional<uint32_t> whole = first_whole(offers);
  if (!whole) return {};
  const std::vector<StateEntry>& layout = entries_of(offers[*whole]);
  for (uint32_t rank = 0; rank < offers.size(); ++rank) {
    if (fits(offers[rank], layout)) continue;
    const uint32_t first = std::min(*whole, rank), other = std::max(*whole, rank);
    const std::string what =
        difference(entries_of(offers[first]), entries_of(offers[other]),
                   "at rank " + std::to_string(first), "at rank " + std::to_string(other));
    PCCL_ASSERT(!what.empty());
    return ranks_text({first, other}, names_of(offers)) +
           " offer states of different keys, types or shapes: " + what;
  }
  return {};
}

using Recorded = std::optional<AgreedState>;

AgreedState as_agreed(const Offer& offer) { return {offer.revision, digest_of(offer)}; }

bool may_send(const OfferOf& one) { return one.offer->strategy != SyncStrategy::kReceiveOnly; }

// The ranks whose offers count: those that may be sent and were trained here. If there are none:
// all that may be sent.
std::vector<size_t> candidates(const std::vector<OfferOf>& offers) {
  std::vector<size_t> trained, all;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    if (!may_send(offers[rank])) continue;
    all.push_back(rank);
    if (offers[rank].trained) trained.push_back(rank);
  }
  return trained.empty() ? all : trained;
}

bool is_next(uint64_t revision, const AgreedState& to) {
  return revision > to.revision && revision - to.revision == 1;
}

bool is_beyond_next(uint64_t revision, const AgreedState& to) {
  return revision > to.revision && revision - to.revision > 1;
}

bool follows(const AgreedState& state, const Recorded& recorded) {
  return !recorded || state == *recorded || is_next(state.revision, *recorded);
}

size_t highest(const std::vector<OfferOf>& offers, const std::vector<size_t>& ranks) {
  PCCL_ASSERT(!ranks.empty());
  return *std::max_element(ranks.begin(), ranks.end(), [&offers](size_t a, size_t b) {
    return offers[a].offer->revision < offers[b].offer->revision;
  });
}

// The rank of the candidate with the highest revision, if that revision is too high to follow the
// record.
std::optional<size_t> ahead(const std::vector<OfferOf>& offers, const Recorded& recorded) {
  const std::vector<size_t> ranks = candidates(offers);
  if (!recorded || ranks.empty()) return std::nullopt;
  const size_t rank = highest(offers, ranks);
  const bool beyond = is_beyond_next(offers[rank].offer->revision, *recorded);
  return beyond ? std::optional(rank) : std::nullopt;
}

// The rank whose content wins by the rule in election.h; nothing if no offer can follow the record.
std::optional<size_t> winner(const std::vector<OfferOf>& offers, const Recorded& recorded) {
  std::map<size_t, AgreedState> states;  // by rank
  for (const size_t rank : candidates(offers)) {
    const AgreedState state = as_agreed(*offers[rank].offer);
    if (follows(state, recorded)) states[rank] = state;
  }
  uint64_t revision = 0;
  for (const auto& [rank, state] : states) revision = std::max(revision, state.revision);
  std::map<uint64_t, size_t> votes;  // for each content of this revision
  for (const auto& [rank, state] : states) votes[state.hash] += state.revision == revision ? 1 : 0;
  std::optional<size_t> best;
  size_t most = 0;
  for (const auto& [rank, state] : states) {
    if (state.revision == revision && votes[state.hash] > most)
      best = rank, most = votes[state.hash];
  }
  return best;
}

std::string refuse_overwriting(const std::vector<OfferOf>& offers, size_t elected) {
  PCCL_ASSERT(elected < offers.size() && may_send(offers[elected]));
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < offers.size(); ++rank) {
    const Offer& offer = *offers[rank].offer;
    const bool overwritten = !same_content(offer, *offers[elected].offer);
    if (offer.strategy == SyncStrategy::kSendOnly && overwritten) ranks.push_back(rank);
  }
  if (ranks.empty()) return {};
  return ranks_text(ranks, names_of(offers)) +
         " must not be overwritten (send_only), but the state of rank " +
         rank_text(static_cast<uint32_t>(elected), names_of(offers)) + " at revision " +
         std::to_string(offers[elected].offer->revision) + " is the one that wins";
}

std::string refuse_ahead(const OfferOf& one, size_t rank, const AgreedState& recorded) {
  const std::string next = std::to_string(recorded.revision + 1);
  return "rank " + std::to_string(rank) + (one.name.empty() ? "" : " (" + one.name + ")") +
         " offers revision " + std::to_string(one.offer->revision) +
         ", but this group agreed on revision " + std::to_string(recorded.revision) +
         " last, and from one sync_shared_state to the next a state may advance by one revision: "
         "call sync_shared_state after each step, or raise the revision once per call. If this "
         "state "
         "is to follow, set its revision to " +
         next + " (state.revision = " + next + ") on all ranks that hold it and call again";
}

std::string refuse_stray(const AgreedState& elected, const AgreedState& recorded) {
  return "the elected state has revision " + std::to_string(elected.revision) + " and hash " +
         hash_text(elected.hash) + ", but this run agreed on revision " +
         std::to_string(recorded.revision) + " and hash " + hash_text(recorded.hash) +
         ": only that state or revision " + std::to_string(recorded.revision + 1) +
         " can follow. Go on from that one or in a run of another name; or let the master begin "
         "with "
         "this one: pccl master --resume-from " +
         std::to_string(elected.revision) + ":" + hash_text(elected.hash);
}

void plan_pieces(const std::vector<OfferOf>& offers, Election& election) {
  election.sources.clear();
  election.receivers.clear();
  std::vector<PeerId> trained;
  std::vector<bool> lacked(election.entries.size());
  for (const uint32_t key : election.keys) lacked[key] = true;
  for (const OfferOf& one : offers) {
    const std::vector<uint32_t> keys = protocol::lacking(entries_of(one), election.entries);
    for (const uint32_t key : keys) lacked[key] = true;
    (keys.empty() ? election.sources : election.receivers).push_back(one.peer);
    if (keys.empty() && one.trained) trained.push_back(one.peer);
  }
  election.keys.clear();
  for (uint32_t key = 0; key < lacked.size(); ++key) {
    if (lacked[key]) election.keys.push_back(key);
  }
  if (!trained.empty()) election.sources = std::move(trained);
}

// Refuses an election whose plan does not fit into a message.
std::string refuse_size(const Election& election) {
  if (election.receivers.empty()) return {};
  size_t bytes = 64 + protocol::kTextBytesMax + election.keys.size() * sizeof(uint32_t) +
                 2 * protocol::kMembersMax * sizeof(PeerId);
  for (const StateEntry& entry : election.entries)
    bytes += 32 + entry.key.size() + entry.shape.size() * sizeof(int64_t);
  if (bytes <= protocol::kMessageBytesMax) return {};
  return "a state of " + count_text(election.entries.size(), "tensor") +
         " is too finely divided to be sent to stale ranks: its plan takes " +
         std::to_string(bytes) + " bytes, at most " + std::to_string(protocol::kMessageBytesMax) +
         ". Join small tensors into larger ones";
}

// Why a newcomer's offer conflicts with the winner; empty if it does not.
std::string refuse_newcomer(const OfferOf& one, const Offer& winner) {
  PCCL_ASSERT(!one.trained);
  const Offer& offer = *one.offer;
  if (!may_send(one) || same_content(offer, winner)) return {};
  const std::string both = "its state has revision " + std::to_string(offer.revision) +
                           ", that of the members revision " + std::to_string(winner.revision);
  if (offer.revision > winner.revision) {
    return both + ": a newcomer takes the state of the run, and cannot bring a later one";
  }
  if (offer.strategy != SyncStrategy::kSendOnly) return {};
  return both + ", and it must not be overwritten (send_only)";
}

}  // namespace

std::vector<Misfit> misfits(const std::vector<OfferOf>& offers, const Recorded& recorded) {
  std::vector<Misfit> misfits;
  std::vector<OfferOf> trained;
  std::copy_if(offers.begin(), offers.end(), std::back_inserter(trained),
               [](const OfferOf& one) { return one.trained; });
  // No whole offer was trained here, or the trained offers do not fit: nothing to compare with.
  const std::optional<uint32_t> whole = first_whole(trained);
  if (!whole || !refuse_layouts(trained).empty()) return misfits;
  const bool refused = ahead(trained, recorded).has_value();  // for all, whatever newcomers offer
  const auto elected = refused ? std::nullopt : winner(trained, recorded);
  const std::vector<StateEntry>& layout = entries_of(trained[*whole]);
  for (const OfferOf& one : offers) {
    if (one.trained) continue;
    const std::vector<StateEntry>& entries = entries_of(one);
    std::string why;
    if (!fits(one, layout)) {
      why = "its state has other keys, types or shapes than that of the members: " +
            difference(entries, layout, "at the newcomer", "at the members");
    } else if (elected) {
      why = refuse_newcomer(one, *trained[*elected].offer);
    } else if (!refused && may_send(one) && recorded &&
               is_beyond_next(one.offer->revision, *recorded)) {
      why = "its state has revision " + std::to_string(one.offer->revision) +
            ", and the group agreed on revision " + std::to_string(recorded->revision) + " last";
    }
    if (!why.empty()) misfits.push_back({one.peer, std::move(why)});
  }
  return misfits;
}

Election elect(const std::vector<OfferOf>& offers, const std::optional<AgreedState>& recorded) {
  PCCL_ASSERT(!offers.empty());
  PCCL_DCHECK(std::all_of(offers.begin(), offers.end(),
                          [](const OfferOf& one) { return well_formed(*one.offer); }));
  PCCL_DCHECK(misfits(offers, recorded).empty());
  Election election;
  election.refusal = refuse_layouts(offers);
  if (!election.refusal.empty()) return election;
  if (const auto rank = ahead(offers, recorded)) {
    const OfferOf& one = offers[*rank];
    election.refusal = one.trained ? refuse_ahead(one, *rank, *recorded)
                                   : refuse_stray(as_agreed(*one.offer), *recorded);
    return election;
  }
  const auto elected = winner(offers, recorded);
  if (!elected) {
    const auto stray = winner(offers, {});
    PCCL_ASSERT(!stray || recorded);
    election.refusal = stray ? refuse_stray(as_agreed(*offers[*stray].offer), *recorded)
                             : "no rank offers a state that may be sent: all are receive_only";
    return election;
  }
  election.refusal = refuse_overwriting(offers, *elected);
  if (!election.refusal.empty()) return election;
  const Offer& offer = *offers[*elected].offer;
  election.agreed = as_agreed(offer);
  PCCL_ASSERT(!recorded || election.agreed.revision >= recorded->revision);
  const protocol::EntryList* const list = offers[*elected].entries;
  election.entries = list != nullptr ? *list : protocol::EntryList(offer.entries);
  plan_pieces(offers, election);
  election.refusal = refuse_size(election);
  return election;
}

bool has_state(const std::vector<OfferOf>& offers, const AgreedState& state) {
  return std::any_of(offers.begin(), offers.end(),
                     [&](const OfferOf& one) { return as_agreed(*one.offer) == state; });
}

// No key is removed, so that the pieces stay the same.
Election resumed(const Election& interrupted, const std::vector<OfferOf>& offers) {
  PCCL_ASSERT(interrupted.refusal.empty() && !offers.empty());
  Election election = interrupted;
  plan_pieces(offers, election);
  return election;
}

protocol::SyncPlan plan_of(uint32_t number, const Election& election) {
  PCCL_ASSERT(election.refusal.empty() && !election.receivers.empty());
  return {number,           election.agreed.revision, election.entries, election.keys,
          election.sources, election.receivers,       election.gone};
}

uint64_t digest_of(const Offer& offer) {
  return offer.digest ? *offer.digest : protocol::state_hash(offer.entries);
}

bool well_formed(const Offer& offer) {
  if (offer.partial && offer.strategy != SyncStrategy::kReceiveOnly) return false;
  return protocol::is_sensible(offer.entries) && (!offer.digest || offer.entries.empty());
}

}  // namespace pccl::master
