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
#include "master/members/membership.h"

namespace pccl::master {

// Why a registered peer is not admitted yet: no reason without a delay.
struct NotAdmitted {
  std::string reason;
  std::string advice;        // of the text; may be empty
  std::string more;          // a further sentence; may be empty
  std::string text() const;  // all of it
};

class WaitTexts {
 public:
  explicit WaitTexts(const GroupView& view) : view_(view) {}

  // "rank 0 (tokyo-3), which has been in update_topology for 12 s; for rank 2, which ...".
  std::string missing(const std::vector<uint32_t>& ranks) const;
  // "has been in update_topology for 12 s". REQUIRES: a member.
  std::string activity(PeerId member) const;
  // Returns why a registered peer is not admitted yet; empty without a delay. `last_obstacle`: the
  // obstacle of a peer that gave up before the group began; empty: none.
  NotAdmitted why_waiting(PeerId peer, Delay delay, const std::string& last_obstacle,
                          Membership::Reader reader) const;
  // "tokyo-3 (...) is not admitted yet: why".
  std::string not_admitted(PeerId peer, const std::string& why) const;
  // Returns why no newcomer can join this member; empty if there is no reason.
  std::string why_hindered(PeerId member) const;
  // All members are away.
  std::string why_members_are_awaited() const;

  // The advice for the members, if a newcomer waits for their call.
  static constexpr const char* kCallUpdate = "all members have to call pccl.update_topology()";
  // "Start 2 more with the same master and run".
  static std::string start_more(size_t count);

 private:
  NotAdmitted why_no_founding(const std::string& last_obstacle) const;
  std::string last_call_of(uint32_t rank) const;
  std::optional<PeerId> member_at(uint32_t rank) const;

  const GroupView& view_;
};

// "rank 2, which has been in ...; for peer group 1: rank 0, which ...". Empty if there are none.
std::string absent_text(const Groups& groups, const Group& own, const std::vector<Absent>& absent);

// A wait of members of this group (awaited_calls.h), in words; and all of them.
Wait described(const Groups& groups, const Group& group, AwaitedCall call);
std::vector<Wait> described_waits(const Groups& groups, const Group& group);

}  // namespace pccl::master
