// PcclBackend: turns torch's collectives into operations of a peer. Each family of collectives has
// a file of its own: reductions, sparse_reduction, gathers, scatters, broadcast, barrier and
// point_to_point. joint_calls has the calls that are not in torch's interface.
// Any thread may call it. Failure: an unfit tensor or argument is refused at once, with an
// exception; failures of peers and of the network arrive through the Work.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/headeronly/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "csrc/base/result.h"
#include "csrc/torch/current_session.h"
#include "csrc/torch/hooks.h"
#include "csrc/torch/peer_session.h"
#include "csrc/torch/work.h"

// torch has a macro for its abort hooks (C10D_BACKEND_HAS_HOOKS), and none for these.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
#define PCCL_TORCH_HAS_COMPLETION_HOOKS 1
#endif

namespace pccl::torch_layer {

class BoundState;
class Reconfiguration;

// Is called when more of a shared state was fetched. False: a Python exception is pending in this
// thread.
using TellProgress = std::function<bool(const peer::SyncProgress&)>;

class PcclBackend : public c10d::Backend {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using TensorLists = std::vector<Tensors>;

  PcclBackend(std::shared_ptr<PeerSession> session, Milliseconds timeout);
  // A group whose application decides its members. Until the first reconfigure it has none, and
  // rank and size are those that were given.
  PcclBackend(std::unique_ptr<Reconfiguration> reconfiguration, int rank, int size,
              Milliseconds timeout);
  ~PcclBackend() override;

