// AnnouncedBallots: ballots of other groups. Each of them was settled together with a ballot of
// this group before the master was started again (PROTOCOL.md, section 7). The members of this
// group report them. The master then settles such a ballot at once, without waiting for this group.
// Group owns one. Pure.
// Invariant: each ballot of a group stands here once, in order of arrival.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "csrc/protocol/messages.h"

namespace pccl::master {

class AnnouncedBallots {
 public:
  explicit AnnouncedBallots(GroupId own) : own_(own) {}

  // `together`: ballots that were settled together. One of them is this group's own; it is left
  // out. `pending`: the answer that they got to are_peers_pending; false for update_topology.
  void add(const std::vector<protocol::Settled>& together, bool pending);
  bool empty() const { return all_.empty(); }
  std::vector<GroupId> groups() const;
  // Returns the answer to the first ballot of `group` for which `is_open` returns true; nothing if
  // there is no such ballot.
  template <typename IsOpen>
  std::optional<bool> answer(GroupId group, const IsOpen& is_open) const {
    const auto of_group = all_.find(group);
    if (of_group == all_.end()) return std::nullopt;
    for (const Announced& one : of_group->second) {
      if (is_open(one.ballot)) return one.pending;
    }
    return std::nullopt;
  }
  // Asserts the invariant.
  void check() const;

 private:
  struct Announced {
    protocol::Settled ballot;
    bool pending = false;
    bool operator==(const Announced&) const = default;
  };

  const GroupId own_;
  std::map<GroupId, std::vector<Announced>> all_;
};

}  // namespace pccl::master
