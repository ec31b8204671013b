// Typical call: the caller's thread hands it to the peer loop and waits. The loop steps the core
// until the call is finished. The caller wakes up and takes the result.
// Failures:
//   - The caller is interrupted. A joint call is then given up for all ranks, since they wait for
//     this one.
//   - The caller is a child of the process that owns the group. Nothing works there, because a
//     child does not inherit threads.

#include "csrc/peer/shell/peer.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "csrc/base/mutex.h"
#include "csrc/base/text.h"
#include "csrc/net/descriptors.h"
#include "csrc/peer/shell/control.h"
#include "csrc/peer/shell/state/sync_call.h"
#include "csrc/ring/shell/peer_thread.h"

namespace pccl::peer {
namespace {

// The destructor waits at most this long until Leave has been sent to the master.
constexpr Duration kLeaveTimeout = std::chrono::seconds(2);
// An interrupted call waits for the answer of the master for at most this number of periods
// (Waiter::kInterruptPeriod).
constexpr int kPeriodsForAnAnswer = 20;

// The number of bytes that scratch may use: a 64th of the memory, since other processes run on this
// machine, too.
uint64_t memory_share() {
  const auto pages = static_cast<uint64_t>(std::max(sysconf(_SC_PHYS_PAGES), 0L));
  return pages / 64 * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

Status check(const net::Endpoint& master, const Options& options) {
  const auto invalid = [](std::string what) {
    return Status{Code::kInvalidArgument, std::move(what), {}};
  };
  const auto fits = [](const std::string& name, size_t max) {
    return !name.empty() && name.size() <= max;
  };
  if (!fits(options.run, protocol::kRunNameBytesMax)) {
    return invalid("the name of the run has " + std::to_string(options.run.size()) +
                   " bytes, allowed are 1 to " + std::to_string(protocol::kRunNameBytesMax));
  }
  if (!is_printable(options.run)) {
    return invalid("the name of the run has characters that cannot be shown: \"" +
                   printable(options.run) + "\"");
  }
  if (!is_printable(options.advertised.host)) {
    return invalid("the advertised host has characters that cannot be shown: \"" +
                   printable(options.advertised.host) + "\"");
  }
  if (!fits(master.host, protocol::kHostBytesMax) ||
      options.advertised.host.size() > protocol::kHostBytesMax) {
    return invalid("host names have 1 to " + std::to_string(protocol::kHostBytesMax) + " bytes");
  }
  if (options.min_peers < 1 || options.min_peers > protocol::kMembersMax) {
    return invalid("min_peers is " + std::to_string(options.min_peers) + ", allowed are 1 to " +
                   std::to_string(protocol::kMembersMax));
  }
  if (options.founders > protocol::kMembersMax) {
    return invalid("the world size is " + std::to_string(options.founders) + ", allowed are 1 to " +
                   std::to_string(protocol::kMembersMax));
  }
  return protocol::check(options.given);
}

Status interrupted_status(const char* what) {
  return {Code::kInvalidState, std::string(what) + " was interrupted", {}};
}

Status under_way(const char* what) {
  return {Code::kInvalidState,
          std::string(what) +
              ": a sync_shared_state(async_op=True) of this process is under way: first wait() for "
              "what it returned",
          {}};
}

}  // namespace

struct Peer::Impl {
  Impl(net::Endpoint master, Options options, link::DriverOptions data, TokenSource token,
       const std::shared_ptr<ring::PeerThread>& thread)
      : control(std::move(master), std::move(options), std::move(data), std::move(token), thread,
                [this](const Topology& changed) { changed_in = changed.epoch.value; }) {}

  // The error if this thread cannot wait for a call; otherwise ok.
  Status check_caller(const char* what) const;
  bool forked() const { return net::fork_count() != fork_count; }
  Status forked_status() const {
    return {Code::kInvalidState,
            "this process group belongs to process " + std::to_string(owner) +
                "; a forked process cannot use it",
            {}};
  }
  // The error if this thread cannot make a joint call; otherwise ok.
  Status check_joint(const char* what);
  Result<JointResult> joint(JointCalled event, const Interrupted& interrupted);
  Result<JointResult> outcome_of(FinishJoint end);
  std::shared_ptr<SyncCall> sync_call(SyncRequest request, InBackground how, bool in_place,
                                      const Interrupted& interrupted);
  Status start_in_background(const std::shared_ptr<SyncCall>& sync);
  void see(const Topology& topology);
  void look();

