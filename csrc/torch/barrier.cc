// Barrier: the collective that moves no tensor, and ends when all ranks have called it. Its error
// names the ranks that have not called it, so a monitored barrier is one that is waited for.

#include "csrc/torch/call.h"

namespace pccl::torch_layer {

PcclBackend::WorkPtr PcclBackend::barrier(const c10d::BarrierOptions& options) {
  return post({"barrier", OpKind::kBarrier, c10d::OpType::BARRIER, options.timeout});
}

void PcclBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool) {
  barrier(options)->wait(::kNoTimeout);
}

}  // namespace pccl::torch_layer
