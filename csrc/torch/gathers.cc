// The collectives that bring the tensors of all ranks together: all-gather (of one tensor, of
// tensors of different sizes, and coalesced) and gather.

#include "csrc/torch/call.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/overlap.h"

namespace pccl::torch_layer {
namespace {

void check_dtype(const char* call, const at::Tensor& output, const at::Tensor& input) {
  if (output.scalar_type() == input.scalar_type()) return;
  raise_value_error(c10::str(call, " needs outputs of the input's dtype ", input.scalar_type(),
                             ", not ", output.scalar_type()));
}

void check_output(const char* call, const at::Tensor& output, const at::Tensor& input,
                  int64_t inputs) {
  check_dtype(call, output, input);
  if (output.numel() != input.numel() * inputs) {
    raise_value_error(c10::str(call, " needs an output of ", input.numel() * inputs, " elements (",
                               inputs, " of sizes ", input.sizes(), "), not of sizes ",
                               output.sizes()));
  }
}

void check_count(const char* call, const char* what, size_t given, size_t wanted) {
  if (given == wanted) return;
  raise_value_error(
      c10::str(call, " needs one ", what, " per rank, ", wanted, " in all, not ", given));
}

}  // namespace

// The tensors of other ranks may have other sizes than the tensor of this rank.
PcclBackend::WorkPtr PcclBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& options) {
  constexpr const char* kName = "all_gather";
  expect_one(kName, inputs);
  const at::Tensor& input = inputs[0];
  const auto own = static_cast<size_t>(rank());
  check_count(kName, "output", outputs.size() != 1 ? 0 : outputs[0].size(),
              static_cast<size_t>(size()));
  Call call(kName, OpKind::kAllGather, c10d::OpType::ALLGATHER, options.timeout);
  check_output(kName, outputs[0][own], input, 1);
  bool even = true;
  for (const at::Tensor& output : outputs[0]) {
    check_dtype(kName, output, input);
    even = even && output.numel() == input.numel();
  }
  call.borrowed->admit(inputs, Use::kRead);
  for (const at::Tensor& output : outputs[0])
    call.spans.push_back(call.borrowed->lend(output, Use::kWrite));
  const InPlace in_place{.input = 0, .output = own, .part = 0, .parts = 1};
  check_apart(kName, outputs[0], inputs, {&in_place, 1});
  const Bytes sent = call.borrowed->lend_own(call.spans[own], inputs);
  call.read(sent);
  if (even) {
    call.elements(input.scalar_type(), input.nbytes());
  } else {
    call.parts(input.scalar_type(), std::vector(call.spans.size(), sent), call.spans);
  }
  call.save = true;
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
  call.write_blocks(call.borrowed->lend_interleaved(outputs, size(), Use::kWrite), size());
  std::vector<InPlace> own;
  for (size_t i = 0; i < inputs.size(); ++i) own.push_back({i, i, rank(), size()});
  check_apart(kName, outputs, inputs, own);
  const Bytes block = call.spans[static_cast<size_t>(rank())];
  call.read(call.borrowed->lend_own(block, inputs));
  call.elements(scalar, block.size());
  call.save = true;
  call.borrowed->results = outputs;
  return post(std::move(call));
}

// outputs[rank] has a tensor for each of the inputs of that rank.
PcclBackend::WorkPtr PcclBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& options) {
  constexpr const char* kName = "all_gather_coalesced";
  check_count(kName, "list of outputs", outputs.size(), static_cast<size_t>(size()));
  Call call(kName, OpKind::kAllGather, c10d::OpType::ALLGATHER_COALESCED, options.timeout);
  const at::ScalarType scalar = call.borrowed->same_dtype(inputs);
  Tensors all;
  for (const Tensors& list : outputs) {
    if (list.size() != inputs.size()) {
      raise_value_error(c10::str(kName, " needs as many outputs of each rank as inputs, ",
                                 inputs.size(), ", not ", list.size()));
    }
    for (size_t i = 0; i < inputs.size(); ++i) check_output(kName, list[i], inputs[i], 1);
    all.insert(all.end(), list.begin(), list.end());
  }
  call.borrowed->admit(inputs, Use::kRead);
  for (const Tensors& list : outputs)
    call.spans.push_back(call.borrowed->lend_flat(list, Use::kWrite));
  std::vector<InPlace> own;
  for (size_t i = 0; i < inputs.size(); ++i)
    own.push_back({i, static_cast<size_t>(rank()) * inputs.size() + i, 0, 1});
  check_apart(kName, all, inputs, own);
  const Bytes block = call.spans[static_cast<size_t>(rank())];
  call.read(call.borrowed->lend_own(block, inputs));
  call.elements(scalar, block.size());
  call.save = true;
  call.borrowed->results = all;
  return post(std::move(call));
}

PcclBackend::WorkPtr PcclBackend::gather(TensorLists& outputs, Tensors& inputs,
                                         const c10d::GatherOptions& options) {
  constexpr const char* kName = "gather";
  expect_one(kName, inputs);
  const at::Tensor& input = inputs[0];
  Call call(kName, OpKind::kGather, c10d::OpType::GATHER, options.timeout);
  call.request.root = checked_rank(kName, "dst", options.rootRank);
  const size_t given = outputs.empty() ? 0 : outputs[0].size();
  if (call.request.root == rank()) {
    check_count(kName, "output", given, static_cast<size_t>(size()));
    for (const at::Tensor& output : outputs[0]) check_output(kName, output, input, 1);
  } else if (given > 0) {
    raise_value_error(c10::str(kName, ": only rank ", call.request.root,
                               " (dst) has outputs, and rank ", rank(), " was given ", given));
  }
  call.borrowed->admit(inputs, Use::kRead);
  if (call.request.root == rank()) {
    for (const at::Tensor& output : outputs[0])
      call.spans.push_back(call.borrowed->lend(output, Use::kWrite));
    const auto own = static_cast<size_t>(rank());
    const InPlace in_place{.input = 0, .output = own, .part = 0, .parts = 1};
    check_apart(kName, outputs[0], inputs, {&in_place, 1});
    call.read(call.borrowed->lend_own(call.spans[own], inputs));
    call.borrowed->results = outputs[0];
  } else {
    call.read(call.borrowed->lend_flat(inputs, Use::kRead));
  }
  call.elements(input.scalar_type(), input.nbytes());
  call.save = call.request.root == rank();
  return post(std::move(call));
}

PcclBackend::WorkPtr PcclBackend::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                                     const c10d::GatherOptions& options) {
  constexpr const char* kName = "gather_into_tensor";
  Call call(kName, OpKind::kGather, c10d::OpType::GATHER, options.timeout);
  call.request.root = checked_rank(kName, "dst", options.rootRank);
  Tensors inputs{input};
  call.borrowed->admit(inputs, Use::kRead);
  if (call.request.root == rank()) {
    check_output(kName, output, input, size());
    call.write_blocks(call.borrowed->lend(output, Use::kWrite), size());
    const InPlace own{.input = 0, .output = 0, .part = rank(), .parts = size()};
    check_apart(kName, {output}, inputs, {&own, 1});
    call.read(call.borrowed->lend_own(call.spans[static_cast<size_t>(rank())], inputs));
    call.borrowed->results = {output};
  } else {
    call.read(call.borrowed->lend_flat(inputs, Use::kRead));
  }
  call.elements(input.scalar_type(), input.nbytes());
  call.save = call.request.root == rank();
  return post(std::move(call));
}

}  // namespace pccl::torch_layer