  const pid_t owner = getpid();
  const unsigned fork_count = net::fork_count();
  std::atomic<uint32_t> rank{0}, world_size{0};
  mutable Mutex topology_mutex;
  std::shared_ptr<const Topology> topology PCCL_GUARDED_BY(topology_mutex) =
      std::make_shared<Topology>();
  // The plan after the last optimize_topology.
  std::optional<protocol::TopologyPlan> plan PCCL_GUARDED_BY(topology_mutex);
  // Policy retry. `changed_in`: the epoch of the last change of the members. `seen_in`: the epoch
  // that the application sees. While `changed_in` is later, look() asks the core.
  std::atomic<uint64_t> changed_in{0}, seen_in{0};

  Mutex background_mutex;
  // The sync in the background that no wait() has concluded yet; may be null.
  std::shared_ptr<SyncCall> background PCCL_GUARDED_BY(background_mutex);

  SharedMutex life;  // shared by users of the loop, exclusive for its end
  bool ended PCCL_GUARDED_BY(life) = false;
  Control control;
};

Status Peer::Impl::check_caller(const char* what) const {
  if (forked()) return forked_status();
  if (!control.on_loop()) return {};
  return {Code::kInvalidState,
          std::string(what) + " from inside a completion would wait for itself",
          {}};
}

void Peer::Impl::see(const Topology& seen) {
  const Lock lock(topology_mutex);
  if (seen.epoch < topology->epoch) return;  // another thread has asked later
  rank = seen.rank;
  world_size = static_cast<uint32_t>(seen.members.size());
  topology = std::make_shared<Topology>(seen);
  seen_in = seen.epoch.value;
}

void Peer::Impl::look() {
  if (changed_in <= seen_in) return;
  if (const std::optional<Topology> shown = control.ask_topology()) see(*shown);
}

Peer::Peer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Peer::~Peer() {
  if (impl_->forked()) {
    (void)impl_.release();  // its threads do not exist here, so nothing can be ended
    return;
  }
  leave(kLeaveTimeout);
}

Result<std::unique_ptr<Peer>> Peer::join(const net::Endpoint& master, Options options,
                                         link::DriverOptions data, const Interrupted& interrupted,
                                         TokenSource token,
                                         std::shared_ptr<ring::PeerThread> thread) {
  Status status = check(master, options);
  if (!status.ok()) return status;
  if (thread == nullptr) thread = std::make_shared<ring::PeerThread>();
  options.master_text = text(master);
  options.secured = token.any();
  options.scratch_bytes_max = std::min(options.scratch_bytes_max, memory_share());
  const Duration period =
      options.rendezvous ? Waiter::kInterruptPeriodShort : Waiter::kInterruptPeriod;
  if (token.token == nullptr && token.any()) {
    Result<Token> read = read_token(token.path);
    if (!read.ok()) return read.status();
    token.token = std::make_shared<const Token>(std::move(read.value()));
  }
  std::unique_ptr<Peer> peer(new Peer(std::make_unique<Impl>(
      master, std::move(options), std::move(data), std::move(token), thread)));
  Impl& impl = *peer->impl_;
  if (!impl.control.status().ok()) return impl.control.status();
  const auto call = std::make_shared<Control::WaitingCall>();
  impl.control.join(call);
  const WaitRecord::Wait wait(impl.control.waits().get(), {kInJointCall, monotonic_now()});
  const std::optional<FinishJoint> result = call->waiter.wait(interrupted, period);
  if (!result) return interrupted_status("joining the run");
  if (!result->status.ok()) return result->status;
  impl.see(*result->topology);
  return peer;
}

uint32_t Peer::rank() const {
  if (!impl_->forked()) impl_->look();
  return impl_->rank;
}
uint32_t Peer::world_size() const {
  if (!impl_->forked()) impl_->look();
  return impl_->world_size;
}

std::shared_ptr<const Topology> Peer::topology() const {
  // The lock may have been held at the fork: then a forked child would wait for it for ever.
  if (impl_->forked()) return std::make_shared<Topology>();
  const Lock lock(impl_->topology_mutex);
  return impl_->topology;
}

Handle Peer::post(OpRequest request, ring::Memory memory, Completion completion) {
  if (impl_->forked()) {
    completion(impl_->forked_status());
    return 0;
  }
  return impl_->control.post(std::move(request), std::move(memory), std::move(completion));
}

const std::shared_ptr<WaitRecord>& Peer::waits() const { return impl_->control.waits(); }

void Peer::staged(Handle handle, Status status) {
  if (!impl_->forked()) impl_->control.staged(handle, std::move(status));
}

Status Peer::Impl::check_joint(const char* what) {
  Status status = check_caller(what);
  if (!status.ok()) return status;
  const Lock lock(background_mutex);
  if (background != nullptr && background->concluded()) background.reset();
  return background == nullptr ? Status{} : under_way(what);
}

Result<JointResult> Peer::Impl::joint(JointCalled event, const Interrupted& interrupted) {
  const char* const what = text(event.kind);
  if (Status status = check_joint(what); !status.ok()) return status;
  const auto call = std::make_shared<Control::WaitingCall>();
  if (!control.joint(std::move(event), call))
    return Status{Code::kInvalidState, std::string(what) + ": this process has left the run", {}};
  const WaitRecord::Wait wait(control.waits().get(), {kInJointCall, monotonic_now()});
  std::optional<FinishJoint> result = call->waiter.wait(interrupted);
  if (result) return outcome_of(std::move(*result));
  control.give_up(call);
  // The call still waits a while, so as not to miss a new topology.
  int periods = 0;
  const auto enough = [&] { return ++periods >= kPeriodsForAnAnswer; };
  result = call->waiter.wait(enough);
  if (result && result->topology) see(*result->topology);
  return interrupted_status(what);
}

Result<JointResult> Peer::Impl::outcome_of(FinishJoint end) {
  if (!end.status.ok()) return end.status;
  JointResult out;
  out.pending = end.pending;
  out.elsewhere = end.elsewhere;
  if (end.topology) see(*end.topology);
  if (end.plan) {
    const Lock lock(topology_mutex);
    plan = end.plan;
  }
  out.plan = std::move(end.plan);
  out.topology = std::move(end.topology);
  return out;
}

Result<JointResult> Peer::update_topology(Duration timeout, const Interrupted& interrupted) {
  return impl_->joint({0, protocol::JointKind::kUpdateTopology, {}, timeout}, interrupted);
}

Result<JointResult> Peer::regroup(protocol::Rendezvous with, Duration timeout,
                                  const Interrupted& interrupted) {
  JointCalled event{0, protocol::JointKind::kUpdateTopology, {}, timeout};
  event.rendezvous = std::move(with);
  return impl_->joint(std::move(event), interrupted);
}

Result<JointResult> Peer::are_peers_pending(Duration timeout, const Interrupted& interrupted) {
  return impl_->joint({0, protocol::JointKind::kArePeersPending, {}, timeout}, interrupted);
}

Result<JointResult> Peer::optimize_topology(std::chrono::milliseconds budget, uint64_t max_bytes,
                                            Duration timeout, const Interrupted& interrupted) {
  JointCalled event{0, protocol::JointKind::kOptimizeTopology, {}, timeout};
  if (timeout > Duration{0}) event.timeout += budget;
  event.budget_ms = static_cast<uint32_t>(budget.count());
  event.max_bytes = max_bytes;
  return impl_->joint(std::move(event), interrupted);
}

// ---- Shared state ----

namespace {

// A peer whose device has failed still makes the call. It cannot win the election, so it has to
// fetch the entries that its device cannot take, and this transfer fails for all members.
JointCalled call_of(const SharedEntries& shared, uint64_t revision, protocol::SyncStrategy strategy,
                    Duration timeout) {
  JointCalled event{0, protocol::JointKind::kSyncSharedState, shared.offer(), timeout, {}};
  event.entries = protocol::EntryList(shared.list());
  event.offer.revision = revision;
  event.offer.strategy = shared.failure().ok() ? strategy : protocol::SyncStrategy::kReceiveOnly;
  return event;
}

Status check_strategy(const StateSpans& entries, protocol::SyncStrategy strategy) {
  if (!entries.may_add() || strategy == protocol::SyncStrategy::kReceiveOnly) return {};
  return {Code::kInvalidArgument, "shared state: only receive_only may add entries", {}};
}

}  // namespace

// Hashes the entries and prepares the call. An interrupt while it hashes does not drop the call,
// since the other members wait for it.
std::shared_ptr<SyncCall> Peer::Impl::sync_call(SyncRequest request, InBackground how,
                                                bool in_place, const Interrupted& interrupted) {
  SharedEntries::Options options;
  options.timeout = request.timeout;
  options.in_place = in_place;
  auto entries = SharedEntries::make(std::move(request.entries), options, interrupted);
  JointCalled event = call_of(*entries, request.revision, request.strategy, request.timeout);
  return std::make_shared<SyncCall>(control, std::move(event), std::move(entries), std::move(how),
                                    [this] { return check_caller("wait"); });
}

Result<JointResult> Peer::sync_shared_state(uint64_t revision, protocol::SyncStrategy strategy,
                                            std::vector<StateSpan> entries, Duration timeout,
                                            const Interrupted& interrupted) {
  Result<std::shared_ptr<StateSpans>> spans = StateSpans::make(std::move(entries));
  if (!spans.ok()) return spans.status();
  return sync_shared_state({revision, strategy, std::move(spans.value()), timeout}, interrupted);
}

Result<JointResult> Peer::sync_shared_state(SyncRequest request, const Interrupted& interrupted,
                                            const OnProgress& on_progress) {
  Status status = impl_->check_joint("sync_shared_state");
  if (status.ok()) status = check_strategy(*request.entries, request.strategy);
  if (!status.ok()) return status;
  // It stays true: the call is made in any case, because the other members wait for it. Then it is
  // given up.
  bool stop = false;
  const Interrupted stopped = [&] { return stop = stop || (interrupted && interrupted()); };
  const bool in_place = request.strategy == protocol::SyncStrategy::kReceiveOnly;
  return impl_->sync_call(std::move(request), {}, in_place, stopped)->run(stopped, on_progress);
}

Result<std::shared_ptr<SyncCall>> Peer::begin_sync(SyncRequest request, InBackground background,
                                                   const Interrupted& interrupted) {
  Status status = impl_->check_joint("sync_shared_state");
  if (status.ok()) status = check_strategy(*request.entries, request.strategy);
  if (!status.ok()) return status;
  bool stop = false;
  const Interrupted stopped = [&] { return stop = stop || (interrupted && interrupted()); };
  const auto sync = impl_->sync_call(std::move(request), std::move(background), false, stopped);
  if (status = impl_->start_in_background(sync); !status.ok()) return status;
  const bool voted = sync->wait_for_votes(stopped);
  if (voted && !sync->failed()) return sync;
  if (!voted) {
    sync->give_up();
    sync->abandon(interrupted_status("sync_shared_state"));
  }
  return sync->wait(monotonic_now() + kForever, {})->status();
}

Status Peer::Impl::start_in_background(const std::shared_ptr<SyncCall>& sync) {
  const Lock lock(background_mutex);
  if (background != nullptr) return under_way("sync_shared_state");
  Status status = sync->start();
  if (status.ok()) background = sync;
  return status;
}

void Peer::leave(Duration at_most) {
  if (!impl_->check_caller("leave").ok()) return;
  const ExclusiveLock lock(impl_->life);
  if (!impl_->ended) impl_->control.end(at_most);
  impl_->ended = true;
  std::shared_ptr<SyncCall> background;
  {
    const Lock of(impl_->background_mutex);
    background = impl_->background;
  }
  if (background != nullptr) background->join();  // its thread uses the Control
}

Status Peer::report(const std::vector<protocol::Scalar>& scalars) {
  return impl_->forked() ? Status{} : impl_->control.report(scalars);
}

Info Peer::info() {
  Info info;
  if (impl_->forked()) return info;
  if (impl_->control.on_loop()) {
    info = impl_->control.info();
  } else {
    const SharedLock lock(impl_->life);
    if (!impl_->ended) info = impl_->control.info();
  }
  info.topology = *topology();
  const Lock lock(impl_->topology_mutex);
  info.plan = impl_->plan;
  return info;
}

}  // namespace pccl::peer
