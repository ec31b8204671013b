// SendQueue: the operations on a link that have data and may send it, by credit or as eager data,
// and wait only for their turn. A priority queue: the oldest operation first, but one-shot
// operations before all others, pulled transfers after them, and fillers at last. Each link has
// one; RingCore owns it. Pure.
// Invariants:
//  (1) It holds no operation that waits for the neighbour, so no operation blocks another
//      (docs/design.md, section 2: I3 and I5).
//  (2) An operation is in it once, and exactly while its `queued` is set. Its downstream link is
//      up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/ring/op_table.h"

namespace pccl::ring {

class SendQueue {
 public:
  // REQUIRES: !operation.queued. It must stay alive until it is popped or removed.
  void push(Operation& operation);
  bool empty() const { return heap_.empty(); }
  // REQUIRES: !empty().
  Operation& pop();
  // The operation that pop() would return. REQUIRES: !empty().
  const Operation& first() const;
  // Upper bound of the bytes that all operations in the queue have still to send.
  uint64_t bytes_left() const;
  // Does nothing if the operation is not in the queue.
  void remove(Operation& operation);
  size_t size() const { return heap_.size(); }
  bool contains(const Operation& operation) const;
  void check() const;  // asserts the invariants

 private:
  std::vector<Operation*> heap_;  // keeps its capacity: no allocation in the steady state
};

}  // namespace pccl::ring
