// Optimization: one optimize_topology at a time, from the complete ballot to its answer
// (PROTOCOL.md, section 5.4). It waits for the operations in flight, measures the links in rounds
// (topology/tournament.h), has a plan made (topology/planner.h), and decides whether the plan is
// worth an epoch of its own. Group owns it, and passes the reports of the members to it. If an
// epoch ends meanwhile, the members vote again, and the call continues with the rest of its budget.
// The rates and the ages of the measurements outlive the call. A restarted master does not have
// them, and measures again.
// Invariants:
// 1. A round of probes is under way only while it measures.
// 2. Every wait has a bound: a round and a search have a deadline, and operations have their
//    timeouts or the timeout of the call.
// 3. A plan is taken in the step of its arrival. It is dropped if planning has ended.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "master/context.h"
#include "master/epochs/routes.h"
#include "master/members/membership.h"
#include "master/topology/hysteresis.h"
#include "master/topology/size_average.h"
#include "master/topology/tournament.h"

namespace pccl::master {

class Connections;

class Optimization {
 public:
  enum class Phase { kIdle, kWaiting, kMeasuring, kPlanning, kAdopting };
  // Maximum duration of a search for a plan.
  static constexpr Duration kPlanningMax = std::chrono::seconds(60);

  Optimization(GroupId group, Context& context, Connections& connections, Membership& membership)
      : group_(group), context_(context), connections_(connections), membership_(membership) {}

  Phase phase() const { return phase_; }
  bool idle() const { return phase_ == Phase::kIdle; }
  bool adopting() const { return phase_ == Phase::kAdopting; }
  // The call waits for the operations in flight.
  bool waits() const { return phase_ == Phase::kWaiting; }
  // The call has begun, and its votes are valid.
  bool under_way() const { return !idle() && !adopting(); }

  // `peer` has begun this operation. Tensors of up to `one_shot_bytes` do not count: a plan is for
  // larger tensors.
  void note(PeerId peer, const protocol::OpInfo& info, uint32_t one_shot_bytes);

  // All have voted, and the call begins. `max_bytes`: as in Vote. REQUIRES: idle
  void begin(Duration budget, uint64_t max_bytes = 0);
  // No operation is in flight any more, so measuring begins. REQUIRES: waits()
  void measure(const protocol::EpochStart& now);
  Status on(PeerId peer, const protocol::ProbeReport& report);
  // The search with this token has found a plan.
  void planned(uint64_t token, topology::Plan plan);
  // Ends a round that is over, and begins the next round or the search. REQUIRES: measuring or
  // planning. Returns true when there is nothing more to wait for.
  bool advance(const protocol::EpochStart& now);
  // Whether the search has found nothing in time. REQUIRES: advance() has just returned true
  bool is_too_late() const;
  // Returns the plan to adopt; nothing if the present plan stays. REQUIRES: advance() has just
  // returned true, and it is not too late
  std::optional<RoutePlan> take_plan(const protocol::EpochStart& now);
  // The better plan is being adopted: the epoch ends, and the members vote again.
  void adopt();
  // The result of the call, for the answer to all. REQUIRES: not waiting or measuring
  protocol::TopologyPlan result(const protocol::EpochStart& now) const;
  // The call has ended.
  void cancel();
  // The epoch ends, but not because of this call. The votes are void. The call continues when all
  // members have voted again. Ignored if no call is under way.
  void interrupt();
  void lose(PeerId peer);  // the peer is gone and will not return

  // For an update_topology: returns a plan that is better than the plan of the present epoch, by
  // the present measurements. Nothing if no plan is better, if some rate is unknown, or if there
  // are too many members to plan within a step.
  std::optional<RoutePlan> better_plan(const protocol::EpochStart& now);
  // The predicted time with the fastest plan, divided by the time with the present one. Nothing in
  // the same cases.
  std::optional<double> best_share(const protocol::EpochStart& now) const;

  std::optional<Instant> deadline() const;
  // Whether a round of probes or a search for a plan has reached its deadline.
  bool is_late() const { return deadline() && *deadline() <= context_.now; }
  // Asserts the invariants.
  void check() const;

 private:
  // A plan for at most this number of members is made within a step. It takes some milliseconds.
  static constexpr size_t kPlannedAtOnce = 12;
  void enter(Phase next);
  void begin_round();
  topology::PlanQuestion question() const;
  bool can_plan_at_once(const protocol::EpochStart& now) const;
  bool is_worth_it(const topology::PlanQuestion& question, const protocol::EpochStart& now,
                   const topology::Plan& found);
  void plan();
  PatternWish wish() const { return {context_.settings.pattern, context_.options.shares}; }
  std::vector<protocol::RankPair> ranks_of(const std::vector<topology::Pair>& pairs) const;
  std::string pairs_text(const std::vector<topology::Pair>& pairs) const;
  std::string what_was_not_measured() const;
  std::vector<topology::Pair> missing_pairs() const;
  double pause_of(const protocol::EpochStart& now) const;

  const GroupId group_;
  Context& context_;
  Connections& connections_;
  Membership& membership_;
  Phase phase_ = Phase::kIdle;
  topology::Tournament tournament_;
  topology::Hysteresis hysteresis_;
  topology::SizeAverage sizes_;
  bool interrupted_ = false;  // an epoch has ended, and the call continues after new votes
  Duration budget_{0};
  uint64_t max_bytes_ = 0;
  uint64_t token_ = 0;  // of the search
  Instant plan_due_;
  std::shared_ptr<const topology::PlanQuestion> question_;
  std::optional<topology::Plan> found_;
  double before_ = 0;        // predicted seconds of a 1 GiB all-reduce with the earlier plan
  std::string not_adopted_;  // why the call has adopted no plan
  Epoch began_in_;           // the epoch when the plan was made
  RoutePlan planned_;        // the plan that is being adopted
};

const char* text(Optimization::Phase phase);

}  // namespace pccl::master
