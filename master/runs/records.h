// records: the values that must survive the master: the members of a group, the verdicts that they
// have received, and the agreed shared state. A core has a record made durable before it sends the
// content of this record to any peer (docs/design.md, section 5). After a restart the core begins
// from the last record of each kind and group. A record replaces the earlier record of the same
// kind and group, so the journal may forget the older one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "csrc/protocol/messages.h"

namespace pccl::master {

// The verdicts that the members of one epoch have received, and its end if they have received that.
// `first_verdict`: the number of the first element of `verdicts`.
struct EpochRecord {
  Epoch epoch;
  uint64_t first_verdict = 0;
  std::vector<protocol::Verdict> verdicts;
  std::optional<protocol::EpochEnd> end;
  bool operator==(const EpochRecord&) const = default;
};

// The token that the other end of a connection has proven to have. A person or a machine may have
// several tokens of one name, so that one can replace another.
struct Holder {
  std::string token;  // its id
  std::string name;   // of the person or the machine
  bool operator==(const Holder&) const = default;
};

struct MemberRecord {
  PeerId peer;
  std::string seen_host;
  bool seen_loopback = false;
  std::string host;
  uint16_t port = 0;
  uint64_t order = 0;  // order of registration
  std::string launch;  // name of the fixed-world launch that the member is a rank of; empty: none
  std::vector<Endpoint> others = {};
  std::string name = {};  // for people
  // The token of the member's last connection before this record was made. None: the master had no
  // keyring.
  std::optional<Holder> holder = {};
  bool operator==(const MemberRecord&) const = default;
};

// The state of a group. If `current` has an end, it is over (broken); otherwise it is running. A
// member that lags by one epoch is sent the end of `previous` and the start of `current`.
struct MembershipRecord {
  GroupId group;
  protocol::RunSettings settings;  // of the run
  uint32_t founders = 1;
  uint32_t min_peers = 1;
  EpochRecord previous, current;
  protocol::EpochStart start;         // of the current epoch
  std::vector<MemberRecord> members;  // not the lost ones; empty: the group must be founded again
  bool operator==(const MembershipRecord&) const = default;
};

struct SharedStateRecord {
  GroupId group;
  uint64_t revision = 0;
  uint64_t hash = 0;
  bool operator==(const SharedStateRecord&) const = default;
};

using Record = std::variant<MembershipRecord, SharedStateRecord>;

// The ids of these members, in the same order.
inline std::vector<PeerId> ids(const std::vector<protocol::Member>& members) {
  std::vector<PeerId> ids;
  ids.reserve(members.size());
  for (const protocol::Member& member : members) ids.push_back(member.peer);
  return ids;
}

// A run, from its last records.
struct RunRecord {
  uint64_t run_id = 0;
  std::map<GroupId, MembershipRecord> memberships;
  std::map<GroupId, SharedStateRecord> shared_states;
  std::string origin = {};            // the network of the peer that opened it
  std::optional<int64_t> ended = {};  // seconds of the system clock; none: the run has not ended
  uint16_t version = protocol::kSpoken.highest;  // the protocol version that the run speaks
  protocol::Key decisions = {};                  // Options::decisions
  bool operator==(const RunRecord&) const = default;
};

}  // namespace pccl::master
