// Asserts the invariants of Epochs (epochs.h). The simulator calls it after every step.

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"
#include "master/epochs/epochs.h"

namespace pccl::master {

bool Epochs::is_founding() const {
  return phase_ == Phase::kFounding ||
         (phase_ == Phase::kStarting && plan_.came_from == Phase::kFounding);
}

void Epochs::check() const {
  announced_.current.verdicts.check();
  announced_.previous.verdicts.check();
  operations_.check();
  PCCL_ASSERT(operations_.known_count() <= protocol::kOpsKnownMax);
  PCCL_ASSERT(operations_.open_count() + announced_.current.verdicts.kept().size() <=
              protocol::kVerdictsMax);
  check_members();
  check_phase();
  check_plan();
  check_reports();
}

void Epochs::check_members() const {
  const auto& members = membership_.members();
  const protocol::EpochStart& start = announced_.start;
  PCCL_ASSERT(is_founding() == members.empty() && is_founding() == !current());
  PCCL_ASSERT(start.epoch == current() && start.generation <= current());
  PCCL_ASSERT(!current() || announced_.previous.epoch < current());
  PCCL_ASSERT(start.generation == current() || start.generation <= announced_.previous.epoch);
  const Epoch newest{(uint64_t{context_.options.incarnation} << 32) | context_.epochs};
  PCCL_ASSERT(current() <= newest);
  PCCL_ASSERT(operations_.is_of(current(), start.members));
  PCCL_ASSERT(start.members.size() == members.size() + lost_.size());
  PCCL_ASSERT(announced_.current.verdicts.members() == members.size());
  for (const PeerId member : members) {
    PCCL_ASSERT(start.members.at(*membership_.rank(member)).peer == member);
    PCCL_ASSERT(announced_.current.verdicts.is_member(member));
  }
  for (const Lost& lost : lost_) PCCL_ASSERT(!membership_.is_member(lost.member.peer));
}

void Epochs::check_phase() const {
  const bool ends = phase_ == Phase::kFreezing || phase_ == Phase::kEnding;
  PCCL_ASSERT(announced_.freeze.has_value() == ends && freeze_sent_ == ends);
  if (ends) {
    PCCL_ASSERT(announced_.freeze->epoch == current());
    PCCL_ASSERT(announced_.freeze->lost.size() <= lost_.size());
  }
  if (phase_ == Phase::kFreezing) PCCL_ASSERT(announced_.freeze->lost.size() == lost_.size());
  const bool starts_broken = phase_ == Phase::kStarting && plan_.came_from == Phase::kBroken;
  const std::optional<protocol::EpochEnd>& end = announced_.current.end;
  PCCL_ASSERT(recovering() || end.has_value() == (phase_ == Phase::kBroken || starts_broken));
  PCCL_ASSERT(!end || end->epoch == current());
  if (phase_ == Phase::kDraining) PCCL_ASSERT(change_);
  if (phase_ == Phase::kStarting) PCCL_ASSERT(change_ == !is_founding());
  if (phase_ == Phase::kFounding) PCCL_ASSERT(!change_);
  PCCL_ASSERT(!context_.ends || (phase_ != Phase::kActive && phase_ != Phase::kDraining));
}

void Epochs::check_plan() const {
  if (phase_ != Phase::kStarting && phase_ != Phase::kEnding) return;
  const bool starts = phase_ == Phase::kStarting;
  const auto persisting = context_.persisting.find(plan_.token);
  PCCL_ASSERT(persisting != context_.persisting.end() && persisting->second == group_);
  PCCL_ASSERT(starts ? plan_.lost == lost_.size() : plan_.lost <= lost_.size());
  PCCL_ASSERT(plan_.end.has_value() == !starts && (starts || plan_.end->epoch == current()));
  const Phase from = plan_.came_from;
  const bool may_start =
      from == Phase::kFounding || from == Phase::kDraining || from == Phase::kBroken;
  PCCL_ASSERT(starts ? may_start : from == Phase::kFreezing || from == Phase::kEnding);
  if (!plan_.start) return;
  const protocol::EpochStart& start = *plan_.start;
  PCCL_ASSERT(start.epoch > current());
  PCCL_ASSERT(start.generation == (starts ? start.epoch : announced_.start.generation));
  if (!starts) return;
  PCCL_ASSERT(start.members.size() == membership_.members().size() + start.joined.size());
  for (const protocol::Member& member : start.members) {
    const Membership::Peer* const peer = membership_.find(member.peer);
    PCCL_ASSERT(peer != nullptr && peer->order != 0);
    PCCL_ASSERT(peer->connected || membership_.is_member(member.peer));
  }
}

void Epochs::check_reports() const {
  for (const auto& [peer, report] : reports_) {
    PCCL_ASSERT(membership_.is_member(peer));
    PCCL_ASSERT(!announced_.freeze || report.epoch == current());
  }
  PCCL_ASSERT(phase_ != Phase::kEnding || reports_.size() == membership_.members().size());
  PCCL_ASSERT(recovering() || recovered_.empty());
  for (const auto& [peer, resume] : recovered_) {
    PCCL_ASSERT(membership_.is_member(peer) && membership_.find(peer)->connected);
  }
}

}  // namespace pccl::master
