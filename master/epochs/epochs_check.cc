// Asserts the invariants of Epochs (epochs.h). The simulator calls it after every step.

#include "csrc/base/assert.h"
#include "master/epochs/epochs.h"

namespace pccl::master {

bool Epochs::is_founding() const {
  return phase_ == Phase::kFounding ||
         (phase_ == Phase::kStarting && came_from_ == Phase::kFounding);
}

void Epochs::check() const {
  check_members();
  check_phase();
  check_plan();
  check_reports();
}

void Epochs::check_members() const {
  const auto& members = membership_.members();
  PCCL_ASSERT(is_founding() == members.empty());
  const Epoch newest{(uint64_t{context_.options.incarnation} << 32) | context_.epochs};
  PCCL_ASSERT(present_.number() <= newest);
  PCCL_ASSERT(present_.start().members.size() == members.size() + losses_.size());
  for (const protocol::Member& lost : losses_.members())
    PCCL_ASSERT(!membership_.is_member(lost.peer));
}

void Epochs::check_phase() const {
  const bool ends = phase_ == Phase::kFreezing || phase_ == Phase::kEnding;
  const Announced& announced = present_.announced();
  PCCL_ASSERT(announced.freeze.has_value() == ends && freeze_sent_ == ends);
  if (ends) PCCL_ASSERT(announced.freeze->lost.size() <= losses_.size());
  if (phase_ == Phase::kFreezing) PCCL_ASSERT(announced.freeze->lost.size() == losses_.size());
  const bool starts_broken = phase_ == Phase::kStarting && came_from_ == Phase::kBroken;
  const bool over = announced.current.end.has_value();
  PCCL_ASSERT(recovering() || over == (phase_ == Phase::kBroken || starts_broken));
  if (phase_ == Phase::kDraining) PCCL_ASSERT(change_);
  if (phase_ == Phase::kStarting && plan_.start) PCCL_ASSERT(change_ == !is_founding());
  PCCL_ASSERT(order_.empty() || (change_ && order_.size() == membership_.members().size()));
  if (phase_ == Phase::kFounding) PCCL_ASSERT(!change_);
  PCCL_ASSERT(!context_.ends || (phase_ != Phase::kActive && phase_ != Phase::kDraining));
}

void Epochs::check_plan() const {
  if (phase_ != Phase::kStarting && phase_ != Phase::kEnding) return;
  const bool starts = phase_ == Phase::kStarting;
  const auto persisting = context_.persisting.find(plan_.token);
  PCCL_ASSERT(persisting != context_.persisting.end() && persisting->second == group_);
  PCCL_ASSERT(starts ? plan_.lost == losses_.size() : plan_.lost <= losses_.size());
  PCCL_ASSERT(plan_.end.has_value() == !starts &&
              (starts || plan_.end->epoch == present_.number()));
  const Phase from = came_from_;
  const bool may_start =
      from == Phase::kFounding || from == Phase::kDraining || from == Phase::kBroken;
  PCCL_ASSERT(starts ? may_start : from == Phase::kFreezing || from == Phase::kEnding);
  if (!plan_.start) return;
  const protocol::EpochStart& start = *plan_.start;
  PCCL_ASSERT(start.epoch > present_.number());
  PCCL_ASSERT(start.generation == (starts ? start.epoch : present_.start().generation));
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
    PCCL_ASSERT(!present_.announced().freeze || report.epoch == present_.number());
  }
  PCCL_ASSERT(phase_ != Phase::kEnding || reports_.size() == membership_.members().size());
  PCCL_ASSERT(recovering() || recovered_.empty());
  for (const auto& [peer, resume] : recovered_) {
    PCCL_ASSERT(membership_.is_member(peer) && membership_.find(peer)->connected);
  }
}

}  // namespace pccl::master
