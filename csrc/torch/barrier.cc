// Barrier: the collective that moves no tensor, and ends when all ranks have called it.

#include "csrc/torch/call.h"

namespace pccl::torch_layer {

PcclBackend::WorkPtr PcclBackend::barrier(const c10d::BarrierOptions& options) {
  return post({"barrier", OpKind::kBarrier, c10d::OpType::BARRIER, options.timeout});
}

}  // namespace pccl::torch_layer
