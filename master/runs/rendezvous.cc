#include "master/runs/rendezvous.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/text.h"
#include "csrc/base/transitions.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/reconfigure_handle.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

using protocol::ReconfigureHandle;
using protocol::Reject;
using MeetingPhase = Rendezvous::Phase;

// Reasons that are kept for peers that come late, per group.
constexpr size_t kReasonsMax = 16;

const Transitions<MeetingPhase, 4> kRendezvousTransitions(
    "a group's reconfigure", text,
    {{MeetingPhase::kIdle, MeetingPhase::kHosting,
      "the own process has called; its handle is the first",
      "Invite, for each other process; Admit, for each peer that waits with the same list"},
     {MeetingPhase::kIdle, MeetingPhase::kElsewhere,
      "the own process has called; another handle is the first",
      "Refuse and Fail, if a peer waits with another list"},
     {MeetingPhase::kHosting, MeetingPhase::kIdle, "the call has returned",
      "End, if the run has not begun"},
     {MeetingPhase::kElsewhere, MeetingPhase::kIdle, "the call has returned"}});

using Handles = std::vector<ReconfigureHandle>;

std::string name_of(uint32_t rank, const Handles& handles) {
  return "rank " + std::to_string(rank) + ", " + short_name(handles[rank]);
}

bool contains(const Handles& handles, const ReconfigureHandle& handle) {
  return std::find(handles.begin(), handles.end(), handle) != handles.end();
}

std::vector<std::string> groups_of(const Handles& handles) {
  std::vector<std::string> groups;
  for (const ReconfigureHandle& handle : handles) groups.push_back(handle.group);
  return groups;
}

// The first process that is in `a` and not in `b`; empty: there is none.
std::string first_beyond(const Handles& a, const Handles& b) {
  const auto at =
      std::find_if(a.begin(), a.end(), [&b](const auto& one) { return !contains(b, one); });
  return at == a.end() ? std::string() : short_name(*at);
}

// "its list has also 10.0.0.7:4000 (group 5f1c03)". REQUIRES: the lists differ.
std::string difference(const Handles& its, const Handles& ours) {
  const std::string more = first_beyond(its, ours), less = first_beyond(ours, its);
  if (more.empty() && less.empty()) return "its list has another order";
  std::string out;
  if (!more.empty()) out = "its list has also " + more;
  if (!less.empty()) out += (out.empty() ? "its list lacks " : ", and lacks ") + less;
  return out;
}

const std::string kRunPrefix = "reconfigure ";
const std::string kLost = ", was lost meanwhile";
const std::string kEnded = ", has ended its call: ";
const std::string kBusy = ", has called another reconfigure";
const std::string kAgain = "this peer has come again";
const std::string kGone = ": its process has ended, or its port cannot be reached from rank 0";
constexpr const char* kPresent = ": each reconfigure needs the present handles";
std::string called_meanwhile(int64_t uuid) {
  return ", has called reconfigure with uuid " + std::to_string(uuid) + " meanwhile";
}

std::string about(int64_t uuid) { return "reconfigure (uuid " + std::to_string(uuid) + "): "; }

std::string without_prefix(const Reject& why, int64_t uuid) {
  const std::string prefix = about(uuid);
  return why.text.starts_with(prefix) ? why.text.substr(prefix.size()) : why.text;
}

// Why nobody can meet with such a list; empty: it is well formed.
std::string fault_of(const protocol::Rendezvous& seen) {
  if (seen.handles.empty() || seen.rank >= seen.handles.size()) return "it is not in its own list";
  std::set<std::string> groups;
  for (const ReconfigureHandle& handle : seen.handles) {
    if (!groups.insert(handle.group).second) return "a group is twice in its list";
  }
  return {};
}

}  // namespace

const char* text(Rendezvous::Phase phase) {
  switch (phase) {
    case MeetingPhase::kIdle: return "idle";
    case MeetingPhase::kHosting: return "hosting";
    case MeetingPhase::kElsewhere: return "elsewhere";
  }
  return "unknown";
}

std::string Rendezvous::run_name(const std::string& group, int64_t uuid) {
  return kRunPrefix + group + " " + std::to_string(uuid);
}

bool Rendezvous::is_run_name(const std::string& run) { return run.starts_with(kRunPrefix); }

void Rendezvous::step(Group& group, Phase to) {
  group.phase = kRendezvousTransitions.step(group.phase, to);
}

