// The collectives that bring the tensors of all ranks together: all-gather, of one tensor and
// coalesced. An all-gather copies the input to its own block first; the ring fills the other
// blocks.

#include "csrc/torch/call.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/overlap.h"

namespace pccl::torch_layer {
namespace {

void check_output(const char* call, const at::Tensor& output, const at::Tensor& input,
                  int64_t inputs) {
  if (output.scalar_type() != input.scalar_type()) {
    raise_value_error(c10::str(call, " needs outputs of the input's dtype ", input.scalar_type(),
                               ", not ", output.scalar_type()));
  }
  if (output.numel() != input.numel() * inputs) {
    raise_value_error(c10::str(call, " needs an output of ", input.numel() * inputs, " elements (",
                               inputs, " of sizes ", input.sizes(), "), not of sizes ",
                               output.sizes()));
  }
}

}  // namespace

PcclBackend::WorkPtr PcclBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& options) {
  expect_one("all_gather", inputs);
  const at::Tensor& input = inputs[0];
  if (outputs.size() != 1 || outputs[0].size() != static_cast<size_t>(size())) {
    raise_value_error(c10::str("all_gather needs one output per rank, ", size(), " in all, not ",
                               outputs.empty() ? 0 : outputs[0].size()));
  }
  Call call("all_gather", OpKind::kAllGather, c10d::OpType::ALLGATHER, options.timeout);
  for (const at::Tensor& output : outputs[0]) check_output("all_gather", output, input, 1);
  call.borrowed->admit(inputs, Use::kRead);
  for (const at::Tensor& output : outputs[0])
    call.spans.push_back(call.borrowed->lend(output, Use::kWrite));
  const InPlace own{.input = 0, .output = static_cast<size_t>(rank()), .part = 0, .parts = 1};
  check_apart(call.name, outputs[0], inputs, {&own, 1});
  call.borrowed->fill(call.spans[static_cast<size_t>(rank())], inputs);
  call.elements(input.scalar_type(), input.nbytes());
  call.borrowed->results = outputs[0];
  return post(std::move(call));
}

PcclBackend::WorkPtr PcclBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

PcclBackend::WorkPtr PcclBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  constexpr const char* kName = "all_gather_into_tensor";
  if (outputs.size() != inputs.size()) {
    raise_value_error(c10::str(kName, " needs as many outputs as inputs, not ", outputs.size(),
                               " and ", inputs.size()));
  }
  Call call(kName, OpKind::kAllGather, c10d::OpType::_ALLGATHER_BASE, options.timeout);
  const at::ScalarType scalar = call.borrowed->same_dtype(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) check_output(kName, outputs[i], inputs[i], size());
  call.borrowed->admit(inputs, Use::kRead);
  const Bytes whole = call.borrowed->lend_interleaved(outputs, size());
  std::vector<InPlace> own;
  for (size_t i = 0; i < inputs.size(); ++i) own.push_back({i, i, rank(), size()});
  check_apart(kName, outputs, inputs, own);
  const size_t block = whole.size() / static_cast<size_t>(size());
  for (size_t rank = 0; rank < static_cast<size_t>(size()); ++rank) {
    call.spans.push_back(whole.subspan(rank * block, block));
  }
  call.borrowed->fill(call.spans[static_cast<size_t>(rank())], inputs);
  call.elements(scalar, block);
  call.borrowed->results = outputs;
  return post(std::move(call));
}

}  // namespace pccl::torch_layer
