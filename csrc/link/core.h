// LinkCore opens the links of one peer to other peers, checks the hello of every connection,
// decides which of two simultaneous connections stays, opens further lanes, and finds dead links.
// It is pure: it has no socket, clock or thread. The data plane's shell owns it and drives it with
// sockets; the simulator drives it with simulated wires. Only `step` changes its state. `deadline`
// returns when the next step with TimePassed is due. The owner has a timer of its own for Tick.
//
// Typical events and effects:
//   dialling side:   Dial, Connect, Connected, SendHello, HelloReceived, LaneUp, Report up
//   accepting side:  Accepted, SendHello, LaneUp, Report up
//   the same, if the run is secured: Proven, SendHello, Accepted, LaneUp, Report up
//   neighbours:      the dialling side then opens the further lanes
// Invariants:
//   1. A peer has at most one link. LinkDown comes before another LaneUp that is not `further`.
//   2. The core never mentions a lane again after its Close. A lane that has ended by itself may
//      get a Close too, which does nothing.
//   3. A peer that is to be reached and has no link is being dialled, or waits for its turn, or a
//      retry is due. A peer that has a link is not dialled.
//   4. Each lane has exactly one place: an attempt to dial a peer, the crossing connection of such
//      an attempt, a lane of a link that is up, or a further lane that such a link opens. The place
//      determines the phase, the peer and the serial number of the lane.
//   5. The serial number of a link shows which side has dialled it. The serial number of an attempt
//      or of a crossing connection exceeds every serial number known to be dead.
//   6. At most one peer at a time is explored (its further addresses are tried), and an attempt to
//      reach it is under way.
//   7. Only a link that is up is checked for liveness.
//   8. The segments of accepted connections have the limit of the narrowest path.
//   9. If the run is secured, a link that is up has a credential. The credential names both ends
//      and the side that has dialled. Each lane of the link has proven it.
//  10. When a lane is silent for the whole timeout, its link goes down. So no lane that is up was
//      silent for the whole timeout.
//  11. A proof that may be a copy has only two effects: its connection may be answered, and fewer
//      further lanes are then still allowed. A copy of the proof of a first lane is refused as soon
//      as the original, or a later proof of the same dialler, was completed and followed by a valid
//      hello. A wrong hello uses up no serial numbers.
// Failures:
//   - If all addresses of a peer fail, it is reported as unreachable, and tried again until Forget.
//   - If the other end sends an invalid hello, or none in time, the connection is closed. If we
//     dialled it, the attempt has failed.
//   - If a lane fails or its keepalive timer expires, its link goes down and is reported. The core
//     does not dial it again by itself: the master decides.
//   - A second link of a peer is refused. The first link then gets a ping, and goes down if it does
//     not answer.
//   - If both sides dial at the same time, the peer with the higher id answers the other's
//     connection only after its own attempts have failed.
//   - If a path drops large packets, the next connections to that peer have smaller segments. If
//     those do not help, the peer counts as unreachable (narrow_paths.h).
//
// A peer can have several addresses (redial.h). All but the first are tried for one peer at a time,
// so that no other program can make this peer scan a network. A peer is reported only after all its
// addresses have failed; then they are tried again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/link/events.h"
#include "csrc/link/lane_counts.h"
#include "csrc/link/lane_state.h"
#include "csrc/link/narrow_paths.h"
#include "csrc/link/redial.h"
#include "csrc/link/serials.h"

namespace pccl::link {

class LinkCore {
 public:
  explicit LinkCore(const Options& options) : options_(options), counts_(options) {}
  void set_identity(const Identity& identity);  // REQUIRES: no event yet
  bool secured() const { return keys_.required(); }
  // The key of a dialler that shows this introduction; nullopt if it is refused. For the handshake
  // of a lane that the other end has dialled.
  std::optional<protocol::Key> key_of(const protocol::LaneIntroduction& shown) const;

  ConnectionId new_lane() { return {++lanes_made_}; }
  void step(const Event& event, Instant now, Effects& effects);
  // When a step with TimePassed is due, if no other event comes first.
  std::optional<Instant> deadline() const;
  Duration tick() const { return protocol::tick_of(identity_.peer_timeout); }
  // time between two Ticks
  Duration beat() const { return protocol::beat_of(identity_.peer_timeout); }

  // The credential of the link that is up; nullopt if there is none.
  std::optional<protocol::LaneCredential> credential_of(PeerId peer) const {
    const auto at = links_.find(peer);
    return at == links_.end() ? std::nullopt : at->second.credential;
  }

  // Further lanes that are being opened to this peer.
  size_t opening(PeerId peer) const {
    const auto at = links_.find(peer);
    return at == links_.end() ? 0 : at->second.opening.size();
  }

  // ---- For display ----
  struct Seen {
    uint32_t serial = 0;
    Duration rtt{0};
    std::vector<ConnectionId> lanes;
  };
  std::map<PeerId, Seen> links() const {
    std::map<PeerId, Seen> all;
    for (const auto& [peer, link] : links_) all[peer] = {link.serial, link.rtt, link.lanes};
    return all;
  }

  // Asserts the invariants. Without NDEBUG, step() calls it.
  void check() const;

 private:
  using Lane = LaneState;
  using Phase = LaneState::Phase;

