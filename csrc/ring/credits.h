// Credits: who may send what on a link. EarlyCredits keeps the credit of a neighbour that posted an
// operation before we did; SendQueue holds the operations that have data and may send it, by credit
// or as a head start, and only wait for their turn. One of each per link. Pure. Neither holds an
// operation that waits for the neighbour, so none ever stands in another's way (deadlock-freedom
// I3, I5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/protocol/limits.h"
#include "csrc/ring/op_table.h"

namespace pccl::ring {

class EarlyCredits {
 public:
  // Keeps the latest credit of an operation. False when there are protocol::kOpsOpenMax others
  // already: no honest neighbour has posted that many more than we have.
  bool keep(OpKey op, uint64_t digest, uint64_t value);
  // The steps granted to `op` under our digest, and forgets them; 0 if none were, or under another
  // digest.
  uint64_t take(OpKey op, uint64_t digest);
  bool contains(OpKey op) const { return credits_.contains(op); }
  void drop(OpKey op) { credits_.erase(op); }
  void clear() { credits_.clear(); }
  size_t size() const { return credits_.size(); }

 private:
  struct Credit {
    uint64_t digest = 0;
    uint64_t value = 0;
  };
  std::map<OpKey, Credit> credits_;
};

// The oldest comes first. An operation is here while its `queued` is set.
class SendQueue {
 public:
  // REQUIRES: !operation.queued. It must stay alive until popped or removed.
  void push(Operation& operation);
  bool empty() const { return heap_.empty(); }
  // REQUIRES: !empty().
  Operation& pop();
  // The one that pop() would give. REQUIRES: !empty().
  const Operation& first() const { return *heap_.front(); }
  // What all of these have still to send.
  uint64_t bytes_left() const;
  // Nothing happens if it is not here.
  void remove(Operation& operation);

 private:
  std::vector<Operation*> heap_;  // keeps its capacity: no allocation in the steady state
};

}  // namespace pccl::ring
