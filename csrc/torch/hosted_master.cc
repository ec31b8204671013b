#include "csrc/torch/hosted_master.h"

#include <pthread.h>

#include <utility>

#include "csrc/base/log.h"
#include "csrc/base/token.h"
#include "csrc/torch/errors.h"
#include "master/shell/hosted_socket.h"
#include "master/shell/shell.h"
#include "master/shell/user_folders.h"

namespace pccl::torch_layer {
namespace {

// The masters of this process, by the address where they listen and by the peers that they admit.
struct Masters {
  Mutex mutex;
  std::map<std::string, std::weak_ptr<HostedMaster>> by_terms PCCL_GUARDED_BY(mutex);
};
// Never destroyed, and replaced in a forked child, for the same reasons as the CompletionExecutor.
Masters* g_masters = new Masters;
[[maybe_unused]] const int g_masters_handler =
    pthread_atfork(nullptr, nullptr, [] { g_masters = new Masters; });

std::string terms(const HostedMaster::Options& options) {
  return options.host + (options.handles ? " handles" : "") +
         (options.drawn ? " drawn" : " " + options.token);
}

// The master goes on without the socket if it cannot be made.
void open_control(master::Shell& shell) {
  const auto path = master::hosted_socket_path(master::socket_folders());
  const Status status = path.ok() ? shell.open_control(path.value()) : path.status();
  if (status.ok()) return;
  log(LogLevel::kInfo, "`pccl status` cannot ask the master of this process: " + status.message);
}

std::unique_ptr<master::Shell> start(const HostedMaster::Options& options) {
  master::Tokens tokens;
  tokens.handles = options.handles;
  if (!options.token.empty()) {
    Result<Token> token = parse_token(options.token);
    if (!token.ok()) raise(token.status());
    tokens.shared = std::move(token.value());
  }
  auto opened =
      master::Shell::open({options.host, 0}, {}, {}, protocol::kSpoken, std::move(tokens));
  if (!opened.ok()) raise(opened.status());
  open_control(*opened.value());
  return std::move(opened.value());
}

}  // namespace

HostedMaster::HostedMaster(std::unique_ptr<master::Shell> shell, std::string token)
    : shell_(std::move(shell)), token_(std::move(token)) {}

HostedMaster::~HostedMaster() = default;

std::shared_ptr<HostedMaster> HostedMaster::get(const Options& options) {
  Masters& all = *g_masters;
  const Lock lock(all.mutex);
  std::erase_if(all.by_terms, [](const auto& at) { return at.second.expired(); });
  std::weak_ptr<HostedMaster>& known = all.by_terms[terms(options)];
  std::shared_ptr<HostedMaster> master = known.lock();
  if (master == nullptr) {
    master.reset(new HostedMaster(start(options), options.token));
    known = master;
  }
  return master;
}

std::string HostedMaster::fresh_name(const std::string& name) {
  const Lock lock(mutex_);
  const int number = ++names_[name];
  return name + (number == 1 ? "" : " (" + std::to_string(number) + ")");
}

}  // namespace pccl::torch_layer
