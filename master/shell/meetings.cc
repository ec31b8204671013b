#include "master/shell/meetings.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "csrc/base/assert.h"
#include "csrc/protocol/keepalive_timer.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/version.h"

namespace pccl::master {
namespace {

// A peer that wants to wait longer is refused after this time.
constexpr Duration kWaitMax = std::chrono::hours(1);
// Keys of the last handles of a group. A process that comes with a used handle, or after its call
// has failed, still gets the reason.
constexpr size_t kKeysKept = 16;

// The Hello as its rendezvous wants it, so that it cannot lead elsewhere.
protocol::Hello bound(protocol::Hello hello) {
  const protocol::Rendezvous& seen = *hello.rendezvous;
  if (!seen.handles.empty()) hello.run = Rendezvous::run_name(seen.handles[0].group, seen.uuid);
  hello.group = {};
  hello.rank = static_cast<int32_t>(seen.rank);
  hello.founders = static_cast<uint32_t>(seen.handles.size());
  hello.min_peers = 1;
  return hello;
}

uint32_t milliseconds_until(Instant at) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(at - monotonic_now()).count();
  return static_cast<uint32_t>(std::clamp<int64_t>(left, 0, UINT32_MAX));
}

}  // namespace

Meetings::Meetings(net::Loop& loop, Callbacks callbacks)
    : loop_(loop), callbacks_(std::move(callbacks)), timer_(loop, [this] { on_time(); }) {}

void Meetings::open(const std::string& group, const Key& key) {
  core_.open(group);
  renew(group, key);
}

void Meetings::renew(const std::string& group, const Key& key) {
  if (key == nullptr) return;
  std::deque<Key>& keys = keys_[group];
  keys.push_back(key);
  if (keys.size() > kKeysKept) keys.pop_front();
  callbacks_.add_key(key);
}

void Meetings::close(const std::string& group) {
  failed_.erase(group);
  keys_.erase(group);
  carry_out(core_.close(group));
}

void Meetings::call(const std::string& group, Rendezvous::Call call, Failed failed) {
  failed_[group] = std::move(failed);
  carry_out(core_.call(group, std::move(call)));
}

void Meetings::over(const std::string& group, const std::optional<protocol::Reject>& failed,
                    const Key& next) {
  failed_.erase(group);
  carry_out(core_.over(group, failed));
  renew(group, next);
}

void Meetings::arrive(ConnectionId id, const protocol::Hello& hello) {
  PCCL_ASSERT(hello.rendezvous.has_value() && !waits(id));
  const Duration beat =
      protocol::beat_of(hello.settings.peer_timeout.value_or(protocol::kPeerTimeoutDefault));
  const Instant now = monotonic_now();
  waiting_[id] = {bound(hello), {}, beat, now + beat};
  const Duration asked = std::chrono::milliseconds(hello.join_timeout_ms);
  const Instant until = now + std::min(asked, kWaitMax);
  carry_out(core_.arrive(id, *hello.rendezvous, until));
}

// A member announces one call at a time, and may give it up.
Status Meetings::offer(ConnectionId id, const std::string& run, uint32_t rank,
                       const protocol::Regroup& message) {
  if (offered_.contains(id) && message.with.refusal.empty())
    return {Code::kProtocol, "Regroup of a member that waits for another one", {}};
  offered_[id] = message.with.uuid;
  const Duration asked = std::chrono::milliseconds(message.timeout_ms);
  const Instant until = monotonic_now() + std::min(asked, kWaitMax);
  carry_out(core_.offer(id, run, rank, message.with, until));
  return {};
}

// A peer sends its Register with its Hello, answers pings, and sends nothing else before it is
// welcomed, unless it leaves.
void Meetings::receive(ConnectionId id, protocol::Message message) {
  if (std::holds_alternative<protocol::Pong>(message)) return;
  Waiting& waiting = waiting_.at(id);
  if (auto* const registered = std::get_if<protocol::Register>(&message);
      registered != nullptr && !waiting.registered) {
    waiting.registered = std::move(*registered);
    return;
  }
  const std::string run = waiting.hello.run;
  callbacks_.refuse(id, run, {Code::kProtocol, "it does not wait for its admission"});
}

void Meetings::finish_turn() {
  while (!gone_.empty()) {  // the end of a run closes further ones
    for (const ConnectionId id : std::exchange(gone_, {})) {
      waiting_.erase(id);
      offered_.erase(id);
      carry_out(core_.closed(id));
    }
  }
}

