#include "master/group/optimization.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/dtype.h"
#include "csrc/base/transitions.h"
#include "csrc/protocol/limits.h"
#include "master/members/connections.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

using OptimizationPhase = Optimization::Phase;
using topology::Pair;

constexpr size_t kPairsNamedMax = 8;
constexpr double kRateMax = 1e15;  // bytes per second; no link is as fast, whatever a peer reports

const Transitions<OptimizationPhase, 9> kOptimizationTransitions(
    "an optimization of the topology", text,
    {{OptimizationPhase::kIdle, OptimizationPhase::kWaiting, "all have voted", ""},
     {OptimizationPhase::kWaiting, OptimizationPhase::kMeasuring, "no operation is in flight",
      "Probe"},
     {OptimizationPhase::kWaiting, OptimizationPhase::kPlanning,
      "likewise, and there is nothing to measure", "PlanRing"},
     {OptimizationPhase::kMeasuring, OptimizationPhase::kPlanning,
      "all pairs had their turn, or the budget is used up", "PlanRing"},
     {OptimizationPhase::kPlanning, OptimizationPhase::kAdopting, "the plan is better by enough",
      "FreezeRequest"},
     {OptimizationPhase::kPlanning, OptimizationPhase::kIdle,
      "the plan is not better by enough, or did not come in time; the call has ended in another "
      "way, or is interrupted",
      "Answer"},
     {OptimizationPhase::kAdopting, OptimizationPhase::kIdle,
      "all have voted again; the call has ended in another way", "Answer"},
     {OptimizationPhase::kWaiting, OptimizationPhase::kIdle,
      "there is one member; the call has ended in another way, or is interrupted", "Answer"},
     {OptimizationPhase::kMeasuring, OptimizationPhase::kIdle,
      "the call has ended in another way, or is interrupted", ""}});

// Converts seconds for an Answer to microseconds: at least 1, because 0 means "unknown".
uint64_t microseconds(double seconds) {
  return static_cast<uint64_t>(std::clamp(seconds * 1e6, 1.0, 1e18));
}

}  // namespace

const char* text(Optimization::Phase phase) {
  switch (phase) {
    case Optimization::Phase::kIdle: return "idle";
    case Optimization::Phase::kWaiting: return "waiting";
    case Optimization::Phase::kMeasuring: return "measuring";
    case Optimization::Phase::kPlanning: return "planning";
    case Optimization::Phase::kAdopting: return "adopting";
  }
  return "unknown";
}

void Optimization::enter(Phase next) { phase_ = kOptimizationTransitions.step(phase_, next); }

// ---- Measuring ----

// All members begin the operation, and only the Begin of the first member counts. The time of a
// large all-reduce depends on its bytes on the wire.
void Optimization::note(PeerId peer, const protocol::OpInfo& info, uint32_t one_shot_bytes) {
  if (info.kind != protocol::OpKind::kAllReduce || membership_.members().front() != peer) return;
  const auto elements = static_cast<double>(info.count);
  const uint64_t width = element_bytes(info.dtype);
  if (elements * static_cast<double>(width) > one_shot_bytes)
    sizes_.note(elements * bits_on_wire(info.format, width) / 8);
}

void Optimization::begin(Duration budget, uint64_t max_bytes) {
  PCCL_ASSERT(idle());
  enter(Phase::kWaiting);
  budget_ = budget;
  max_bytes_ = max_bytes;
  not_adopted_.clear();
  if (std::exchange(interrupted_, false)) {
    tournament_.resume(membership_.members());
  } else {
    tournament_.begin(membership_.members(), budget, max_bytes);
  }
}

void Optimization::measure(const protocol::EpochStart& now) {
  PCCL_ASSERT(waits());
  PCCL_ASSERT(now.members.size() == membership_.members().size());
  began_in_ = now.epoch;
  begin_round();
  if (!tournament_.under_way()) plan();
}

void Optimization::begin_round() {
  const Links& links = membership_.links;
  const std::vector<PeerId>& members = membership_.members();
  const topology::Tournament::Known known{
      .rtt = [&](const Pair& pair) -> Duration {
        return std::chrono::microseconds(links.rtt(pair.low, pair.high));
      },
      .doubt =
          [&, doubts = std::optional<Doubts>()](const Pair& pair) mutable {
            if (!doubts) doubts.emplace(links, members);
            return std::max(doubts->of(pair.low, pair.high), doubts->of(pair.high, pair.low));
          }};
  const auto round = tournament_.next(known, context_.now);
  if (!round) return;
  if (phase_ != Phase::kMeasuring) enter(Phase::kMeasuring);
  const auto length =
      static_cast<uint32_t>(std::max<int64_t>(1, round->length / std::chrono::milliseconds(1)));
  for (const Pair& pair : round->pairs) {
    if (!links.linked(pair.low, pair.high)) {  // there is nothing to measure
      tournament_.report(pair.low, pair.high, false);
      tournament_.report(pair.high, pair.low, false);
      continue;
    }
    protocol::Probe probe{round->number, pair.high, length, round->bytes_max};
    connections_.send(pair.low, probe);
    probe.peer = pair.low;
    connections_.send(pair.high, probe);
  }
}

