// PcclGroup: the object that torch calls the process group. It serves every requested device with
// one PcclBackend. It reads its rank and size from the peer, so that they follow the membership of
// the run. Any thread may call it.
// There are two classes because, in all supported releases of torch, collectives are virtual
// functions of the Backend, and only a ProcessGroup may change its size (torch 2.13 and older). If
// a group has other backends beside pccl, its class is torch's own, and pccl provides only the
// PcclBackend.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "csrc/torch/backend.h"

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
  bool open_run() const { return open_run_; }
  uint64_t count_split() { return splits_++; }  // all members make the same number of calls

 private:
  const c10::intrusive_ptr<PcclBackend> backend_;
  const bool open_run_;
  std::atomic<uint64_t> splits_{0};
};

}  // namespace pccl::torch_layer
