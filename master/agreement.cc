#include "master/agreement.h"

#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/transitions.h"
#include "csrc/protocol/limits.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

using AgreementPhase = Agreement::Phase;

const char* name_of(AgreementPhase phase) {
  switch (phase) {
    case AgreementPhase::kIdle: return "idle";
    case AgreementPhase::kFetching: return "fetching";
    case AgreementPhase::kRecording: return "recording";
  }
  return "unknown";
}

// A call that is refused, or changes nothing and needs no transfer, is answered without a step.
const Transitions<AgreementPhase, 5> kAgreementTransitions(
    "an agreement on shared state", name_of,
    {{AgreementPhase::kIdle, AgreementPhase::kRecording,
      "all have voted, nobody is stale, and the state is not the recorded one", "Persist"},
     {AgreementPhase::kIdle, AgreementPhase::kFetching, "all have voted, and some are stale",
      "SyncPlan"},
     {AgreementPhase::kFetching, AgreementPhase::kRecording,
      "all have fetched, and the state is not the recorded one", "Persist"},
     {AgreementPhase::kFetching, AgreementPhase::kIdle,
      "all have fetched the recorded state; one could not fetch; the call has ended in another way",
      "Answer"},
     {AgreementPhase::kRecording, AgreementPhase::kIdle, "durable",
      "Answer, if voters wait for it"}});

protocol::Answer refusal(const std::string& why) {
  protocol::Answer answer;
  answer.code = Code::kSharedState;
  answer.text = cut(why, protocol::kTextBytesMax);
  return answer;
}

}  // namespace

void Agreement::enter(Phase next) { phase_ = kAgreementTransitions.step(phase_, next); }

Agreement::Outcome Agreement::begin(const std::vector<OfferOf>& offers, uint32_t number) {
  PCCL_ASSERT(idle() && plans_.empty() && fetching_.empty());
  const Election election = elect(offers, recorded_);
  if (!election.refusal.empty()) return refusal(election.refusal);
  elected_ = election.agreed;
  if (election.transfers.empty()) return record();
  enter(Phase::kFetching);
  number_ = number;
  for (const OfferOf& one : offers) {
    protocol::SyncPlan plan = plan_for(one.peer, number, election);
    if (plan.transfers.empty()) continue;
    connections_.send(one.peer, plan);
    plans_[one.peer] = std::move(plan);
  }
  for (const protocol::Transfer& transfer : election.transfers) {
    PCCL_ASSERT(plans_.contains(transfer.source) && plans_.contains(transfer.destination));
    fetching_.insert(transfer.destination);
  }
  return std::nullopt;
}

Agreement::Outcome Agreement::fetched(PeerId peer, const protocol::Fetched& fetched) {
  const bool takes_part = plans_.contains(peer) && fetched.number == number_;
  if (phase_ != Phase::kFetching || !takes_part) return std::nullopt;
  if (fetched.code != Code::kOk) {
    cancel();
    return refusal(fetched.text);
  }
  fetching_.erase(peer);
  return fetching_.empty() ? record() : std::nullopt;
}

Agreement::Outcome Agreement::record() {
  PCCL_ASSERT(!recording() && fetching_.empty());
  PCCL_ASSERT(!recorded_ || elected_.revision >= recorded_->revision);
  plans_.clear();
  if (elected_ == recorded_) {
    if (!idle()) enter(Phase::kIdle);
    return agreed();
  }
  enter(Phase::kRecording);
  answers_ = true;
  token_ = context_.persist(SharedStateRecord{group_, elected_.revision, elected_.hash});
  return std::nullopt;
}

Agreement::Outcome Agreement::persisted(uint64_t token) {
  if (phase_ != Phase::kRecording || token != token_) return std::nullopt;
  PCCL_ASSERT(!recorded_ || elected_.revision == recorded_->revision + 1);
  enter(Phase::kIdle);
  recorded_ = elected_;
  return answers_ ? Outcome(agreed()) : std::nullopt;
}

protocol::Answer Agreement::agreed() const {
  PCCL_ASSERT(idle() && recorded_ == elected_);
  protocol::Answer answer;
  answer.revision = elected_.revision;
  answer.state_hash = elected_.hash;
  return answer;
}

void Agreement::cancel() {
  answers_ = false;
  if (phase_ != Phase::kFetching) return;
  enter(Phase::kIdle);
  plans_.clear();
  fetching_.clear();
}

std::optional<protocol::SyncPlan> Agreement::plan(PeerId peer) const {
  const auto at = plans_.find(peer);
  if (at == plans_.end()) return std::nullopt;
  PCCL_ASSERT(phase_ == Phase::kFetching && at->second.number == number_);
  return at->second;
}

void Agreement::check() const {
  const bool fetches = phase_ == Phase::kFetching;
  PCCL_ASSERT(fetches == !plans_.empty() && fetches == !fetching_.empty());
  for (const auto& [peer, plan] : plans_) {
    PCCL_ASSERT(plan.number == number_ && plan.revision == elected_.revision);
    PCCL_ASSERT(!plan.transfers.empty());
  }
  for (const PeerId peer : fetching_) PCCL_ASSERT(plans_.contains(peer));
  if (!recording()) return;
  const auto persisting = context_.persisting.find(token_);
  PCCL_ASSERT(persisting != context_.persisting.end() && persisting->second == group_);
  PCCL_ASSERT(!recorded_ || elected_.revision == recorded_->revision + 1);
}

}  // namespace pccl::master
