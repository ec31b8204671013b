// The collectives that give each rank a part of its own: scatter and all-to-all (of lists, and of
// one tensor that is cut along its first dimension).

#include <numeric>

#include "csrc/torch/call.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/overlap.h"

namespace pccl::torch_layer {
namespace {

std::string list_text(const std::vector<int64_t>& values) { return c10::str("[", values, "]"); }

// The bytes of each part of a tensor that is cut along its first dimension.
std::vector<size_t> parts_of(const char* what, const at::Tensor& tensor,
                             const std::vector<int64_t>& splits, int world) {
  constexpr const char* kName = "all_to_all_single";
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const auto bytes = static_cast<size_t>(tensor.nbytes());
  if (splits.empty()) {
    if (rows % world != 0) {
      raise_value_error(c10::str(kName, " without split sizes cuts its ", what, " into ", world,
                                 " equal parts, and the first dimension is ", rows, ": give ", what,
                                 "_split_sizes"));
    }
    return std::vector<size_t>(static_cast<size_t>(world), bytes / static_cast<size_t>(world));
  }
  if (splits.size() != static_cast<size_t>(world)) {
    raise_value_error(c10::str(kName, " needs ", what, "_split_sizes for ", world, " ranks, not ",
                               splits.size(), ": ", list_text(splits)));
  }
  int64_t left = rows;
  for (const int64_t split : splits) {
    if (split < 0 || split > left) {
      raise_value_error(c10::str(
          kName, ": ", what, "_split_sizes ", list_text(splits),
          " have to be at least 0, and their sum the first dimension of the ", what, ", ", rows));
    }
    left -= split;
  }
  if (left != 0) {
    raise_value_error(c10::str(kName, ": the sum of ", what, "_split_sizes ", list_text(splits),
                               " is ", rows - left, ", and the first dimension of the ", what,
                               " is ", rows));
  }
  const size_t row = rows == 0 ? 0 : bytes / static_cast<size_t>(rows);
  std::vector<size_t> parts;
  for (const int64_t split : splits) parts.push_back(static_cast<size_t>(split) * row);
  return parts;
}

std::vector<Bytes> cut(Bytes whole, const std::vector<size_t>& parts) {
  std::vector<Bytes> pieces;
  for (const size_t bytes : parts) {
    pieces.push_back(whole.first(bytes));
    whole = whole.subspan(bytes);
  }
  return pieces;
}

void check_same_dtype(const char* call, const at::Tensor& output, const at::Tensor& input) {
  if (output.scalar_type() == input.scalar_type()) return;
  raise_value_error(c10::str(call, " needs an output of the input's dtype ", input.scalar_type(),
                             ", not ", output.scalar_type()));
}

}  // namespace

PcclBackend::WorkPtr PcclBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                          const c10d::ScatterOptions& options) {
  constexpr const char* kName = "scatter";
  expect_one(kName, outputs);
  const at::Tensor& output = outputs[0];
  Call call(kName, OpKind::kScatter, c10d::OpType::SCATTER, options.timeout);
  call.request.root = checked_rank(kName, "src", options.rootRank);
  const size_t given = inputs.empty() ? 0 : inputs[0].size();
  if (call.request.root == rank()) {
    if (given != static_cast<size_t>(size())) {
      raise_value_error(c10::str(kName, " needs one input per rank on rank ", rank(), " (src), ",
                                 size(), " in all, not ", given));
    }
    for (const at::Tensor& input : inputs[0]) {
      check_same_dtype(kName, output, input);
      if (input.numel() == output.numel()) continue;
      raise_value_error(c10::str(kName, " needs inputs of the output's sizes ", output.sizes(),
                                 ", not of sizes ", input.sizes()));
    }
  } else if (given > 0) {
    raise_value_error(c10::str(kName, ": only rank ", call.request.root,
                               " (src) has inputs, and rank ", rank(), " was given ", given));
  }
  call.spans = {call.borrowed->lend(output, Use::kWrite)};
  if (call.request.root == rank()) {
    for (const at::Tensor& input : inputs[0]) call.read(call.borrowed->lend(input, Use::kRead));
    const InPlace own{.input = static_cast<size_t>(rank()), .output = 0, .part = 0, .parts = 1};
    check_apart(kName, outputs, inputs[0], {&own, 1});
  }
  call.elements(output.scalar_type(), output.nbytes());
  call.save = true;
  call.borrowed->results = outputs;
  return post(std::move(call));
}

