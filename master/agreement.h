// Agreement: one sync_shared_state at a time, from the complete ballot to its answer: election,
// then the stale ones fetch, then the record is made durable (PROTOCOL.md, section 5.3); and what
// was agreed on last. The master carries no tensor: it says who fetches what from whom. Invariant:
// nobody is answered before what was agreed on is durable.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "master/connections.h"
#include "master/election.h"

namespace pccl::master {

class Agreement {
 public:
  // The answer to the voters, once there is one; its number and kind are theirs.
  using Outcome = std::optional<protocol::Answer>;

  Agreement(GroupId group, Context& context, Connections& connections)
      : group_(group), context_(context), connections_(connections) {}

  bool idle() const { return phase_ == Phase::kIdle; }
  bool recording() const { return phase_ == Phase::kRecording; }
  const std::optional<AgreedState>& recorded() const { return recorded_; }

  // After a restart: what was agreed on last.
  void restore(const AgreedState& recorded) { recorded_ = recorded; }
  // All have voted, in rank order. REQUIRES: idle.
  Outcome begin(const std::vector<OfferOf>& offers, uint32_t number);
  // Void if nothing is awaited from this peer.
  Outcome fetched(PeerId peer, const protocol::Fetched& fetched);
  Outcome persisted(uint64_t token);
  // The call is over otherwise. What is being recorded goes on to be, but answers nobody.
  void cancel();

  // It takes part in the transfers that are under way.
  bool expects(PeerId peer) const { return phase_ == Phase::kFetching && plans_.contains(peer); }
  const std::set<PeerId>& fetching() const { return fetching_; }  // who has not fetched all yet
  // What a peer that is back may have missed.
  std::optional<protocol::SyncPlan> plan(PeerId peer) const;

  //   from         event                           to
  //   kIdle        begin, all are up to date       kRecording, or kIdle when nothing changes
  //   kIdle        begin, some are stale           kFetching    SyncPlan
  //   kFetching    all have fetched                kRecording, or kIdle when nothing changes
  //   kFetching    one could not, cancel           kIdle
  //   kRecording   durable                         kIdle
  enum class Phase { kIdle, kFetching, kRecording };

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
  bool answers_ = true;  // the voters wait for what is being recorded
  std::map<PeerId, protocol::SyncPlan> plans_;
  std::set<PeerId> fetching_;
};

}  // namespace pccl::master
