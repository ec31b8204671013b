#include "csrc/torch/process_group.h"

#include <ATen/ops/view_as_real.h>

#include <cstring>
#include <utility>

#include "csrc/base/reducible.h"
#include "csrc/net/descriptors.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/overlap.h"

namespace pccl::torch_layer {
namespace {

using protocol::OpKind;

[[noreturn]] void not_here(const char* name) {
  raise_not_implemented(std::string("pccl does not have ") + name +
                        " yet; it has all_reduce, all_reduce_coalesced, broadcast, all_gather, "
                        "all_gather_into_tensor, barrier, send and recv, and the object "
                        "collectives made of these");
}

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

void expect_one(const char* call, const Tensors& tensors) {
  if (tensors.size() == 1) return;
  raise_value_error(c10::str(call, " takes one tensor, not a list of ", tensors.size()));
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

void copy(Bytes to, Bytes from) {
  if (to.data() != from.data() && !from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

CallOptions& call_options() {
  static thread_local CallOptions options;
  return options;
}

// --- One operation -------------------------------------------------------------------------------

struct PcclBackend::Call {
  Call(const char* call, OpKind op_kind, c10d::OpType op_type,
       Milliseconds limit = c10d::kUnsetTimeout)
      : name(call),
        type(op_type),
        timeout(limit),
        borrowed(std::make_unique<BorrowedTensors>(call)) {
    request.kind = op_kind;
    request.dtype = DType::kBytes;
    request.tag = call_options().tag;
  }
  // Sets dtype and count. `bytes`: of one rank's tensor. REQUIRES: whole elements of that dtype.
  void elements(at::ScalarType scalar, size_t bytes) {
    request.dtype = dtype_of(scalar);
    request.count = bytes / element_bytes(request.dtype);
  }

  const char* name;
  c10d::OpType type;
  Milliseconds timeout;
  std::unique_ptr<BorrowedTensors> borrowed;
  peer::OpRequest request;
  std::vector<Bytes> spans;
  bool save = false;  // restore the memory if the operation fails
};

PcclBackend::WorkPtr PcclBackend::post(Call call) {
  if (const Status status = session_->usable(); !status.ok()) raise(status);
  peer::Peer& peer = session_->peer();
  peer::OpRequest& request = call.request;
  const Milliseconds timeout = call.timeout == c10d::kUnsetTimeout ? timeout_.load() : call.timeout;
  request.timeout = timeout;

  ring::Memory memory;
  memory.spans = std::move(call.spans);
  // Staged bytes are a copy already. But an all-reduce that has to be repeated needs its operand.
  const bool needed = !call.borrowed->staged() || request.kind == OpKind::kAllReduce;
  memory.save = call.save && session_->restore() && needed;

  std::string name = call.name;
  if (!request.tag.empty()) name += " (" + request.tag + ")";
  auto operation = std::make_shared<Operation>(std::move(call.borrowed), std::move(name));
  auto work = c10::make_intrusive<PcclWork>(operation, rank(), call.type, posted_++);
  peer.post(std::move(request), std::move(memory),
            [operation](peer::OpResult result) { Operation::end(operation, std::move(result)); });
  return work;
}

int PcclBackend::checked_rank(const char* call, const char* what, int64_t rank) const {
  if (rank >= 0 && rank < size()) return static_cast<int>(rank);
  raise_value_error(
      c10::str(call, "(", what, "=", rank, "): ranks of this group go from 0 to ", size() - 1));
}

// --- The backend ---------------------------------------------------------------------------------

PcclBackend::PcclBackend(std::shared_ptr<PeerSession> session, Milliseconds timeout)
    : Backend(static_cast<int>(session->peer().rank()),
              static_cast<int>(session->peer().world_size())),
      session_(std::move(session)),
      forks_(net::fork_count()),
      timeout_(timeout) {}

PcclBackend::~PcclBackend() { shutdown(); }

c10::intrusive_ptr<c10d::Backend::Options> PcclBackend::getBackendOptions() {
  return c10::make_intrusive<Options>("pccl", timeout_.load());
}

void PcclBackend::shutdown() {
  const ReleaseGil no_gil;
  session_->leave();
}

int PcclBackend::rank() const {
  return forks_ == net::fork_count() ? static_cast<int>(session_->peer().rank()) : rank_;
}
int PcclBackend::size() const {
  return forks_ == net::fork_count() ? static_cast<int>(session_->peer().world_size()) : size_;
}

// --- All-reduce ----------------------------------------------------------------------------------

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

// --- Broadcast, send, recv, barrier --------------------------------------------------------------

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

PcclBackend::WorkPtr PcclBackend::transfer(Call call, const Tensors& tensors, int other, int tag) {
  expect_one(call.name, tensors);
  const bool sends = call.request.kind == OpKind::kSend;
  call.request.root = checked_rank(call.name, sends ? "dst" : "src", other);
  if (other == rank()) {
    raise_value_error(
        c10::str(call.name, "(", sends ? "dst" : "src", "=", other, "): that is this rank itself"));
  }
  if (tag != 0) call.request.tag += "#" + std::to_string(tag);  // torch's number after our text
  call.spans = {call.borrowed->lend(tensors[0], sends ? Use::kRead : Use::kWrite)};
  call.elements(tensors[0].scalar_type(), call.spans[0].size());
  call.borrowed->results = tensors;
  return post(std::move(call));
}

PcclBackend::WorkPtr PcclBackend::send(Tensors& tensors, int destination, int tag) {
  return transfer({"send", OpKind::kSend, c10d::OpType::SEND}, tensors, destination, tag);
}

PcclBackend::WorkPtr PcclBackend::recv(Tensors& tensors, int source, int tag) {
  return transfer({"recv", OpKind::kRecv, c10d::OpType::RECV}, tensors, source, tag);
}

PcclBackend::WorkPtr PcclBackend::barrier(const c10d::BarrierOptions& options) {
  return post({"barrier", OpKind::kBarrier, c10d::OpType::BARRIER, options.timeout});
}

// --- All-gather: copies the input to its own block first; the ring fills the other blocks --------

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
  const Bytes mine = call.borrowed->lend(input, Use::kRead);
  for (const at::Tensor& output : outputs[0])
    call.spans.push_back(call.borrowed->lend(output, Use::kWrite));
  const InPlace own{.input = 0, .output = static_cast<size_t>(rank()), .part = 0, .parts = 1};
  check_apart(call.name, outputs[0], inputs, {&own, 1});
  copy(call.spans[static_cast<size_t>(rank())], mine);
  call.elements(input.scalar_type(), mine.size());
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
  const Bytes mine = call.borrowed->lend_flat(inputs, Use::kRead);
  const Bytes whole = call.borrowed->lend_interleaved(outputs, size());
  std::vector<InPlace> own;
  for (size_t i = 0; i < inputs.size(); ++i) own.push_back({i, i, rank(), size()});
  check_apart(kName, outputs, inputs, own);
  for (size_t rank = 0; rank < static_cast<size_t>(size()); ++rank) {
    call.spans.push_back(whole.subspan(rank * mine.size(), mine.size()));
  }
  copy(call.spans[static_cast<size_t>(rank())], mine);
  call.elements(scalar, mine.size());
  call.borrowed->results = outputs;
  return post(std::move(call));
}

// --- Not implemented yet -------------------------------------------------------------------------

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

// --- Joint calls ---------------------------------------------------------------------------------

peer::JointResult PcclBackend::finish_joint(Result<peer::JointResult> result,
                                            bool was_interrupted) {
  if (was_interrupted) raise_interrupt();
  if (!result.ok()) raise(result.status());
  return std::move(result.value());
}

peer::JointResult PcclBackend::update_topology() {
  if (const Status status = session_->usable(); !status.ok()) raise(status);
  bool stop = false;
  auto result =
      session_->peer().update_topology(timeout_.load(), [&] { return stop = interrupted(); });
  refresh_rank_and_size();
  return finish_joint(std::move(result), stop);
}

void PcclBackend::refresh_rank_and_size() {
  // In an older torch these two are const, and only the group reads them.
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  rank_ = rank();
  size_ = size();
#endif
}

bool PcclBackend::are_peers_pending() {
  if (const Status status = session_->usable(); !status.ok()) raise(status);
  bool stop = false;
  auto result =
      session_->peer().are_peers_pending(timeout_.load(), [&] { return stop = interrupted(); });
  return finish_joint(std::move(result), stop).pending;
}

peer::JointResult PcclBackend::sync_shared_state(uint64_t revision, protocol::SyncStrategy strategy,
                                                 const std::vector<Entry>& entries) {
  if (const Status status = session_->usable(); !status.ok()) raise(status);
  BorrowedTensors borrowed("sync_shared_state");
  std::vector<peer::StateSpan> spans;
  for (const Entry& entry : entries) {
    const Bytes bytes = borrowed.lend(entry.tensor, Use::kUpdate);
    if (borrowed.staged())
      raise_value_error("the tensor '" + entry.key + "' of the shared state is not contiguous");
    const DType dtype = dtype_of(entry.tensor.scalar_type());
    spans.push_back({entry.key, dtype, entry.tensor.sizes().vec(), bytes});
    // The product of a shape must be the number of elements. For a dtype that is only moved, these
    // are bytes, so its shape gets one more dimension.
    if (dtype == DType::kBytes)
      spans.back().shape.push_back(static_cast<int64_t>(entry.tensor.element_size()));
  }
  bool stop = false;
  auto result = session_->peer().sync_shared_state(revision, strategy, spans, timeout_.load(),
                                                   [&] { return stop = interrupted(); });
  return finish_joint(std::move(result), stop);
}

peer::Info PcclBackend::info() {
  if (const Status status = session_->usable(); !status.ok()) raise(status);
  return session_->peer().info();
}

// --- The group -----------------------------------------------------------------------------------

PcclGroup::PcclGroup(const c10::intrusive_ptr<c10d::Store>& store,
                     const c10::intrusive_ptr<PcclBackend>& backend, bool open_run)
    : ProcessGroup(store, backend->rank(), backend->size()),
      backend_(backend),
      open_run_(open_run) {
  setDefaultBackend(BackendType::CUSTOM);
}

void PcclGroup::serve(const std::vector<std::string>& devices) {
  for (const std::string& device : devices) {
    setBackend(c10::Device(device).type(), BackendType::CUSTOM,
               c10::intrusive_ptr<c10d::Backend>(backend_));
  }
}

}  // namespace pccl::torch_layer
