#include "csrc/torch/reconfiguration.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <utility>

#include "csrc/base/random.h"
#include "csrc/net/descriptors.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/reconfigure_handle.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/hosted_run.h"
#include "csrc/torch/join_request.h"
#include "csrc/torch/timeout.h"
#include "master/runs/rendezvous.h"
#include "master/shell/meetings.h"
#include "master/shell/shell.h"

namespace pccl::torch_layer {
namespace {

using protocol::ReconfigureHandle;
using Handles = std::vector<ReconfigureHandle>;

constexpr const char* kUsed = "the uuid was already used: each call needs a fresh one";
// The host of a reconfigure gets a refusal within this time, or not at all.
constexpr std::chrono::milliseconds kRefusalMax{2000};

// A peer that begins late still tries once.
constexpr Duration kLeftMin = std::chrono::milliseconds(1);

std::string random_group() {
  char text[ReconfigureHandle::kGroupDigits + 1];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(random_number()));
  return text;
}

Handles parse(const std::vector<std::string>& texts) {
  if (texts.empty()) raise_value_error("reconfigure takes at least one handle");
  if (texts.size() > protocol::kMembersMax) {
    raise_value_error("reconfigure takes at most " + std::to_string(protocol::kMembersMax) +
                      " handles, and has " + std::to_string(texts.size()));
  }
  Handles handles;
  std::set<std::string> groups;
  for (const std::string& text : texts) {
    auto handle = protocol::parse_handle(text);
    if (!handle.ok()) raise_value_error("reconfigure: " + handle.status().message);
    if (!groups.insert(handle.value().group).second)
      raise_value_error("reconfigure: the group of \"" + text + "\" is twice in its handles");
    handles.push_back(std::move(handle.value()));
  }
  return handles;
}

// Raises ValueError if some handles have a key and others have none.
void check_keys(const Handles& handles, const ReconfigureHandle& own) {
  for (const ReconfigureHandle& handle : handles) {
    if (handle.key.empty() == own.key.empty()) continue;
    const auto& with = own.key.empty() ? handle : own;
    const auto& without = own.key.empty() ? own : handle;
    raise_value_error(
        "reconfigure: the handle of " + short_name(with) + " has a key, and that of " +
        short_name(without) +
        " has none: all processes of a group need the same PCCL_SECRET_FILE, or PCCL_INSECURE=1, "
        "or neither, and a store that is on this machine for all or for none");
  }
}

void leave(PeerSession& session) {
  const ReleaseGil no_gil;
  session.leave();
}

// Calls a function when the block ends, also by an exception.
class Guard {
 public:
  explicit Guard(std::function<void()> at_end) : at_end_(std::move(at_end)) {}
  ~Guard() { at_end_(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  const std::function<void()> at_end_;
};

// The rank of this process. Raises InvalidStateError if its present handle is not listed.
uint32_t own_rank(const Handles& handles, const ReconfigureHandle& own) {
  for (uint32_t rank = 0; rank < handles.size(); ++rank) {
    if (handles[rank] == own) return rank;
    if (handles[rank].group != own.group) continue;
    raise({Code::kInvalidState,
           "reconfigure: the handle of this process is an earlier one, and a handle serves one "
           "reconfigure: call get_reconfigure_handle() again before each",
           {}});
  }
  raise({Code::kInvalidState, "reconfigure: the handle of this process is not in the list", {}});
}

}  // namespace

// One call. Other threads set `over`, `interrupted` and `why`.
struct Reconfiguration::Meeting {
  Instant until{};
  Duration left() const { return std::max<Duration>(until - monotonic_now(), kLeftMin); }
  protocol::Rendezvous with;
  Key key;                            // of the own handle
  std::shared_ptr<HostedRun> hosted;  // if this process is rank 0
  bool called = false;                // the master of this process knows of it
  bool stop = false;                  // a signal handler has raised
  std::atomic<bool> over{false};      // `why` is set
  std::atomic<bool> interrupted{false};
  mutable Mutex mutex;
  Status why PCCL_GUARDED_BY(mutex);
};

Reconfiguration::Reconfiguration(Options options)
    : options_(std::move(options)),
      forks_(net::fork_count()),
      master_(HostedMaster::get(options_.master)),
      group_(random_group()),
      key_(new_key()) {
  const Lock lock(mutex_);
  master_->shell().with_meetings(
      [this, key = key_](master::Meetings& all) { all.open(group_, key); });
}

Reconfiguration::Key Reconfiguration::new_key() const {
  if (!options_.master.handles) return nullptr;
  return std::make_shared<const net::HandleKey>(net::make_handle_key());
}

Reconfiguration::~Reconfiguration() {
  if (forks_ != net::fork_count()) {
    // The threads belong to the parent process. Ending them here would wait for ever.
    new std::shared_ptr<HostedMaster>(master_);
    return;
  }
  interrupt();
  master_->shell().with_meetings([group = group_](master::Meetings& all) { all.close(group); });
}

std::string Reconfiguration::handle() const {
  check_process();
  const Lock lock(mutex_);
  return text(own_handle());
}

ReconfigureHandle Reconfiguration::own_handle() const {
  const std::string shown = key_ == nullptr ? "" : key_->shown;
  return {{options_.advertised, master_->shell().port()}, group_, generation_, shown};
}

void Reconfiguration::check_process() const {
  if (forks_ == net::fork_count()) return;
  raise({Code::kInvalidState,
         "this process was forked from one with a reconfigurable group, and has none itself: call "
         "init_process_group here",
         {}});
}

void Reconfiguration::interrupt() {
  const Lock lock(mutex_);
  if (meeting_ != nullptr) meeting_->interrupted = true;
}

// The call that begins now. Raises if there is one already, or if this process cannot take part.
std::shared_ptr<Reconfiguration::Meeting> Reconfiguration::begin(
    int64_t uuid, Handles handles, std::chrono::milliseconds timeout) {
  auto meeting = std::make_shared<Meeting>();
  const Lock lock(mutex_);
  if (meeting_ != nullptr)
    raise({Code::kInvalidState, "another reconfigure of this group is under way", {}});
  meeting->until = monotonic_now() + checked_timeout(timeout);
  meeting->with = {uuid, std::move(handles), 0, {}};
  meeting->key = key_;
  meeting->with.rank = own_rank(meeting->with.handles, own_handle());
  check_keys(meeting->with.handles, own_handle());
  if (!used_.insert({meeting->with.handles[0].group, uuid}).second) meeting->with.refusal = kUsed;
  meeting_ = meeting;
  return meeting;
}

// The handle has served a call. `next`: the key of the next one.
void Reconfiguration::use_up(const Key& next) {
  const Lock lock(mutex_);
  ++generation_;
  key_ = next;
}

void Reconfiguration::finish() {
  const Lock lock(mutex_);
  meeting_ = nullptr;
}

void Reconfiguration::meet(int64_t uuid, const std::vector<std::string>& texts,
                           std::chrono::milliseconds timeout, const Session& present,
                           const Install& install) {
  check_process();
  const auto meeting = begin(uuid, parse(texts), timeout);
  const std::string about = "reconfigure (uuid " + std::to_string(uuid) + "): ";
  if (!meeting->with.refusal.empty()) {
    // The host gets the refusal, so that nobody waits for this process.
    meeting->until = std::min(meeting->until, monotonic_now() + kRefusalMax);
    const Guard guard([this] { finish(); });
    if (meeting->with.rank > 0) static_cast<void>(join(*meeting));
    if (meeting->stop) raise_interrupt();
    raise({Code::kInvalidState, about + kUsed, {}});
  }
  // The others get this reason too.
  std::optional<protocol::Reject> failed =
      protocol::Reject{Code::kInvalidState, "it raised an error"};
  const Guard guard([this, &meeting, &failed] {
    if (meeting->called) {
      const Key next = new_key();
      master_->shell().with_meetings(
          [&](master::Meetings& all) { all.over(group_, failed, next); });
      use_up(next);
    }
    finish();
  });
  call(meeting);
  Result<Session> joined = Session();
  if (present != nullptr && may_regroup(*meeting)) joined = regroup(*meeting, present);
  if (joined.ok() && joined.value() == nullptr) joined = join(*meeting);
  const Status why = outcome(*meeting, joined.ok() ? Status() : joined.status());
  if (!why.ok()) failed = {why.code, why.message};
  // The others count on this process, whose application does not know that it is a member.
  if (!why.ok() && joined.ok()) leave(*joined.value());
  if (meeting->stop) raise_interrupt();
  if (!why.ok()) raise(why);
  failed.reset();
  note_members(meeting->with.handles);
  install(std::move(joined.value()));
}

// Why the call fails, if it does. `joined`: what its peer reports.
Status Reconfiguration::outcome(const Meeting& meeting, const Status& joined) {
  const std::string about = "reconfigure (uuid " + std::to_string(meeting.with.uuid) + "): ";
  if (meeting.stop) return {Code::kInvalidState, about + "it was interrupted", {}};
  if (meeting.interrupted) return {Code::kInvalidState, about + "abort() has ended it", {}};
  if (joined.ok()) return {};
  const Lock lock(meeting.mutex);
  return meeting.over ? meeting.why : joined;
}

void Reconfiguration::call(const std::shared_ptr<Meeting>& meeting) {
  const protocol::Rendezvous& with = meeting->with;
  const auto failed = [meeting](const protocol::Reject& reject) {
    const Lock lock(meeting->mutex);
    meeting->why = {reject.code, reject.text, {}};
    meeting->over = true;
  };
  const auto& given = options_.join.peer_timeout;
  const master::Rendezvous::Call call{with.uuid,
                                      with.handles,
                                      with.rank,
                                      meeting->until,
                                      given ? to_duration(*given) : protocol::kPeerTimeoutDefault,
                                      monotonic_now()};
  master_->shell().with_meetings([&](master::Meetings& all) { all.call(group_, call, failed); });
  meeting->called = true;
}

// Whether the first listed process hosts the present run, and all are members of it, as far as this
// process knows. The host knows more.
bool Reconfiguration::may_regroup(const Meeting& meeting) const {
  const Lock lock(mutex_);
  const Handles& handles = meeting.with.handles;
  return !met_.empty() && met_[0] == handles[0].group &&
         std::all_of(handles.begin(), handles.end(), [this](const auto& handle) {
           return std::find(met_.begin(), met_.end(), handle.group) != met_.end();
         });
}

void Reconfiguration::note_members(const Handles& handles) {
  const Lock lock(mutex_);
  met_.clear();
  for (const ReconfigureHandle& handle : handles) met_.push_back(handle.group);
}

Result<Reconfiguration::Session> Reconfiguration::regroup(Meeting& meeting,
                                                          const Session& present) {
  const ReleaseGil no_gil;
  auto met = present->peer().regroup(meeting.with, meeting.left(), [&meeting] {
    meeting.stop = interrupted();
    return meeting.stop || meeting.over || meeting.interrupted;
  });
  if (!met.ok()) return met.status();
  return met.value().elsewhere ? nullptr : present;
}

Result<Reconfiguration::Session> Reconfiguration::join(Meeting& meeting) {
  JoinOptions options = options_.join;
  const protocol::Rendezvous& with = meeting.with;
  if (with.rank == 0) {
    const std::string run = master::Rendezvous::run_name(group_, with.uuid);
    meeting.hosted = std::make_shared<HostedRun>(
        master_, run, to_duration(options_.join.master_timeout), meeting.key);
  }
  const ReconfigureHandle& host = with.handles[0];
  const std::string& listens = options_.master.host;
  options.host = with.rank > 0 ? host.at.host : listens.empty() ? "127.0.0.1" : listens;
  options.port = host.at.port;
  options.run = master::Rendezvous::run_name(host.group, with.uuid);
  options.founders = static_cast<uint32_t>(with.handles.size());
  options.min_peers = 1;
  options.rank = static_cast<int32_t>(with.rank);
  PeerSession::Request request = to_request(options);
  if (meeting.key != nullptr) {
    auto token = net::handle_token(*meeting.key, host.key);
    if (!token) return Status{Code::kInvalidArgument, short_name(host) + " has no valid key", {}};
    request.token.token = std::make_shared<const Token>(std::move(*token));
  }
  request.hosted = meeting.hosted;
  request.peer.join_timeout = meeting.left();
  request.peer.rendezvous = with;
  const ReleaseGil no_gil;
  return PeerSession::join(std::move(request), [&meeting] {
    meeting.stop = interrupted();
    return meeting.stop || meeting.over || meeting.interrupted;
  });
}

}  // namespace pccl::torch_layer
