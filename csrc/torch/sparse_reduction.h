// SparseReduction: an all-reduce of sparse tensors, whose indices differ from rank to rank. It is
// two operations of the peer: the ranks gather the headers of their tensors, and then their indices
// and values. Each rank adds the gathered values in rank order, so all have the same bits.
// Each rank posts the second operation when the first one has ended there, at a time of its own. So
// the tag of the second operation belongs to this first operation alone, and no other call can take
// its place. The steps after the first run on threads of the CompletionExecutor. Completions keep
// the object alive.
// Invariants:
// 1. The tensor is only written at the end, after success on all ranks.
// 2. A peer loop never destroys it, because it holds tensors.
// Failure: both operations end alike on all ranks. After their success, a rank that cannot make the
// sum fails alone. If a rank has no memory for the data of the others, it posts a different
// operation under the second tag, which is a mismatch on all ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "csrc/torch/hooks.h"
#include "csrc/torch/last_error.h"
#include "csrc/torch/peer_session.h"
#include "csrc/torch/sparse_part.h"
#include "csrc/torch/work.h"

namespace pccl::torch_layer {

class SparseReduction : public std::enable_shared_from_this<SparseReduction> {
 public:
  struct Call {
    std::shared_ptr<PeerSession> session;
    std::shared_ptr<LastError> last_error;
    std::shared_ptr<Hooks> hooks;
    std::string tag;
    Duration timeout{0};  // of each of the two operations
    int rank = 0, world = 1;
  };
  // REQUIRES: a COO tensor in host memory, with a dtype that can be added.
  SparseReduction(Call call, const at::Tensor& tensor);

  // Posts the first operation. Call it once. The returned operation ends with the all-reduce.
  std::shared_ptr<PostedOperation> begin();

 private:
  using Step = void (SparseReduction::*)(const peer::OpResult&);
  void post(peer::OpRequest request, ring::Memory memory, Step next);
  void on_headers(const peer::OpResult& result);
  void on_parts(const peer::OpResult& result);
  void add();
  void fail(Status status);
  void end(const Status& status);

  const std::weak_ptr<PeerSession> session_;
  const std::shared_ptr<LastError> last_error_;
  const std::shared_ptr<Hooks> hooks_;
  const std::string tag_, text_;
  const Duration timeout_;
  const size_t rank_;
  at::Tensor tensor_;  // the tensor of the caller
  std::vector<SparseHeader> headers_;
  Tensors parts_;
  std::shared_ptr<PostedOperation> operation_;
};

}  // namespace pccl::torch_layer
