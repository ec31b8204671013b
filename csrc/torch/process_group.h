// PcclGroup: the object that torch calls the process group. It serves every requested device with
// one PcclBackend. It reads its rank and size from the peer, so that they follow the membership of
// the run. Any thread may call it.
// There are two classes because, in all supported releases of torch, collectives are virtual
// functions of the Backend, and only a ProcessGroup may change its size (torch 2.13 and older). If
// a group has other backends beside pccl, its class is torch's own, and pccl provides only the
// PcclBackend.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "csrc/torch/backend.h"
#include "csrc/torch/hook_table.h"

namespace pccl::torch_layer {

class PcclGroup : public c10d::ProcessGroup {
 public:
  PcclGroup(const c10::intrusive_ptr<c10d::Store>& store,
            const c10::intrusive_ptr<PcclBackend>& backend, bool open_run);

  int getRank() const override { return backend_->rank(); }
  int getSize() const override { return backend_->size(); }
  const std::string getBackendName() const override { return "pccl"; }
  uint64_t getSequenceNumberForGroup() override { return backend_->getSequenceNumberForGroup(); }

  PcclBackend& backend() { return *backend_; }
  c10::intrusive_ptr<PcclBackend> shared_backend() const { return backend_; }
  // Makes the backend serve tensors on these devices. Call it before the first collective.
  void serve(const std::vector<std::string>& devices);
  bool open_run() const { return backend_->origin().open_run; }
  uint64_t count_split() { return splits_++; }  // all members make the same number of calls

#ifdef C10D_BACKEND_HAS_HOOKS
  // The hooks around the call of a collective. torch 2.15 and older keep them in tables without a
  // lock. After a change of the membership, the flight recorder of this group is attached anew,
  // while other threads may call collectives. So this class has tables with a lock, and torch's
  // tables have one hook each, for ever, which runs them.
  void registerPreHook(int64_t id, c10d::PreHook hook) override;
  void unregisterPreHook(int64_t id) override { pre_hooks_->remove(id); }
  void registerPostHook(int64_t id, c10d::PostHook hook) override;
  void unregisterPostHook(int64_t id) override { post_hooks_->remove(id); }
#endif

 private:
  const c10::intrusive_ptr<PcclBackend> backend_;
#ifdef C10D_BACKEND_HAS_HOOKS
  using PreHooks = HookTable<const c10d::PreHookArgs&>;
  using PostHooks = HookTable<const c10d::PostHookArgs&>;
  void run_hooks();

  std::once_flag runs_hooks_;
  const std::shared_ptr<PreHooks> pre_hooks_ = std::make_shared<PreHooks>();
  const std::shared_ptr<PostHooks> post_hooks_ = std::make_shared<PostHooks>();
#endif
  std::atomic<uint64_t> splits_{0};
};

}  // namespace pccl::torch_layer
