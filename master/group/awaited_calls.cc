#include "master/group/awaited_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "master/epochs/operation_waits.h"
#include "master/group/groups.h"

namespace pccl::master {
namespace {

using protocol::JointKind;

std::vector<AwaitedCall> operations(const GroupView& view) {
  std::vector<AwaitedCall> all;
  const Epochs::Phase phase = view.epochs.phase();
  if (phase != Epochs::Phase::kActive && phase != Epochs::Phase::kDraining) return all;
  for (OperationWaits::Waiting& one : view.present.waits().all()) {
    AwaitedCall call{one.key, one.since, {}, {{view.id, std::move(one.missing)}}, one.is_facing};
    for (const PeerId peer : view.membership.members()) {
      const uint32_t rank = *view.membership.rank(peer);
      if (std::find(one.waiting.begin(), one.waiting.end(), rank) != one.waiting.end())
        call.waiting.push_back(peer);
    }
    all.push_back(std::move(call));
  }
  return all;
}

std::optional<AwaitedCall> joint_call(const Groups& groups, const Group& group) {
  const GroupView& view = group.view();
  const auto kind = view.ballot.kind();
  if (!kind || view.epochs.phase() == Epochs::Phase::kStarting) return std::nullopt;
  AwaitedCall call{*kind, {}, {}, {}};
  for (const PeerId member : view.membership.members()) {
    if (!view.ballot.has_voted(member) || !view.ballot.is_open(member, *kind)) continue;
    const Instant called = view.membership.find(member)->last_call.at;
    call.since = call.waiting.empty() ? called : std::min(call.since, called);
    call.waiting.push_back(member);
  }
  bool waits = true;
  if (view.epochs.changing()) {
    waits = !view.epochs.waits_for().empty();  // otherwise it waits for more peers
  } else if (is_of_all_groups(*kind)) {
    call.absent = absent_from(groups, *kind);
    waits = !call.absent.empty();
  } else if (!view.ballot.is_complete()) {
    call.absent = {{view.id, view.ballot.missing()}};
  } else {
    waits = !group.plan_call().waits_for().empty();
  }
  return waits ? std::optional(std::move(call)) : std::nullopt;
}

}  // namespace

std::vector<AwaitedCall> awaited_calls(const Groups& groups, const Group& group) {
  std::vector<AwaitedCall> all = operations(group.view());
  if (auto joint = joint_call(groups, group)) all.push_back(std::move(*joint));
  return all;
}

std::vector<Absent> absent_from(const Groups& groups, JointKind kind) {
  std::vector<Absent> all;
  for (const auto& [id, group] : groups.all()) {
    const GroupView& view = group.view();
    if (!view.has_members() || view.has_voted(kind)) continue;
    Absent absent{id, {}};
    for (const PeerId member : view.membership.members()) {
      const bool called = view.ballot.has_voted(member) && view.ballot.is_open(member, kind);
      if (!called) absent.ranks.push_back(*view.membership.rank(member));
    }
    all.push_back(std::move(absent));
  }
  return all;
}

}  // namespace pccl::master
