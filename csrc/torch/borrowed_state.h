// BorrowedState: the tensors of a shared state during a sync_shared_state. They may be on several
// devices, and the tensors of each device are checked like the tensors of a collective. The
// caller's thread lends them. Any thread but a loop may destroy a BorrowedState, because that
// releases memory.
// A tensor in host memory that is not contiguous is lent as a contiguous copy. After a success
// copy_back() writes the received data into the tensor.
// Invariant: the memory lives as long as this object.
// Failure: ValueError for an unfit tensor; the text names the tensor.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/base/reusable.h"
#include "csrc/peer/shell/state/state_spans.h"
#include "csrc/torch/borrowed_tensors.h"

namespace pccl::torch_layer {

class BorrowedState {
 public:
  using MayAdd = std::optional<peer::StateSpans::MayAdd>;

  explicit BorrowedState(std::vector<NamedTensor> entries, const MayAdd& may_add = {});

  // The entries that are lent. They serve any number of calls, as long as fits() returns true.
  const std::shared_ptr<peer::StateSpans>& spans() const { return spans_; }
  // Whether every tensor still has the memory and the shape that are lent, and no lent entry is a
  // copy of its tensor.
  bool fits() const;
  void watch();  // from here on, writes are noticed
  // kSharedState, with the key, if a tensor was written since watch(). A write is not noticed if
  // torch does not count it as a write of this tensor: a write through another tensor with the same
  // memory (`.data`), or a write of a tensor that was made in inference mode.
  Status unwritten() const;
  void copy_back();

 private:
  struct Lent {
    const void* data = nullptr;
    at::ScalarType dtype = at::kByte;
    uint32_t dimensions = 0;
  };
  peer::StateSpan lend(const NamedTensor& entry);

  const std::vector<NamedTensor> entries_;
  std::map<std::string, BorrowedTensors> borrowed_;  // by device
  bool reusable_ = true;                             // all tensors are plain and in host memory
  std::vector<Lent> lent_;      // of the tensors in host memory, in the order of entries_
  std::vector<int64_t> sizes_;  // of the tensors in `lent_`, one tensor after another
  std::shared_ptr<peer::StateSpans> spans_;
  std::vector<uint32_t> versions_;
};

// Tensors of the host with the memory of these entries.
std::vector<NamedTensor> tensors_of(const std::vector<peer::AddedEntry>& added);

// BoundState: the tensors of a SharedState object, for all its calls.
class BoundState {
 public:
  // `may_add`: a call may take entries that are not in `entries`.
  explicit BoundState(std::vector<NamedTensor> entries, BorrowedState::MayAdd may_add = {})
      : entries_(std::move(entries)), may_add_(std::move(may_add)) {}
  // Returns the BorrowedState of the last call, if that call is over and the tensors still fit,
  // otherwise a new one.
  std::shared_ptr<BorrowedState> lend() {
    const Lock lock(mutex_);
    const BorrowedState* const before = state_.idle();
    if (before == nullptr || !before->fits()) state_.emplace(entries_, may_add_);
    return state_.lend();
  }

 private:
  const std::vector<NamedTensor> entries_;
  const BorrowedState::MayAdd may_add_;
  Mutex mutex_;
  Reusable<BorrowedState> state_ PCCL_GUARDED_BY(mutex_);
};

}  // namespace pccl::torch_layer