// ---- The own process ----

void Rendezvous::open(const std::string& group) {
  const bool fresh = groups_.try_emplace(group).second;
  PCCL_ASSERT(fresh);
}

Rendezvous::Decisions Rendezvous::close(const std::string& name) {
  Decisions out;
  const auto at = groups_.find(name);
  PCCL_ASSERT(at != groups_.end());
  if (at->second.phase != Phase::kIdle)
    out = over(name, Reject{Code::kPeerLost, "its process has left the group"});
  const std::string why = "the process of " + name + " has left its group";
  for (const auto* const kept : {&at->second.waiting, &at->second.invitations}) {
    for (const auto& [connection, waits] : *kept)
      out.emplace_back(Refuse{connection, {Code::kPeerLost, about(waits.seen.uuid) + why}});
  }
  groups_.erase(at);
  return out;
}

Rendezvous::Decisions Rendezvous::call(const std::string& name, Call call) {
  Group& group = groups_.at(name);
  PCCL_ASSERT(call.rank < call.handles.size() && group.phase == Phase::kIdle);
  const bool fresh = call.rank > 0 || group.used.insert(call.uuid).second;
  PCCL_ASSERT(fresh);
  step(group, call.rank == 0 ? Phase::kHosting : Phase::kElsewhere);
  group.call = std::move(call);
  group.admitted.clear();
  group.regroups = may_regroup(group);
  group.invites_at.reset();
  group.invited.clear();
  group.lost.clear();
  group.has_begun = false;
  group.ended.reset();
  Decisions out;
  const Reject* const refused = reason(group, group.call.uuid, group.call.handles);
  if (refused != nullptr && group.phase == Phase::kHosting) {
    const Reject why = *refused;
    end(name, group, why.code, why.text, out);
  }
  if (gathers(group) && group.regroups) group.invites_at = group.call.since + kPatience;
  if (gathers(group) && !group.regroups) invite(name, group, out);
  look_again(name, group, out);
  return out;
}

// Whether the process hosts the call, and a run of which all listed processes are members.
bool Rendezvous::may_regroup(const Group& group) {
  const std::set<std::string> members(group.members.begin(), group.members.end());
  const Handles& handles = group.call.handles;
  return group.phase == Phase::kHosting &&
         std::all_of(handles.begin(), handles.end(),
                     [&](const auto& handle) { return members.contains(handle.group); });
}

void Rendezvous::invite(const std::string& name, Group& group, Decisions& out) {
  group.invites_at.reset();
  const Call& call = group.call;
  for (uint32_t rank = 0; rank < call.handles.size(); ++rank) {
    if (rank == call.rank) continue;
    group.invited.insert(rank);
    out.emplace_back(
        Invite{name, {call.uuid, call.handles, rank, {}, true}, call.until, call.silence});
  }
}

Rendezvous::Decisions Rendezvous::over(const std::string& name,
                                       const std::optional<Reject>& failed) {
  Group& group = groups_.at(name);
  PCCL_ASSERT(group.phase != Phase::kIdle);
  Decisions out;
  if (group.phase == Phase::kHosting) {
    const std::string why = failed ? kEnded + without_prefix(*failed, group.call.uuid) : kLost;
    end(name, group, Code::kPeerLost, name_of(0, group.call.handles) + why, out);
  }
  if (failed) answer_invitations(group, *failed, out);
  step(group, Phase::kIdle);
  ++group.generation;
  look_again(name, group, out);
  return out;
}

// The call of the own process has failed: whoever has invited it to this call need not wait for it.
void Rendezvous::answer_invitations(Group& group, const Reject& failed, Decisions& out) {
  const Call& call = group.call;
  const Reject why{Code::kPeerLost, about(call.uuid) + name_of(call.rank, call.handles) + kEnded +
                                        without_prefix(failed, call.uuid)};
  remember(group, {call.uuid, call.handles[call.rank], why});
  std::erase_if(group.invitations, [&](const auto& at) {
    if (at.second.seen.uuid != call.uuid) return false;
    out.emplace_back(Refuse{at.first, why});
    return true;
  });
}

// ---- Peers ----

