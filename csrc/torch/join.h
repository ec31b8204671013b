// join: how a Python process becomes a peer of a run. It blocks until the peer is admitted. It lets
// other threads run Python meanwhile, and raises KeyboardInterrupt on Ctrl-C. Failure: options that
// are out of range raise ValueError, and a run that cannot be joined raises the error of its
// Status.
#pragma once

#include <memory>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "csrc/torch/join_options.h"
#include "csrc/torch/reconfiguration.h"

namespace pccl::torch_layer {

class HostedRun;
class PcclGroup;

// REQUIRES: the caller holds the GIL. torch gets `store` as the store of the group. `hosted` may be
// null; otherwise it is the run to join, and it ends after the peer has left.
c10::intrusive_ptr<PcclGroup> join(const JoinOptions& options,
                                   const c10::intrusive_ptr<c10d::Store>& store,
                                   std::shared_ptr<HostedRun> hosted);

// A group without members: reconfigure gives it some. Until then it has this rank and size.
// `timeout`: of its operations, in seconds. REQUIRES: the caller holds the GIL.
c10::intrusive_ptr<PcclGroup> make_reconfigurable(Reconfiguration::Options options,
                                                  const c10::intrusive_ptr<c10d::Store>& store,
                                                  int rank, int size, double timeout);

}  // namespace pccl::torch_layer
