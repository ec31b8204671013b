// BorrowedState: the tensors of a shared state while a sync_shared_state has them. They may be on
// several devices, and the tensors of each device are checked like those of a collective. The
// caller's thread lends them. Any thread may destroy it, except a loop: it releases memory.
// A tensor in host memory that is not contiguous is lent as a contiguous copy. After a success
// copy_back() writes what has come into the tensor.
// Invariant: the memory lives as long as this object.
// Failure: ValueError for an unfit tensor, which names it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "csrc/peer/shell/peer.h"
#include "csrc/torch/borrowed_tensors.h"

namespace pccl::torch_layer {

class BorrowedState {
 public:
  explicit BorrowedState(std::vector<NamedTensor> entries);

  const std::vector<peer::StateSpan>& spans() const { return spans_; }
  // kSharedState, with the key, if a tensor was written since the beginning. Writes through another
  // tensor of the same memory are not seen if torch does not count them as writes of this one
  // (`.data`), nor are those of tensors that were made in inference mode.
  Status unwritten() const;
  void copy_back();

 private:
  peer::StateSpan lend(const NamedTensor& entry);

  const std::vector<NamedTensor> entries_;
  std::map<std::string, BorrowedTensors> borrowed_;  // by device
  std::vector<peer::StateSpan> spans_;
  std::vector<uint32_t> versions_;
};

}  // namespace pccl::torch_layer
