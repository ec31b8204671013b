#include "csrc/torch/staged_operation.h"

#include <utility>

#include "csrc/torch/device.h"

namespace pccl::torch_layer {

void StagedOperation::watch(const std::shared_ptr<StagedOperation>& operation, Told on_staged,
                            Told on_finished) {
  operation->on_staged_ = std::move(on_staged);
  operation->on_finished_ = std::move(on_finished);
  DevicePoller::get().watch(operation);
}

void StagedOperation::end(bool committed) {
  verdict_ = committed ? Verdict::kCommitted : Verdict::kFailed;
  DevicePoller::get().wake();
}

void StagedOperation::release() {
  const LeaveCapturesAlone guard;
  borrowed_->give_back_device();
}

StagedOperation::Progress StagedOperation::poll() {
  memory::Staging& staging = borrowed_->staging();
  const memory::Staging::State before = staging.state();
  const Verdict verdict = verdict_;
  if (verdict != Verdict::kNone && !std::exchange(told_, true))
    staging.end(verdict == Verdict::kCommitted);
  const memory::Staging::News news = staging.poll();
  if (news.staged) on_staged_(*news.staged);
  if (news.finished) on_finished_(*news.finished);
  if (staging.over()) {
    on_staged_ = on_finished_ = nullptr;  // their captures may hold this object
    return Progress::kOver;
  }
  if (staging.waits_for_verdict()) return Progress::kWaits;
  return staging.state() == before ? Progress::kNone : Progress::kSome;
}

}  // namespace pccl::torch_layer
