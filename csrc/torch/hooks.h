// Hooks: the functions that a group runs when one of its operations ends, or when the application
// aborts it. torch's flight recorder and health check register such hooks in torch 2.15 and newer,
// and a program may register its own in torch 2.14 and newer. The PcclBackend and its operations
// share the object. It survives a reconfigure. Any thread may call the functions.
// Invariants:
// 1. No hook runs on a peer loop, under a lock of pccl, or with the GIL held. The flight recorder
//    holds a lock while it asks for the rank of the group, and this may wait for the loop. Its
//    hooks take the same lock.
// 2. A completion hook runs after its operation counts as ended.
// Failure: the error of a hook is logged. The outcome of the operation stays as it is.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "csrc/base/code.h"
#include "csrc/torch/hook_table.h"

namespace pccl::torch_layer {

class PostedOperation;

class Hooks {
 public:
  // For each operation that succeeds: its key, and its duration in milliseconds if it was measured.
  HookTable<uint64_t, std::optional<float>> completion;
  // For each operation that fails by a fault, and for each abort() of the application.
  HookTable<> abort;
  // The application decides the members. If the master of its members is lost, it lets others meet,
  // as after the loss of any peer: that is no fault.
  std::atomic<bool> reconfigurable{false};
  // Whether the operations that are posted from now on are measured.
  std::atomic<bool> timed{false};

  // Whether a hook is to run for an operation that ends with `code`.
  bool want(Code code) const;
  // Runs the hooks for an operation that has ended with `code`. Blocks as long as they do.
  // REQUIRES: this thread has no GIL, and is no peer loop.
  void run(Code code, uint64_t key, std::optional<float> milliseconds) const;
  void run_abort() const;
  // A thread of the CompletionExecutor calls report_end() of the operation soon. The operations of
  // all groups are reported one after another, in the order of the calls. Never blocks.
  static void report_later(std::shared_ptr<PostedOperation> operation);
  void clear();

 private:
  bool is_fault(Code code) const;
};

}  // namespace pccl::torch_layer