void Meetings::on_time() {
  const Instant now = monotonic_now();
  for (auto& [id, waiting] : waiting_) {
    if (waiting.ping_at > now) continue;
    waiting.ping_at = now + waiting.beat;
    callbacks_.send(id, protocol::Ping{});
  }
  carry_out(core_.expire(now));
  callbacks_.on_stepped();
}

void Meetings::begun(const std::string& run) { carry_out(core_.begun(run)); }

void Meetings::carry_out(const Rendezvous::Decisions& decisions) {
  loop_.assert_on_loop();
  for (const Rendezvous::Decision& decision : decisions)
    std::visit([this](const auto& what) { carry_out(what); }, decision);
  arm();
}

void Meetings::carry_out(const Rendezvous::Admit& decision) {
  const auto waiting = waiting_.extract(decision.connection);
  PCCL_ASSERT(!waiting.empty());
  const Waiting& let_in = waiting.mapped();
  callbacks_.admit(decision.connection, let_in.hello);
  if (let_in.registered) callbacks_.receive(decision.connection, *let_in.registered);
}

void Meetings::carry_out(const Rendezvous::Refuse& decision) {
  if (const auto offered = offered_.extract(decision.connection); !offered.empty()) {
    const auto& [code, text] = decision.why;
    return callbacks_.send(decision.connection, protocol::Regrouped{offered.mapped(), code, text});
  }
  const auto waiting = waiting_.extract(decision.connection);
  PCCL_ASSERT(!waiting.empty());
  callbacks_.refuse(decision.connection, waiting.mapped().hello.run, decision.why);
}

void Meetings::carry_out(const Rendezvous::SendToDoor& decision) {
  const auto offered = offered_.extract(decision.connection);
  PCCL_ASSERT(!offered.empty());
  callbacks_.send(decision.connection, protocol::Regrouped{offered.mapped(), Code::kOk, {}});
}

void Meetings::carry_out(const Rendezvous::Regroup& decision) {
  for (const ConnectionId id : decision.members) offered_.erase(id);
  callbacks_.regroup(decision.run, {decision.uuid, decision.members});
}

void Meetings::carry_out(const Rendezvous::End& decision) {
  callbacks_.end(decision.run, decision.why);
}

void Meetings::carry_out(const Rendezvous::Fail& decision) {
  const auto failed = failed_.find(decision.group);
  if (failed != failed_.end()) failed->second(decision.why);
}

// The master that is invited needs the names, how long to wait, and its beat.
void Meetings::carry_out(const Rendezvous::Invite& decision) {
  const protocol::Rendezvous& seen = decision.seen;
  protocol::Hello hello;
  hello.library = std::string("pccl ") + protocol::kRelease;
  hello.run = Rendezvous::run_name(decision.group, seen.uuid);
  hello.settings.peer_timeout = decision.silence;
  hello.join_timeout_ms = milliseconds_until(decision.until);
  hello.rendezvous = seen;
  const std::string& group = decision.group;
  const uint32_t rank = seen.rank;
  const auto keys = keys_.find(group);
  const Key own = keys == keys_.end() ? nullptr : keys->second.back();
  const auto dial = [this, to = seen.handles[rank], key = own](net::Socket socket, Instant by) {
    return callbacks_.dial(std::move(socket), to, key.get(), by);
  };
  invitations_[{group, rank}] = std::make_unique<Invitation>(
      loop_, hello, seen.handles[rank].at, decision.silence, dial,
      Invitation::Callbacks{.on_declined =
                                [this, group, rank](const protocol::Reject& why) {
                                  carry_out(core_.declined(group, rank, why));
                                  callbacks_.on_stepped();
                                },
                            .on_unreachable =
                                [this, group, rank](const Status& why) {
                                  carry_out(core_.unreachable(group, rank, why));
                                  callbacks_.on_stepped();
                                }});
}

void Meetings::carry_out(const Rendezvous::Dismiss& decision) {
  std::erase_if(invitations_, [&](const auto& sent) { return sent.first.first == decision.group; });
}

void Meetings::arm() {
  std::optional<Instant> due = core_.deadline();
  for (const auto& [id, waiting] : waiting_)
    due = due ? std::min(*due, waiting.ping_at) : waiting.ping_at;
  due ? timer_.arm(*due) : timer_.disarm();
}

}  // namespace pccl::master
