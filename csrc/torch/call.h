// Call: one operation of a PcclBackend before it is posted. Each collective fills in a Call and
// hands it to post(). Only the files that implement the collectives include this header. The thread
// that calls the collective owns the Call.
// Failure: an unfit tensor or argument is refused with an exception, before anything is posted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "csrc/torch/backend.h"
#include "csrc/torch/borrowed_tensors.h"

namespace pccl::torch_layer {

using protocol::OpKind;

struct PcclBackend::Call {
  Call(const char* call, OpKind op_kind, c10d::OpType op_type,
       Milliseconds limit = c10d::kUnsetTimeout);
  // Sets dtype and count. `bytes`: the size of one rank's tensor, or of each part of it. REQUIRES:
  // whole elements of that dtype.
  void elements(at::ScalarType scalar, size_t bytes);
  // Sets dtype and count for parts of different sizes. `sent`, `received`: the parts by rank.
  void parts(at::ScalarType scalar, const std::vector<Bytes>& sent,
             const std::vector<Bytes>& received);
  // Adds memory that is only read.
  void read(Bytes bytes) { inputs.emplace_back(bytes); }
  // Cuts `whole` into blocks of equal size and appends them to spans or inputs.
  void write_blocks(Bytes whole, int blocks);
  void read_blocks(Bytes whole, int blocks);
  // Whether the result of the operation overwrites the contribution of this rank.
  bool overwrites_operand() const;
  // Whether the memory that the operation writes has to be saved. `restore`: PCCL_RESTORE.
  bool needs_saving(bool restore) const;

  const char* name;
  c10d::OpType type;
  Milliseconds timeout;
  std::shared_ptr<BorrowedTensors> borrowed;
  peer::OpRequest request;
  // As in peer::arrange().
  std::vector<Bytes> spans;
  std::vector<std::span<const std::byte>> inputs;
  bool save = false;  // restore the memory if the operation fails
};

// Raises ValueError unless the list has one tensor. torch passes a list because one process once
// had a tensor for each of its devices.
void expect_one(const char* call, const Tensors& tensors);

// Raises ValueError for a dtype whose tensors cannot be reduced by `op`.
void check_can_compute(const char* call, at::ScalarType scalar, ReduceOp op);
// The name of a reduction in messages: "MAX".
std::string name_of(const c10d::ReduceOp& op);

}  // namespace pccl::torch_layer
