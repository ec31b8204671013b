#include "csrc/peer/connection.h"

#include <algorithm>
#include <utility>

#include "csrc/base/transitions.h"

namespace pccl::peer {
namespace {

using ConnectionState = Connection::State;

const char* name_of(ConnectionState state) {
  switch (state) {
    case ConnectionState::kIdle: return "idle";
    case ConnectionState::kWaiting: return "waiting";
    case ConnectionState::kTrying: return "trying";
    case ConnectionState::kUp: return "up";
  }
  return "unknown";
}

const Transitions<ConnectionState, 8> kConnectionTransitions(
    "a peer's connection to the master", name_of,
    {{ConnectionState::kIdle, ConnectionState::kTrying, "the peer joins", "ConnectMaster"},
     {ConnectionState::kTrying, ConnectionState::kUp, "connected"},
     {ConnectionState::kTrying, ConnectionState::kWaiting, "the attempt failed"},
     {ConnectionState::kUp, ConnectionState::kWaiting,
      "the connection closed; it is dropped, because the master is silent, breaks the protocol, is "
      "an older one or refuses the token, or because there is a new token",
      "CloseMaster if it is dropped"},
     {ConnectionState::kWaiting, ConnectionState::kTrying, "the pause is over", "ConnectMaster"},
     {ConnectionState::kTrying, ConnectionState::kIdle, "the peer is out of the run",
      "CloseMaster"},
     {ConnectionState::kUp, ConnectionState::kIdle, "the peer is out of the run", "CloseMaster"},
     {ConnectionState::kWaiting, ConnectionState::kIdle, "the peer is out of the run"}});

constexpr Duration kPauseMin = std::chrono::milliseconds(100);
constexpr Duration kPauseMax = std::chrono::seconds(1);
// Number of attempts that fit into peer_timeout, even if they hang. A member that is away for
// peer_timeout is lost, so one attempt that hangs must leave time for a second one.
constexpr int kAttempts = 2;

}  // namespace

void Connection::enter(State next) { state_ = kConnectionTransitions.step(state_, next); }

void Connection::open() {
  PCCL_ASSERT(state_ == State::kIdle);
  pause_ = kPauseMin;
  attempt();
}

void Connection::attempt() {
  PCCL_ASSERT(!context_.linked);
  enter(State::kTrying);
  context_.emit(ConnectMaster{tokens_.choose(), context_.settings.peer_timeout / kAttempts});
}

void Connection::on_connected() {
  enter(State::kUp);
  pings_ = false;
  restart_keepalive();
}

void Connection::restart_keepalive() {
  keepalive_ = protocol::KeepaliveTimer(protocol::kTicksPerTimeout, context_.settings.peer_timeout);
  beat_at_ = context_.now + beat();
}

void Connection::on_closed() {
  enter(State::kWaiting);
  context_.linked = false;
  retry_at_ = context_.now + pause_;
  PCCL_ASSERT(retry_at_ > context_.now);
  pause_ = std::min(pause_ * 2, kPauseMax);
}

void Connection::drop() {
  PCCL_ASSERT(state_ == State::kUp);
  context_.emit(CloseMaster{});
  on_closed();
}

void Connection::close() {
  if (state_ == State::kTrying || state_ == State::kUp) context_.emit(CloseMaster{});
  if (state_ != State::kIdle) enter(State::kIdle);
  context_.linked = false;
}

void Connection::welcomed() {
  PCCL_ASSERT(state_ == State::kUp && context_.linked);
  restart_keepalive();  // Welcome may bring another peer_timeout
  pings_ = true;
  pause_ = kPauseMin;
  tokens_.proven();
}

Connection::Due Connection::on_time() {
  if (state_ == State::kWaiting && context_.now >= retry_at_) attempt();
  if (state_ != State::kUp || context_.now < beat_at_) return Due::kNothing;
  beat_at_ = context_.now + beat();
  PCCL_ASSERT(beat_at_ > context_.now);
  keepalive_.beat();
  if (std::exchange(context_.has_sent, false)) keepalive_.sent();
  if (keepalive_.too_long()) return Due::kSilent;
  return pings_ && keepalive_.ping_due() ? Due::kPing : Due::kNothing;
}

std::optional<Instant> Connection::deadline() const {
  if (state_ == State::kWaiting) return retry_at_;
  if (state_ == State::kUp) return beat_at_;
  return std::nullopt;
}

void Connection::check() const {
  PCCL_ASSERT(!context_.linked || state_ == State::kUp);
  if (state_ == State::kIdle) return;
  PCCL_ASSERT(pause_ >= kPauseMin && pause_ <= kPauseMax);
  PCCL_ASSERT(state_ != State::kWaiting || retry_at_ <= context_.now + kPauseMax);
  PCCL_ASSERT(state_ != State::kUp || beat_at_ <= context_.now + beat());
}

}  // namespace pccl::peer
