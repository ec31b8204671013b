// Connections: the control connections of one run: their peers, phases and keepalive timers. Every
// message to a peer is sent here. The MasterCore owns it. Other classes decide on membership, and
// on the consequences of a timeout or a closed connection.
// Invariants:
// 1. A peer has at most one connection.
// 2. check() refuses every message that the table in connections.cc does not allow in the phase of
//    its connection.
// 3. A connection is assigned to a peer if and only if its handshake is over, and the index of
//    peers then has this connection.
// 4. A peer confirms only pings that were sent. The answer to the next ping, at the latest,
//    confirms every message that is not confirmed yet.
// 5. No connection here was silent for the whole timeout.
// 6. A connection without a peer is sent nothing but a Reject.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/protocol/keepalive_timer.h"
#include "master/context.h"

namespace pccl::master {

enum class ConnectionPhase : uint8_t { kHandshaking, kWelcomed, kRegistered, kMember };
const char* text(ConnectionPhase phase);

class Connections {
 public:
  struct Connection {
    ConnectionPhase phase = ConnectionPhase::kHandshaking;
    PeerId peer;  // none before its Hello or Resume
    GroupId group;
    std::string seen_host;
    bool seen_loopback = false;
    std::optional<Holder> holder;
  };

  explicit Connections(Context& context) : context_(context) {}

  void accept(ConnectionId id, std::string seen_host, bool seen_loopback,
              std::optional<Holder> holder = {});
  // The connections without a peer that have proven one of these tokens.
  std::vector<ConnectionId> pending_with(const std::set<std::string>& tokens) const;
  // Null if it is not open.
  const Connection* find(ConnectionId id) const;
  bool connected(PeerId peer) const { return of_peer_.contains(peer); }
  ConnectionId of(PeerId peer) const;  // REQUIRES: connected
  bool empty() const { return open_.empty(); }

  // A message was received. kProtocol if it is not allowed in the phase of the connection.
  // REQUIRES: open.
  Status check(ConnectionId id, const protocol::Message& message);
  // A Pong confirms that everything sent before its Ping was received. kProtocol if no such Ping
  // was sent.
  Status confirm(ConnectionId id, uint64_t ping_counter);

  // Assigns this connection to the peer. Closes the earlier connection of the peer, if there is
  // one.
  void admit(ConnectionId id, PeerId peer, GroupId group, ConnectionPhase phase);
  void enter(PeerId peer,
             ConnectionPhase phase);  // REQUIRES: an allowed step; ignored if not connected

  // Sends a message. Does nothing if the peer is not connected: after its Resume it gets the missed
  // messages.
  void send(PeerId peer, protocol::Message message);
  void send(ConnectionId id, protocol::Message message);  // REQUIRES: open
  void close(ConnectionId id);                            // after all sent messages have left
  void close(PeerId peer);                                // likewise, if it is connected
  void forget(ConnectionId id);                           // the other side has closed it

  // A beat has passed (csrc/protocol/keepalive_timer.h). Pings each peer that was sent nothing for
  // a while, or that was sent a message that no ping has followed yet. Returns the connections that
  // have received nothing for the whole timeout.
  std::vector<ConnectionId> beat();
  // A live peer sends a message within this number of ticks, even if it is slow.
  static constexpr int kSilentTicks = 2 * protocol::kTicksPerPing;
  // Whether something was received from the peer in the last `ticks` ticks. This is so unless
  // something holds up the peer.
  bool received_lately(PeerId peer, int ticks = protocol::kTicksPerPing) const;
  // Returns the number of ticks since something was received. REQUIRES: connected.
  int silent_ticks(PeerId peer) const { return open_.at(of(peer)).keepalive.silent_ticks(); }
  // Sends at once each ping that the next beat() would send to get a confirmation.
  void request_confirmations();
  // All peers have confirmed every message that matters.
  bool confirmed() const;
  size_t assigned() const { return of_peer_.size(); }  // number of connected peers

  // Asserts the invariants. REQUIRES: the connections that beat() returned were closed.
  void check() const;

 private:
  struct State : Connection {
    protocol::KeepaliveTimer keepalive{protocol::kTicksPerTimeout};
    uint64_t ping_counter = 0;    // of the last Ping
    uint64_t pong_counter = 0;    // of the last Pong
    uint64_t confirmed_from = 0;  // counter of the Pong that confirms all sent messages
  };
  void say(ConnectionId id, State& state, protocol::Message message);
  void ping(ConnectionId id, State& state);

  Context& context_;
  std::map<ConnectionId, State> open_;
  std::map<PeerId, ConnectionId> of_peer_;
};

}  // namespace pccl::master
