// RunView: the const side of a MasterCore. It has the facts about one run, for the parts that
// describe the run, and changes nothing. The facts about a group are in its GroupView
// (group/group_view.h), and the facts about waits in group/awaited_calls.h. The texts are apart:
// group/wait_texts.h makes sentences of these facts, and operator/control.h makes JSON.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "master/events.h"

namespace pccl::master {

class Connections;
class Group;
class Groups;
class HostExit;
class Telemetries;
struct Context;

struct RunView {
  const Context& context;
  const Connections& connections;
  const Groups& groups;
  const HostExit& exit;
  const Telemetries& telemetries;
  const bool& restored;  // some group was restored with members

  // No peer is connected or expected back: only the shared states of the run are left.
  bool is_idle() const;
  // Some group of the run has had members, before or after the last restart of the master.
  bool is_founded() const;
  // All verdicts and answers sent so far are confirmed as received. After Draining, all peers were
  // also dismissed, so an embedded master may end once its connections have closed.
  bool is_settled() const;
  // After HostExits: whether the process may exit.
  bool may_exit() const;
  // The group of this peer; null if it is in none.
  const Group* group_of(PeerId peer) const;
  // The rank of the member on this connection; nothing if there is none.
  std::optional<uint32_t> rank_of(ConnectionId connection) const;
  std::vector<SharedStateRecord> shared_states() const;  // the agreed states, by group
  // The number of peers that have proven these tokens.
  size_t count_holders(const std::set<std::string>& tokens) const;
  // The peers of all groups, each as the text of Membership::describe().
  std::vector<std::string> described_peers() const;
};

}  // namespace pccl::master
