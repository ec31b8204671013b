//   from        event                        to
//   none        called                       voted        Vote
//   voted       timeout, given up            voted        JointAbort
//   voted       Answer, EpochStart           settled
//   none        called with a rendezvous     announced    Regroup
//   announced   given up                     announced    Regroup, with a refusal
//   announced   Regrouped, EpochStart        settled
//   settled     borrowed tensors drained     none         FinishJoint   (usually immediately)

#include "csrc/peer/joint.h"

#include <algorithm>

#include "csrc/peer/joining.h"

namespace pccl::peer {
namespace {

// The host of a reconfigure answers within the timeout of the call, and this time.
constexpr Duration kAnswerMax = std::chrono::seconds(1);

}  // namespace

FinishJoint refused(const JointCalled& call, const Status& why) {
  FinishJoint end{.handle = call.handle, .status = why, .topology = {}, .install = {}};
  end.kind = call.kind;
  end.elsewhere = call.rendezvous.has_value();
  if (end.elsewhere) end.status = {};
  return end;
}

Status Joint::call(const JointCalled& call, bool may_vote) {
  PCCL_ASSERT(membership_.phase() == Phase::kMember);
  if (open_) {
    return {Code::kInvalidState,
            std::string(text(call.kind)) + ": another joint call of this process, " +
                text(open_->vote.kind) + ", is under way: wait for it first",
            {}};
  }
  protocol::Vote vote{next_, call.kind, call.offer, membership_.epoch()};
  if (!call.rendezvous) ++next_;
  vote.background = call.background;
  vote.budget_ms = call.budget_ms;
  vote.max_bytes = call.max_bytes;
  open_ = OpenCall{call.handle, call.timeout, std::move(vote), {},
                   false,       call.entries, call.rendezvous, {}};
  if (call.timeout > Duration{0}) open_->deadline = context_.after(call.timeout);
  if (call.rendezvous) open_->deadline = context_.after(call.timeout + kAnswerMax);
  if (may_vote) cast();
  PCCL_ASSERT(generation_ == membership_.generation());  // the number belongs to this generation
  return {};
}

Status Joint::host_lost(const std::string& why) const {
  return {Code::kMasterLost, peer::host_lost(*meets(), why).message, {}};
}

void Joint::cast() {
  if (!open_->rendezvous) return context_.send(open_->vote);
  open_->announced = true;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(open_->timeout).count();
  const auto shown = static_cast<uint32_t>(std::min<int64_t>(ms, UINT32_MAX));
  context_.send(protocol::Regroup{*open_->rendezvous, shown});
}

Status Joint::on(const protocol::Regrouped& answer) {
  if (meets() == nullptr || meets()->uuid != answer.uuid)
    return violation("Regrouped without a call of this uuid, " + std::to_string(answer.uuid));
  FinishJoint result;
  result.status = {answer.code, answer.text, {}};
  result.elsewhere = answer.code == Code::kOk;
  settle(std::move(result));
  return {};
}

Status Joint::check(const protocol::Answer& answer) const {
  if (waits_for(answer.kind) && !open_->rendezvous && answer.number == open_->vote.number)
    return {};
  return violation("Answer to " + std::string(text(answer.kind)) + " number " +
                   std::to_string(answer.number) + ", which is not open here");
}

void Joint::settle(FinishJoint result, const std::optional<protocol::Answer>& answer) {
  PCCL_ASSERT(open_ && !open_->result);
  if (answer) {
    PCCL_ASSERT(answer->number == open_->vote.number && answer->kind == open_->vote.kind);
    const bool others_wait_for_it =
        membership_.broken().ok() ||
        (answer->code != Code::kPeerLost && answer->kind != protocol::JointKind::kUpdateTopology);
    if (others_wait_for_it) last_answer_ = answer;
    agreed(answer->together, answer->pending);
  }
  result.handle = open_->handle;
  result.kind = open_->vote.kind;
  open_->result = std::move(result);
  open_->deadline.reset();
}

void Joint::finish() {
  PCCL_ASSERT(open_ && open_->result);
  context_.emit(std::move(*open_->result));
  open_.reset();
}

void Joint::begin_generation() {
  PCCL_ASSERT(!open_ || open_->result);
  PCCL_ASSERT(generation_ < membership_.generation());
  next_ = 0;
  generation_ = membership_.generation();
  last_answer_.reset();
}

void Joint::agreed(const std::vector<protocol::Settled>& together, bool pending) {
  if (together.empty()) return;
  together_ = together;
  pending_ = pending;
}

void Joint::describe(protocol::Resume& resume) const {
  resume.joint_answered = answered();
  resume.last_answer = last_answer_;
  resume.together = together_;
  resume.pending = pending_;
}

// Ignores a request about a different call: that call ended while the request was on its way.
Status Joint::list(const protocol::ListRequest& request) const {
  const bool waits = waits_for(protocol::JointKind::kSyncSharedState);
  if (waits && request.number == open_->vote.number) {
    const protocol::EntryList entries =
        open_->list.empty() ? protocol::EntryList(open_->entries()) : open_->list;
    context_.send(protocol::StateList{request.number, membership_.epoch(), entries});
  }
  return {};
}

void Joint::await(bool may_vote) {
  PCCL_ASSERT(open_);
  if (open_->result || !std::exchange(open_->vote.background, false)) return;
  if (may_vote) context_.send(open_->vote);
}

void Joint::give_up() {
  PCCL_ASSERT(open_);
  if (open_->given_up || open_->result) return;
  open_->given_up = true;
  if (open_->rendezvous) {
    open_->rendezvous->refusal = "it has given up the call";
    return cast();
  }
  open_->deadline.reset();
  context_.send(abort());
}

void Joint::on_time() {
  const bool may = open_ && open_->deadline && !open_->rendezvous;
  if (may && *open_->deadline <= context_.now) give_up();
}

std::optional<Instant> Joint::deadline() const {
  if (!open_) return std::nullopt;
  return open_->deadline;
}

void Joint::repeat() {
  if (!open_ || open_->result) return;
  PCCL_ASSERT(open_->vote.epoch <= membership_.epoch());
  open_->vote.epoch = membership_.epoch();
  if (!open_->announced) cast();
  if (open_->given_up && !open_->rendezvous) context_.send(abort());
}

void Joint::check() const {
  PCCL_ASSERT(generation_ == membership_.generation());
  PCCL_ASSERT(!last_answer_ || last_answer_->number < answered());
  if (!open_) return;
  PCCL_ASSERT(open_->result || open_->vote.number + (open_->rendezvous ? 0 : 1) == next_);
  PCCL_ASSERT(open_->vote.epoch && open_->vote.epoch <= membership_.epoch());
  PCCL_ASSERT(!open_->deadline || (!open_->result && (open_->rendezvous || !open_->given_up)));
  if (!open_->result) return;
  PCCL_ASSERT(open_->result->handle == open_->handle);
  PCCL_ASSERT(open_->result->kind == open_->vote.kind);
}

}  // namespace pccl::peer