Rendezvous::Decisions Rendezvous::arrive(ConnectionId connection, const protocol::Rendezvous& seen,
                                         Instant until) {
  Decisions out;
  const std::string fault = fault_of(seen);
  if (!fault.empty()) {
    out.emplace_back(Refuse{connection, {Code::kInvalidArgument, about(seen.uuid) + fault}});
    return out;
  }
  const uint32_t wanted = seen.invites ? seen.rank : 0;  // the process of this master
  const std::string& name = seen.handles[wanted].group;
  const auto at = groups_.find(name);
  if (at == groups_.end()) {
    out.emplace_back(Refuse{
        connection,
        {Code::kPeerLost, about(seen.uuid) + "the handle of " + name_of(wanted, seen.handles) +
                              ", is stale: its process was restarted, or has left the group"}});
  } else if (seen.invites) {
    hear(name, at->second, connection, {seen, until}, out);
  } else {
    meet(name, at->second, connection, {seen, until}, out);
  }
  return out;
}

// If the process takes the member for somebody else, a Hello proves who it is.
Rendezvous::Decisions Rendezvous::offer(ConnectionId connection, const std::string& run,
                                        uint32_t rank, const protocol::Rendezvous& seen,
                                        Instant until) {
  Decisions out;
  const auto at = fault_of(seen).empty() ? groups_.find(seen.handles[0].group) : groups_.end();
  const bool is_known = at != groups_.end() && at->second.run == run &&
                        rank < at->second.members.size() &&
                        at->second.members[rank] == seen.handles[seen.rank].group;
  if (is_known && !seen.invites) {
    meet(at->first, at->second, connection, {seen, until, run}, out);
  } else {
    out.emplace_back(SendToDoor{connection});
  }
  return out;
}

// An invitation to this group. It is kept until its master closes it, so that this master can
// answer when the call of the own process fails.
void Rendezvous::hear(const std::string& name, Group& group, ConnectionId connection,
                      Waiting waiting, Decisions& out) {
  const protocol::Rendezvous& seen = waiting.seen;
  const std::string who = name_of(seen.rank, seen.handles);
  const auto refuse = [&](Code code, const std::string& why) {
    out.emplace_back(Refuse{connection, {code, about(seen.uuid) + why}});
  };
  if (const Reject* const why = reason(group, seen.uuid, seen.handles))
    return refuse(why->code, without_prefix(*why, seen.uuid));
  if (seen.handles[seen.rank].generation != group.generation)
    return refuse(Code::kInvalidState, "the handle of " + who + ", was used before" + kPresent);
  if (group.phase != Phase::kIdle) {
    const Call& call = group.call;
    if (!contains(call.handles, seen.handles[0])) return refuse(Code::kMismatch, who + kBusy);
    if (call.uuid != seen.uuid) return refuse(Code::kMismatch, who + called_meanwhile(call.uuid));
    if (call.handles != seen.handles) {
      const std::string why =
          "the lists of the handles differ: " + who + ": " + difference(call.handles, seen.handles);
      end(name, group, Code::kMismatch, why, out);
      return refuse(Code::kMismatch, why);
    }
    if (group.ended) {
      out.emplace_back(Refuse{connection, *group.ended});
      return;
    }
  }
  // The own process has called this, or nothing yet.
  std::erase_if(group.invitations, [&](const auto& at) {
    const bool again = at.second.seen.handles[0] == seen.handles[0];
    if (again) out.emplace_back(Refuse{at.first, {Code::kPeerLost, about(seen.uuid) + kAgain}});
    return again;
  });
  if (group.phase == Phase::kIdle && group.invitations.size() >= protocol::kMembersMax)
    return refuse(Code::kInvalidState, "too many masters invite " + who);
  group.invitations[connection] = std::move(waiting);
}

// Why a peer cannot wait for a call, nor take part in the one that is under way.
std::optional<Reject> Rendezvous::refused(const Group& group, const protocol::Rendezvous& seen) {
  const bool is_present = group.phase != Phase::kIdle && group.call.uuid == seen.uuid;
  if (is_present && group.ended) return group.ended;
  if (const Reject* const why = reason(group, seen.uuid, seen.handles)) return *why;
  if (group.used.contains(seen.uuid) && (!is_present || group.has_begun)) {
    return Reject{Code::kInvalidState,
                  about(seen.uuid) + "the uuid was already used: each call needs a fresh one"};
  }
  if (seen.handles[0].generation != group.generation) {
    return Reject{Code::kInvalidState, about(seen.uuid) + "the handle of " +
                                           name_of(0, seen.handles) + ", was used before" +
                                           kPresent};
  }
  const bool full = group.waiting.size() >= protocol::kMembersMax;
  if (!is_present && full)
    return Reject{Code::kInvalidState, about(seen.uuid) + "too many peers wait for this process"};
  return std::nullopt;
}

