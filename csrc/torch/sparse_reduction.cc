#include "csrc/torch/sparse_reduction.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <utility>

#include "csrc/torch/call.h"
#include "csrc/torch/call_options.h"
#include "csrc/torch/completion_executor.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/timeout.h"

namespace pccl::torch_layer {
namespace {

constexpr const char* kCalled = "all_reduce";
// The tags of the second operations repeat after this number of operations under the user's tag, so
// that the number of tags is bounded. That many operations cannot be in flight.
constexpr uint32_t kTagsMax = protocol::kOpsOpenMax;

// The epoch and the number of the first operation belong to this operation alone, for ever.
std::string second_tag(Epoch epoch, OpKey first) {
  return c10::str(kOwnTags, "sparse ", pccl::text(epoch), " ", first.tag.value, "#",
                  first.sequence % kTagsMax);
}

Bytes bytes_of(const at::Tensor& part) {
  return {static_cast<std::byte*>(part.mutable_data_ptr()), part.nbytes()};
}

}  // namespace

SparseReduction::SparseReduction(Call call, const at::Tensor& tensor)
    : session_(call.session),
      last_error_(std::move(call.last_error)),
      hooks_(std::move(call.hooks)),
      tag_(std::move(call.tag)),
      text_(tag_.empty() ? kCalled : c10::str(kCalled, " (", tag_, ")")),
      timeout_(call.timeout),
      rank_(static_cast<size_t>(call.rank)),
      tensor_(tensor),
      headers_(static_cast<size_t>(call.world)),
      parts_(static_cast<size_t>(call.world)) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor single = tensor.coalesce();
  headers_[rank_] = header_of(single);
  parts_[rank_] = pack(single);
}

std::shared_ptr<PostedOperation> SparseReduction::begin() {
  auto borrowed = std::make_shared<BorrowedTensors>(kCalled);
  borrowed->results = {tensor_};
  auto operation = std::make_shared<PostedOperation>(std::move(borrowed), text_, hooks_);
  operation_ = operation;
  peer::OpRequest request;
  request.kind = OpKind::kAllGather;
  request.dtype = DType::kBytes;
  request.count = sizeof(SparseHeader);
  request.tag = tag_;
  ring::Memory memory;
  for (SparseHeader& header : headers_)
    memory.spans.push_back(std::as_writable_bytes(std::span(&header, 1)));
  post(std::move(request), std::move(memory), &SparseReduction::on_headers);
  return operation;
}

void SparseReduction::post(peer::OpRequest request, ring::Memory memory, Step next) {
  const std::shared_ptr<PeerSession> session = session_.lock();
  if (session == nullptr) {
    return fail({Code::kInvalidState, "this process has left the group", {}});
  }
  request.timeout = timeout_;
  session->peer().post(
      std::move(request), std::move(memory),
      [self = shared_from_this(), next](peer::OpResult result) mutable {
        CompletionExecutor::get().run([self = std::move(self), next, result = std::move(result)] {
          ((*self).*next)(result);
        });
      });
}

void SparseReduction::on_headers(const peer::OpResult& result) {
  if (!result.status.ok()) return fail(result.status);
  if (const Status same = check_headers(headers_, rank_); !same.ok()) return fail(same);
  std::vector<uint64_t> bytes;
  for (const SparseHeader& header : headers_) bytes.push_back(part_bytes(header));
  peer::OpRequest request;
  request.kind = OpKind::kAllGather;
  request.dtype = DType::kBytes;
  request.tag = second_tag(result.epoch, result.op);
  const bool even =
      std::all_of(bytes.begin(), bytes.end(), [&](uint64_t one) { return one == bytes.front(); });
  if (even) {
    request.count = bytes.front();
  } else {
    request.sends.assign(bytes.size(), bytes[rank_]);
    request.receives = bytes;
  }
  ring::Memory memory;
  try {
    for (size_t rank = 0; rank < parts_.size(); ++rank) {
      if (rank != rank_) parts_[rank] = at::empty({static_cast<int64_t>(bytes[rank])}, at::kByte);
      memory.spans.push_back(bytes_of(parts_[rank]));
    }
    if (even && bytes.front() == 0) return add();  // no rank has an entry
  } catch (const std::exception&) {                // no memory
    request = {};
    request.kind = OpKind::kBarrier;
    request.tag = second_tag(result.epoch, result.op);
    memory = {};
  }
  post(std::move(request), std::move(memory), &SparseReduction::on_parts);
}

