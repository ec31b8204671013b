//   from             event                          to
//   kIdle            open                           kTrying     ConnectMaster
//   kTrying          on_connected                   kUp
//   kTrying, kUp     on_closed, drop                kWaiting
//   kWaiting         its pause is over              kTrying     ConnectMaster
//   any              close                          kIdle       CloseMaster

#include "csrc/peer/connection.h"

#include <algorithm>

namespace pccl::peer {
namespace {

constexpr Duration kPauseMin = std::chrono::milliseconds(100);
constexpr Duration kPauseMax = std::chrono::seconds(1);

}  // namespace

void Connection::open() {
  PCCL_ASSERT(state_ == State::kIdle);
  pause_ = kPauseMin;
  attempt();
}

void Connection::attempt() {
  state_ = State::kTrying;
  context_.emit(ConnectMaster{});
}

void Connection::on_connected() {
  PCCL_ASSERT(state_ == State::kTrying);
  state_ = State::kUp;
  pings_ = false;
  silent_ticks_ = quiet_ticks_ = 0;
  tick_at_ = context_.now + tick();
}

void Connection::on_closed() {
  PCCL_ASSERT(state_ == State::kTrying || state_ == State::kUp);
  state_ = State::kWaiting;
  context_.linked = false;
  retry_at_ = context_.now + pause_;
  pause_ = std::min(pause_ * 2, kPauseMax);
}

void Connection::drop() {
  PCCL_ASSERT(state_ == State::kUp);
  context_.emit(CloseMaster{});
  on_closed();
}

void Connection::close() {
  if (state_ == State::kTrying || state_ == State::kUp) context_.emit(CloseMaster{});
  state_ = State::kIdle;
  context_.linked = false;
}

void Connection::introduced() {
  pings_ = true;
  pause_ = kPauseMin;
}

Connection::Due Connection::on_time() {
  if (state_ == State::kWaiting && context_.now >= retry_at_) attempt();
  if (state_ != State::kUp || context_.now < tick_at_) return Due::kNothing;
  tick_at_ = context_.now + tick();
  quiet_ticks_ = context_.has_sent ? 0 : quiet_ticks_ + 1;
  context_.has_sent = false;
  if (++silent_ticks_ >= protocol::kTicksPerTimeout) return Due::kSilent;
  return pings_ && quiet_ticks_ >= protocol::kTicksPerPing ? Due::kPing : Due::kNothing;
}

std::optional<Instant> Connection::deadline() const {
  if (state_ == State::kWaiting) return retry_at_;
  if (state_ == State::kUp) return tick_at_;
  return std::nullopt;
}

}  // namespace pccl::peer