void Rendezvous::meet(const std::string& name, Group& group, ConnectionId connection,
                      Waiting waiting, Decisions& out) {
  const protocol::Rendezvous& seen = waiting.seen;
  const bool is_present = group.phase != Phase::kIdle && group.call.uuid == seen.uuid;
  const ReconfigureHandle& sender = seen.handles[seen.rank];
  const bool listed = group.phase != Phase::kIdle && contains(group.call.handles, sender);
  const std::string who = name_of(seen.rank, seen.handles);
  if (!seen.refusal.empty()) {
    const Reject why{Code::kInvalidState, about(seen.uuid) + who + ", refuses it: " + seen.refusal};
    group.waiting.erase(connection);  // it has called this, and gives it up
    std::erase_if(group.offered, [&](const auto& one) { return one.second == connection; });
    if (is_present && listed && gathers(group))
      end(name, group, why.code, why.text, out);
    else if (!is_present && !group.used.contains(seen.uuid))
      remember(group, {seen.uuid, sender, why});
    out.emplace_back(Refuse{connection, why});
    return;
  }
  if (const auto why = refused(group, seen)) {
    out.emplace_back(Refuse{connection, *why});
    return;
  }
  if (!is_present) {
    if (gathers(group) && listed) {
      end(name, group, Code::kMismatch, who + called_meanwhile(seen.uuid), out);
    }
    wait(group, connection, std::move(waiting), out);
    return;
  }
  if (!listed) {
    const std::string why = about(seen.uuid) + name_of(0, seen.handles) + kBusy;
    out.emplace_back(Refuse{connection, {Code::kMismatch, why}});
    return;
  }
  if (seen.handles != group.call.handles) {
    const std::string why = "the lists of the handles differ: " + who + ": " +
                            difference(seen.handles, group.call.handles);
    end(name, group, Code::kMismatch, why, out);
    out.emplace_back(Refuse{connection, {Code::kMismatch, about(seen.uuid) + why}});
    return;
  }
  PCCL_ASSERT(group.phase == Phase::kHosting);  // the first in both lists is this process
  const bool is_member = !waiting.run.empty();
  if (is_member && (!group.regroups || waiting.run != group.run)) {
    out.emplace_back(SendToDoor{connection});
    return;
  }
  if (group.lost.contains(seen.rank) || has_come(group, seen.rank)) {
    end(name, group, Code::kPeerLost, who + ", has lost its connection and come again", out);
    out.emplace_back(Refuse{connection, *group.ended});
    return;
  }
  group.call.until = std::min(group.call.until, waiting.until);
  if (is_member) return take(group, seen.rank, connection, out);
  send_to_door(name, group, out);
  group.admitted[seen.rank] = connection;
  out.emplace_back(Admit{connection, run_name(name, seen.uuid)});
}

bool Rendezvous::has_come(const Group& group, uint32_t rank) {
  return group.admitted.contains(rank) || group.offered.contains(rank);
}

// From the last one on, the core of the run decides whether the call succeeds.
void Rendezvous::take(Group& group, uint32_t rank, ConnectionId connection, Decisions& out) {
  group.offered[rank] = connection;
  if (group.offered.size() < group.call.handles.size()) return;
  group.has_begun = true;
  group.invited.clear();
  out.emplace_back(Dismiss{group.call.handles[0].group});
  Regroup regroup{group.run, group.call.uuid, {}};
  for (const auto& [by_rank, offered] : group.offered) regroup.members.push_back(offered);
  group.offered.clear();
  group.regrouping = groups_of(group.call.handles);
  out.emplace_back(std::move(regroup));
}

// One process has come with a Hello: it is no member any more, so the call founds a run.
void Rendezvous::send_to_door(const std::string& name, Group& group, Decisions& out) {
  if (!std::exchange(group.regroups, false)) return;
  if (group.invites_at) invite(name, group, out);
  for (const auto& [rank, connection] : std::exchange(group.offered, {}))
    out.emplace_back(SendToDoor{connection});
}