  // The dialling of one peer.
  struct Dialling {
    explicit Dialling(Duration peer_timeout) : redial(peer_timeout) {}
    Redial redial;
    uint32_t dead_serial = 0;
    // the connection that the other side has dialled: its hello is here, our hello has not left
    std::optional<ConnectionId> crossing = {};
    std::optional<protocol::LaneCredential> credential = {};
  };
  struct Link {
    uint32_t serial = 0;
    Duration rtt{0};
    std::optional<Endpoint> dialled;  // where we dialled; none: the other side dialled
    std::vector<ConnectionId> lanes;  // lanes that are up, the first lane first; never empty
    std::set<ConnectionId> opening;
    std::optional<protocol::LaneCredential> credential;  // for further lanes
  };
  struct LivenessChecking {
    protocol::LivenessCheck state;
    Instant look;
  };

  void on(const Dial& event);
  void on(const Forget& event);
  void on(const AcceptWith& event) {
    PCCL_ASSERT(keys_.required());
    keys_.accept_with(event.key);
  }
  void on(const Connected& event);
  void on(const Refused& event) {
    if (lanes_.contains(event.lane)) ended(event.lane, event.why, event.fault);
  }
  void on(const Proven& event);
  void on(const Accepted& event);
  void on(const HelloReceived& event);
  void on(const Failed& event) {
    answered_early_.erase(event.lane);
    if (lanes_.contains(event.lane)) ended(event.lane, event.why.message, event.fault);
  }
  void on(const PongReceived& event);
  void on(const Tick& event);
  void on(const Suspected& event) { lost(event.peer, event.why); }
  void on(const NeighboursKnown& event);
  void on(const LanesWanted& event);
  void on(const LanesLearnt& event) { counts_.learnt(event.peer, event.lanes); }
  void on(const TimePassed&);

  template <typename E>
  void emit(E effect) {
    PCCL_DCHECK(effects_ != nullptr);  // only within a step
    effects_->emplace_back(std::move(effect));
  }
  void begin_pass(PeerId peer, const std::vector<Endpoint>& addresses);
  void continue_dial(PeerId peer);
  bool may_explore(PeerId peer, const Dialling& dial);
  void attempt(PeerId peer, Dialling& dial);
  void failed(const Lane& attempt, ConnectionId id, const std::string& why, LinkFault fault);
  void end_dial(PeerId peer);
  bool is_exploring(PeerId peer) const;  // true also while the peer waits for its turn
  void stop_exploring(PeerId peer);
  bool is_handshaking(const Dialling& dial) const;
  uint32_t dead_serial(PeerId peer) const;
  uint32_t last_serial(PeerId peer) const;
  void name(PeerId peer) {
    named_.insert(peer);
    std::erase(unnamed_, peer);
  }
  void note_unnamed(PeerId peer);
  std::optional<Instant> deadline(PeerId peer, const Dialling& dial) const;
  bool is_in_progress(ConnectionId attempt, uint32_t dead_serial) const;
  void ended(ConnectionId lane, const std::string& why, LinkFault fault);
  bool outranks(PeerId peer) const { return identity_.self > peer; }
  void on_valid_hello(ConnectionId id, const protocol::LaneHello& hello, Duration rtt);
  void on_hello_of_accepted(ConnectionId id);
  // How this peer treats a connection that another peer has dialled.
  enum class Choice : uint8_t {
    kRefuse,
    kCheckLink,  // refuse it, and find out whether the link that is up is alive
    kJoin,
    kJoinFurther,
    kWait,  // for the outcome of our own attempts
  };
  Choice choose(PeerId peer, uint32_t serial, bool further) const;
  void join(ConnectionId id);
  void join_further(ConnectionId id);
  void up(ConnectionId id, const Link& link);
  void add_lanes(PeerId peer);
  void open_lanes(PeerId peer, Link& link, size_t wanted);
  void report_up(PeerId peer, const Link& link);
  void drop(PeerId peer);
  void lost(PeerId peer, const std::string& why);
  void close(ConnectionId lane);
  void forget_lane(ConnectionId lane);
  void ping(ConnectionId id, uint64_t number = 0);
  void check_liveness(PeerId peer);
  void see(const Progress& progress);
  void weigh_progress(PeerId peer, const Link& link);
  void limit_accepted();
  Duration check_interval() const;
  void check(PeerId peer, const Link& link) const;
  void check_keys(PeerId peer, const Link& link) const;
  void check(PeerId peer, const Dialling& dial) const;
  void check_queues() const;
  std::optional<protocol::Key> key_of(const protocol::LaneIdentity& identity) const;
  void check_choices() const;
  void check_closed(const Effects& effects, size_t first) const;  // the Close effects of this step

  const Options options_;
  Identity identity_;
  LaneKeys keys_;
  Effects* effects_ = nullptr;  // effects of the current step
  Instant now_;                 // time of the current step
  uint64_t lanes_made_ = 0;
  Serials serials_;
  std::set<PeerId> named_;      // peers that the master has named, in a Dial or as neighbours
  std::deque<PeerId> unnamed_;  // other peers with a link, oldest first
  uint64_t checks_made_ = 0;
  std::map<ConnectionId, Lane> lanes_;
  std::map<PeerId, Dialling> dialling_;
  // peers with further addresses to try: the first peer is being tried, the others wait
  std::deque<PeerId> exploring_;
  std::map<PeerId, Endpoint> reached_;  // where a peer was reached last
  std::map<PeerId, Link> links_;
  // Connections that were answered after their Proven. Neither Accepted nor Failed has followed
  // yet.
  std::map<ConnectionId, protocol::LaneIntroduction> answered_early_;
  std::map<PeerId, LivenessChecking> checking_;  // only of links that are up
  LaneCounts counts_;
  NarrowPaths narrow_;
};

}  // namespace pccl::link