Status Optimization::on(PeerId peer, const protocol::ProbeReport& report) {
  if (report.peer == peer) return violation("ProbeReport of a peer about itself");
  if (report.bytes > 0 && report.milliseconds == 0)
    return violation("ProbeReport with bytes that took no time");
  if (!tournament_.expects(peer, report.peer, report.round)) return {};  // it comes too late
  const bool repeats = tournament_.repeats();
  tournament_.report(peer, report.peer, report.bytes > 0);
  if (report.bytes == 0) return {};
  const double rate = 1e3 * static_cast<double>(report.bytes) / report.milliseconds;
  const auto bounded = static_cast<uint64_t>(std::clamp(rate, 1.0, kRateMax));
  Links& links = membership_.links;
  if (repeats) {
    links.probed_again(report.peer, peer, bounded);
  } else {
    links.probed(report.peer, peer, {bounded, report.round});
  }
  return {};
}

// ---- Planning ----

topology::PlanQuestion Optimization::question() const {
  const std::vector<PeerId>& members = membership_.members();
  const Links& links = membership_.links;
  return question_of(guessed_network(links, members), links, members, wish(), sizes_.bytes());
}

void Optimization::plan() {
  enter(Phase::kPlanning);
  token_ = ++context_.tokens;
  plan_due_ = context_.now + kPlanningMax;
  question_ = std::make_shared<const topology::PlanQuestion>(question());
  if (membership_.members().size() > 1) context_.emit(PlanRing{group_, token_, question_});
}

bool Optimization::is_worth_it(const topology::PlanQuestion& question,
                               const protocol::EpochStart& now, const topology::Plan& found) {
  const double seconds = cautious_seconds(question.network, plan_of(now), question.bytes);
  const double next = cautious_seconds(question.network, found, question.bytes);
  const topology::Hysteresis::Subject subject{membership_.members(), question.bytes,
                                              missing_pairs().empty()};
  return hysteresis_.choose(subject, seconds, next, pause_of(now));
}

void Optimization::planned(uint64_t token, topology::Plan plan) {
  if (phase_ == Phase::kPlanning && token == token_) found_ = std::move(plan);
}

bool Optimization::advance(const protocol::EpochStart& now) {
  PCCL_ASSERT(phase_ == Phase::kMeasuring || phase_ == Phase::kPlanning);
  PCCL_ASSERT(now.epoch == began_in_);
  while (tournament_.end_if_over(context_.now)) begin_round();
  if (phase_ == Phase::kMeasuring && !tournament_.under_way()) plan();
  if (phase_ != Phase::kPlanning) return false;
  return found_ || context_.now >= plan_due_ || membership_.members().size() == 1;
}

bool Optimization::is_too_late() const {
  PCCL_ASSERT(phase_ == Phase::kPlanning);
  return !found_ && membership_.members().size() > 1;
}

std::optional<RoutePlan> Optimization::take_plan(const protocol::EpochStart& now) {
  PCCL_ASSERT(phase_ == Phase::kPlanning);
  before_ = 0;
  const std::vector<PeerId>& members = membership_.members();
  if (members.size() == 1) {
    not_adopted_ = "there is one member, so there is nothing to measure";
    return std::nullopt;
  }
  before_ = plan_seconds(question_->network, plan_of(now), topology::kGiB);
  PCCL_ASSERT(found_.has_value());
  const auto found = std::exchange(found_, std::nullopt);
  if (!is_worth_it(*question_, now, *found)) {
    if (*found != plan_of(now)) not_adopted_ = "no plan was found that is faster by enough";
    return std::nullopt;
  }
  planned_ = {members, *found};
  return planned_;
}

void Optimization::adopt() { enter(Phase::kAdopting); }

bool Optimization::can_plan_at_once(const protocol::EpochStart& now) const {
  const std::vector<PeerId>& members = membership_.members();
  return members.size() >= 3 && members.size() <= kPlannedAtOnce && ids(now.members) == members &&
         missing_pairs().empty();
}

std::optional<double> Optimization::best_share(const protocol::EpochStart& now) const {
  if (!can_plan_at_once(now)) return std::nullopt;
  const topology::PlanQuestion question = this->question();
  const double present = cautious_seconds(question.network, plan_of(now), question.bytes);
  if (!(present > 0)) return std::nullopt;
  return cautious_seconds(question.network, fastest_plan(question), question.bytes) / present;
}

std::optional<RoutePlan> Optimization::better_plan(const protocol::EpochStart& now) {
  if (!can_plan_at_once(now)) return std::nullopt;
  const topology::PlanQuestion question = this->question();
  const topology::Plan found = fastest_plan(question);
  if (!is_worth_it(question, now, found)) return std::nullopt;
  return RoutePlan{membership_.members(), found};
}

