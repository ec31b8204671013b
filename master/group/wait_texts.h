// WaitTexts: the sentences about members and newcomers that wait, for notices, errors and the log.
// The clauses about a single member come from last_call.h. notices.h decides who gets them, and
// when. Pure functions of a GroupView.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "master/group/group_view.h"
#include "master/group/wait_report.h"

namespace pccl::master {

class WaitTexts {
 public:
  // A newcomer waits because the members do not call update_topology.
  static constexpr const char* kNotCalled =
      "the members have not called update_topology since this peer can be reached";

  explicit WaitTexts(const GroupView& view) : view_(view) {}

  // "rank 0 (tokyo-3), which has been in update_topology for 12 s; for rank 2, which ...".
  std::string missing(const std::vector<uint32_t>& ranks) const;
  // The operations whose members wait for others.
  std::vector<Wait> operation_waits() const;
  // Why a registered peer is not admitted yet; empty if it has not waited long. `last_obstacle`: of
  // a peer that gave up before the group began; empty: none.
  std::string why_waiting(PeerId peer, const std::string& last_obstacle) const;
  // Why others cannot join this member; empty if there is no reason.
  std::string why_hindered(PeerId member) const;

 private:
  std::string why_members_are_awaited() const;
  std::string why_no_founding(const std::string& last_obstacle) const;
  std::string last_call_of(uint32_t rank) const;
  bool is_in_last_call(PeerId member) const;
  bool blocks(uint32_t rank) const;
  std::optional<PeerId> member_at(uint32_t rank) const;

  const GroupView& view_;
};

}  // namespace pccl::master
