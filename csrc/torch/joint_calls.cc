// The joint calls of a backend, and its information about the run.

#include <cmath>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/net/descriptors.h"
#include "csrc/peer/shell/state/sync_call.h"
#include "csrc/peer/shell/wait_record.h"
#include "csrc/torch/backend.h"
#include "csrc/torch/borrowed_state.h"
#include "csrc/torch/device.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/timeout.h"

namespace pccl::torch_layer {
peer::JointResult PcclBackend::finish_joint(Result<peer::JointResult> result,
                                            bool was_interrupted) {
  if (was_interrupted) raise_interrupt();
  if (!result.ok()) raise(result.status());
  return std::move(result.value());
}

peer::JointResult PcclBackend::update_topology() {
  const auto session = usable_session();
  session->last_error()->set(
      {});  // before the call, because the call may end operations with an error
  bool stop = false;
  auto result =
      session->peer().update_topology(timeout_.load(), [&] { return stop = interrupted(); });
  refresh_rank_and_size();
  return finish_joint(std::move(result), stop);
}

void PcclBackend::raise_last_error() const {
  if (const Status status = last_error(); !status.ok()) raise(status);
}

void PcclBackend::refresh_rank_and_size() {
  // In an older torch, rank_ and size_ are const, and only the group reads them.
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  rank_ = rank();
  size_ = size();
#endif
}

bool PcclBackend::are_peers_pending() {
  const auto session = usable_session();
  bool stop = false;
  auto result =
      session->peer().are_peers_pending(timeout_.load(), [&] { return stop = interrupted(); });
  return finish_joint(std::move(result), stop).pending;
}

peer::JointResult PcclBackend::optimize_topology(std::chrono::milliseconds budget,
                                                 uint64_t max_bytes) {
  const auto session = usable_session();
  bool stop = false;
  auto result = session->peer().optimize_topology(budget, max_bytes, timeout_.load(),
                                                  [&] { return stop = interrupted(); });
  return finish_joint(std::move(result), stop);
}

peer::JointResult PcclBackend::sync_shared_state(uint64_t revision, protocol::SyncStrategy strategy,
                                                 BoundState& tensors, const TellProgress& tell) {
  const auto session = usable_session();
  const LeaveCapturesAlone guard;
  const std::shared_ptr<BorrowedState> state = tensors.lend();
  bool stop = false;
  const auto on_progress = [&](const peer::SyncProgress& progress) {
    stop = stop || !tell(progress);
  };
  auto result = session->peer().sync_shared_state(
      {revision, strategy, state->spans(), timeout_.load()},
      [&] { return stop = stop || interrupted(); }, tell ? on_progress : peer::OnProgress{});
  peer::JointResult outcome = finish_joint(std::move(result), stop);
  if (outcome.bytes_received > 0) state->copy_back();
  return outcome;
}

std::shared_ptr<peer::SyncCall> PcclBackend::begin_sync(uint64_t revision,
                                                        protocol::SyncStrategy strategy,
                                                        BoundState& tensors) {
  const auto session = usable_session();
  const LeaveCapturesAlone guard;
  const std::shared_ptr<BorrowedState> state = tensors.lend();
  state->watch();
  peer::InBackground background;
  background.keeps = state;
  background.around = [](const std::function<void()>& work) {
    const LeaveCapturesAlone guard_of_thread;
    work();
  };
  background.may_install = [state] { return state->unwritten(); };
  background.installed = [state] { state->copy_back(); };
  bool stop = false;
  auto begun =
      session->peer().begin_sync({revision, strategy, state->spans(), timeout_.load()},
                                 std::move(background), [&] { return stop = interrupted(); });
  if (stop) raise_interrupt();
  if (!begun.ok()) raise(begun.status());
  // Python drops the SyncCall while it holds the GIL. The deleter releases the GIL, and drops the
  // call before the session, because the call uses the loop of the session's peer.
  peer::SyncCall* const call = begun.value().get();
  return {call, [sync = std::move(begun.value()), session = session,
                 forks = forks_](peer::SyncCall*) mutable {
            if (forks != net::fork_count()) return;
            const ReleaseGil no_gil;
            sync->abandon();
            sync.reset();
            session.reset();
          }};
}

peer::JointResult wait_for_sync(peer::SyncCall& sync, std::optional<double> seconds,
                                const TellProgress& tell) {
  const auto limit =
      seconds ? Duration(checked_timeout(std::chrono::duration<double>(*seconds))) : kForever;
  const auto raised_by_tell = [&] {
    const auto progress = tell ? sync.take_progress() : std::nullopt;
    return progress && !tell(*progress);
  };
  const Instant until = monotonic_now() + limit;
  bool stop = false;
  const auto stopped = [&] { return stop = raised_by_tell() || interrupted(); };
  // The last progress is reported before the outcome is taken: if `tell` raises, the next wait()
  // still gets the outcome.
  if (sync.wait_for_end(until, stopped)) stop = raised_by_tell();
  if (stop) raise_interrupt();
  const auto outcome = sync.wait(until, stopped);
  if (!outcome) {
    raise({Code::kOperationTimeout,
           "wait() of sync_shared_state ended after its timeout of " + text(limit) +
               ", but the transfers go on and the tensors stay lent: wait again, or give the group "
               "a timeout, which ends the call on all ranks",
           {}});
  }
  if (!outcome->ok()) raise(outcome->status());
  return outcome->value();
}

peer::Info PcclBackend::info() {
  const auto session = usable_session();
  return session->peer().info();
}

void PcclBackend::report(const std::vector<protocol::Scalar>& scalars) {
  const auto session = usable_session();
  for (const protocol::Scalar& scalar : scalars) {
    const std::string& name = scalar.name;
    if (name.empty() || name.size() > protocol::kScalarNameBytesMax || !is_printable(name)) {
      raise_value_error(c10::str("report() was given the name '", printable(name),
                                 "': a name has 1 to ", protocol::kScalarNameBytesMax,
                                 " bytes, all printable"));
    }
    if (!std::isfinite(scalar.value))
      raise_value_error(c10::str("report() was given ", name, "=", scalar.value,
                                 ", and the numbers must be finite"));
  }
  if (const Status status = session->peer().report(scalars); !status.ok())
    raise_value_error(status.message);
}

void PcclBackend::add_saving(double seconds) {
  const auto session = usable_session();
  session->peer().waits()->saved(
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

}  // namespace pccl::torch_layer
