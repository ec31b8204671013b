// LinkDriver: the driver of a peer's links. It has the listener that other peers dial, the
// connections and their handshakes. Each thing that happens to a connection becomes an event of
// LinkCore. The LinkDriver carries out the effects of LinkCore at once. A lane that is up joins the
// LaneUser.
// It belongs to the peer loop, and so do all its methods and callbacks. Each method may be called
// from inside a callback; its consequences then follow after the current step.
// Normal sequence: listen; dial the peers that the master names; exchange hellos (kHello,
// kHelloOk); report the link up; dial further lanes to ring neighbours on a wan path; measure the
// rate of the lanes; deactivate lanes that bring nothing.
// Failures:
//  - A dial fails: it is reported and soon tried again, until Forget. A further lane is tried again
//    in the next epoch.
//  - A pending connection sends no valid hello: it is closed.
//  - A lane fails, or nothing is received on it for too long: its link is reported down. The core
//    does not dial it again by itself; the master decides.
//  - A peer opens a second link while its first one lives: the second link is refused. If the first
//    link does not answer a ping, the first link is given up.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/link/core.h"
#include "csrc/link/driver_events.h"
#include "csrc/link/path_monitor.h"
#include "csrc/link/port.h"
#include "csrc/link/shell/lane_connection.h"
#include "csrc/net/handshake_rate.h"
#include "csrc/net/loop_share.h"
#include "csrc/net/pending_connections.h"

namespace pccl::link {

class LinkDriver {
 public:
  struct Callbacks {
    std::function<void(DriverEvent)> on_event;
    std::function<void(const std::string&)> on_warning;  // for the log
  };
  // `loop` belongs to the owner, which ends the loop after this object. `user` outlives this
  // object.
  LinkDriver(DriverOptions options, Callbacks callbacks, net::LoopShare& loop, LaneUser& user);
  ~LinkDriver();

  // Opens the listener. Call it and accept_as() once, in any order, before any other method. An
  // empty host stands for all interfaces. The event Listening follows.
  void listen(const std::string& host);
  // Sets this peer's identity: links carry its `run_id` and `self`, and refuse others. Connections
  // that come before this call are not read until then. The driver sets `machine` itself.
  void accept_as(Identity identity);
  // Handles an event from the owner: Dial, Forget, AcceptWith, LanesWanted, Suspected.
  void step(const Event& event);
  // Sets the members next to this peer in the ring of a new epoch.
  void set_neighbours(std::vector<PeerId> neighbours);
  size_t opening(PeerId peer) const { return core_.opening(peer); }  // see LinkCore
  std::vector<LinkCounters> counters() const;

 private:
  // The lanes of a link that is up, oldest first.
  struct LaneSet {
    std::vector<ConnectionId> lanes;
    // There is no monitor on a local path within one machine. On a wan path, the monitor chooses
    // the active lanes.
    std::optional<PathMonitor> monitor;
    uint64_t rate = 0;  // the rate that was reported last
  };
  // A lane whose TLS handshake is not complete, and that this peer has dialled.
  struct Dialled {
    protocol::LaneCredential credential;
    std::optional<net::Socket> socket;  // kept here until SendHello
    protocol::LaneHello hello = {};
  };
  // The proof of an accepted connection that it has a key. Without TLS there is none.
  enum Proof : uint8_t { kNoProof, kPossibleCopy /* Tls::proven */, kComplete };
  // A connection that others have dialled. The core gets it with its first frame.
  struct Pending {
    std::string address;  // of the other end
    net::Socket socket;   // kept here until accept_as()
    Proof proof = kNoProof;
  };

  void accepted(net::Socket socket);
  void receive(ConnectionId id);
  net::Tls acceptor() const;
  void dialled(const Connect& connect, net::Socket socket);
  void shake_hands(const SendHello& send);
  void add_lane(ConnectionId id, net::Channel channel, bool dialled);
  void close_excess(size_t room);
  void advance(ConnectionId id, Proof proof);
  void proven(ConnectionId id);
  void established(ConnectionId id);
  void greeted(ConnectionId id, const std::optional<protocol::LaneHello>& hello);
  std::optional<std::string> forget_pending(ConnectionId id);
  void remove_lane(ConnectionId id);
  void on_tick();

  void perform(const Connect& connect);
  void perform(const LimitAccepted& limit) { listener_->limit_segment(limit.segment); }
  void perform(const SmallerHelped& helped);
  void perform(const NarrowPathGone& gone);
  void perform(const SendHello& send);
  void perform(const SendPing& ping);
  void perform(const Close& close);
  void perform(const LaneUp& up);
  void perform(const LinkDown& down);
  void perform(const ReportLink& report) { callbacks_.on_event(LinkChanged{report.what}); }
  void carry(LaneSet& link, LaneConnection& lane, const LaneUp& up);
  void interval_over(PeerId peer, LaneSet& link, bool wan);
  void limit_unsent(const LaneSet& link);

  const DriverOptions options_;
  const Callbacks callbacks_;
  const uint32_t lanes_max_;  // the largest number of lanes of a link
  net::LoopShare& loop_;
  LaneUser& user_;

  LinkCore core_;
  bool identified_ = false;
  std::deque<Event> waiting_;  // events that came during a step
  bool stepping_ = false;
  std::map<ConnectionId, std::unique_ptr<LaneConnection>> lanes_;
  std::map<PeerId, LaneSet> links_;
  std::vector<PeerId> neighbours_;
  std::vector<std::unique_ptr<LaneConnection>> deferred_;  // closed, perhaps still on the stack

  std::map<ConnectionId, Dialled> dialled_handshakes_;
  net::HandshakeRate handshakes_{callbacks_.on_warning};
  std::map<ConnectionId, Pending> pending_;
  // The limits of pending_, by proof: a flood of connections without a proof pushes out no others.
  std::vector<net::PendingConnections> limits_;

  std::map<ConnectionId, std::unique_ptr<net::Connector>> connectors_;
  std::unique_ptr<net::Listener> listener_;
  std::unique_ptr<net::Timer> ticks_, timer_;
};

}  // namespace pccl::link
