#include "master/epochs/epoch_plan.h"

#include "csrc/base/assert.h"
#include "csrc/base/text.h"
#include "master/context.h"
#include "master/epochs/one_shot_limit.h"
#include "master/epochs/present_epoch.h"
#include "master/epochs/ring_order.h"
#include "master/epochs/verdict.h"
#include "master/members/membership.h"
#include "master/text_format.h"

namespace pccl::master {

namespace {

bool has_verdict(const PresentEpoch& present, OpKey op) {
  return present.announced().current.verdicts.contains(op);
}

}  // namespace

bool PlanBasis::continues() const {
  if (context.ends) return false;
  const bool enough = membership.members().size() >= quorum.min_peers;
  return losses.empty() ||
         (context.settings.on_peer_loss == protocol::LossPolicy::kRetry && enough);
}

protocol::EpochStart PlanBasis::start(protocol::EpochStart numbers,
                                      const std::vector<PeerId>& members,
                                      const RoutePlan* planned) const {
  protocol::EpochStart start = std::move(numbers);
  PCCL_ASSERT(start.epoch > present.number() && start.generation <= start.epoch);
  start.min_peers = quorum.min_peers;
  start.one_shot_bytes = one_shot_limit(members.size(), context.options.one_shot_bytes);
  for (const PeerId peer : members) {
    start.members.push_back(membership.member(peer));
    if (!membership.is_member(peer)) start.joined.push_back(peer);
  }
  start.left = ids(losses.members());
  PCCL_ASSERT(members.size() == membership.members().size() + start.joined.size());
  const RoutesBefore before{present.number() ? &present.start() : nullptr, planned};
  start.ring = ring_order(membership.links, members, before);
  set_routes(start, membership.links, {context.settings.pattern, context.options.shares}, before);
  return start;
}

std::map<OpKey, States> PlanBasis::states(const Reports& reports) const {
  const Operations& operations = present.operations();
  std::map<OpKey, States> states =
      states_of(reports, [&](OpKey op) { return operations.concerned(op, membership.members()); });
  std::erase_if(states, [this](const auto& at) { return has_verdict(present, at.first); });
  return states;
}

std::vector<Misfit> PlanBasis::liars(const Reports& reports) const {
  std::vector<Misfit> liars;
  for (const auto& [op, states] : states(reports)) {
    const std::vector<PeerId> some = contradicting(states);
    if (some.empty()) continue;
    const std::string why = present.operations().why_contradicting(op, states);
    for (const PeerId peer : some) liars.push_back({peer, why});
  }
  return liars;
}

protocol::EpochEnd PlanBasis::end(const Reports& reports, bool syncs) const {
  using protocol::Continuation;
  const std::vector<PeerId>& survivors = membership.members();
  PCCL_ASSERT(!survivors.empty() && reports.size() == survivors.size());
  const Operations& operations = present.operations();
  protocol::EpochEnd end{present.number(), named_losses(), {}, lost_text(), {}, {}};
  end.committed = decide(states(reports));
  end.kept = decide_kept(reports, end.committed, [&](OpKey op) {
    return operations.keeps(op) && !has_verdict(present, op);
  });
  const bool may_keep = survivors.size() >= quorum.min_peers && !context.ends;
  const bool may_continue = regroup.empty();
  if (may_continue && continues() && !present.is_kept()) {
    end.continuation = Continuation::kEverything;
  } else if (may_continue && (!end.kept.empty() || syncs) && may_keep) {
    end.continuation = Continuation::kKept;
  } else {
    end.continuation = Continuation::kNothing;
    end.kept.clear();
  }
  return end;
}

std::vector<protocol::Member> PlanBasis::named_losses() const {
  return context.ends ? std::vector<protocol::Member>() : losses.members();
}

std::string PlanBasis::lost_text() const {
  if (context.ends) return protocol::kFarewellText;
  if (losses.empty() && present.is_kept()) return end_status().message;  // no loss in this epoch
  if (losses.empty() && !regroup.empty()) return "the group is reconfigured";
  std::string out = losses.reasons();
  const size_t left = membership.members().size();
  if (left < quorum.min_peers) out += "; " + shortage_text(left, quorum.min_peers);
  return std::string(cut(out, protocol::kTextBytesMax));
}

Status PlanBasis::end_status() const {
  const Announced& announced = present.announced();
  if (!announced.current.end && !present.is_kept()) return {Code::kPeerLost, lost_text(), {}};
  const auto& end = (announced.current.end ? announced.current : announced.previous).end;
  PCCL_ASSERT(end.has_value());
  return {context.ends && end->lost.empty() ? Code::kMasterLost : Code::kPeerLost, end->text};
}

MembershipRecord PlanBasis::record(GroupId group, const EpochPlan& plan) const {
  Announced announced = present.announced();
  if (plan.end) announced.end(*plan.end);
  if (plan.start) announced.begin(*plan.start);
  MembershipRecord record{.group = group,
                          .settings = context.settings,
                          .founders = quorum.founders,
                          .min_peers = quorum.min_peers,
                          .previous = announced.previous.record(),
                          .current = announced.current.record(),
                          .start = announced.start,
                          .members = {}};
  for (const PeerId member : plan.start ? ids(plan.start->members) : membership.members())
    record.members.push_back(membership.record(member));
  PCCL_ASSERT(record.start.epoch == record.current.epoch);
  PCCL_ASSERT(record.members.size() <= record.start.members.size());
  return record;
}

}  // namespace pccl::master
