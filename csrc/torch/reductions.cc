// The collectives that compute: all-reduce (of one tensor, and coalesced), reduce and
// reduce-scatter. The all-reduce of sparse tensors is in sparse_reduction.

#include <ATen/ops/view_as_real.h>

#include <algorithm>

#include "csrc/base/reducible.h"
#include "csrc/torch/call.h"
#include "csrc/torch/call_options.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/overlap.h"

namespace pccl::torch_layer {
namespace {

ReduceOp reduce_op_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM: return ReduceOp::kSum;
    case c10d::ReduceOp::AVG: return ReduceOp::kAvg;
    case c10d::ReduceOp::PRODUCT: return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN: return ReduceOp::kMin;
    case c10d::ReduceOp::MAX: return ReduceOp::kMax;
    case c10d::ReduceOp::BAND: return ReduceOp::kBand;
    case c10d::ReduceOp::BOR: return ReduceOp::kBor;
    case c10d::ReduceOp::BXOR: return ReduceOp::kBxor;
    case c10d::ReduceOp::UNUSED: break;
  }
  raise_value_error("unknown ReduceOp " + std::to_string(static_cast<int>(op.op_)));
}

// For a sum or an average, a complex number is a pair of real numbers. Other reductions of complex
// numbers do not exist.
Tensors as_real(const char* call, const Tensors& tensors, ReduceOp op) {
  Tensors real;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_complex()) {
      real.push_back(tensor);
    } else if (op == ReduceOp::kSum || op == ReduceOp::kAvg) {
      real.push_back(at::view_as_real(tensor));
    } else {
      raise_value_error(c10::str(call, "(", text(op),
                                 ") is not defined for complex tensors, and this one is ",
                                 tensor.scalar_type(), ": SUM and AVG are"));
    }
  }
  return real;
}

// PREMUL_SUM multiplies each tensor by its factor, then adds. Other reductions take the tensors as
// they are.
Tensors operands(const char* call, const Tensors& tensors, const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return tensors;
  const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (factor == nullptr)
    raise_value_error(c10::str(call,
                               "(PREMUL_SUM) needs a factor: torch.distributed."
                               "_make_nccl_premul_sum(factor) makes such an operation"));
  const at::NoGradGuard guard;
  Tensors products;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_floating_point() && !tensor.is_complex()) {
      raise_value_error(
          c10::str(call, "(PREMUL_SUM) is for floats, not for ", tensor.scalar_type()));
    }
    const at::Tensor product = factor->tensor_factor.defined() ? tensor.mul(factor->tensor_factor)
                                                               : tensor.mul(factor->double_factor);
    products.push_back(product.to(tensor.scalar_type()));
  }
  return products;
}

}  // namespace

void check_can_compute(const char* call, at::ScalarType scalar, ReduceOp op) {
  if (dtype_of(scalar) == DType::kBytes) {
    raise_value_error(c10::str(
        call, " cannot compute with tensors of dtype ", scalar,
        ": convert them to one of torch's integer or float types of 16 bits or more, or to bool"));
  }
  if (const Status status = check_reducible(dtype_of(scalar), op); !status.ok()) raise(status);
}

std::string name_of(const c10d::ReduceOp& op) {
  return op.op_ == c10d::ReduceOp::PREMUL_SUM ? "PREMUL_SUM" : text(reduce_op_of(op));
}

// `writes`: the result overwrites the tensors. It is false on ranks that only contribute.
PcclBackend::WorkPtr PcclBackend::reduce_in_place(Call call, const Tensors& tensors,
                                                  const c10d::ReduceOp& reduce_op, bool writes) {
  const ReduceOp op = reduce_op_of(reduce_op);
  const bool complex = std::ranges::any_of(tensors, &at::Tensor::is_complex);
  const bool scaled = reduce_op.op_ == c10d::ReduceOp::PREMUL_SUM;
  const Use use = writes ? Use::kUpdate : Use::kRead;
  Tensors real, scaled_values;  // empty for most calls: filling them would take time
  if (complex) real = as_real(call.name, tensors, op);
  const Tensors& parts = complex ? real : tensors;
  const at::ScalarType scalar = call.borrowed->same_dtype(parts);
  check_can_compute(call.name, scalar, op);
  if (scaled) {
    call.borrowed->admit(parts, use);
    scaled_values = operands(call.name, parts, reduce_op);
  }
  const Tensors& values = scaled ? scaled_values : parts;
  const Bytes bytes = writes && scaled ? call.borrowed->lend_flat(parts, values)
                                       : call.borrowed->lend_flat(values, use);
  if (writes) check_apart(call.name, tensors);
  call.elements(scalar, bytes.size());
  call.request.reduce = op;
  if (call.request.kind == OpKind::kAllReduce && !complex &&
      check_quantizable(call_options().format, call.request.dtype, op).ok())
    call.request.format = call_options().format;
  call.spans = {bytes};
  call.save = writes;
  call.borrowed->results = tensors;
  return post(std::move(call));
}

