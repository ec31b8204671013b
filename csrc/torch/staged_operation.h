// StagedOperation: an operation on device tensors, from its post until none of its copies runs any
// more. The DevicePoller polls it. It reports to the peer when the data of the operation is staged,
// and ends the Work after the copies in.
// Invariant: it keeps the tensors and the pinned memory until it is over. So an operation that
// fails is reported at once, however busy the device is. After the end the pinned memory is given
// back, even if the Work lives on.
// Thread-safety: watch() is for the thread that posts, end() is for the peer loop.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "csrc/base/status.h"
#include "csrc/torch/borrowed_tensors.h"
#include "csrc/torch/device_poller.h"

namespace pccl::torch_layer {

class StagedOperation : public DevicePoller::Watched {
 public:
  using Told = std::function<void(const Status&)>;

  // REQUIRES: tensors on a device.
  explicit StagedOperation(std::shared_ptr<BorrowedTensors> borrowed)
      : borrowed_(std::move(borrowed)) {}

  // `on_staged` is called when the data is in the pinned memory, or with the error that prevents
  // this. `on_finished` is called when the operation has committed and its results are on the
  // device, or with the error that prevents this. Both run on the poller's thread, at most once.
  static void watch(const std::shared_ptr<StagedOperation>& operation, Told on_staged,
                    Told on_finished);
  // The verdict of the operation. Call it once; it may come before watch().
  void end(bool committed);

  Progress poll() override;
  void release() override;

 private:
  enum class Verdict { kNone, kCommitted, kFailed };

  const std::shared_ptr<BorrowedTensors> borrowed_;
  Told on_staged_, on_finished_;
  std::atomic<Verdict> verdict_{Verdict::kNone};
  bool told_ = false;  // the staging has the verdict
};

}  // namespace pccl::torch_layer
