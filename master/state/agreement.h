// Agreement: one sync_shared_state at a time, from the complete ballot to its answer (PROTOCOL.md,
// section 5.3): election, then the stale members fetch, then the record is made durable. It also
// keeps the last agreed state. The master carries no tensor: it sends the members a plan with the
// sources and the receivers. Group owns it.
// If a loss interrupts the transfers, the members vote again, and the call continues. The state
// that was elected before stays elected while a member has it. Otherwise a different state of the
// same or a higher revision can win now. If no such state wins, the old one stays elected: all its
// sources are lost, but the receivers together may have all its pieces.
// Invariants:
// 1. No member is answered before the agreed state is durable.
// 2. A plan exists only while members fetch, and each of these members is one of its receivers.
// 3. A state that is being made durable follows the recorded one: its revision is higher by one.
// 4. The agreed revision never falls.
// 5. Lists of entries are awaited if and only if the phase is kListing.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "csrc/base/assert.h"
#include "master/context.h"
#include "master/state/drifts.h"
#include "master/state/election.h"
#include "master/state/state_lists.h"

namespace pccl::master {

class Connections;

class Agreement {
 public:
  // The answer to the voters, once known; its number and kind are set by the ballot.
  using Outcome = std::optional<protocol::Answer>;

  Agreement(GroupId group, Context& context, Connections& connections)
      : group_(group), context_(context), connections_(connections) {}

  bool idle() const { return phase_ == Phase::kIdle; }
  bool recording() const { return phase_ == Phase::kRecording; }
  const std::optional<AgreedState>& recorded() const { return recorded_; }
  const Drifts& drifts() const { return drifts_; }

  // After a restart: sets the last agreed state. REQUIRES: none is known yet.
  void restore(const AgreedState& recorded) {
    PCCL_ASSERT(idle() && !recorded_);
    recorded_ = recorded;
  }
  // Asks for the lists of entries that are needed before begin(). Returns false if none is needed.
  // Otherwise the agreement is idle again when the last list has arrived. `offers`, here and in
  // begin(): the offers of all members, in rank order. REQUIRES: idle.
  bool asks_for_lists(const std::vector<OfferOf>& offers, uint32_t number);
  void add_lists_to(std::vector<OfferOf>& offers) const { lists_.add_to(offers); }
  bool awaits_list(PeerId peer) const { return lists_.awaits(peer); }
  // The number of the call whose lists are awaited.
  uint32_t number() const { return number_; }
  // Why the list is wrong; empty if it is right, or is not awaited.
  std::string on_list(PeerId peer, const protocol::StateList& list);
  // REQUIRES: idle, and asks_for_lists() has returned false.
  Outcome begin(const std::vector<OfferOf>& offers, uint32_t number);
  // Ignored if the peer has no transfer in this call.
  Outcome fetched(PeerId peer, const protocol::Fetched& fetched);
  Outcome persisted(uint64_t token);
  // The call has ended in another way. A record that is being persisted is still completed, but no
  // voter is answered.
  void cancel();
  // The epoch has ended, and all votes are void, but the next begin() continues the call. `gone`: a
  // text with the members that were lost; empty if there are none.
  void interrupt(const std::string& gone);

  // The peer takes part in the current transfers.
  bool expects(PeerId peer) const;
  const std::set<PeerId>& fetching() const { return fetching_; }  // members that still fetch
  // Members that have not fetched everything yet, or have not sent their list yet.
  std::set<PeerId> awaited() const;
  // The plan, which a resumed voter may have missed.
  const std::optional<protocol::SyncPlan>& plan() const { return plan_; }
  // Voters wait for its outcome.
  bool for_voters() const {
    return phase_ == Phase::kListing || phase_ == Phase::kFetching || (recording() && answers_);
  }

  // All members have voted, and no list is awaited. A voter that has called in the background does
  // not wait any more, unless it fetches.
  bool decided() const { return phase_ == Phase::kFetching || (recording() && answers_); }

  enum class Phase { kIdle, kListing, kFetching, kRecording };

  // Asserts the invariants.
  void check() const;

 private:
  void enter(Phase next);
  Outcome record();
  protocol::Answer agreed() const;

  const GroupId group_;
  Context& context_;
  Connections& connections_;
  Phase phase_ = Phase::kIdle;
  std::optional<AgreedState> recorded_;
  AgreedState elected_;
  uint32_t number_ = 0;
  uint64_t token_ = 0;
  bool answers_ = true;  // voters wait for the record
  StateLists lists_;
  Drifts drifts_;
  std::optional<protocol::SyncPlan> plan_;
  std::set<PeerId> fetching_;
  std::optional<Election> election_;     // while members fetch
  std::optional<Election> interrupted_;  // by a loss; its call continues
};

}  // namespace pccl::master
