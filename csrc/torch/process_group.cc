#include "csrc/torch/process_group.h"

namespace pccl::torch_layer {

PcclGroup::PcclGroup(const c10::intrusive_ptr<c10d::Store>& store,
                     const c10::intrusive_ptr<PcclBackend>& backend, bool open_run)
    : ProcessGroup(store, backend->rank(), backend->size()),
      backend_(backend),
      open_run_(open_run) {
  setDefaultBackend(BackendType::CUSTOM);
}

void PcclGroup::serve(const std::vector<std::string>& devices) {
  for (const std::string& device : devices) {
    setBackend(c10::Device(device).type(), BackendType::CUSTOM,
               c10::intrusive_ptr<c10d::Backend>(backend_));
  }
}

}  // namespace pccl::torch_layer
