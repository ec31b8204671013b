// Broadcast: the collective that gives the tensor of one rank to all others.

#include "csrc/torch/call.h"

namespace pccl::torch_layer {

PcclBackend::WorkPtr PcclBackend::broadcast(Tensors& tensors,
                                            const c10d::BroadcastOptions& options) {
  expect_one("broadcast", tensors);
  Call call("broadcast", OpKind::kBroadcast, c10d::OpType::BROADCAST, options.timeout);
  call.request.root = checked_rank("broadcast", "src", options.rootRank);
  const bool root = call.request.root == rank();
  call.spans = {call.borrowed->lend(tensors[0], root ? Use::kRead : Use::kWrite)};
  call.elements(tensors[0].scalar_type(), call.spans[0].size());
  call.save = !root;
  call.borrowed->results = tensors;
  return post(std::move(call));
}

}  // namespace pccl::torch_layer
