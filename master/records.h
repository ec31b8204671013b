// records: what must survive the master, as plain values: who the members of a group are and what
// they were told, and what their shared state was agreed to be. A core emits one to be made durable
// before anybody hears of what it says (DESIGN section 5), and begins from the last of each after a
// restart. Each replaces the one before it of its kind and group, so the journal may forget that.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "csrc/protocol/messages.h"

namespace pccl::master {

// What the members of one epoch were told of its operations; `verdicts` from `first_verdict` on.
struct EpochRecord {
  Epoch epoch;
  uint64_t first_verdict = 0;
  std::vector<protocol::Verdict> verdicts;
  std::optional<protocol::EpochEnd> end;
  bool operator==(const EpochRecord&) const = default;
};

struct MemberRecord {
  PeerId peer;
  std::string seen_host;
  bool seen_loopback = false;
  std::string host;
  uint16_t port = 0;
  uint64_t order = 0;  // of registration
  std::string launch;  // whose fixed world it is a rank of; empty: of none
  std::vector<Endpoint> others = {};
  bool operator==(const MemberRecord&) const = default;
};

// A group from here on: `current` is over (broken) when it has an end, and has begun when not. A
// member that lags by one epoch is told the end of `previous` and the start.
struct MembershipRecord {
  GroupId group;
  protocol::LossPolicy policy = protocol::LossPolicy::kRaise;
  uint32_t peer_timeout_ms = 0;
  uint32_t first_call_timeout_ms = 0;
  uint32_t founders = 1;
  uint32_t min_peers = 1;
  EpochRecord previous, current;
  protocol::EpochStart start;         // of the current one
  std::vector<MemberRecord> members;  // who is left; nobody: the group is to be founded again
  bool operator==(const MembershipRecord&) const = default;
};

struct SharedStateRecord {
  GroupId group;
  uint64_t revision = 0;
  uint64_t hash = 0;
  bool operator==(const SharedStateRecord&) const = default;
};

using Record = std::variant<MembershipRecord, SharedStateRecord>;

// Who they are, in the same order.
inline std::vector<PeerId> ids(const std::vector<protocol::Member>& members) {
  std::vector<PeerId> ids;
  ids.reserve(members.size());
  for (const protocol::Member& member : members) ids.push_back(member.peer);
  return ids;
}

// A run as its last records have it.
struct RunRecord {
  uint64_t run_id = 0;
  std::map<GroupId, MembershipRecord> memberships;
  std::map<GroupId, SharedStateRecord> shared_states;
  std::string origin = {};            // the network of the peer that opened it
  std::optional<int64_t> ended = {};  // by the system's clock, in seconds; none: it is under way
  uint16_t version = protocol::kSpoken.highest;  // of the protocol, that it speaks
  bool operator==(const RunRecord&) const = default;
};

}  // namespace pccl::master