void SparseReduction::on_parts(const peer::OpResult& result) {
  result.status.ok() ? add() : fail(result.status);
}

void SparseReduction::add() {
  Status status;
  try {
    const at::AutoDispatchBelowADInplaceOrView guard;
    tensor_.copy_(sum_of_parts(headers_, parts_));
  } catch (const std::exception& error) {  // no memory, or indices outside of the tensor
    const std::string first_line = std::string(error.what()).substr(0, 400);
    status = {Code::kSystem,
              text_ + " has succeeded on all ranks, but the sum could not be made here: " +
                  first_line.substr(0, first_line.find('\n')),
              {}};
  }
  end(status);
}

void SparseReduction::fail(Status status) {
  status.message = text_ + " of sparse tensors: " + status.message;
  end(status);
}

void SparseReduction::end(const Status& status) {
  if (!status.ok()) last_error_->set(status);
  PostedOperation::end(std::exchange(operation_, nullptr), status);
}

// ---- The call ----

PcclBackend::WorkPtr PcclBackend::allreduce_sparse(Tensors& tensors,
                                                   const c10d::AllreduceOptions& options) {
  expect_one(kCalled, tensors);
  const at::Tensor& tensor = tensors[0];
  if (!tensor.is_sparse() || !tensor.device().is_cpu()) {
    raise_not_implemented(c10::str("pccl adds sparse tensors of layout COO in host memory, and ",
                                   kCalled, " was given one of layout ", tensor.layout(), " on ",
                                   tensor.device(), ": use .to_sparse() and .cpu()"));
  }
  if (options.reduceOp.op_ != c10d::ReduceOp::SUM)
    raise_value_error(c10::str(kCalled, " of a sparse tensor adds: use ReduceOp.SUM, not ",
                               name_of(options.reduceOp)));
  check_can_compute(kCalled, tensor.scalar_type(), ReduceOp::kSum);
  if (c10::isBarebonesUnsignedType(tensor.scalar_type())) {
    raise_value_error(c10::str(kCalled, " cannot add sparse tensors of dtype ",
                               tensor.scalar_type(), ", because torch cannot: use a signed one"));
  }
  check_storage("the indices of all_reduce's sparse tensor", tensor._indices());
  check_storage("the values of all_reduce's sparse tensor", tensor._values());
  if (static_cast<size_t>(tensor.dim()) > kSparseDimensionsMax) {
    raise_value_error(c10::str(kCalled, " of a sparse tensor of ", tensor.dim(),
                               " dimensions: at most ", kSparseDimensionsMax, " are allowed"));
  }
  if (call_options().keep) {
    raise_value_error(
        c10::str(kCalled, "(on_loss=\"keep\") is for dense tensors, and this one is sparse"));
  }
  const auto session = usable_session();
  if (!CompletionExecutor::is_executing()) session->peer().waits()->calls();
  const bool unset = options.timeout == c10d::kUnsetTimeout;
  const Milliseconds limit = unset ? timeout_.load() : checked_timeout(options.timeout);
  const auto reduction = std::make_shared<SparseReduction>(
      SparseReduction::Call{session, session->last_error(), hooks_, call_options().tag, limit,
                            rank(), size()},
      tensor);
  return c10::make_intrusive<PcclWork>(reduction->begin(), rank(), c10d::OpType::ALLREDUCE,
                                       posted_++);
}

}  // namespace pccl::torch_layer
