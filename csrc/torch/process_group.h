// PcclBackend: turns torch's collectives into operations of a peer. PcclGroup: the object that
// torch calls the process group. It serves every requested device with one backend. It reads its
// rank and size from the peer, so that they follow the membership of the run.
// There are two classes because, in all supported releases, collectives are virtual functions of
// the Backend, and only a ProcessGroup may change its size (torch 2.13 and older). A group that has
// other backends beside pccl is torch's own class, and gets the PcclBackend alone.
// Any thread may call them. Failure: an unfit tensor or argument is refused at once, with an
// exception; failures of peers and of the network arrive through the Work.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "csrc/base/result.h"
#include "csrc/torch/peer_session.h"
#include "csrc/torch/work.h"

namespace pccl::torch_layer {

// What this thread's collectives have beside their arguments. Python sets them for a block of code,
// and then sets the values from before again, so blocks nest.
struct CallOptions {
  std::string tag;    // empty: the default tag
  bool keep = false;  // all-reduces keep the elements that are finished at a loss (on_loss="keep")
};
CallOptions& call_options();

class PcclBackend : public c10d::Backend {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using TensorLists = std::vector<Tensors>;

  PcclBackend(std::shared_ptr<PeerSession> session, Milliseconds timeout);
  ~PcclBackend() override;

  const std::string getBackendName() const override { return "pccl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(Milliseconds timeout) override { timeout_ = timeout; }
  uint64_t getSequenceNumberForGroup() override { return posted_; }
  void setSequenceNumberForGroup() override {}  // numbers start at 0 on every rank
  void shutdown() override;
  void abort() override { shutdown(); }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;

  // Not implemented yet: each raises NotImplementedError.
  WorkPtr allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) override;
  WorkPtr reduce(Tensors&, const c10d::ReduceOptions&) override;
  WorkPtr allgather_coalesced(TensorLists&, Tensors&, const c10d::AllgatherOptions&) override;
  WorkPtr gather(TensorLists&, Tensors&, const c10d::GatherOptions&) override;
  // In newer torch only, hence no `override`.
  virtual WorkPtr gather_into_tensor(at::Tensor&, at::Tensor&, const c10d::GatherOptions&);
  WorkPtr scatter(Tensors&, TensorLists&, const c10d::ScatterOptions&) override;
  WorkPtr reduce_scatter(Tensors&, TensorLists&, const c10d::ReduceScatterOptions&) override;
  WorkPtr _reduce_scatter_base(at::Tensor&, at::Tensor&,
                               const c10d::ReduceScatterOptions&) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors&, Tensors&,
                                          const c10d::ReduceScatterOptions&) override;
  WorkPtr alltoall_base(at::Tensor&, at::Tensor&, std::vector<int64_t>&, std::vector<int64_t>&,
                        const c10d::AllToAllOptions&) override;
  WorkPtr alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override;
  WorkPtr recvAnysource(Tensors&, int) override;
  void monitoredBarrier(const c10d::BarrierOptions&, bool) override;

  // Beyond torch's interface. Joint calls block. REQUIRES: their caller does not hold the GIL.
  int rank() const;
  int size() const;
  peer::JointResult update_topology();
  bool are_peers_pending();
  struct Entry {
    std::string key;
    at::Tensor tensor;
  };
  peer::JointResult sync_shared_state(uint64_t revision, protocol::SyncStrategy strategy,
                                      const std::vector<Entry>& entries);
  peer::Info info();

 private:
  struct Call;  // an operation before it is posted
  WorkPtr post(Call call);
  WorkPtr reduce_in_place(Call call, const Tensors& tensors, const c10d::AllreduceOptions& options);
  WorkPtr transfer(Call call, const Tensors& tensors, int other, int tag);
  peer::JointResult finish_joint(Result<peer::JointResult> result, bool was_interrupted);
  int checked_rank(const char* call, const char* what, int64_t rank) const;
  void refresh_rank_and_size();

  const std::shared_ptr<PeerSession> session_;
  const uint64_t forks_;
  std::atomic<Milliseconds> timeout_;
  std::atomic<uint64_t> posted_{0};
};

class PcclGroup : public c10d::ProcessGroup {
 public:
  PcclGroup(const c10::intrusive_ptr<c10d::Store>& store,
            const c10::intrusive_ptr<PcclBackend>& backend, bool open_run);

  int getRank() const override { return backend_->rank(); }
  int getSize() const override { return backend_->size(); }
  const std::string getBackendName() const override { return "pccl"; }
  uint64_t getSequenceNumberForGroup() override { return backend_->getSequenceNumberForGroup(); }

  PcclBackend& backend() { return *backend_; }
  c10::intrusive_ptr<PcclBackend> shared_backend() const { return backend_; }
  // Makes the backend serve tensors on these devices. Call it before the first collective.
  void serve(const std::vector<std::string>& devices);
  bool open_run() const { return open_run_; }

 private:
  const c10::intrusive_ptr<PcclBackend> backend_;
  const bool open_run_;
};

}  // namespace pccl::torch_layer
