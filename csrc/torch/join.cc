#include "csrc/torch/join.h"

#include <chrono>
#include <utility>

#include "csrc/torch/errors.h"
#include "csrc/torch/hosted_run.h"
#include "csrc/torch/join_request.h"
#include "csrc/torch/process_group.h"
#include "csrc/torch/timeout.h"

namespace pccl::torch_layer {
c10::intrusive_ptr<PcclGroup> join(const JoinOptions& options,
                                   const c10::intrusive_ptr<c10d::Store>& store,
                                   std::shared_ptr<HostedRun> hosted) {
  PeerSession::Request request = to_request(options);
  request.hosted = hosted;
  const Duration timeout = request.peer.join_timeout;

  const ReleaseGil no_gil;
  bool stop = false;
  const auto ends = [&] {
    stop = interrupted();
    return stop || (hosted != nullptr && hosted->in_vain());
  };
  auto joined = PeerSession::join(std::move(request), ends);
  if (stop) raise_interrupt();
  if (!joined.ok()) raise(joined.status());
  const auto backend = c10::make_intrusive<PcclBackend>(
      std::move(joined.value()), std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
  return c10::make_intrusive<PcclGroup>(store, backend, options.open_run);
}

c10::intrusive_ptr<PcclGroup> make_reconfigurable(Reconfiguration::Options options,
                                                  const c10::intrusive_ptr<c10d::Store>& store,
                                                  int rank, int size, double timeout) {
  const ReleaseGil no_gil;
  const auto limit = checked_timeout(std::chrono::duration<double>(timeout));
  auto reconfiguration = std::make_unique<Reconfiguration>(std::move(options));
  const auto backend =
      c10::make_intrusive<PcclBackend>(std::move(reconfiguration), rank, size, limit);
  return c10::make_intrusive<PcclGroup>(store, backend, false);
}

}  // namespace pccl::torch_layer
