// Connections: who is connected, how far its introduction has come, and for how long it has been
// silent. The only place from which something is said to a peer. Who is a member, and what a
// silence or an end means, is for others to decide. Invariants: a peer has at most one connection;
// a message the table in connections.cc does not allow in the phase of its connection goes no
// further than check().
#pragma once

#include <map>
#include <string>
#include <vector>

#include "csrc/protocol/silence.h"
#include "master/context.h"

namespace pccl::master {

// How far a connection has come.
enum class ConnectionPhase : uint8_t { kIntroducing, kWelcomed, kRegistered, kMember };
const char* text(ConnectionPhase phase);

class Connections {
 public:
  struct Connection {
    ConnectionPhase phase = ConnectionPhase::kIntroducing;
    PeerId peer;  // nobody while it introduces itself
    GroupId group;
    std::string seen_host;
    bool seen_loopback = false;
  };

  explicit Connections(Context& context) : context_(context) {}

  void accept(ConnectionId id, std::string seen_host, bool seen_loopback);
  // Null if it is not open.
  const Connection* find(ConnectionId id) const;
  bool connected(PeerId peer) const { return of_peer_.contains(peer); }
  ConnectionId of(PeerId peer) const { return of_peer_.at(peer); }  // REQUIRES: connected
  bool empty() const { return open_.empty(); }

  // Something was heard. kProtocol if it may not be said in this phase. REQUIRES: open.
  Status check(ConnectionId id, const protocol::Message& message);
  // Pongs confirm that everything said before their Ping has arrived. kProtocol if none was sent.
  Status confirm(ConnectionId id, uint64_t ping_counter);

  // From now on this connection is the peer's; another one it had is closed.
  void introduce(ConnectionId id, PeerId peer, GroupId group, ConnectionPhase phase);
  void enter(PeerId peer,
             ConnectionPhase phase);  // REQUIRES: forwards in order; ignored when not connected

  // Nothing while the peer is not connected: Resume makes up for it.
  void send(PeerId peer, protocol::Message message);
  void send(ConnectionId id, protocol::Message message);
  void close(ConnectionId id);   // after what was sent has left
  void close(PeerId peer);       // likewise, if it is connected
  void forget(ConnectionId id);  // it has closed by itself

  // A beat has passed (protocol/silence.h): pings who was not spoken to for a while, or has not
  // confirmed what it was told. Returns who has been silent for the whole timeout.
  std::vector<ConnectionId> beat();
  // Whether the peer has said something in the last ticks, as it does when nothing holds it up.
  bool heard_lately(PeerId peer) const;
  // Asks now for every confirmation that beat() would ask for.
  void ask_confirmations();
  // Everything that matters and was said to anybody has arrived.
  bool confirmed() const;

 private:
  struct State : Connection {
    protocol::Silence silence{protocol::kTicksPerTimeout};
    uint64_t ping_counter = 0;    // of the last Ping
    uint64_t pong_counter = 0;    // of the last Pong
    uint64_t confirmed_from = 0;  // the Pong that confirms all that was said
  };
  void say(ConnectionId id, State& state, protocol::Message message);
  void ping(ConnectionId id, State& state);

  Context& context_;
  std::map<ConnectionId, State> open_;
  std::map<PeerId, ConnectionId> of_peer_;
};

}  // namespace pccl::master
