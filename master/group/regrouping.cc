//   from        event                                             to
//   none        all listed members have called, and may           agreed     Verdicts; Kicked, to
//                                                                            the others
//   none        one of them cannot                                none       Regrouped
//   agreed      no operation is open                              none       EpochStart
//   agreed      a listed member is lost                           none       Regrouped

#include "master/group/regrouping.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "master/context.h"
#include "master/epochs/epochs.h"
#include "master/group/ballot.h"
#include "master/group/group_view.h"
#include "master/members/connections.h"
#include "master/members/membership.h"

namespace pccl::master {

std::vector<PeerId> Regrouping::agree(Regroup agreed) {
  PCCL_ASSERT(!agreed_);
  const std::string why = why_not(agreed);
  agreed_ = std::move(agreed);
  std::vector<PeerId> others;
  if (!why.empty()) {
    fail(why);
    return others;
  }
  present_.end_all(name());
  for (const PeerId member : view_.membership.members())
    if (!lists(member)) others.push_back(member);
  return others;
}

// Empty: all are members, and wait for nothing else.
std::string Regrouping::why_not(const Regroup& agreed) const {
  for (const PeerId peer : agreed.members) {
    if (!view_.membership.is_member(peer)) return "one of its processes was lost meanwhile";
    if (view_.ballot.has_voted(peer))
      return view_.membership.describe(peer) + " is in another joint call";
  }
  return {};
}

bool Regrouping::lists(PeerId peer) const {
  const auto& members = agreed_->members;
  return std::find(members.begin(), members.end(), peer) != members.end();
}

void Regrouping::begin() {
  if (agreed_) epochs_.regroup(agreed_->members);
}

void Regrouping::lose(PeerId peer, const std::string& why) {
  if (!agreed_ || !lists(peer)) return;
  epochs_.give_up_regroup();
  fail(why);
}

void Regrouping::begun() {
  if (agreed_) context_.emit(RegroupOver{true});
  agreed_.reset();
}

void Regrouping::fail(const std::string& why) {
  const std::string text = name() + ": " + why;
  for (const PeerId member : agreed_->members) {
    if (view_.membership.is_member(member))
      connections_.send(member, protocol::Regrouped{agreed_->uuid, Code::kPeerLost, text});
  }
  agreed_.reset();
  context_.emit(RegroupOver{false});
}

void Regrouping::check() const {
  if (!agreed_) return;
  PCCL_ASSERT(epochs_.changing() && !view_.ballot.kind());
  for (const PeerId peer : agreed_->members) PCCL_ASSERT(view_.membership.is_member(peer));
}

}  // namespace pccl::master
