#include "csrc/peer/blocking.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/peer/joint.h"
#include "csrc/peer/membership.h"
#include "csrc/peer/operations.h"

namespace pccl::peer {

void Blocking::called() {
  withdraw();
  if (!look_at_) look_at_ = context_.after(protocol::kBlockedAfter);
}

// A thread that waits for nothing known, or not for long, may make a call soon.
Blocking::Waits Blocking::waits_of(const WaitsSeen& seen, Instant now) {
  Waits waits;
  waits.threads = seen.threads.size() > 1 || !seen.all;
  waits.certain = seen.all && !seen.callbacks;
  for (const ThreadWait& one : seen.threads) {
    const bool blocks = one.handle != 0 && now - one.since >= protocol::kBlockedAfter;
    waits.certain = waits.certain && blocks && !one.bounded;
    if (!blocks) continue;
    if (one.handle == kInJointCall) {
      waits.joint = true;
    } else {
      waits.operations.insert(one.handle);
    }
  }
  return waits;
}

bool Blocking::calls_are_open() const {
  return operations_.in_flight() || joint_.open() != nullptr;
}

// If the vote is still to be cast again, the master does not count the report.
bool Blocking::waits_in_joint_call() const {
  const Joint::OpenCall* const open = joint_.open();
  return open != nullptr && !open->result && !open->given_up;
}

void Blocking::seen(const WaitsSeen& seen) {
  if (membership_.phase() != Phase::kMember || membership_.frozen()) return;
  const Waits waits = waits_of(seen, context_.now);
  protocol::Blocked report{membership_.epoch(), {}, waits.joint, waits.certain, waits.threads};
  bool known =
      seen.threads.size() <= protocol::kBlockedWaitsMax && (!waits.joint || waits_in_joint_call());
  for (const Handle handle : waits.operations) {
    const std::optional<OpKey> op = operations_.waiting(handle);
    known = known && op;
    if (op) report.ops.push_back(*op);
  }
  if (!waits.any() || !known) return withdraw();
  std::sort(report.ops.begin(), report.ops.end());
  if (report_ == report) return;
  report_ = std::move(report);
  context_.send(*report_);
}

void Blocking::update() {
  if (membership_.frozen() && !calls_are_open()) look_at_.reset();  // perhaps no epoch follows
  if (!report_) return;
  if (membership_.frozen() || report_->epoch != membership_.epoch()) {
    report_.reset();  // it is void
    return;
  }
  const bool waits = std::all_of(report_->ops.begin(), report_->ops.end(),
                                 [this](OpKey op) { return operations_.waits(op); });
  if (!waits || (report_->joint && !waits_in_joint_call())) withdraw();
}

void Blocking::withdraw() {
  if (!report_) return;
  context_.send(protocol::Blocked{report_->epoch, {}, false, false, false});
  report_.reset();
}

void Blocking::repeat() {
  if (report_) context_.send(*report_);
}

void Blocking::on_time() {
  if (!look_at_ || context_.now < *look_at_) return;
  look_at_.reset();
  if (!calls_are_open()) return;
  look_at_ = context_.after(kLookEvery);
  context_.emit(LookAtWaits{});
}

void Blocking::check() const {
  if (!report_) return;
  PCCL_ASSERT(report_->joint || !report_->ops.empty());
  PCCL_ASSERT(report_->epoch == membership_.epoch() && !membership_.frozen());
}

}  // namespace pccl::peer
