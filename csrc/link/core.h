// LinkCore: the life of the links of one peer: whom to dial, and when again; whether a hello is the
// right one; which of two connections stays; how many lanes a link has; and whether it lives. Pure
// (no socket, clock or thread): `step` is the only way its state changes, `deadline` the only way
// time gets in but for Tick. The data plane's shell drives it with sockets, the simulator with
// wires of its own.
// The happy path: Dial, Connect, Connected, SendHello, HelloReceived, LaneUp, Report up; on the
// other side: Accepted, HelloReceived, SendHello, LaneUp. To neighbours further lanes follow.
// What can go wrong: an attempt fails (reported, and tried again until Forget); the other end says
// a wrong hello, or none in time (closed, and if we have dialled, reported); a lane fails or is
// silent (its link is down: reported, and never dialled again by itself: the master decides). A
// second link of a peer is refused while the first one answers. When both sides dial at once, the
// higher id answers the other's connection only when its own attempts have failed.
// A peer may have several addresses. The likeliest is tried first and alone: the one that worked
// before, else the one that the master names first. When it has failed, or does not answer at once
// and is private, the others are tried, two at once, of one peer at a time: nobody can make this
// one scan a network. Only when all have failed the peer is reported, and then tried again. An
// address that worked before and now closes the connection is most likely still right: the peer
// checks the link that it has. Such a round ends at once, a few times in a row, and the other
// addresses cost no time.
// When a path drops large packets, the next connections to that peer have smaller segments, and if
// those do not help either, it counts as out of reach (segment_choice.h).
// Invariants: (1) a peer has at most one link; LinkDown comes before another LaneUp that is not
//                 `further`;
//             (2) the core speaks of a lane no more after its Close. One that has ended by itself
//                 may get a Close too, which does nothing;
//             (3) a peer that is to be reached and has no link is being dialled, or a retry is due.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/endpoint.h"
#include "csrc/base/link_fault.h"
#include "csrc/base/status.h"
#include "csrc/link/segment_choice.h"
#include "csrc/protocol/frames.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/silence.h"

namespace pccl::link {

// A connection, or an attempt at one.
struct ConnectionId {
  uint64_t value = 0;
  friend auto operator<=>(const ConnectionId&, const ConnectionId&) = default;
};

// How this peer introduces itself to others.
struct Identity {
  PeerId self;
  uint64_t run_id = 0;
  uint64_t machine = 0;                          // 0: unknown
  uint16_t version = protocol::kSpoken.highest;  // of the protocol, that the run speaks
};

// ---- Events ----
struct Dial {  // keep trying until the link is up; a connection up to `dead_serial` is dead
  PeerId peer;
  std::vector<Endpoint> at;  // the likeliest first; not empty
  uint32_t dead_serial = 0;
};
struct Forget {  // end its link, which is reported, and dial it no more
  PeerId peer;
};
struct Connected {  // of a Connect
  ConnectionId lane;
};
struct Refused {  // of a Connect: there is no connection
  ConnectionId lane;
  std::string why;
  LinkFault fault = LinkFault::kOther;
};
struct Accepted {     // somebody has connected to us: a stranger, until its hello
  ConnectionId lane;  // of new_lane()
  std::string address;
  size_t room = 1;  // so many strangers there may be, this one included
};
struct HelloReceived {  // the first frame of a lane
  ConnectionId lane;
  // Nothing: it was another frame, or a hello of the wrong side.
  std::optional<protocol::LaneHello> hello;
  Duration way{0};  // there and back, as far as the system knows by now
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
// What became of the first large packets of a lane.
struct Progress {
  ConnectionId lane;
  uint32_t segment = 0;  // of TCP, at most
  bool arrived = false;  // a full one; else none
};
struct Tick {                       // after all input is drained, once however late it is
  std::vector<ConnectionId> heard;  // since the last one
  std::vector<Progress> progress;   // of the lanes that have sent large packets
};
struct Suspected {  // the engine has found that the other side breaks a rule
  PeerId peer;
  std::string why;
};
struct NeighboursKnown {  // the peers that this one exchanges chunks with in a new epoch
  std::vector<PeerId> peers;
};
struct LanesLearnt {  // so many lanes of a link to this peer pay
  PeerId peer;
  uint32_t lanes = 1;
};
struct TimePassed {};
using Event = std::variant<Dial, Forget, Connected, Refused, Accepted, HelloReceived, Failed,
                           PongReceived, Tick, Suspected, NeighboursKnown, LanesLearnt, TimePassed>;

// ---- Effects, to be carried out in order ----
struct Connect {  // answered by Connected or Refused, unless Close comes before
  ConnectionId lane;
  PeerId peer;
  Endpoint to;
  Duration timeout{0};
  uint32_t segment = 0;  // of TCP, at most; 0: as the system likes
};
struct LimitAccepted {   // connections that others make from here on have such segments
  uint32_t segment = 0;  // 0: as the system likes
};
struct SmallerHelped {  // a narrow path: large packets did not arrive, on this lane smaller ones do
  ConnectionId lane;
  uint32_t segment = 0;
};
struct SendHello {
  ConnectionId lane;
  bool answer = false;  // kHelloOk
  protocol::LaneHello hello;
};
struct SendPing {
  ConnectionId lane;
  uint64_t number = 0;
};
struct Close {
  ConnectionId lane;
};
struct LaneUp {  // the engine reads and writes its frames from here on
  ConnectionId lane;
  PeerId peer;
  uint32_t serial = 0;
  bool further = false;
  bool local = false;  // both ends are on one machine
  Duration way{0};     // of the link
  bool far = false;    // it is long: lanes may rest, and pace themselves
  uint32_t lanes_at_first = 1;
  bool lanes_fixed = false;
};
struct LinkDown {
  PeerId peer;
};
struct Report {
  protocol::LinkReport what;
};
using Effect = std::variant<Connect, LimitAccepted, SendHello, SendPing, Close, LaneUp, LinkDown,
                            Report, SmallerHelped>;
using Effects = std::vector<Effect>;

struct Options {
  Duration peer_timeout = protocol::kPeerTimeoutDefault;
  Duration long_way = protocol::kLongWay;
  uint32_t lanes = 0;      // of a link between neighbours; 0: as many as pay
  uint32_t lanes_max = 1;  // that the process can afford
};

class LinkCore {
 public:
  explicit LinkCore(Options options) : options_(options) {}
  void be(const Identity& identity) { identity_ = identity; }  // before the first event

