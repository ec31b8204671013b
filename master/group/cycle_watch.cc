#include "master/group/cycle_watch.h"

#include <algorithm>
#include <set>
#include <utility>

#include "csrc/base/assert.h"
#include "master/context.h"
#include "master/epochs/epochs.h"
#include "master/epochs/operation_waits.h"
#include "master/group/ballot.h"
#include "master/members/membership.h"

namespace pccl::master {

std::vector<OpKey> CycleWatch::Cycle::operations() const {
  std::vector<OpKey> all;
  for (const WaitLink& link : links) {
    if (const auto* op = std::get_if<OpKey>(&link.call)) all.push_back(*op);
  }
  return all;
}

void CycleWatch::told(PeerId member, const protocol::Blocked& report) {
  PCCL_ASSERT(view_.membership.is_member(member) && view_.membership.find(member)->connected);
  told_.erase(member);
  if (!report.ops.empty() || report.joint) told_.emplace(member, report);
  changed_ = true;
}

void CycleWatch::forget(PeerId member) {
  if (told_.erase(member) > 0) changed_ = true;
}

void CycleWatch::excuse_all() {
  for (Cycle& cycle : cycles_) cycle.since = view_.context.now;
}

// While a peer is pending, the members make this call to admit it, and what they have called before
// has an outcome then.
bool CycleWatch::joint_calls_count() const {
  return !view_.would_change() && !view_.epochs.changing() && !view_.epochs.losing();
}

// Nothing: the member may continue by itself.
std::optional<BlockedRank> CycleWatch::blocked(PeerId member,
                                               const protocol::Blocked& report) const {
  if (report.epoch != view_.present.number() || view_.membership.is_newcomer(member))
    return std::nullopt;
  BlockedRank one{*view_.membership.rank(member), {}};
  for (const OpKey op : report.ops) {
    auto missing = view_.present.waits().missing_in(member, op);
    if (!missing) return std::nullopt;
    one.waits.push_back({op, std::move(*missing)});
  }
  if (!report.joint) return one;
  if (!view_.waits_in_joint_call(member) || !joint_calls_count()) return std::nullopt;
  one.waits.push_back({view_.ballot.vote(member).kind, view_.ballot.missing()});
  return one;
}

std::vector<CycleWatch::Cycle> CycleWatch::find() const {
  std::vector<Cycle> all;
  if (view_.epochs.phase() != Epochs::Phase::kActive || view_.epochs.broken()) return all;
  std::set<uint32_t> with_threads, in_cycle;
  // First only members that cannot continue by themselves, then the others, too.
  for (const bool certain : {true, false}) {
    std::vector<BlockedRank> ranks;
    for (const auto& [member, report] : told_) {
      if (certain && !report.certain) continue;
      auto one = blocked(member, report);
      if (!one || in_cycle.contains(one->rank)) continue;
      if (report.threads) with_threads.insert(one->rank);
      ranks.push_back(std::move(*one));
    }
    for (WaitCycle& links : wait_cycles(ranks)) {
      Cycle cycle{{}, view_.context.now, certain};
      for (const WaitLink& link : links) {
        in_cycle.insert(link.rank);
        cycle.threads |= with_threads.contains(link.rank);
      }
      cycle.links = std::move(links);
      all.push_back(std::move(cycle));
    }
  }
  return all;
}

std::vector<CycleWatch::Cycle> CycleWatch::look() {
  const Instant now = view_.context.now;
  const std::optional<Instant> next = deadline();
  if (!changed_ && (!next || now < *next)) return {};
  changed_ = false;
  std::vector<Cycle> present = find();
  for (Cycle& cycle : present) {
    const auto before = std::find_if(cycles_.begin(), cycles_.end(), [&cycle](const Cycle& other) {
      return other.links == cycle.links && other.certain == cycle.certain;
    });
    if (before != cycles_.end()) cycle = *before;
  }
  cycles_ = std::move(present);
  std::vector<Cycle> due;
  for (Cycle& cycle : cycles_) {
    if (cycle.due || now < due_at(cycle)) continue;
    cycle.due = true;
    changed_ = true;  // the end of its operations frees its ranks
    due.push_back(cycle);
  }
  return due;
}

// Several threads can do more than a peer knows, and so can a member that is not certain.
Instant CycleWatch::due_at(const Cycle& cycle) const {
  const bool patient = cycle.threads || !cycle.certain;
  return cycle.since +
         std::max<Duration>(protocol::kCycleStandsFor,
                            patient ? view_.context.settings.peer_timeout : Duration{0});
}

std::optional<Instant> CycleWatch::deadline() const {
  std::optional<Instant> first;
  for (const Cycle& cycle : cycles_) {
    if (!cycle.due && (!first || due_at(cycle) < *first)) first = due_at(cycle);
  }
  return first;
}

void CycleWatch::check() const {
  for (const auto& [member, report] : told_) {
    PCCL_ASSERT(view_.membership.is_member(member) && view_.membership.find(member)->connected);
    PCCL_ASSERT(!report.ops.empty() || report.joint);
  }
  std::set<uint32_t> ranks;
  for (const Cycle& cycle : cycles_) {
    PCCL_ASSERT(cycle.links.size() > 1);
    for (const WaitLink& link : cycle.links) {
      const bool fresh = ranks.insert(link.rank).second;
      PCCL_ASSERT(fresh);
    }
  }
}

}  // namespace pccl::master