// The same peer comes again: its earlier connection is of no use any more.
void Rendezvous::wait(Group& group, ConnectionId connection, Waiting waiting, Decisions& out) {
  const protocol::Rendezvous& seen = waiting.seen;
  std::erase_if(group.waiting, [&](const auto& at) {
    const protocol::Rendezvous& other = at.second.seen;
    const bool same = other.uuid == seen.uuid && other.rank == seen.rank &&
                      other.handles[other.rank] == seen.handles[seen.rank];
    if (same) {
      out.emplace_back(Refuse{at.first, {Code::kPeerLost, about(seen.uuid) + kAgain}});
    }
    return same;
  });
  group.waiting[connection] = std::move(waiting);
}

Rendezvous::Decisions Rendezvous::closed(ConnectionId connection) {
  Decisions out;
  for (auto& [name, group] : groups_) {
    if (group.waiting.erase(connection) + group.invitations.erase(connection) > 0) return out;
    for (auto* const come : {&group.admitted, &group.offered}) {
      const auto at = std::find_if(come->begin(), come->end(), [connection](const auto& one) {
        return one.second == connection;
      });
      if (at == come->end()) continue;
      const uint32_t rank = at->first;
      come->erase(at);
      lose(name, group, rank, out);
      return out;
    }
  }
  return out;
}

// A process that lives reports the reason: the own one by over(), others by their invitations.
void Rendezvous::lose(const std::string& name, Group& group, uint32_t rank, Decisions& out) {
  if (!gathers(group)) return;
  if (group.invites_at) invite(name, group, out);
  if (rank == group.call.rank || group.invited.contains(rank)) {
    group.lost.insert(rank);
  } else {
    end(name, group, Code::kPeerLost, name_of(rank, group.call.handles) + kLost, out);
  }
}

Rendezvous::Decisions Rendezvous::begun(const std::string& run) {
  Decisions out;
  for (auto& [name, group] : groups_) {
    if (!gathers(group) || run != run_name(name, group.call.uuid)) continue;
    group.has_begun = true;
    group.invited.clear();
    group.run = run;
    group.members = groups_of(group.call.handles);
    out.emplace_back(Dismiss{name});
  }
  return out;
}

void Rendezvous::regrouped(const std::string& run, bool begun) {
  for (auto& [name, group] : groups_) {
    if (group.run == run)
      group.members = begun ? std::exchange(group.regrouping, {}) : std::vector<std::string>();
  }
}

// ---- Invitations that this group has sent ----

bool Rendezvous::gathers(const Group& group) {
  return group.phase == Phase::kHosting && !group.has_begun && !group.ended;
}

Rendezvous::Decisions Rendezvous::declined(const std::string& name, uint32_t rank,
                                           const Reject& why) {
  Decisions out;
  const auto at = groups_.find(name);
  if (at == groups_.end() || !gathers(at->second)) return out;
  const Call& call = at->second.call;
  const bool named = why.text.starts_with(about(call.uuid));
  end(name, at->second, why.code,
      named ? why.text : name_of(rank, call.handles) + ", refuses it: " + why.text, out);
  return out;
}

// The connection of a peer that was let in shows whether it is still there.
Rendezvous::Decisions Rendezvous::unreachable(const std::string& name, uint32_t rank,
                                              const Status& why) {
  Decisions out;
  const auto at = groups_.find(name);
  if (at == groups_.end() || !gathers(at->second)) return out;
  Group& group = at->second;
  group.invited.erase(rank);
  if (has_come(group, rank)) return out;
  const bool came = group.lost.contains(rank);
  const std::string who = name_of(rank, group.call.handles);
  const std::string gone = why.code == Code::kSystem ? kGone : "";
  end(name, group, Code::kPeerLost,
      who + (came ? kLost : ", is not there (" + why.message + ")" + gone), out);
  return out;
}

// ---- Ends ----

void Rendezvous::remember(Group& group, Reason reason) {
  const auto known = [&reason](const Reason& one) {
    return one.uuid == reason.uuid && one.refuser == reason.refuser;
  };
  if (std::any_of(group.reasons.begin(), group.reasons.end(), known)) return;
  group.reasons.push_back(std::move(reason));
  if (group.reasons.size() > kReasonsMax) group.reasons.pop_front();
}

const Reject* Rendezvous::reason(const Group& group, int64_t uuid, const Handles& handles) {
  const auto speaks = [&](const Reason& one) {
    return one.uuid == uuid && (!one.refuser || contains(handles, *one.refuser));
  };
  const auto at = std::find_if(group.reasons.begin(), group.reasons.end(), speaks);
  return at == group.reasons.end() ? nullptr : &at->why;
}