PcclBackend::WorkPtr PcclBackend::allreduce(Tensors& tensors,
                                            const c10d::AllreduceOptions& options) {
  expect_one("all_reduce", tensors);
  if (tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  Call call("all_reduce", OpKind::kAllReduce, c10d::OpType::ALLREDUCE, options.timeout);
  call.request.keep = call_options().keep;
  return reduce_in_place(std::move(call), tensors, options.reduceOp, true);
}

PcclBackend::WorkPtr PcclBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  Call call("all_reduce_coalesced", OpKind::kAllReduce, c10d::OpType::ALLREDUCE_COALESCED,
            options.timeout);
  call.request.keep = call_options().keep;
  return reduce_in_place(std::move(call), tensors, options.reduceOp, true);
}

PcclBackend::WorkPtr PcclBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  expect_one("reduce", tensors);
  Call call("reduce", OpKind::kReduce, c10d::OpType::REDUCE, options.timeout);
  call.request.root = checked_rank("reduce", "dst", options.rootRank);
  const bool root = call.request.root == rank();
  return reduce_in_place(std::move(call), tensors, options.reduceOp, root);
}

PcclBackend::WorkPtr PcclBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  constexpr const char* kName = "reduce_scatter";
  expect_one(kName, outputs);
  const size_t given = inputs.empty() ? 0 : inputs[0].size();
  if (inputs.size() > 1 || given != static_cast<size_t>(size())) {
    raise_value_error(
        c10::str(kName, " needs one input per rank, ", size(), " in all, not ", given));
  }
  const ReduceOp op = reduce_op_of(options.reduceOp);
  Call call(kName, OpKind::kReduceScatter, c10d::OpType::REDUCE_SCATTER, options.timeout);
  const Tensors written = as_real(kName, outputs, op), read = as_real(kName, inputs[0], op);
  for (const at::Tensor& input : read) {
    if (input.numel() == written[0].numel()) continue;
    raise_value_error(c10::str(kName, " needs inputs of the output's sizes ", outputs[0].sizes(),
                               ", not of sizes ", input.sizes(),
                               ": all parts have one size; all_to_all takes others"));
  }
  Tensors all = written;
  all.insert(all.end(), read.begin(), read.end());
  const at::ScalarType scalar = call.borrowed->same_dtype(all);
  check_can_compute(kName, scalar, op);
  call.borrowed->admit(read, Use::kRead);
  call.spans = {call.borrowed->lend_flat(written, Use::kWrite)};
  for (const at::Tensor& input : operands(kName, read, options.reduceOp))
    call.read(call.borrowed->lend(input, Use::kRead));
  const InPlace own{.input = static_cast<size_t>(rank()), .output = 0, .part = 0, .parts = 1};
  check_apart(kName, written, read, {&own, 1});
  return post_reduce_scatter(std::move(call), scalar, op, outputs);
}

PcclBackend::WorkPtr PcclBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

PcclBackend::WorkPtr PcclBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  constexpr const char* kName = "reduce_scatter_tensor";
  if (outputs.size() != inputs.size()) {
    raise_value_error(c10::str(kName, " needs as many outputs as inputs, not ", outputs.size(),
                               " and ", inputs.size()));
  }
  const ReduceOp op = reduce_op_of(options.reduceOp);
  Call call(kName, OpKind::kReduceScatter, c10d::OpType::_REDUCE_SCATTER_BASE, options.timeout);
  const Tensors written = as_real(kName, outputs, op), read = as_real(kName, inputs, op);
  for (size_t i = 0; i < read.size(); ++i) {
    if (read[i].numel() == written[i].numel() * size()) continue;
    raise_value_error(c10::str(kName, " needs an input of ", written[i].numel() * size(),
                               " elements (", size(), " times the output of sizes ",
                               outputs[i].sizes(), "), not of sizes ", inputs[i].sizes()));
  }
  Tensors all = written;
  all.insert(all.end(), read.begin(), read.end());
  const at::ScalarType scalar = call.borrowed->same_dtype(all);
  check_can_compute(kName, scalar, op);
  call.borrowed->admit(read, Use::kRead);
  call.spans = {call.borrowed->lend_flat(written, Use::kWrite)};
  const Tensors values = operands(kName, read, options.reduceOp);
  call.read_blocks(call.borrowed->lend_interleaved(values, size(), Use::kRead), size());
  std::vector<InPlace> own;
  for (size_t i = 0; i < read.size(); ++i) own.push_back({i, i, rank(), size()});
  check_apart(kName, written, read, own);
  return post_reduce_scatter(std::move(call), scalar, op, outputs);
}

PcclBackend::WorkPtr PcclBackend::post_reduce_scatter(Call call, at::ScalarType scalar, ReduceOp op,
                                                      const Tensors& outputs) {
  call.elements(scalar, call.spans[0].size());
  call.request.reduce = op;
  call.save = true;
  call.borrowed->results = outputs;
  return post(std::move(call));
}

}  // namespace pccl::torch_layer
