// The options of LinkCore, the events that it takes and the effects that it asks for, all plain
// data. The shell carries out the effects in the order that step() appends them.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/endpoint.h"
#include "csrc/base/link_fault.h"
#include "csrc/base/status.h"
#include "csrc/link/lane_keys.h"
#include "csrc/protocol/frames.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/messages.h"

namespace pccl::link {

// A connection, or an attempt to make one.
struct ConnectionId {
  uint64_t value = 0;
  friend auto operator<=>(const ConnectionId&, const ConnectionId&) = default;
};

// The fields of a hello that describe this peer, and further values of the run from Welcome.
struct Identity {
  PeerId self;
  uint64_t run_id = 0;
  uint64_t machine = 0;                          // 0: unknown
  uint16_t version = protocol::kSpoken.highest;  // protocol version that the run speaks
  std::optional<AcceptingKey> accepting = {};    // none: the run is not secured
  Duration peer_timeout = protocol::kPeerTimeoutDefault;
};

// ---- Events ----
// The core keeps trying until the link is up. Connections with a serial number up to `dead_serial`
// are dead.
struct Dial {
  PeerId peer;
  std::vector<Endpoint> at;  // likeliest first; not empty
  uint32_t dead_serial = 0;
  // REQUIRES: present if and only if the run is secured.
  std::optional<protocol::LaneCredential> credential = {};
};
struct AcceptWith {  // the master was restarted and has made new keys
  AcceptingKey key;
};
struct Forget {  // ends the link of the peer, reports that, and stops dialling
  PeerId peer;
};
// A Connect succeeded. SendHello follows. If the run is secured, a handshake comes before the hello
// leaves. Failed follows if the handshake fails: the other end has not proven that it has the key.
struct Connected {
  ConnectionId lane;
};
struct Refused {  // a Connect failed: there is no connection
  ConnectionId lane;
  std::string why;
  LinkFault fault = LinkFault::kOther;
};
// Comes only if the run is secured. Another process has connected, and has shown a proof that it
// has the key of this identity. The proof may be a copy. Accepted follows when the proof is
// complete and the first frame is here; Failed follows if the connection ends before.
struct Proven {
  ConnectionId lane;  // from new_lane()
  protocol::LaneIntroduction shown;
};
struct HelloReceived {  // the first frame of a lane
  ConnectionId lane;
  // Empty if the frame was not a hello, or was the hello of the wrong side.
  std::optional<protocol::LaneHello> hello;
  Duration rtt{0};  // RTT as far as the system knows it by now
};
struct Accepted {       // another process has connected, and its first frame is here
  HelloReceived first;  // lane: from new_lane()
  std::string address;
  // The other end has proven that it has the key of this identity. REQUIRES: present if and only if
  // the run is secured.
  std::optional<protocol::LaneIntroduction> proven = {};
};
struct Failed {  // a connection has ended by itself
  ConnectionId lane;
  Status why;
  LinkFault fault = LinkFault::kOther;
};
struct PongReceived {
  ConnectionId lane;
  uint64_t number = 0;
};
// Shows whether the first large packets of a lane arrive.
struct Progress {
  ConnectionId lane;
  uint32_t segment = 0;  // maximum TCP segment size in bytes
  bool arrived = false;  // whether a full packet has arrived
};
// Comes after all input is drained, and only once however late it is.
struct Tick {
  std::vector<ConnectionId> received;  // lanes with input since the last Tick
  std::vector<Progress> progress;      // of the lanes that have sent large packets
};
struct Suspected {  // the engine has found that the other side violates a rule
  PeerId peer;
  std::string why;
};
struct NeighboursKnown {  // the peers that exchange chunks with this peer in a new epoch
  std::vector<PeerId> peers;
};
// Large transfers follow on this link: its initial lanes open, if this peer has dialled it.
struct LanesWanted {
  PeerId peer;
  // The rate of the path is to be measured. The link gets all lanes that it can have, so that their
  // number does not limit the rate.
  bool measured = false;
};
struct LanesLearnt {  // the number of lanes that pays on links to this peer
  PeerId peer;
  uint32_t lanes = 1;
};
struct TimePassed {};
using Event = std::variant<Dial, Forget, AcceptWith, Connected, Refused, Proven, HelloReceived,
                           Accepted, Failed, PongReceived, Tick, Suspected, NeighboursKnown,
                           LanesWanted, LanesLearnt, TimePassed>;

// ---- Effects, to be carried out in order ----
struct Connect {  // Connected or Refused follows, unless Close comes first
  ConnectionId lane;
  PeerId peer;
  Endpoint to;
  Duration timeout{0};
  uint32_t segment = 0;  // maximum TCP segment size in bytes; 0: the system decides
  std::optional<protocol::LaneCredential> credential = {};  // the lane is encrypted with its key
};
struct LimitAccepted {   // for connections accepted from now on
  uint32_t segment = 0;  // maximum TCP segment size in bytes; 0: the system decides
};
// The path drops large packets, but smaller ones arrive on this lane.
struct SmallerHelped {
  ConnectionId lane;
  uint32_t segment = 0;
};
struct NarrowPathGone {  // after SmallerHelped: this peer, at the end of that path, is forgotten
  PeerId peer;
};
// Sends a hello. As the answer to a Proven it leaves before Accepted, which saves the dialler a
// round trip.
struct SendHello {
  ConnectionId lane;
  bool answer = false;  // true: kHelloOk
  protocol::LaneHello hello;
};
struct SendPing {
  ConnectionId lane;
  uint64_t number = 0;
};
struct Close {
  ConnectionId lane;
};
struct LaneUp {  // from now on the engine reads and writes the lane's frames
  ConnectionId lane;
  PeerId peer;
  uint32_t serial = 0;
  bool further = false;
  bool same_machine = false;  // both ends are on one machine
  Duration rtt{0};            // RTT of the link
  bool wan = false;           // wan path: lanes may be inactive, and pace their sending
  uint32_t lanes_at_first = 1;
  bool lanes_fixed = false;
};
struct LinkDown {
  PeerId peer;
};
struct ReportLink {
  protocol::LinkReport what;
};
using Effect = std::variant<Connect, LimitAccepted, SendHello, SendPing, Close, LaneUp, LinkDown,
                            ReportLink, SmallerHelped, NarrowPathGone>;
using Effects = std::vector<Effect>;

struct Options {
  Duration wan_rtt_min = protocol::kWanRttMin;
  uint32_t lanes = 0;      // per link between neighbours; 0: as many as pay
  uint32_t lanes_max = 1;  // lanes of a link that the process can afford, with two neighbours
};

}  // namespace pccl::link
