// The calls of torch that pccl does not have yet. Each raises NotImplementedError.

#include <string>

#include "csrc/torch/call.h"
#include "csrc/torch/errors.h"

namespace pccl::torch_layer {

void not_here(const char* name) {
  raise_not_implemented(std::string("pccl does not have ") + name +
                        " yet; it has all_reduce, all_reduce_coalesced, broadcast, all_gather, "
                        "all_gather_into_tensor, barrier, send and recv, and the object "
                        "collectives made of these");
}

using WorkPtr = PcclBackend::WorkPtr;

WorkPtr PcclBackend::allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) {
  not_here("all_reduce of sparse tensors");
}
WorkPtr PcclBackend::reduce(Tensors&, const c10d::ReduceOptions&) { not_here("reduce"); }
WorkPtr PcclBackend::allgather_coalesced(TensorLists&, Tensors&, const c10d::AllgatherOptions&) {
  not_here("all_gather_coalesced");
}
WorkPtr PcclBackend::gather(TensorLists&, Tensors&, const c10d::GatherOptions&) {
  not_here("gather");
}
WorkPtr PcclBackend::gather_into_tensor(at::Tensor&, at::Tensor&, const c10d::GatherOptions&) {
  not_here("gather_into_tensor");
}
WorkPtr PcclBackend::scatter(Tensors&, TensorLists&, const c10d::ScatterOptions&) {
  not_here("scatter");
}
WorkPtr PcclBackend::reduce_scatter(Tensors&, TensorLists&, const c10d::ReduceScatterOptions&) {
  not_here("reduce_scatter");
}
WorkPtr PcclBackend::_reduce_scatter_base(at::Tensor&, at::Tensor&,
                                          const c10d::ReduceScatterOptions&) {
  not_here("reduce_scatter_tensor");
}
WorkPtr PcclBackend::reduce_scatter_tensor_coalesced(Tensors&, Tensors&,
                                                     const c10d::ReduceScatterOptions&) {
  not_here("reduce_scatter_tensor");
}
WorkPtr PcclBackend::alltoall_base(at::Tensor&, at::Tensor&, std::vector<int64_t>&,
                                   std::vector<int64_t>&, const c10d::AllToAllOptions&) {
  not_here("all_to_all_single");
}
WorkPtr PcclBackend::alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) {
  not_here("all_to_all");
}
WorkPtr PcclBackend::recvAnysource(Tensors&, int) { not_here("recv without src"); }
void PcclBackend::monitoredBarrier(const c10d::BarrierOptions&, bool) {
  not_here("monitored_barrier");
}

}  // namespace pccl::torch_layer
