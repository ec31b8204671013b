#include "master/group/announced_ballots.h"

#include <algorithm>

#include "csrc/base/assert.h"

namespace pccl::master {

void AnnouncedBallots::add(const std::vector<protocol::Settled>& together, bool pending) {
  for (const protocol::Settled& ballot : together) {
    if (ballot.group == own_) continue;
    const Announced announced{ballot, pending};
    std::vector<Announced>& of_group = all_[ballot.group];
    if (std::find(of_group.begin(), of_group.end(), announced) == of_group.end())
      of_group.push_back(announced);
  }
}

std::vector<GroupId> AnnouncedBallots::groups() const {
  std::vector<GroupId> ids;
  ids.reserve(all_.size());
  for (const auto& [group, announced] : all_) ids.push_back(group);
  return ids;
}

void AnnouncedBallots::check() const {
  for (const auto& [group, announced] : all_) {
    PCCL_ASSERT(group != own_ && !announced.empty());
    for (auto one = announced.begin(); one != announced.end(); ++one) {
      PCCL_ASSERT(one->ballot.group == group);
      PCCL_ASSERT(std::find(announced.begin(), one, *one) == one);
    }
  }
}

}  // namespace pccl::master