  ConnectionId new_lane() { return {++lanes_made_}; }
  void step(const Event& event, Instant now, Effects& effects);
  // When to step with TimePassed, if nothing else happens before.
  std::optional<Instant> deadline() const;
  Duration tick() const { return protocol::tick_of(options_.peer_timeout); }
  Duration beat() const { return protocol::beat_of(options_.peer_timeout); }  // between two Ticks

  // The states of a lane. The table in core.cc has its transitions.
  enum class Phase : uint8_t { kConnecting, kIntroducing, kUp, kGone };

  // ---- For whoever shows them ----
  struct Seen {
    uint32_t serial = 0;
    Duration way{0};
    std::vector<ConnectionId> lanes;
  };
  std::map<PeerId, Seen> links() const;

 private:
  struct Lane {
    Phase phase = Phase::kConnecting;
    bool dialled = false;
    PeerId peer;  // nobody: a stranger that has not said it yet
    uint32_t serial = 0;
    bool further = false;
    bool local = false;  // its other end is on this machine
    Duration way{0};
    Endpoint at;          // that was dialled
    std::string address;  // of the other end, for people
    Instant hello_by;
    protocol::Silence silence{protocol::kTicksPerLinkSilence};
    uint64_t last_pong = 0;
    std::optional<Progress> progress;  // when it was last looked at
    int stuck_beats = 0;               // since none of its large packets arrives
  };
  // A peer that we are to reach, in rounds: in each all of its addresses are tried, in their order.
  struct Dialling {
    std::vector<Endpoint> at;     // as we were told,
    std::vector<Endpoint> tried;  // and in the order of this round
    uint32_t dead_serial = 0;
    size_t begun = 0;                           // so many of them, in this round
    std::vector<ConnectionId> attempts = {};    // under way; two at most
    std::optional<ConnectionId> crossing = {};  // of the other side: introduced, not answered
    std::string why = {};                       // what has failed in this round
    LinkFault fault = LinkFault::kOther;        // of the address that the master has named first
    Instant more_at = {};                       // from then on the others are tried anyhow
    std::optional<Instant> retry = {};          // when the next round begins
    int closed_rounds = 0;                      // rounds that a known address has ended by closing
  };
  struct Link {
    uint32_t serial = 0;
    Duration way{0};
    std::optional<Endpoint> dialled;  // nothing: the other side has made it
    std::vector<ConnectionId> lanes;  // the first one first; never empty
    std::set<ConnectionId> opening;
  };
  struct Probing {
    protocol::Probe state;
    Instant look;
  };

