// Connection: the connection to the master as the core sees it: when to try again, when to ping,
// and when silence counts as closed (PROTOCOL.md, section 8). What is said on it is not its
// business.
#pragma once

#include <optional>

#include "csrc/peer/context.h"
#include "csrc/protocol/silence.h"

namespace pccl::peer {

class Connection {
 public:
  explicit Connection(Context& context) : context_(context) {}

  void open();  // tries at once, and goes on trying until close()
  void on_connected();
  void on_closed();   // tries again, after a pause that doubles up to a second
  void close();       // for good
  void drop();        // closes the connection there is, then as on_closed()
  void introduced();  // Welcome or Resumed has come: pings from here on, pauses start anew
  void heard() { silence_.heard(); }
  bool up() const { return state_ == State::kUp; }

  // Time has passed: what is due. Carrying it out (telling a Ping, drop()) is up to the caller.
  enum class Due { kNothing, kPing, kSilent };
  Due on_time();
  std::optional<Instant> deadline() const;

  enum class State { kIdle, kWaiting, kTrying, kUp };

 private:
  Duration beat() const { return protocol::beat_of(context_.options.peer_timeout); }
  void enter(State next);  // REQUIRES: the table in connection.cc allows it
  void attempt();

  Context& context_;
  State state_ = State::kIdle;
  Duration pause_{0};
  Instant retry_at_;
  Instant beat_at_;
  bool pings_ = false;
  protocol::Silence silence_{protocol::kTicksPerTimeout};
};

}  // namespace pccl::peer