// A call with splits is posted with parts of different sizes, even if all parts look equal here:
// the splits of other ranks may differ, and no rank knows them.
PcclBackend::WorkPtr PcclBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                std::vector<int64_t>& output_splits,
                                                std::vector<int64_t>& input_splits,
                                                const c10d::AllToAllOptions& options) {
  constexpr const char* kName = "all_to_all_single";
  check_same_dtype(kName, output, input);
  const auto received = parts_of("output", output, output_splits, size());
  const auto sent = parts_of("input", input, input_splits, size());
  const bool even = output_splits.empty() && input_splits.empty();
  if (even && output.numel() != input.numel()) {
    raise_value_error(c10::str(kName, " without split sizes needs an output of the input's ",
                               input.numel(), " elements, not of ", output.numel()));
  }
  const auto own = static_cast<size_t>(rank());
  if (sent[own] != received[own]) {
    raise_value_error(c10::str(kName, ": the part of rank ", rank(), " for itself has ", sent[own],
                               " bytes in the input, and ", received[own], " in the output"));
  }
  Call call(kName, OpKind::kAllToAll, c10d::OpType::ALLTOALL_BASE, options.timeout);
  call.spans = cut(call.borrowed->lend(output, Use::kWrite), received);
  const std::vector<Bytes> pieces = cut(call.borrowed->lend(input, Use::kRead), sent);
  check_apart(kName, {output}, {input});
  for (const Bytes piece : pieces) call.read(piece);
  if (even) {
    call.elements(input.scalar_type(), sent[0]);
  } else {
    call.parts(input.scalar_type(), pieces, call.spans);
  }
  call.save = true;
  call.borrowed->results = {output};
  return post(std::move(call));
}

PcclBackend::WorkPtr PcclBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                           const c10d::AllToAllOptions& options) {
  constexpr const char* kName = "all_to_all";
  const auto world = static_cast<size_t>(size());
  if (outputs.size() != world || inputs.size() != world) {
    raise_value_error(c10::str(kName, " needs one output and one input per rank, ", world,
                               " of each, not ", outputs.size(), " and ", inputs.size()));
  }
  Call call(kName, OpKind::kAllToAll, c10d::OpType::ALLTOALL, options.timeout);
  const at::ScalarType scalar = call.borrowed->same_dtype(inputs);
  for (const at::Tensor& output : outputs) check_same_dtype(kName, output, inputs[0]);
  const auto own = static_cast<size_t>(rank());
  if (outputs[own].numel() != inputs[own].numel()) {
    raise_value_error(c10::str(kName, ": the part of rank ", rank(), " for itself has ",
                               inputs[own].numel(), " elements in the inputs, and ",
                               outputs[own].numel(), " in the outputs"));
  }
  for (const at::Tensor& output : outputs)
    call.spans.push_back(call.borrowed->lend(output, Use::kWrite));
  std::vector<Bytes> pieces;
  for (const at::Tensor& input : inputs) pieces.push_back(call.borrowed->lend(input, Use::kRead));
  check_apart(kName, outputs, inputs);
  for (const Bytes piece : pieces) call.read(piece);
  call.parts(scalar, pieces, call.spans);
  call.save = true;
  call.borrowed->results = outputs;
  return post(std::move(call));
}

}  // namespace pccl::torch_layer