// The seconds that a change of the plan costs: the members freeze, and the lanes of new hops come
// up to their rate.
double Optimization::pause_of(const protocol::EpochStart& now) const {
  return 0.5 + 10e-6 * longest_rtt_in_mesh(membership_.links, ids(now.members));
}

// ---- The end ----

void Optimization::cancel() {
  tournament_.cancel();
  interrupted_ = false;
  found_.reset();
  question_.reset();
  if (!idle()) enter(Phase::kIdle);
}

void Optimization::interrupt() {
  if (!under_way()) return;
  cancel();
  interrupted_ = true;
}

void Optimization::lose(PeerId peer) { tournament_.forget(peer); }

// Returns the pairs whose rate is unknown in one direction or both.
std::vector<Pair> Optimization::missing_pairs() const {
  const Links& links = membership_.links;
  std::vector<Pair> missing;
  for (const auto& round : topology::round_robin(membership_.members())) {
    for (const Pair& pair : round) {
      const bool known = links.rate(pair.low, pair.high) > 0 && links.rate(pair.high, pair.low) > 0;
      if (!known) missing.push_back(pair);
    }
  }
  return missing;
}

protocol::TopologyPlan Optimization::result(const protocol::EpochStart& now) const {
  PCCL_ASSERT(phase_ == Phase::kPlanning || adopting());
  const std::vector<PeerId>& members = membership_.members();
  const Links& links = membership_.links;
  protocol::TopologyPlan result;
  result.epoch = now.epoch.value;
  const bool holds = planned_.members == members && planned_.plan == plan_of(now);
  result.adopted = adopting() && holds && now.epoch != began_in_;
  result.ring = now.ring;
  result.shares = now.shares;
  result.direct = now.direct;
  result.rates.reserve(members.size() * members.size());
  for (const PeerId from : members) {
    for (const PeerId to : members) result.rates.push_back(from == to ? 0 : links.rate(from, to));
  }
  if (members.size() > 1) {
    result.before_us = microseconds(before_);
    result.after_us =
        microseconds(plan_seconds(guessed_network(links, members), plan_of(now), topology::kGiB));
  }
  const auto& measured = tournament_.measured();
  result.measured = ranks_of({measured.begin(), measured.end()});
  result.missing = ranks_of(missing_pairs());
  result.note = what_was_not_measured();
  std::string why = not_adopted_;
  if (adopting() && !result.adopted)
    why = "the members or their links changed, so the plan was not adopted";
  if (!why.empty()) result.note += (result.note.empty() ? "" : "; ") + why;
  return result;
}

std::vector<protocol::RankPair> Optimization::ranks_of(const std::vector<Pair>& pairs) const {
  std::vector<protocol::RankPair> ranks;
  for (const Pair& pair : pairs) {
    const auto a = membership_.rank(pair.low), b = membership_.rank(pair.high);
    if (a && b) ranks.push_back({std::min(*a, *b), std::max(*a, *b)});
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string Optimization::pairs_text(const std::vector<Pair>& pairs) const {
  const auto ranks = ranks_of(pairs);
  std::string out;
  for (size_t index = 0; index < std::min(ranks.size(), kPairsNamedMax); ++index) {
    out += (index == 0 ? "" : ", ") + std::to_string(ranks[index].low) + "-" +
           std::to_string(ranks[index].high);
  }
  if (ranks.size() > kPairsNamedMax)
    out += " and " + std::to_string(ranks.size() - kPairsNamedMax) + " more";
  return out;
}

std::string Optimization::what_was_not_measured() const {
  if (membership_.members().size() == 1) return {};
  if (budget_ == Duration{0}) return "the budget is 0, so nothing was measured";
  std::string out;
  const std::set<Pair> failed = tournament_.failed();
  if (!failed.empty())
    out = "no rate came from the pairs of ranks " + pairs_text({failed.begin(), failed.end()});
  const std::vector<Pair> left = tournament_.left_over();
  if (!left.empty()) {
    const std::string pairs = count_text(left.size(), "pair");
    const bool time = tournament_.too_long() > Duration{0};
    out += (out.empty() ? "" : "; ") +
           (time ? "the budget of " + text(budget_) + " was too short for " + pairs +
                       ", whose next round takes " + text(tournament_.too_long())
                 : "max_bytes=" + std::to_string(max_bytes_) + " was too small for " + pairs) +
           ": the next call goes on with them";
  }
  return out;
}

std::optional<Instant> Optimization::deadline() const {
  if (phase_ == Phase::kMeasuring) return tournament_.deadline();
  if (phase_ == Phase::kPlanning) return plan_due_;
  return std::nullopt;
}

void Optimization::check() const {
  tournament_.check();
  PCCL_ASSERT(tournament_.under_way() == (phase_ == Phase::kMeasuring));
  PCCL_ASSERT(!found_);
  PCCL_ASSERT((phase_ == Phase::kPlanning || adopting()) == (question_ != nullptr));
  PCCL_ASSERT(!interrupted_ || idle());
}

}  // namespace pccl::master
