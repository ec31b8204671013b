// The options of MasterCore, the events that it takes and the effects that it asks for, all plain
// data. The shell carries out the effects in the order of step().
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/messages.h"
#include "master/runs/records.h"
#include "master/topology/plan.h"

namespace pccl::master {

// A control connection. The shell assigns the number and never reuses it.
struct ConnectionId {
  uint64_t value = 0;
  friend auto operator<=>(const ConnectionId&, const ConnectionId&) = default;
};

// ---- Events ----
struct Accepted {  // a new connection; its first message is in the Received that follows
  ConnectionId connection;
  std::string seen_host;              // numeric address of the peer
  bool seen_loopback = false;         // the connection came over loopback
  std::optional<Holder> holder = {};  // none: the master has no keyring
};
struct Revoked {  // these tokens are no longer valid
  std::set<std::string> tokens;
};
struct Received {
  ConnectionId connection;
  protocol::Message message;
};
struct Closed {
  ConnectionId connection;
  std::string why;
  bool refused = false;  // the shell has closed the connection because of bad or unread messages
};
struct Persisted {
  uint64_t token = 0;
};
// The answer to PlanRing.
struct RingPlanned {
  GroupId group;
  uint64_t token = 0;
  topology::Plan plan;
};
struct TimePassed {};
// The process wants to end, and the run ends with it. The core ends all epochs and calls, and asks
// the peers to confirm the messages that they have received. A repeated Draining asks the peers
// that were not asked yet. The core has sent Farewell when RunView::is_settled() returns true.
struct Draining {};
// The process that hosts the run wants to exit. RunView::may_exit() returns whether it may.
struct HostExits {
  Duration patience{0};
};
struct Ended {  // the shell ends the run; afterwards RunView::is_idle() is true
  std::string why;
};
// The shell has refused a peer that speaks no version that this master speaks. The name of its run
// is not understood then; this is the only run. Only the diagnosis of the run uses it.
struct TurnedAway {
  std::string seen_host;
  protocol::Reject reject;
};
struct Watched {};  // somebody has looked at the run
// The members on these connections have all called a reconfigure. The run goes on with them alone,
// in this order of their ranks. RegroupOver is the answer.
struct RegroupAgreed {
  int64_t uuid = 0;
  std::vector<ConnectionId> members;
};
using Event = std::variant<Accepted, Revoked, Received, Closed, Persisted, RingPlanned, TimePassed,
                           Draining, HostExits, Ended, TurnedAway, Watched, RegroupAgreed>;

// ---- Effects, to be performed in order ----
struct Send {
  ConnectionId connection;
  protocol::Message message;
};
// Closes the connection after all sent messages have left. No Closed event follows.
struct Close {
  ConnectionId connection;
};
struct Persist {
  uint64_t token = 0;
  Record record;
};
// The shell finds the fastest plan, and answers with RingPlanned. With many members this takes some
// seconds, and the core must not wait.
struct PlanRing {
  GroupId group;
  uint64_t token = 0;
  std::shared_ptr<const topology::PlanQuestion> question;
};
// The subject of a line of the log.
struct About {
  LogEvent event = LogEvent::kOther;
  std::optional<GroupId> group = {};  // none: the whole run
  std::string peer = {};              // by its name, as in a finding; empty: none, or several
};
struct Log {
  LogLevel level = LogLevel::kInfo;
  About about = {};
  std::string text;
};
// The answer to RegroupAgreed: their epoch has begun, or one of them was lost first, and the others
// have the reason.
struct RegroupOver {
  bool begun = false;
};
using Effect = std::variant<Send, Close, Persist, PlanRing, Log, RegroupOver>;
using Effects = std::vector<Effect>;

struct Options {
  std::string run;
  uint64_t run_id = 0;  // random
  uint32_t incarnation = 1;
  bool loopback_only = false;
  // At most this number of bytes is the part of a one-shot operation in a small group; see
  // EpochStart.
  uint32_t one_shot_bytes = protocol::kOneShotBytesMax;
  uint16_t version = protocol::kSpoken.highest;  // the protocol version that the run speaks
  // Random; the keys of all links follow from it. None: the run is not secured.
  std::optional<protocol::Key> seed = {};
  // Random, and the same after a restart: it authenticates the decisions of the masters of this run
  // (epochs/decision_mac.h).
  protocol::Key decisions = {};
  // Rank 0 hosts the run of a fixed world. With LossPolicy::kRaise, a member that leaves such a run
  // ends no epoch (PROTOCOL.md, section 4).
  bool fixed_world = false;
  // The shares of direct all-reduces, by rank. They apply in epochs with this number of members. In
  // other epochs the master chooses the shares.
  std::vector<uint16_t> shares = {};
};

}  // namespace pccl::master
