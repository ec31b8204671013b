// The collectives that compute: all-reduce, of one tensor and coalesced.

#include <ATen/ops/view_as_real.h>

#include "csrc/base/reducible.h"
#include "csrc/torch/call.h"
#include "csrc/torch/call_options.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/overlap.h"

namespace pccl::torch_layer {
namespace {

ReduceOp reduce_op_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return ReduceOp::kSum;
    case c10d::ReduceOp::AVG: return ReduceOp::kAvg;
    case c10d::ReduceOp::PRODUCT: return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN: return ReduceOp::kMin;
    case c10d::ReduceOp::MAX: return ReduceOp::kMax;
    case c10d::ReduceOp::BAND: return ReduceOp::kBand;
    case c10d::ReduceOp::BOR: return ReduceOp::kBor;
    case c10d::ReduceOp::BXOR: return ReduceOp::kBxor;
    case c10d::ReduceOp::PREMUL_SUM: not_here("ReduceOp.PREMUL_SUM");
    case c10d::ReduceOp::UNUSED: break;
  }
  raise_value_error("unknown ReduceOp " + std::to_string(static_cast<int>(op.op_)));
}

// A complex number is a pair of real numbers, also for sums. The other reductions do not exist for
// it.
at::Tensor as_real(const at::Tensor& tensor, ReduceOp op) {
  if (!tensor.is_complex()) return tensor;
  if (op == ReduceOp::kSum || op == ReduceOp::kAvg) return at::view_as_real(tensor);
  raise_value_error(c10::str("all_reduce(", text(op),
                             ") is not defined for complex tensors, and this one is ",
                             tensor.scalar_type(), ": SUM and AVG are"));
}

}  // namespace

PcclBackend::WorkPtr PcclBackend::reduce_in_place(Call call, const Tensors& tensors,
                                                  const c10d::AllreduceOptions& options) {
  const ReduceOp op = reduce_op_of(options.reduceOp);
  Tensors parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(as_real(tensor, op));
  const at::ScalarType scalar = call.borrowed->same_dtype(parts);
  if (dtype_of(scalar) == DType::kBytes) {
    raise_value_error(c10::str(
        "all_reduce cannot compute with tensors of dtype ", scalar,
        ": convert them to one of torch's integer or float types of 16 bits or more, or to bool"));
  }
  if (const Status status = check_reducible(dtype_of(scalar), op); !status.ok()) raise(status);

  const Bytes bytes = call.borrowed->lend_flat(parts, Use::kUpdate);
  check_apart(call.name, tensors);
  call.elements(scalar, bytes.size());
  call.request.reduce = op;
  call.request.keep = call_options().keep;
  call.spans = {bytes};
  call.save = true;
  call.borrowed->results = tensors;
  return post(std::move(call));
}

PcclBackend::WorkPtr PcclBackend::allreduce(Tensors& tensors,
                                            const c10d::AllreduceOptions& options) {
  expect_one("all_reduce", tensors);
  return reduce_in_place(
      {"all_reduce", OpKind::kAllReduce, c10d::OpType::ALLREDUCE, options.timeout}, tensors,
      options);
}

PcclBackend::WorkPtr PcclBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return reduce_in_place({"all_reduce_coalesced", OpKind::kAllReduce,
                          c10d::OpType::ALLREDUCE_COALESCED, options.timeout},
                         tensors, options);
}

}  // namespace pccl::torch_layer
