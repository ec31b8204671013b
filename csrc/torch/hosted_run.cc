#include "csrc/torch/hosted_run.h"

#include <pthread.h>

#include <algorithm>
#include <future>
#include <map>
#include <utility>
#include <vector>

#include "csrc/base/log.h"
#include "csrc/base/token.h"
#include "csrc/net/descriptors.h"
#include "csrc/torch/completion_executor.h"
#include "csrc/torch/errors.h"
#include "master/shell/hosted_socket.h"
#include "master/shell/shell.h"
#include "master/shell/user_folders.h"

namespace pccl::torch_layer {

struct HostedRun::Master {
  std::unique_ptr<master::Shell> shell;
  std::string token;
  std::map<std::string, int> names;  // number of runs that had this name
};

// `by_terms`: the masters of this process, by the address where they listen and by the peers that
// they admit. `kept`: the runs whose rank 0 has left the group.
struct HostedRun::Masters {
  Mutex mutex;
  std::map<std::string, std::weak_ptr<Master>> by_terms PCCL_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<HostedRun>> kept PCCL_GUARDED_BY(mutex);
};

namespace {

std::string terms(const HostedRun::Options& options) {
  return options.host + (options.drawn ? " drawn" : " " + options.token);
}

// The run goes on without the socket if it cannot be made.
void open_control(master::Shell& shell) {
  const auto path = master::hosted_socket_path(master::socket_folders());
  const Status status = path.ok() ? shell.open_control(path.value()) : path.status();
  if (status.ok()) return;
  log(LogLevel::kInfo, "`pccl status` cannot ask the master of this process: " + status.message);
}

}  // namespace

// Never destroyed, and replaced in a forked child, for the same reasons as the CompletionExecutor.
HostedRun::Masters& HostedRun::masters() {
  static Masters* all = new Masters;
  [[maybe_unused]] static const int handler =
      pthread_atfork(nullptr, nullptr, [] { all = new Masters; });
  return *all;
}

HostedRun::HostedRun(const Options& options)
    : forks_(net::fork_count()), patience_(options.patience) {
  Masters& all = masters();
  const Lock lock(all.mutex);
  std::erase_if(all.by_terms, [](const auto& at) { return at.second.expired(); });
  std::weak_ptr<Master>& known = all.by_terms[terms(options)];
  master_ = known.lock();
  if (master_ == nullptr) {
    master::Tokens tokens;
    if (!options.token.empty()) {
      Result<Token> token = parse_token(options.token);
      if (!token.ok()) raise(token.status());
      tokens.shared = std::move(token.value());
    }
    auto opened =
        master::Shell::open({options.host, 0}, {}, {}, protocol::kSpoken, std::move(tokens));
    if (!opened.ok()) raise(opened.status());
    open_control(*opened.value());
    master_ = std::make_shared<Master>(Master{std::move(opened.value()), options.token, {}});
    known = master_;
  }
  port_ = master_->shell->port();
  token_ = master_->token;
  const int number = ++master_->names[options.name];
  name_ = options.name + (number == 1 ? "" : " (" + std::to_string(number) + ")");
  master_->shell->announce(name_);
}

HostedRun::~HostedRun() {
  if (forks_ != net::fork_count()) {
    // The threads belong to the parent process. Ending them here would wait for ever.
    new std::shared_ptr<Master>(std::move(master_));
    return;
  }
  start_ending();
  end({});
}

std::shared_ptr<HostedRun::Master> HostedRun::master() const {
  if (forks_ != net::fork_count()) return nullptr;
  const Lock lock(mutex_);
  return master_;
}

void HostedRun::keep(std::shared_ptr<HostedRun> run) {
  const auto master = run->master();
  if (master == nullptr) return;
  if (!master->shell->lives(run->name_)) return run->end({});
  Masters& all = masters();
  {
    const Lock lock(all.mutex);
    all.kept.push_back(run);
  }
  // The last run ends its master, and the loop of the master must not wait for its own end. So
  // another thread drops the run.
  master->shell->when_over(run->name_, [&all, kept = std::weak_ptr(run)] {
    CompletionExecutor::get().run([&all, kept] {
      const std::shared_ptr<HostedRun> over = kept.lock();
      const Lock lock(all.mutex);
      std::erase(all.kept, over);
    });
  });
}

void HostedRun::exit_all(const std::function<bool()>& interrupted, Duration at_most) {
  std::vector<std::shared_ptr<HostedRun>> kept;
  {
    Masters& all = masters();
    const Lock lock(all.mutex);
    kept.swap(all.kept);
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
      waits.push_back(master->shell->host_exits(run->name_, run->patience_));
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
    const std::string some = master ? master->shell->awaited_peers(run->name_) : "";
    if (!some.empty()) peers += (peers.empty() ? "" : "; ") + some;
  }
  if (peers.empty()) return;
  log(LogLevel::kWarning,
      "the program of this process is over, and the process waits, because it hosts the master "
      "that other ranks still need: " +
          peers + ". Ctrl-C ends the wait, and their run");
}

void HostedRun::start_ending() {
  if (const auto master = this->master()) master->shell->start_draining(name_);
}

void HostedRun::end(Duration at_most) {
  if (const auto master = this->master()) master->shell->drain(name_, at_most);
  if (forks_ != net::fork_count()) return;
  std::shared_ptr<Master> last;
  const Lock lock(mutex_);
  last.swap(master_);
}

}  // namespace pccl::torch_layer
