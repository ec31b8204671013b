#include "csrc/torch/hooks.h"

#include <pthread.h>

#include <utility>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/torch/completion_executor.h"
#include "csrc/torch/work.h"

namespace pccl::torch_layer {
namespace {

// The operations of all groups that have ended, and whose hooks are still to run. One thread runs
// them for all groups.
struct Reports {
  Mutex mutex;
  std::vector<std::shared_ptr<PostedOperation>> ended PCCL_GUARDED_BY(mutex);
  bool under_way PCCL_GUARDED_BY(mutex) = false;  // a task is to take `ended`
};
// Never destroyed, and replaced in a forked child, for the same reasons as the CompletionExecutor.
Reports* g_reports = new Reports;
[[maybe_unused]] const int g_reports_handler =
    pthread_atfork(nullptr, nullptr, [] { g_reports = new Reports; });

void report_all(Reports& all) {
  std::vector<std::shared_ptr<PostedOperation>> ended;
  while (true) {
    ended.clear();
    {
      const Lock lock(all.mutex);
      // If the system has no thread left, the peer loop itself runs the task. Then the operations
      // wait for the next call of report_later().
      all.under_way = !all.ended.empty() && CompletionExecutor::is_executing();
      if (!all.under_way) return;
      ended.swap(all.ended);
    }
    for (const auto& operation : ended) operation->report_end();
  }
}

}  // namespace

// Whether `code` is a fault that people may want to look into. An operation that ends because this
// process leaves, or because the membership changes, has hit no fault. The same is true of a call
// that was refused, and of the loss of a peer: the group goes on without it.
bool Hooks::is_fault(Code code) const {
  switch (code) {
    case Code::kTooFewPeers:
    case Code::kMismatch:
    case Code::kOperationTimeout:
    case Code::kKicked:
    case Code::kAuthentication:
    case Code::kTopology:
    case Code::kSystem:
    case Code::kProtocol: return true;
    case Code::kMasterLost: return !reconfigurable;
    case Code::kOk:
    case Code::kPeerLost:
    case Code::kMembershipChanged:
    case Code::kInvalidState:
    case Code::kSharedState:
    case Code::kInvalidArgument: break;
  }
  return false;
}

bool Hooks::want(Code code) const {
  return code == Code::kOk ? !completion.empty() : is_fault(code) && !abort.empty();
}

void Hooks::run(Code code, uint64_t key, std::optional<float> milliseconds) const {
  if (code == Code::kOk) {
    completion.run_all("a completion hook", key, milliseconds);
  } else if (is_fault(code)) {
    run_abort();
  }
}

void Hooks::run_abort() const { abort.run_all("an abort hook"); }

void Hooks::report_later(std::shared_ptr<PostedOperation> operation) {
  Reports& all = *g_reports;
  {
    const Lock lock(all.mutex);
    all.ended.push_back(std::move(operation));
    if (std::exchange(all.under_way, true)) return;
  }
  CompletionExecutor::get().run([] { report_all(*g_reports); });
}

void Hooks::clear() {
  completion.clear();
  abort.clear();
}

}  // namespace pccl::torch_layer
