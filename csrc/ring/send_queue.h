// SendQueue: the operations on a link that have data and may send it, by credit or as eager data,
// and wait only for their turn. It is a priority queue: one-shot operations come first, then all
// other operations, then pulled transfers, and last the fillers. Within each of these classes, the
// operation of the highest priority comes first, and the oldest of these. Operations of a lower
// priority are passed kPassesMax times in a row; then the oldest of them comes. This never lets an
// operation go before one of another class. Each link has one SendQueue; RingCore owns it. It is
// pure.
// Invariants:
//  (1) It holds no operation that waits for the neighbour, so no operation blocks another
//      (docs/design.md, section 2: I3 and I5).
//  (2) An operation is in it once, and exactly while its `queued` is set. Its downstream link is
//      up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/protocol/limits.h"
#include "csrc/ring/op_table.h"

namespace pccl::ring {

class SendQueue {
 public:
  static constexpr uint32_t kPassesMax = 15;  // the 16th choice is theirs

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
  // The number of operations of its class and its priority.
  size_t& count(const Operation& operation);
  bool passes_others(const Operation& operation) const;
  size_t next() const;
  void take_out(size_t at);

  std::vector<Operation*> heap_;  // keeps its capacity: no allocation in the steady state
  std::array<std::array<size_t, protocol::kPriorities>, 4> counts_{};
  uint32_t passes_ = 0;  // choices since the last one that passed nobody
};

}  // namespace pccl::ring
