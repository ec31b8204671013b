// Barrier: the collective that moves no tensor, and ends when all ranks have called it. Its error
// names the ranks that have not called it. So a monitored barrier is a barrier and a wait for it.

#include "csrc/torch/call.h"

namespace pccl::torch_layer {

PcclBackend::WorkPtr PcclBackend::barrier(const c10d::BarrierOptions& options) {
  return post({"barrier", OpKind::kBarrier, c10d::OpType::BARRIER, options.timeout});
}

void PcclBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool) {
  barrier(options)->wait(::kNoTimeout);
}

}  // namespace pccl::torch_layer
