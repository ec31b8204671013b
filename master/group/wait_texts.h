// WaitTexts: the sentences about members and newcomers that wait, for notices, errors and the log.
// The clauses about a single member come from last_call.h. notices.h decides who gets them, and
// when. Pure functions of a GroupView, and of the facts in awaited_calls.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "master/group/awaited_calls.h"
#include "master/group/group_view.h"
#include "master/group/wait_report.h"

namespace pccl::master {

class WaitTexts {
 public:
  explicit WaitTexts(const GroupView& view) : view_(view) {}

  // "rank 0 (tokyo-3), which has been in update_topology for 12 s; for rank 2, which ...".
  std::string missing(const std::vector<uint32_t>& ranks) const;
  // Returns why a registered peer is not admitted yet; empty without a delay. `last_obstacle`: the
  // obstacle of a peer that gave up before the group began; empty: none.
  std::string why_waiting(PeerId peer, Delay delay, const std::string& last_obstacle) const;
  // Returns why no newcomer can join this member; empty if there is no reason.
  std::string why_hindered(PeerId member) const;

 private:
  std::string why_members_are_awaited() const;
  std::string why_no_founding(const std::string& last_obstacle) const;
  std::string last_call_of(uint32_t rank) const;
  std::optional<PeerId> member_at(uint32_t rank) const;

  const GroupView& view_;
};

// "rank 2, which has been in ...; for peer group 1: rank 0, which ...". Empty if there are none.
std::string absent_text(const Groups& groups, const Group& own, const std::vector<Absent>& absent);

// The waits of the members of this group (awaited_calls.h), in words.
std::vector<Wait> described_waits(const Groups& groups, const Group& group);

}  // namespace pccl::master
