#include "master/state/agreement.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/transitions.h"
#include "csrc/protocol/limits.h"
#include "master/members/connections.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

using AgreementPhase = Agreement::Phase;

const char* name_of(AgreementPhase phase) {
  switch (phase) {
    case AgreementPhase::kIdle: return "idle";
    case AgreementPhase::kListing: return "listing";
    case AgreementPhase::kFetching: return "fetching";
    case AgreementPhase::kRecording: return "recording";
  }
  return "unknown";
}

// A call that is refused, or changes nothing and needs no transfer, is answered without a change of
// the phase.
const Transitions<AgreementPhase, 7> kAgreementTransitions(
    "an agreement on shared state", name_of,
    {{AgreementPhase::kIdle, AgreementPhase::kListing,
      "all have voted, and some lists of entries are not known", "ListRequest"},
     {AgreementPhase::kListing, AgreementPhase::kIdle,
      "all lists have come; the call has ended in another way, or is interrupted", ""},
     {AgreementPhase::kIdle, AgreementPhase::kRecording,
      "all have voted, nobody is stale, and the state is not the recorded one", "Persist"},
     {AgreementPhase::kIdle, AgreementPhase::kFetching, "all have voted, and some are stale",
      "SyncPlan"},
     {AgreementPhase::kFetching, AgreementPhase::kRecording,
      "all have fetched, and the state is not the recorded one", "Persist"},
     {AgreementPhase::kFetching, AgreementPhase::kIdle,
      "all have fetched the recorded state; one could not fetch; the call has ended in another "
      "way, "
      "or is interrupted",
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

// After an interruption, lists are needed even if all offers have the same digest: begin() compares
// the entries with those of the elected state.
bool Agreement::asks_for_lists(const std::vector<OfferOf>& offers, uint32_t number) {
  PCCL_ASSERT(idle());
  const std::vector<PeerId> peers = lists_.ask(offers, interrupted_.has_value());
  if (peers.empty()) return false;
  enter(Phase::kListing);
  number_ = number;
  for (const PeerId peer : peers) connections_.send(peer, protocol::ListRequest{number});
  return true;
}

std::string Agreement::on_list(PeerId peer, const protocol::StateList& list) {
  if (phase_ != Phase::kListing || list.number != number_ || !lists_.awaits(peer)) return {};
  std::string why = lists_.take(peer, list.entries);
  if (why.empty() && !lists_.awaits_any()) enter(Phase::kIdle);
  return why;
}

Agreement::Outcome Agreement::begin(const std::vector<OfferOf>& offers, uint32_t number) {
  PCCL_ASSERT(idle() && !plan_ && fetching_.empty());
  Election election = elect(offers, recorded_);
  if (const auto before = std::exchange(interrupted_, std::nullopt)) {
    const bool same = election.refusal.empty() && election.agreed == before->agreed;
    const bool falls =
        !election.refusal.empty() || election.agreed.revision < before->agreed.revision;
    // A member with this state may already know that it is the agreed one, and may have continued.
    const bool kept = has_state(offers, before->agreed);
    if (same || falls || kept) election = resumed(*before, offers);
  }
  if (!election.refusal.empty()) {
    lists_.forget();
    return refusal(election.refusal);
  }
  elected_ = election.agreed;
  drifts_.elected(offers, recorded_, election);
  if (election.receivers.empty()) return record();
  enter(Phase::kFetching);
  number_ = number;
  plan_ = plan_of(number, election);
  fetching_.insert(plan_->receivers.begin(), plan_->receivers.end());
  // Members that neither send nor fetch get the plan, too: it shows them that all have voted.
  for (const OfferOf& one : offers) connections_.send(one.peer, *plan_);
  election_ = std::move(election);
  return std::nullopt;
}

std::set<PeerId> Agreement::awaited() const {
  return phase_ == Phase::kListing ? lists_.awaited() : fetching_;
}

bool Agreement::expects(PeerId peer) const {
  const auto in = [peer](const std::vector<PeerId>& peers) {
    return std::find(peers.begin(), peers.end(), peer) != peers.end();
  };
  return plan_ && (in(plan_->sources) || in(plan_->receivers));
}

Agreement::Outcome Agreement::fetched(PeerId peer, const protocol::Fetched& fetched) {
  if (!expects(peer) || fetched.number != number_) return std::nullopt;
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
  plan_.reset();
  election_.reset();
  lists_.forget();
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
  context_.log_often({LogEvent::kStateAgreed, group_},
                     "shared state " + std::to_string(elected_.revision) + group_text(group_) +
                         " is agreed on: " + hash_text(elected_.hash));
  if (!answers_) return std::nullopt;
  for (std::string& warning : drifts_.agreed(group_))
    context_.log(LogLevel::kWarning, {LogEvent::kStatesDiffer, group_}, std::move(warning));
  return agreed();
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
  interrupted_.reset();
  lists_.forget();
  if (phase_ == Phase::kListing) enter(Phase::kIdle);
  if (phase_ != Phase::kFetching) return;
  enter(Phase::kIdle);
  plan_.reset();
  election_.reset();
  fetching_.clear();
}

void Agreement::interrupt(const std::string& gone) {
  std::optional<Election> election =
      phase_ == Phase::kFetching ? std::move(election_) : std::move(interrupted_);
  cancel();
  interrupted_ = std::move(election);
  if (interrupted_ && !gone.empty()) interrupted_->gone = gone;
}

void Agreement::check() const {
  const bool fetches = phase_ == Phase::kFetching;
  lists_.check();
  drifts_.check();
  PCCL_ASSERT((phase_ == Phase::kListing) == lists_.awaits_any());
  PCCL_ASSERT(fetches == plan_.has_value() && fetches == !fetching_.empty());
  PCCL_ASSERT(fetches == election_.has_value());
  if (plan_) PCCL_ASSERT(plan_->number == number_ && plan_->revision == elected_.revision);
  for (const PeerId peer : fetching_) PCCL_ASSERT(expects(peer));
  if (!recording()) return;
  const auto persisting = context_.persisting.find(token_);
  PCCL_ASSERT(persisting != context_.persisting.end() && persisting->second == group_);
  PCCL_ASSERT(!recorded_ || elected_.revision == recorded_->revision + 1);
}

}  // namespace pccl::master
