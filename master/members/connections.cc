#include "master/members/connections.h"

#include <array>

#include "csrc/base/transitions.h"
#include "csrc/protocol/codec.h"

namespace pccl::master {
namespace {

// Whether each phase of a connection allows a message of one kind.
struct Allowed {
  bool introducing, welcomed, registered, member;
};
constexpr bool x = true, o = false;
constexpr std::array<Allowed, std::variant_size_v<protocol::Message>> kAllowed = {{
    // introducing, welcomed, registered, member
    {x, o, o, o},  // Hello
    {o, o, o, o},  // Reject
    {o, o, o, o},  // Welcome
    {o, x, x, x},  // Register: repeated after a Resume
    {o, x, x, x},  // Ping
    {o, x, x, x},  // Pong
    {o, o, o, o},  // Dial
    {o, o, o, o},  // Forget
    {o, o, x, x},  // LinkReport
    {o, o, o, o},  // Notice
    {o, o, o, o},  // EpochStart
    {o, o, o, o},  // FreezeRequest
    {o, o, o, x},  // StateReport
    {o, o, o, o},  // Verdicts
    {o, o, o, o},  // EpochEnd
    {o, o, o, x},  // Begin
    {o, o, o, x},  // Done
    {o, o, o, x},  // AbortRequest
    {o, o, o, x},  // Vote
    {o, o, o, x},  // JointAbort
    {o, o, o, o},  // Answer
    {o, o, o, o},  // SyncPlan
    {o, o, o, x},  // Fetched
    {o, x, x, x},  // Leave
    {o, o, o, o},  // Kicked
    {x, o, o, o},  // Resume
    {o, o, o, o},  // Resumed
    {o, o, o, o},  // AbortProposal
    {o, o, o, x},  // AbortAnswer
    {o, o, o, o},  // Farewell
    {o, o, o, x},  // AwaitSend
    {o, o, o, o},  // SendBegun
    {o, o, o, x},  // LinkRates
    {o, o, o, x},  // Fetching
    {o, o, o, o},  // ListRequest
    {o, o, o, x},  // StateList
    {o, o, o, o},  // Probe
    {o, o, o, x},  // ProbeReport
    {o, o, o, x},  // Blocked
    {o, o, o, o},  // Watch: an observer is no peer; see observers.h
    {o, o, o, o},  // Snapshot
    {o, o, o, o},  // Observe
    {o, o, o, x},  // Telemetry
    {o, o, o, o},  // DialBack: its sender is no peer; see shell/dial_backs.h
    {o, o, o, o},  // DialedBack
    {o, o, o, o},  // Regroup: goes to the rendezvous of its process; see shell/meetings.h
    {o, o, o, o},  // Regrouped
}};

// The end of a connection is no phase. A connection can close in any phase, and the master closes
// it after Leave, after silence, and after a breach of a rule.
const Transitions<ConnectionPhase, 6> kConnectionTransitions(
    "a connection at the master", text,
    {{ConnectionPhase::kHandshaking, ConnectionPhase::kWelcomed,
      "Hello is accepted; Resume of a peer that has not registered", "Welcome; Resumed"},
     {ConnectionPhase::kHandshaking, ConnectionPhase::kRegistered,
      "Resume of a peer that waits for its admission", "Resumed"},
     {ConnectionPhase::kHandshaking, ConnectionPhase::kMember, "Resume of a member",
      "Resumed, missed messages"},
     {ConnectionPhase::kWelcomed, ConnectionPhase::kRegistered, "Register", "Dial to others"},
     {ConnectionPhase::kRegistered, ConnectionPhase::kMember, "admitted", "EpochStart"},
     {ConnectionPhase::kMember, ConnectionPhase::kMember, "another generation begins",
      "EpochStart"}});

bool allowed(ConnectionPhase phase, const protocol::Message& message) {
  const Allowed& row = kAllowed[message.index()];
  switch (phase) {
    case ConnectionPhase::kHandshaking: return row.introducing;
    case ConnectionPhase::kWelcomed: return row.welcomed;
    case ConnectionPhase::kRegistered: return row.registered;
    case ConnectionPhase::kMember: return row.member;
  }
  return false;
}

// Whether a peer would miss this message if it got lost. Messages of the other kinds are repeated
// when they are needed; only a Probe is not, and counts as failed if it is lost.
bool matters(const protocol::Message& message) {
  return !std::holds_alternative<protocol::Ping>(message) &&
         !std::holds_alternative<protocol::Pong>(message) &&
         !std::holds_alternative<protocol::Dial>(message) &&
         !std::holds_alternative<protocol::Forget>(message) &&
         !std::holds_alternative<protocol::Notice>(message) &&
         !std::holds_alternative<protocol::Probe>(message);
}

}  // namespace

const char* text(ConnectionPhase phase) {
  switch (phase) {
    case ConnectionPhase::kHandshaking: return "handshaking";
    case ConnectionPhase::kWelcomed: return "welcomed";
    case ConnectionPhase::kRegistered: return "registered";
    case ConnectionPhase::kMember: return "a member";
  }
  return "unknown";
}

void Connections::accept(ConnectionId id, std::string seen_host, bool seen_loopback,
                         std::optional<Holder> holder) {
  const bool fresh = open_.try_emplace(id).second;
  PCCL_ASSERT(fresh);
  open_[id].keepalive =
      protocol::KeepaliveTimer(protocol::kTicksPerTimeout, context_.settings.peer_timeout);
  open_[id].seen_host = std::move(seen_host);
  open_[id].seen_loopback = seen_loopback;
  open_[id].holder = std::move(holder);
}

std::vector<ConnectionId> Connections::pending_with(const std::set<std::string>& tokens) const {
  std::vector<ConnectionId> found;
  for (const auto& [id, one] : open_) {
    if (!one.peer && one.holder && tokens.contains(one.holder->token)) found.push_back(id);
  }
  return found;
}

const Connections::Connection* Connections::find(ConnectionId id) const {
  const auto at = open_.find(id);
  return at == open_.end() ? nullptr : &at->second;
}

ConnectionId Connections::of(PeerId peer) const {
  const auto at = of_peer_.find(peer);
  PCCL_ASSERT(at != of_peer_.end());
  return at->second;
}

Status Connections::check(ConnectionId id, const protocol::Message& message) {
  const auto at = open_.find(id);
  PCCL_ASSERT(at != open_.end());
  State& state = at->second;
  state.keepalive.received();
  if (allowed(state.phase, message)) return {};
  return violation(std::string(protocol::name(message)) + " from a peer that is " +
                   text(state.phase));
}

Status Connections::confirm(ConnectionId id, uint64_t ping_counter) {
  State& state = open_.at(id);
  PCCL_ASSERT(state.pong_counter <= state.ping_counter);
  if (ping_counter > state.ping_counter || ping_counter < state.pong_counter) {
    return violation("Pong " + std::to_string(ping_counter) + " after Ping " +
                     std::to_string(state.ping_counter));
  }
  state.pong_counter = ping_counter;
  return {};
}

void Connections::admit(ConnectionId id, PeerId peer, GroupId group, ConnectionPhase phase) {
  State& state = open_.at(id);
  PCCL_ASSERT(state.phase == ConnectionPhase::kHandshaking && peer);
  close(peer);
  state.phase = kConnectionTransitions.step(state.phase, phase);
  state.peer = peer;
  state.group = group;
  state.keepalive =
      protocol::KeepaliveTimer(protocol::kTicksPerTimeout, context_.settings.peer_timeout);
  const bool fresh = of_peer_.emplace(peer, id).second;
  PCCL_ASSERT(fresh);
}

void Connections::enter(PeerId peer, ConnectionPhase phase) {
  const auto at = of_peer_.find(peer);
  if (at == of_peer_.end()) return;
  State& state = open_.at(at->second);
  PCCL_ASSERT(state.peer == peer);
  state.phase = kConnectionTransitions.step(state.phase, phase);
}

void Connections::say(ConnectionId id, State& state, protocol::Message message) {
  PCCL_ASSERT(state.peer || std::holds_alternative<protocol::Reject>(message));
  state.keepalive.sent();
  if (matters(message)) {
    state.confirmed_from = state.ping_counter + 1;
    PCCL_ASSERT(state.pong_counter < state.confirmed_from);  // not confirmed yet
  }
  context_.emit(Send{id, std::move(message)});
}

void Connections::send(PeerId peer, protocol::Message message) {
  const auto at = of_peer_.find(peer);
  if (at != of_peer_.end()) say(at->second, open_.at(at->second), std::move(message));
}

void Connections::send(ConnectionId id, protocol::Message message) {
  const auto at = open_.find(id);
  PCCL_ASSERT(at != open_.end());
  say(id, at->second, std::move(message));
}

void Connections::close(ConnectionId id) {
  forget(id);
  context_.emit(Close{id});
}

void Connections::close(PeerId peer) {
  const auto at = of_peer_.find(peer);
  if (at != of_peer_.end()) close(ConnectionId{at->second});
}

void Connections::forget(ConnectionId id) {
  const auto at = open_.find(id);
  PCCL_ASSERT(at != open_.end());
  const size_t found = of_peer_.erase(at->second.peer);
  PCCL_ASSERT(found == (at->second.peer ? 1u : 0u));
  open_.erase(at);
}

void Connections::ping(ConnectionId id, State& state) {
  PCCL_ASSERT(state.phase != ConnectionPhase::kHandshaking);
  say(id, state, protocol::Ping{++state.ping_counter, 0, {}});
}

std::vector<ConnectionId> Connections::beat() {
  std::vector<ConnectionId> silent;
  for (auto& [id, state] : open_) {
    state.keepalive.beat();
    if (state.keepalive.too_long()) silent.push_back(id);
    if (state.phase == ConnectionPhase::kHandshaking) continue;
    const bool unasked = state.confirmed_from > state.ping_counter;
    if (unasked || state.keepalive.ping_due()) ping(id, state);
  }
  return silent;
}

bool Connections::received_lately(PeerId peer, int ticks) const {
  const auto at = of_peer_.find(peer);
  return at != of_peer_.end() && open_.at(at->second).keepalive.silent_ticks() <= ticks;
}

void Connections::request_confirmations() {
  for (auto& [id, state] : open_) {
    if (state.peer && state.confirmed_from > state.ping_counter) ping(id, state);
  }
}

bool Connections::confirmed() const {
  for (const auto& [id, state] : open_) {
    if (state.pong_counter < state.confirmed_from) return false;
  }
  return true;
}

void Connections::check() const {
  size_t assigned = 0;
  for (const auto& [id, state] : open_) {
    PCCL_ASSERT((state.phase == ConnectionPhase::kHandshaking) == !state.peer);
    PCCL_ASSERT(state.pong_counter <= state.ping_counter);
    PCCL_ASSERT(state.confirmed_from <= state.ping_counter + 1);
    PCCL_ASSERT(!state.keepalive.too_long());
    if (!state.peer) continue;
    ++assigned;
    const auto at = of_peer_.find(state.peer);
    PCCL_ASSERT(at != of_peer_.end() && at->second == id);
  }
  PCCL_ASSERT(assigned == of_peer_.size());
}

}  // namespace pccl::master