  const std::string getBackendName() const override { return "pccl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(Milliseconds timeout) override;
  // dist.split_group requires it. PcclGroup splits itself (pccl_backend/_torch/split.py). split()
  // is only called for a group of torch's own class, and raises an error.
  bool supportsSplitting() const override { return true; }
  // In newer torch only, hence no `override`.
  virtual c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const std::vector<int>& ranks,
                                                  const c10::intrusive_ptr<Options>& options);
  // dist.shrink_group calls the method of this name in Python (pccl_backend/_torch/split.py). This
  // one raises an error.
  bool supportsShrinking() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t>& ranks_to_exclude, int flags,
                                           const c10::intrusive_ptr<Options>& options) override;
  uint64_t getSequenceNumberForGroup() override { return posted_; }
  void setSequenceNumberForGroup() override {}  // numbers start at 0 on every rank
  void shutdown() override;
  // Runs the abort hooks, and then ends everything that is under way. A reconfigurable group can be
  // reconfigured again; any other one is over.
  void abort() override;
  // Operations that are posted from now on have a duration: Work::getDuration().
  void enableCollectivesTiming() override { hooks_->timed = true; }
  // The kind of the error that raise_last_error() raises; SUCCESS if it raises none.
  c10d::ErrorType getError() override;
  // The functions of hooks.h, by torch's names.
#ifdef C10D_BACKEND_HAS_HOOKS
  virtual bool supportsAbortHooks() const { return true; }  // in newer torch only: no `override`
  void registerAbortHook(int64_t id, c10d::AbortHook hook) override;
  void unregisterAbortHook(int64_t id) override;
#endif
#ifdef PCCL_TORCH_HAS_COMPLETION_HOOKS
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override;
  void unregisterCompletionHook(int64_t id) override;
#endif
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  bool supportsReconfigure() const override { return reconfiguration_ != nullptr; }
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  WorkPtr reconfigure(const c10d::ReconfigureOptions& options) override;
#endif

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  // The sum of COO tensors in host memory. allreduce() calls it for a sparse tensor.
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  // In newer torch only, hence no `override`.
  virtual WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                     const c10d::GatherOptions& options);
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  // Blocks until all ranks have called it. OperationTimeoutError names the ranks that have not.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  // Takes the oldest send to this rank under the tag. sourceRank() of its Work returns the sender.
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  // Beyond torch's interface. Joint calls block. REQUIRES: their caller does not hold the GIL.
  int rank() const;
  int size() const;
  peer::JointResult update_topology();
  bool are_peers_pending();
  peer::JointResult optimize_topology(std::chrono::milliseconds budget, uint64_t max_bytes);
  // This thread calls `tell`, unless it is empty, for each piece that was fetched. If `tell`
  // returns false, a Python exception is pending, and the call ends as by an interrupt.
  peer::JointResult sync_shared_state(uint64_t revision, protocol::SyncStrategy strategy,
                                      BoundState& tensors, const TellProgress& tell = {});
  // Returns when all members have voted. The tensors are lent until wait_for_sync() returns. If the
  // SyncCall is dropped before, the transfers continue, and nothing is written.
  std::shared_ptr<peer::SyncCall> begin_sync(uint64_t revision, protocol::SyncStrategy strategy,
                                             BoundState& tensors);
  peer::Info info();
  void add_saving(double seconds);  // see TimeAccount::saved()
  // Sets numbers for people that watch the run. A ValueError if one is not finite, if a name is too
  // long or cannot be shown, or if there are too many.
  void report(const std::vector<protocol::Scalar>& scalars);
  // Raises the error of the latest operation that failed after the last call of update_topology().
  void raise_last_error() const;
  // What dist.shrink_group needs to know. The constructor of PcclGroup sets the origin.
  struct Origin {
    c10::intrusive_ptr<c10d::Store> store;  // where the ranks have met
    bool open_run = false;
  };
  void set_origin(Origin origin) { origin_ = std::move(origin); }
  const Origin& origin() const { return origin_; }
  bool reconfigurable() const { return reconfiguration_ != nullptr; }
  Milliseconds timeout() const { return timeout_; }
  // Other backends serve the other devices of the group. Without `serves_cuda`, CUDA tensors belong
  // to one of them, and this backend refuses them. Call it before the first collective.
  void join_composite(bool serves_cuda);
  bool in_composite() const { return in_composite_; }

 private:
  struct Call;  // an operation before it is posted
  WorkPtr post(Call call);
  bool begin_staging(Call& call);
  static void watch_staging(const std::shared_ptr<PeerSession>& session,
                            const std::shared_ptr<PostedOperation>& operation, peer::Handle handle);
  WorkPtr reduce_in_place(Call call, const Tensors& tensors, const c10d::ReduceOp& reduce_op,
                          bool writes);
  WorkPtr post_reduce_scatter(Call call, at::ScalarType scalar, ReduceOp op,
                              const Tensors& outputs);
  WorkPtr transfer(Call call, const Tensors& tensors, int other, int tag);
  peer::JointResult finish_joint(Result<peer::JointResult> result, bool was_interrupted);
  int checked_rank(const char* call, const char* what, int64_t rank) const;
  void refresh_rank_and_size();

  // Raises InvalidStateError if the group has no members, or this process cannot act for it.
  std::shared_ptr<PeerSession> usable_session() const;
  Status last_error() const;
  // Ends everything that is under way, and runs no abort hooks.
  void end_all();
  // Leaves the present members, and fails what is under way. `next`: null if there are none.
  void replace_session(std::shared_ptr<PeerSession> next);

  const std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
  Origin origin_;
  CurrentSession session_;
  const std::unique_ptr<Reconfiguration> reconfiguration_;  // null: the membership is the run's
  const uint64_t forks_;
  std::atomic<Milliseconds> timeout_;
  std::atomic<uint64_t> posted_{0};
  bool serves_cuda_ = true;
  bool in_composite_ = false;
};

// Returns or raises when the transfers are over, and writes the data that this peer lacked. Raises
// SharedStateError, and writes nothing, if a tensor was written meanwhile. Raises
// OperationTimeoutError after `seconds` (none: only the group has a limit), and KeyboardInterrupt
// on Ctrl-C; after these two errors the transfers continue. `tell` is called at most every 100 ms,
// if more data has arrived; it may be empty. REQUIRES: the caller does not hold the GIL.
peer::JointResult wait_for_sync(peer::SyncCall& sync, std::optional<double> seconds,
                                const TellProgress& tell);

}  // namespace pccl::torch_layer