  void on(const Dial& event);
  void on(const Forget& event);
  void on(const Connected& event);
  void on(const Refused& event);
  void on(const Accepted& event);
  void on(const HelloReceived& event);
  void on(const Failed& event);
  void on(const PongReceived& event);
  void on(const Tick& event);
  void on(const Suspected& event) { lost(event.peer, event.why); }
  void on(const NeighboursKnown& event);
  void on(const LanesLearnt& event) { learnt_[event.peer] = event.lanes; }
  void on(const TimePassed&);

  template <typename E>
  void emit(E effect) {
    effects_->emplace_back(std::move(effect));
  }
  void begin_round(PeerId peer);
  void go_on(PeerId peer);
  bool may_explore(PeerId peer, const Dialling& dial);
  void attempt(PeerId peer, Dialling& dial);
  void failed(const Lane& attempt, ConnectionId id, const std::string& why, LinkFault fault);
  void end_dial(PeerId peer);
  bool is_exploring(PeerId peer) const;  // or it waits for its turn
  void stop_exploring(PeerId peer);
  bool introduces(const Dialling& dial) const;
  bool closed_by_known_address(const Lane& attempt, LinkFault fault) const;
  bool tries_first_only(PeerId peer, const Dialling& dial) const;
  bool is_under_way(ConnectionId attempt, uint32_t dead_serial) const;
  void ended(ConnectionId lane, const std::string& why, LinkFault fault);
  Duration connect_timeout() const {
    return std::min(options_.peer_timeout / 2, protocol::kConnectTimeoutMax);
  }
  bool is_silent(const Lane& lane) const;
  bool outranks(PeerId peer) const { return identity_.self > peer; }
  protocol::LaneHello hello(const Lane& lane) const;
  std::string refusal(const Lane& lane, const std::optional<protocol::LaneHello>& hello) const;
  void introduced(ConnectionId id, const protocol::LaneHello& hello, Duration way);
  void introduced_by_stranger(ConnectionId id);
  void join(ConnectionId id);
  void join_further(ConnectionId id);
  void up(ConnectionId id, const Link& link);
  void widen(PeerId peer);
  uint32_t lanes_open(Duration way) const;
  uint32_t lanes_at_first(PeerId peer, Duration way) const;
  void report_up(PeerId peer, const Link& link);
  void drop(PeerId peer);
  void lost(PeerId peer, const std::string& why);
  void close(ConnectionId lane);
  void forget_lane(ConnectionId lane);
  void ping(ConnectionId id, uint64_t number = 0);
  void probe(PeerId peer);
  void see(const Progress& progress);
  void weigh_progress(PeerId peer, const Link& link);
  void limit_accepted();
  uint32_t segment(PeerId peer) const;
  bool hopeless(PeerId peer) const;
  Duration look_every() const;

  const Options options_;
  Identity identity_;
  Effects* effects_ = nullptr;  // of the step under way,
  Instant now_;                 // and its time
  uint64_t lanes_made_ = 0;
  uint32_t serials_ = 0;  // the last that we have given
  uint64_t probes_made_ = 0;
  std::map<ConnectionId, Lane> lanes_;
  std::map<PeerId, Dialling> dialling_;
  std::deque<PeerId> exploring_;  // whose further addresses are tried: the first one's; others wait
  std::map<PeerId, Endpoint> reached_;  // where a peer was reached last
  std::map<PeerId, Link> links_;
  std::deque<ConnectionId> strangers_;  // oldest first
  std::map<PeerId, Probing> probing_;   // only of links that are up
  std::vector<PeerId> neighbours_;
  std::map<PeerId, uint32_t> learnt_;       // how many lanes pay
  std::map<PeerId, SegmentChoice> narrow_;  // those with a link that ended without progress
  uint32_t accepted_segment_ = 0;           // as last said
};

using pccl::text;  // of durations and peers; this one would hide them
const char* text(LinkCore::Phase phase);

}  // namespace pccl::link
