#include "master/run_view.h"

#include <algorithm>

#include "master/context.h"
#include "master/group/groups.h"
#include "master/runs/host_exit.h"

namespace pccl::master {

bool RunView::is_idle() const {
  const auto& all = groups.all();
  return connections.empty() && std::all_of(all.begin(), all.end(), [](const auto& at) {
           return at.second.view().is_deserted();
         });
}

bool RunView::is_founded() const { return restored || context.epochs > 0; }

bool RunView::is_settled() const {
  const auto& all = groups.all();
  return connections.confirmed() && std::all_of(all.begin(), all.end(), [](const auto& at) {
           return at.second.view().is_settled();
         });
}

bool RunView::may_exit() const { return exit.over(); }

const Group* RunView::group_of(PeerId peer) const {
  const auto at = context.group_of.find(peer);
  const Group* group = at == context.group_of.end() ? nullptr : groups.find(at->second);
  return group != nullptr && group->view().membership.find(peer) != nullptr ? group : nullptr;
}

std::optional<uint32_t> RunView::rank_of(ConnectionId connection) const {
  const Connections::Connection* const found = connections.find(connection);
  const Group* const group = found != nullptr && found->peer ? group_of(found->peer) : nullptr;
  return group == nullptr ? std::nullopt : group->view().membership.rank(found->peer);
}

std::vector<SharedStateRecord> RunView::shared_states() const {
  std::vector<SharedStateRecord> all;
  for (const auto& [id, group] : groups.all()) {
    const auto& recorded = group.view().agreement.recorded();
    if (recorded) all.push_back({id, recorded->revision, recorded->hash});
  }
  return all;
}

size_t RunView::count_holders(const std::set<std::string>& tokens) const {
  size_t count = 0;
  for (const auto& [id, group] : groups.all())
    count += group.view().membership.holders_of(tokens).size();
  return count;
}

std::vector<std::string> RunView::described_peers() const {
  std::vector<std::string> all;
  for (const auto& [id, group] : groups.all()) {
    for (const auto& [peer, about] : group.view().membership.peers())
      all.push_back(group.view().membership.describe(peer));
  }
  return all;
}

}  // namespace pccl::master
