// Notices: decides which peers of a group get a notice about their wait, and when (PROTOCOL.md,
// sections 2 and 8). It sends the texts of wait_texts.h to newcomers that are not admitted, to
// members that a newcomer cannot reach, and to members that wait for calls of others. Group owns
// one.
// Invariants:
// 1. A peer does not get the same text twice in a row.
// 2. A notice is remembered only for a peer that is here, and a hindered peer is a member.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "master/group/cycle_watch.h"
#include "master/group/group_view.h"
#include "master/group/wait_report.h"

namespace pccl::master {

class Notices {
 public:
  Notices(const GroupView& view, Context& context, Connections& connections, Membership& membership)
      : view_(view), context_(context), connections_(connections), membership_(membership) {}

  // ---- Why peers are not admitted ----
  void set_due() { due_ = true; }  // reasons may have changed
  // Sends each waiting newcomer and each affected member its reason, if the reason is new. Does
  // nothing unless set_due() was called since the last update().
  void update();
  // A newcomer was refused because it and members cannot reach each other. All members get `why`.
  void refused(const std::string& why);
  // The newcomer is taken out next, while it waits to be admitted. Remembers its obstacle.
  void gives_up(PeerId newcomer);

  // ---- What ends a reason ----
  void connected_again(PeerId peer) { last_.erase(peer); }  // it may have missed the last notice
  void forget(PeerId peer);
  // The update_topology of this member has succeeded.
  void updated(PeerId member);
  // An epoch has begun with the present members.
  void begun();
  // The open joint call has ended, and its callers know why.
  void answered() { short_of_peers_ = false; }

  // ---- Waits for calls of others (wait_report.h) ----
  void report(const std::vector<Wait>& waits);
  void ended(const Wait::Call& call);  // it has an outcome
  bool has_announced(const Wait& wait) const { return report_.has_announced(wait); }

  // Members wait for each other, and may go on by themselves. Those members get a warning.
  void warn_of(const CycleWatch::Cycle& cycle);

  // ---- Calls of the same shape at different lines (OpInfo::site) ----
  // The member has begun this operation. Both members learn once of each pair of lines.
  void called(PeerId member, OpKey op, const protocol::OpInfo& info);

  // The obstacle of a peer that gave up before the group began, for strangers; empty: none.
  const std::string& last_obstacle() const { return last_obstacle_; }

  // Asserts the invariants.
  void check() const;

 private:
  bool send(PeerId peer, std::string why);
  void update_member(PeerId member);
  void tell_of_newcomer(PeerId newcomer);
  void announce(const std::vector<WaitReport::Announcement>& all);

  const GroupView& view_;
  Context& context_;
  Connections& connections_;
  Membership& membership_;
  bool due_ = false;
  std::map<PeerId, std::string> last_;  // the last notice to each peer
  std::set<PeerId> announced_;          // newcomers that wait; the members got a notice about each
  std::set<PeerId> hindered_;           // members with a notice that a newcomer cannot be admitted
  // The obstacle of a peer that gave up before the group began: the text for strangers, and the
  // text for the log.
  std::string last_obstacle_, known_last_obstacle_;
  bool short_of_peers_ = false;  // the members got a notice that peers are missing
  WaitReport report_;
  static constexpr size_t kSitePairsMax = 256;                // further pairs are not reported
  std::set<std::pair<std::string, std::string>> site_pairs_;  // that were reported, each sorted
};

}  // namespace pccl::master
