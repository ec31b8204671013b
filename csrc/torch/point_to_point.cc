// Send and recv: the operations of two ranks. The other ranks take no part in them.

#include <string>

#include "csrc/torch/call.h"
#include "csrc/torch/errors.h"

namespace pccl::torch_layer {

PcclBackend::WorkPtr PcclBackend::transfer(Call call, const Tensors& tensors, int other, int tag) {
  expect_one(call.name, tensors);
  const bool sends = call.request.kind == OpKind::kSend;
  const bool from_any = call.type == c10d::OpType::RECVANYSOURCE;
  call.request.root = from_any ? other : checked_rank(call.name, sends ? "dst" : "src", other);
  if (from_any && size() == 1) {
    raise_value_error(
        "recv without src: this rank is alone in its group, so no rank can send to it");
  }
  if (other == rank()) {
    raise_value_error(
        c10::str(call.name, "(", sends ? "dst" : "src", "=", other, "): that is this rank itself"));
  }
  if (tag != 0) call.request.tag += "#" + std::to_string(tag);  // torch's number after our text
  call.spans = {call.borrowed->lend(tensors[0], sends ? Use::kRead : Use::kWrite)};
  call.elements(tensors[0].scalar_type(), call.spans[0].size());
  call.save = !sends;
  call.borrowed->results = tensors;
  return post(std::move(call));
}

PcclBackend::WorkPtr PcclBackend::send(Tensors& tensors, int destination, int tag) {
  return transfer({"send", OpKind::kSend, c10d::OpType::SEND}, tensors, destination, tag);
}

PcclBackend::WorkPtr PcclBackend::recv(Tensors& tensors, int source, int tag) {
  return transfer({"recv", OpKind::kRecv, c10d::OpType::RECV}, tensors, source, tag);
}

PcclBackend::WorkPtr PcclBackend::recvAnysource(Tensors& tensors, int tag) {
  return transfer({"recv", OpKind::kRecv, c10d::OpType::RECVANYSOURCE}, tensors, peer::kAnySource,
                  tag);
}

}  // namespace pccl::torch_layer
