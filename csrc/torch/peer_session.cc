#include "csrc/torch/peer_session.h"

#include <pthread.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "csrc/base/log.h"
#include "csrc/base/mutex.h"
#include "csrc/net/descriptors.h"
#include "csrc/protocol/limits.h"
#include "csrc/ring/shell/peer_thread.h"
#include "csrc/torch/completion_executor.h"
#include "csrc/torch/device_poller.h"

namespace pccl::torch_layer {
namespace {

// Maximum time for leaving. If it is not enough, the others notice the loss by their peer timeout.
constexpr Duration kLeaveTime = std::chrono::seconds(2);

struct Registry {
  Mutex mutex;
  std::vector<std::weak_ptr<PeerSession>> peers PCCL_GUARDED_BY(mutex);
  std::weak_ptr<ring::PeerThread> thread
      PCCL_GUARDED_BY(mutex);  // shared by all peers of this process
};
// Never destroyed, and replaced in a forked child, for the same reasons as the CompletionExecutor.
Registry* g_registry = new Registry;
[[maybe_unused]] const int g_session_handler =
    pthread_atfork(nullptr, nullptr, [] { g_registry = new Registry; });

std::shared_ptr<ring::PeerThread> shared_thread() {
  const Lock lock(g_registry->mutex);
  std::shared_ptr<ring::PeerThread> thread = g_registry->thread.lock();
  if (thread == nullptr) g_registry->thread = thread = std::make_shared<ring::PeerThread>();
  return thread;
}

Status check_size(const char* name, size_t value, size_t min, size_t max) {
  if (value >= min && value <= max) return {};
  return {Code::kInvalidArgument, std::string(name) + " is " + std::to_string(value) +
                                      "; it must be from " + std::to_string(min) + " to " +
                                      std::to_string(max)};
}

// Checks the values that pccl_backend/_settings.py does not check: it reads the names of runs from
// URLs of any length, and torch gives the size of a fixed world.
Status check(const peer::Options& options) {
  const Status name =
      check_size("the length of the run's name", options.run.size(), 1, protocol::kRunNameBytesMax);
  if (!name.ok()) return name;
  return check_size("the world size", options.founders, 0, protocol::kMembersMax);
}

// Ends the run of a world that cannot begin any more, so that the other ranks, which wait for it,
// learn of the end.
void say_farewell(HostedRun& hosted) {
  hosted.start_ending();
  hosted.end(PeerSession::kEndTime);
}

}  // namespace

Result<std::shared_ptr<PeerSession>> PeerSession::join(Request request,
                                                       const peer::Interrupted& interrupted) {
  if (const Status status = check(request.peer); !status.ok()) return status;
  const bool meets = request.peer.rendezvous.has_value();  // its run ends with a reason, elsewhere
  auto joined = peer::Peer::join(request.master, std::move(request.peer), std::move(request.data),
                                 interrupted, std::move(request.token), shared_thread());
  if (!joined.ok()) {
    if (request.hosted && !meets) say_farewell(*request.hosted);
    return joined.status();
  }

  std::shared_ptr<PeerSession> session(new PeerSession);
  session->peer_ = std::move(joined.value());
  session->hosted_ = std::move(request.hosted);
  session->restore_ = request.restore;
  session->checks_callsite_ = request.check_callsite;
  session->forks_ = net::fork_count();
  const Lock lock(g_registry->mutex);
  std::erase_if(g_registry->peers, [](const auto& peer) { return peer.expired(); });
  g_registry->peers.push_back(session);
  return session;
}

Status PeerSession::check_descriptors(size_t size, bool hosts) {
  constexpr size_t kListener = 2;  // one for IPv4 and one for IPv6
  constexpr size_t kToMaster = 1;
  constexpr size_t kSpare = 8;  // torch's store needs some, and it brings the error to other ranks
  const size_t links = size > 1 ? size - 1 : 0;
  const size_t at_master = hosts ? kListener + size : 0;
  const size_t needed = kListener + kToMaster + links + at_master + kSpare;
  if (net::has_room(needed)) return {};
  return {Code::kSystem,
          "too many open files: a group of " + std::to_string(size) + " needs " +
              std::to_string(needed) + " more in this process, which may have " +
              std::to_string(net::descriptors_max()) +
              " open: raise that limit (ulimit -n), or destroy groups that are not needed",
          {}};
}

PeerSession::~PeerSession() {
  leave();
  if (forks_ == net::fork_count()) return;
  // The threads belong to the parent process. Ending them here would wait for ever.
  static_cast<void>(peer_.release());
}

Status PeerSession::usable() const {
  if (forks_ != net::fork_count()) {
    return {Code::kInvalidState,
            "this process was forked from the peer that joined and is no member itself: use the "
            "group in the parent, or "
            "call init_process_group here"};
  }
  if (left_) {
    return {Code::kInvalidState,
            "this process has left the group (destroy_process_group or shutdown): join again"};
  }
  return {};
}

void PeerSession::leave() {
  if (forks_ != net::fork_count() || left_.exchange(true)) return;
  peer_->leave(kLeaveTime);
  if (hosted_) HostedRun::keep(std::move(hosted_));
}

void PeerSession::end_hosted() {
  if (hosted_ && usable().ok()) hosted_->start_ending();
}

void PeerSession::leave_all(bool failed, const std::function<bool()>& interrupted) {
  std::vector<std::shared_ptr<PeerSession>> peers;
  {
    const Lock lock(g_registry->mutex);
    for (const auto& weak : g_registry->peers) {
      if (auto peer = weak.lock()) peers.push_back(std::move(peer));
    }
  }
  // The others learn of the end of the run before they can miss this peer.
  if (failed) {
    for (const auto& peer : peers) peer->end_hosted();
  }
  for (const auto& peer : peers) peer->leave();
  peers.clear();
  HostedRun::exit_all(failed ? [] { return true; } : interrupted, kEndTime);
  DevicePoller::get().end(kEndTime);
  CompletionExecutor::get().drain(kEndTime);
  end_log();  // a child of multiprocessing ends without exit()
}

}  // namespace pccl::torch_layer
