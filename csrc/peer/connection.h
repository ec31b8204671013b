// Connection is the core's view of the connection to the master: it decides when to connect again,
// when to ping, and when the keepalive timer has expired (PROTOCOL.md, section 8). It belongs to
// the PeerCore. It does not look into messages.
// Invariants:
//   1. Messages can be sent (Context::linked) only while the connection is up.
//   2. The pause before the next attempt is between 0.1 and 1 second, and the time of this attempt
//      is at most one pause in the future.
//   3. The next beat is at most one beat in the future.
#pragma once

#include <optional>

#include "csrc/base/assert.h"
#include "csrc/peer/context.h"
#include "csrc/peer/token_choice.h"
#include "csrc/protocol/keepalive_timer.h"

namespace pccl::peer {

class Connection {
 public:
  Connection(Context& context, TokenChoice& tokens) : context_(context), tokens_(tokens) {}

  void open();  // connects immediately, and keeps trying until close()
  void on_connected();
  void on_closed();  // connects again after a pause, which doubles up to one second
  void close();      // for good
  void drop();       // closes the present connection, then acts as on_closed()
  // Welcome or Resumed was received: pings start, the pause is reset, the token is proven.
  // REQUIRES: up.
  void welcomed();
  void received() {  // REQUIRES: up
    PCCL_ASSERT(up());
    keepalive_.received();
  }
  bool up() const { return state_ == State::kUp; }

  // Time has passed. Returns the due action, which the caller carries out: it sends a Ping, or
  // calls drop().
  enum class Due { kNothing, kPing, kSilent };
  Due on_time();
  std::optional<Instant> deadline() const;

  void check() const;  // asserts the invariants

  enum class State { kIdle, kWaiting, kTrying, kUp };

 private:
  Duration beat() const { return protocol::beat_of(context_.settings.peer_timeout); }
  void enter(State next);  // REQUIRES: the table in connection.cc allows it
  void attempt();
  void restart_keepalive();

  Context& context_;
  TokenChoice& tokens_;
  State state_ = State::kIdle;
  Duration pause_{0};
  Instant retry_at_;
  Instant beat_at_;
  bool pings_ = false;
  protocol::KeepaliveTimer keepalive_{protocol::kTicksPerTimeout};
};

}  // namespace pccl::peer
