// SendQueue: the operations on a link that have data and may send it, by credit or as eager data,
// and wait only for their turn. It is a priority queue: one-shot operations come first, then all
// other operations, then pulled transfers, and last the fillers. Within each of these classes, the
// oldest operation comes first. Each link has one SendQueue; RingCore owns it. It is pure.
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
  // An upper bound of the bytes that all operations in the queue still have to send.
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
