// Credits: the bookkeeping of permissions to send on a link. Each link has one of each class;
// RingCore owns them. They are pure.
//  - UnexpectedCredits: the credit from a neighbour that posted an operation before this peer did.
//  - SendQueue: the operations that have data and may send it, by credit or as eager data, and wait
//    only for their turn.
// Invariants:
//  (1) Neither class holds an operation that waits for the neighbour, so no operation blocks
//      another (docs/design.md, section 2: I3 and I5).
//  (2) UnexpectedCredits holds credits of at most kOpsOpenMax operations.
//  (3) An operation is in the SendQueue once, and exactly while its `queued` is set. Its downstream
//      link is up. The first operation is the oldest of those that yield to the fewest others:
//      first those that are neither pulled nor fillers, then pulled ones, then fillers.
// Failure: UnexpectedCredits::keep() returns false when the neighbour is too far ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/protocol/limits.h"
#include "csrc/ring/op_table.h"

namespace pccl::ring {

class UnexpectedCredits {
 public:
  // Keeps the latest credit of an operation. False if there are already protocol::kOpsOpenMax other
  // operations: no honest neighbour has posted that many more operations than this peer.
  bool keep(OpKey op, uint64_t digest, uint64_t value);
  // Returns the steps granted to `op`, and forgets them. 0 if none were granted, or if they were
  // granted under another digest.
  uint64_t take(OpKey op, uint64_t digest);
  bool contains(OpKey op) const { return credits_.contains(op); }
  void drop(OpKey op) { credits_.erase(op); }
  void clear() { credits_.clear(); }
  size_t size() const { return credits_.size(); }
  // The first operation with kept credit for which `test` is false; null if there is none.
  template <typename Test>
  const OpKey* find_unless(Test test) const {
    for (const auto& [op, credit] : credits_) {
      if (!test(op)) return &op;
    }
    return nullptr;
  }
  void check() const;  // asserts the invariants

 private:
  struct Credit {
    uint64_t digest = 0;
    uint64_t value = 0;
  };
  std::map<OpKey, Credit> credits_;
};

// A priority queue: the oldest operation first, pulled transfers after all others, and fillers at
// last. An operation is in it while its `queued` is set.
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
