#include "csrc/torch/hosted_run.h"

#include <pthread.h>

#include <map>
#include <utility>

#include "csrc/base/token.h"
#include "csrc/net/descriptors.h"
#include "csrc/torch/errors.h"
#include "master/shell/shell.h"

namespace pccl::torch_layer {

struct HostedRun::Master {
  std::unique_ptr<master::Shell> shell;
  std::string token;
  std::map<std::string, int> names;  // how many runs had this name
};

// The masters of this process, by where they listen and whom they admit.
struct HostedRun::Masters {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Master>> by_terms;
};

namespace {

std::string terms(const HostedRun::Options& options) {
  return options.host + (options.drawn ? " drawn" : " " + options.token);
}

}  // namespace

// Never destroyed, and replaced in a forked child, for the same reasons as the CompletionExecutor.
HostedRun::Masters& HostedRun::masters() {
  static Masters* all = new Masters;
  [[maybe_unused]] static const int handler =
      pthread_atfork(nullptr, nullptr, [] { all = new Masters; });
  return *all;
}

HostedRun::HostedRun(const Options& options) : forks_(net::fork_count()) {
  Masters& all = masters();
  const std::lock_guard lock(all.mutex);
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
  const std::lock_guard lock(mutex_);
  return master_;
}

void HostedRun::start_ending() {
  if (const auto master = this->master()) master->shell->start_draining(name_);
}

void HostedRun::end(Duration at_most) {
  if (const auto master = this->master()) master->shell->drain(name_, at_most);
  if (forks_ != net::fork_count()) return;
  std::shared_ptr<Master> last;
  const std::lock_guard lock(mutex_);
  last.swap(master_);
}

}  // namespace pccl::torch_layer
