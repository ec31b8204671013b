#include "csrc/torch/process_group.h"

#include <utility>

namespace pccl::torch_layer {

PcclGroup::PcclGroup(const c10::intrusive_ptr<c10d::Store>& store,
                     const c10::intrusive_ptr<PcclBackend>& backend, bool open_run)
    : ProcessGroup(store, backend->rank(), backend->size()), backend_(backend) {
  backend_->set_origin({store, open_run});
  setDefaultBackend(BackendType::CUSTOM);
}

void PcclGroup::serve(const std::vector<std::string>& devices) {
  for (const std::string& device : devices) {
    setBackend(c10::Device(device).type(), BackendType::CUSTOM,
               c10::intrusive_ptr<c10d::Backend>(backend_));
  }
}

#ifdef C10D_BACKEND_HAS_HOOKS

// At the first hook, because torch collects the tensors of each call as soon as there is a hook.
void PcclGroup::run_hooks() {
  constexpr int64_t kOnlyHook = 0;
  std::call_once(runs_hooks_, [this] {
    ProcessGroup::registerPreHook(
        kOnlyHook, [hooks = pre_hooks_](const c10d::PreHookArgs& args) { hooks->run(args); });
    ProcessGroup::registerPostHook(
        kOnlyHook, [hooks = post_hooks_](const c10d::PostHookArgs& args) { hooks->run(args); });
  });
}

void PcclGroup::registerPreHook(int64_t id, c10d::PreHook hook) {
  pre_hooks_->add(id, std::move(hook));
  run_hooks();
}

void PcclGroup::registerPostHook(int64_t id, c10d::PostHook hook) {
  post_hooks_->add(id, std::move(hook));
  run_hooks();
}

#endif

}  // namespace pccl::torch_layer