// Nothing, if the call has begun or ended before.
void Rendezvous::end(const std::string& name, Group& group, Code code, const std::string& why,
                     Decisions& out) {
  PCCL_ASSERT(group.phase != Phase::kIdle);
  if (group.has_begun || group.ended) return;
  const int64_t uuid = group.call.uuid;
  const bool prefixed = why.starts_with(about(uuid));
  group.ended = Reject{code, prefixed ? why : about(uuid) + why};
  if (group.phase == Phase::kElsewhere) {
    out.emplace_back(Fail{name, *group.ended});
    return;
  }
  remember(group, {uuid, {}, *group.ended});
  group.invited.clear();
  for (const auto& [rank, connection] : std::exchange(group.offered, {}))
    out.emplace_back(Refuse{connection, *group.ended});
  out.emplace_back(Dismiss{name});
  out.emplace_back(End{run_name(name, uuid), *group.ended});
}

// What those who wait can do may have changed.
void Rendezvous::look_again(const std::string& name, Group& group, Decisions& out) {
  for (auto& [connection, waits] : std::exchange(group.waiting, {}))
    meet(name, group, connection, std::move(waits), out);
  for (auto& [connection, waits] : std::exchange(group.invitations, {}))
    hear(name, group, connection, std::move(waits), out);
}

Rendezvous::Decisions Rendezvous::expire(Instant now) {
  Decisions out;
  for (auto& [name, group] : groups_) {
    for (auto* const kept : {&group.waiting, &group.invitations}) {
      std::erase_if(*kept, [&](const auto& at) {
        const auto& [connection, waits] = at;
        if (waits.until > now) return false;
        const protocol::Rendezvous& seen = waits.seen;
        const std::string who = name_of(seen.invites ? seen.rank : 0, seen.handles);
        out.emplace_back(Refuse{
            connection,
            {Code::kOperationTimeout,
             about(seen.uuid) + "timed out: it waited for " + who + ", which has not called it"}});
        return true;
      });
    }
    if (gathers(group) && group.invites_at && *group.invites_at <= now) invite(name, group, out);
    if (!gathers(group) || group.call.until > now) continue;
    if (!group.lost.empty()) {
      end(name, group, Code::kPeerLost, name_of(*group.lost.begin(), group.call.handles) + kLost,
          out);
      continue;
    }
    std::vector<uint32_t> missing;
    RankNames names;
    for (uint32_t rank = 0; rank < group.call.handles.size(); ++rank) {
      names.push_back(short_name(group.call.handles[rank]));
      if (!has_come(group, rank)) missing.push_back(rank);
    }
    const std::string for_whom =
        missing.empty() ? "the links between its peers" : ranks_text(missing, names);
    end(name, group, Code::kOperationTimeout, "timed out: it waited for " + for_whom, out);
  }
  return out;
}

std::optional<Instant> Rendezvous::deadline() const {
  std::optional<Instant> first;
  const auto consider = [&first](Instant at) { first = first ? std::min(*first, at) : at; };
  for (const auto& [name, group] : groups_) {
    for (const auto& [connection, waits] : group.waiting) consider(waits.until);
    for (const auto& [connection, waits] : group.invitations) consider(waits.until);
    if (gathers(group)) consider(group.call.until);
    if (gathers(group) && group.invites_at) consider(*group.invites_at);
  }
  return first;
}

void Rendezvous::check() const {
  for (const auto& [name, group] : groups_) {
    PCCL_ASSERT(group.waiting.size() <= protocol::kMembersMax);
    PCCL_ASSERT(group.invitations.size() <= protocol::kMembersMax);
    PCCL_ASSERT(group.reasons.size() <= kReasonsMax);
    PCCL_ASSERT(gathers(group) || group.invited.empty());
    PCCL_ASSERT(!group.invites_at || group.invited.empty());
    if (group.phase == Phase::kIdle) continue;
    PCCL_ASSERT(group.phase == Phase::kElsewhere || group.used.contains(group.call.uuid));
    PCCL_ASSERT(!(group.has_begun && group.ended));
    PCCL_ASSERT(group.phase == Phase::kHosting || group.admitted.empty());
    PCCL_ASSERT(group.offered.empty() || (gathers(group) && group.regroups));
  }
}

}  // namespace pccl::master
