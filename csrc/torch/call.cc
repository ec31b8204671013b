#include "csrc/torch/call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "csrc/torch/call_options.h"
#include "csrc/torch/call_site.h"
#include "csrc/torch/completion_executor.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/staged_operation.h"
#include "csrc/torch/timeout.h"

namespace pccl::torch_layer {

PcclBackend::Call::Call(const char* call, OpKind op_kind, c10d::OpType op_type, Milliseconds limit)
    : name(call), type(op_type), timeout(limit), borrowed(std::make_shared<BorrowedTensors>(call)) {
  request.kind = op_kind;
  request.dtype = DType::kBytes;
  request.tag = call_options().tag;
  request.priority = static_cast<int8_t>(call_options().priority);
}

void PcclBackend::Call::elements(at::ScalarType scalar, size_t bytes) {
  request.dtype = dtype_of(scalar);
  request.count = bytes / element_bytes(request.dtype);
}

void PcclBackend::Call::parts(at::ScalarType scalar, const std::vector<Bytes>& sent,
                              const std::vector<Bytes>& received) {
  request.dtype = dtype_of(scalar);
  const size_t width = element_bytes(request.dtype);
  for (const Bytes bytes : sent) request.sends.push_back(bytes.size() / width);
  for (const Bytes bytes : received) request.receives.push_back(bytes.size() / width);
}

void PcclBackend::Call::write_blocks(Bytes whole, int blocks) {
  const size_t bytes = whole.size() / static_cast<size_t>(blocks);
  for (int block = 0; block < blocks; ++block)
    spans.push_back(whole.subspan(static_cast<size_t>(block) * bytes, bytes));
}

void PcclBackend::Call::read_blocks(Bytes whole, int blocks) {
  const size_t bytes = whole.size() / static_cast<size_t>(blocks);
  for (int block = 0; block < blocks; ++block)
    inputs.emplace_back(whole.subspan(static_cast<size_t>(block) * bytes, bytes));
}

bool PcclBackend::Call::overwrites_operand() const {
  if (!protocol::reduces(request.kind)) return false;
  return inputs.empty() || std::ranges::any_of(inputs, [this](std::span<const std::byte> input) {
           return !input.empty() && input.data() == spans[0].data();
         });
}

// With restoring, memory is saved if it is a tensor's own memory, or if the operation overwrites
// its operand, which it needs to begin again. Otherwise staged memory need not be saved, because it
// is a copy already. Without restoring, only a reduce-scatter saves the part of this rank, which is
// small. An all-reduce or a reduce that has to begin again then fails (Operation::repeat_later()).
bool PcclBackend::Call::needs_saving(bool restore) const {
  if (!save) return false;
  const bool overwrites = overwrites_operand();
  return restore ? overwrites || borrowed->writes_tensors()
                 : overwrites && request.kind == OpKind::kReduceScatter;
}

void expect_one(const char* call, const Tensors& tensors) {
  if (tensors.size() == 1) return;
  raise_value_error(c10::str(call, " takes one tensor, not a list of ", tensors.size()));
}

PcclBackend::WorkPtr PcclBackend::post(Call call) {
  const auto session = usable_session();
  peer::Peer& peer = session->peer();
  peer::OpRequest& request = call.request;
  const bool unset = call.timeout == c10d::kUnsetTimeout;
  request.timeout = unset ? timeout_.load() : checked_timeout(call.timeout);
  if (session->checks_callsite()) request.site = call_site();

  ring::Memory memory;
  memory.save = call.needs_saving(session->restore());
  memory.spans = std::move(call.spans);
  memory.inputs = std::move(call.inputs);

  std::string name = call.name;
  if (!request.tag.empty()) name += " (" + request.tag + ")";
  if (call.borrowed->on_device()) request.parked = begin_staging(call);
  auto operation =
      std::make_shared<PostedOperation>(std::move(call.borrowed), std::move(name), hooks_);
  auto work = c10::make_intrusive<PcclWork>(operation, rank(), call.type, posted_++);
  const peer::Handle handle =
      peer.post(std::move(request), std::move(memory),
                [operation, last_error = session->last_error()](peer::OpResult result) {
                  if (!result.status.ok()) last_error->set(result.status);
                  PostedOperation::end(operation, std::move(result));
                });
  operation->posted(peer.waits(), handle);
  if (!CompletionExecutor::is_executing()) peer.waits()->calls();
  if (operation->staged()) watch_staging(session, operation, handle);
  return work;
}

// Returns whether the operation has to wait for its data.
bool PcclBackend::begin_staging(Call& call) {
  if (!serves_cuda_) {
    raise_value_error(
        c10::str(call.name,
                 " was given a CUDA tensor, and in this group CUDA belongs to another backend: "
                 "give it to that backend, or make a group of pccl beside this one, by "
                 "dist.new_group(backend=\"pccl\")"));
  }
  DevicePoller::get().start();
  memory::Staging& staging = call.borrowed->staging();
  if (const Status status = staging.begin(); !status.ok())
    raise({status.code, c10::str(call.name, ": ", status.message), {}});
  return staging.parked();
}

void PcclBackend::watch_staging(const std::shared_ptr<PeerSession>& session,
                                const std::shared_ptr<PostedOperation>& operation,
                                peer::Handle handle) {
  const auto on_staged = [session = std::weak_ptr(session), handle](const Status& status) {
    if (const auto alive = session.lock()) alive->peer().staged(handle, status);
  };
  StagedOperation::watch(operation->staged(), on_staged,
                         [operation](const Status& status) { operation->end_on_device(status); });
}

int PcclBackend::checked_rank(const char* call, const char* what, int64_t rank) const {
  if (rank >= 0 && rank < size()) return static_cast<int>(rank);
  raise_value_error(
      c10::str(call, "(", what, "=", rank, "): ranks of this group go from 0 to ", size() - 1));
}

}  // namespace pccl::torch_layer
