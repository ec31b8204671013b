// The calls of torch that pccl does not have yet. Each raises NotImplementedError.

#include <string>

#include "csrc/torch/call.h"
#include "csrc/torch/errors.h"

namespace pccl::torch_layer {

void not_here(const char* name) {
  raise_not_implemented(std::string("pccl does not have ") + name +
                        " yet; it has all other collectives of torch.distributed");
}

using WorkPtr = PcclBackend::WorkPtr;

WorkPtr PcclBackend::allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) {
  not_here("all_reduce of sparse tensors");
}
}  // namespace pccl::torch_layer
