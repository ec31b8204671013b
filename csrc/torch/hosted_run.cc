#include "csrc/torch/hosted_run.h"

#include <pthread.h>

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

#include "csrc/base/log.h"
#include "csrc/net/descriptors.h"
#include "csrc/torch/completion_executor.h"
#include "csrc/torch/hosted_master.h"
#include "master/shell/shell.h"

namespace pccl::torch_layer {

// The runs whose rank 0 has left the group.
struct HostedRun::Kept {
  Mutex mutex;
  std::vector<std::shared_ptr<HostedRun>> runs PCCL_GUARDED_BY(mutex);
};

// Never destroyed, and replaced in a forked child, for the same reasons as the CompletionExecutor.
HostedRun::Kept& HostedRun::kept_runs() {
  static Kept* all = new Kept;
  [[maybe_unused]] static const int handler =
      pthread_atfork(nullptr, nullptr, [] { all = new Kept; });
  return *all;
}

HostedRun::HostedRun(std::shared_ptr<HostedMaster> master, std::string name, Duration patience,
                     std::shared_ptr<const void> key)
    : forks_(net::fork_count()),
      patience_(patience),
      port_(master->shell().port()),
      token_(master->token()),
      name_(std::move(name)),
      key_(std::move(key)),
      master_(std::move(master)) {}

HostedRun::HostedRun(const Options& options)
    : HostedRun(HostedMaster::get({options.host, options.token, options.drawn, false}), options) {
  const auto master = this->master();
  master->shell().announce(name_);
}

HostedRun::HostedRun(const std::shared_ptr<HostedMaster>& master, const Options& options)
    : HostedRun(master, master->fresh_name(options.name), options.patience, nullptr) {}

HostedRun::~HostedRun() {
  if (forks_ != net::fork_count()) {
    // The threads belong to the parent process. Ending them here would wait for ever.
    new std::shared_ptr<HostedMaster>(std::move(master_));
    return;
  }
  start_ending();
  end({});
}

std::shared_ptr<HostedMaster> HostedRun::master() const {
  if (forks_ != net::fork_count()) return nullptr;
  const Lock lock(mutex_);
  return master_;
}

void HostedRun::keep(std::shared_ptr<HostedRun> run) {
  const auto master = run->master();
  if (master == nullptr) return;
  if (!master->shell().lives(run->name_)) return run->end({});
  Kept& all = kept_runs();
  {
    const Lock lock(all.mutex);
    all.runs.push_back(run);
  }
  // The last run ends its master, and the loop of the master must not wait for its own end. So
  // another thread drops the run.
  master->shell().when_over(run->name_, [&all, kept = std::weak_ptr(run)] {
    CompletionExecutor::get().run([&all, kept] {
      const std::shared_ptr<HostedRun> over = kept.lock();
      const Lock lock(all.mutex);
      std::erase(all.runs, over);
    });
  });
}

void HostedRun::exit_all(const std::function<bool()>& interrupted, Duration at_most) {
  std::vector<std::shared_ptr<HostedRun>> kept;
  {
    Kept& all = kept_runs();
    const Lock lock(all.mutex);
    kept.swap(all.runs);
  }
  if (!interrupted()) wait_for_peers(kept, interrupted);
  for (const auto& run : kept) run->start_ending();
  const Instant until = monotonic_now() + at_most;
  for (const auto& run : kept) run->end(std::max(until - monotonic_now(), Duration{0}));
}

void HostedRun::wait_for_peers(const std::vector<std::shared_ptr<HostedRun>>& runs,
                               const std::function<bool()>& interrupted) {
  constexpr Duration kLook = std::chrono::milliseconds(100);
  const Instant tell_at = monotonic_now() + std::chrono::seconds(1);
  std::vector<std::future<void>> waits;
  for (const auto& run : runs) {
    if (const auto master = run->master())
      waits.push_back(master->shell().host_exits(run->name_, run->patience_));
  }
  bool told = false;
  for (std::future<void>& wait : waits) {
    while (wait.wait_for(kLook) != std::future_status::ready) {
      if (interrupted()) return;
      if (!told && monotonic_now() >= tell_at) told = true, tell_who_is_awaited(runs);
    }
  }
}

void HostedRun::tell_who_is_awaited(const std::vector<std::shared_ptr<HostedRun>>& runs) {
  std::string peers;
  for (const auto& run : runs) {
    const auto master = run->master();
    const std::string some = master ? master->shell().awaited_peers(run->name_) : "";
    if (!some.empty()) peers += (peers.empty() ? "" : "; ") + some;
  }
  if (peers.empty()) return;
  log(LogLevel::kWarning, LogEvent::kHostWaits,
      "the program of this process is over, and the process waits, because it hosts the master "
      "that other ranks still need: " +
          peers + ". Ctrl-C ends the wait, and their run");
}

void HostedRun::start_ending() {
  if (const auto master = this->master()) master->shell().start_draining(name_);
}

void HostedRun::end(Duration at_most) {
  if (const auto master = this->master()) master->shell().drain(name_, at_most);
  if (forks_ != net::fork_count()) return;
  std::shared_ptr<HostedMaster> last;
  const Lock lock(mutex_);
  last.swap(master_);
}

}  // namespace pccl::torch_layer
