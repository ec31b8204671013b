// OpTable: the operations in flight on this peer, each with how far it has come: its progress along
// the schedule, what it may send and what it has let its upstream send. Pure; plain data that
// RingCore moves along.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "csrc/base/ids.h"
#include "csrc/ring/exchange.h"
#include "csrc/ring/progress.h"
#include "csrc/ring/schedule.h"

namespace pccl::ring {

// An operation as the ring needs it. Memory is known to the Engine under `handle`.
struct Task {
  Epoch epoch;
  OpKey op;
  uint64_t digest = 0;
  uint64_t handle = 0;
  Shape shape;
  PeerId upstream{};              // nobody: does not receive
  PeerId downstream{};            // nobody: does not send
  std::vector<PeerId> members{};  // kExchange: all of them, by their places in the ring
  bool keep = false;              // its progress is told
};

struct Operation {
  Operation(Task posted, uint64_t age);
  Operation(const Operation&) = delete;  // its progress refers to its schedule
  Operation& operator=(const Operation&) = delete;

  // True when some unit may leave now, as far as data and credit go.
  bool can_send() const { return !downstream_lost && progress.can_send(allowed); }
  uint64_t bytes_left() const { return progress.units_left() * schedule.chunk_bytes(); }
  // The steps that upstream may have sent by now; whether that is more than `granted`.
  uint64_t credit() const;
  bool owes_credit() const;
  // Of an exchange: the tensor of the member at a place.
  Unit copy_of(uint64_t place) const;

  const Task task;
  const Schedule schedule;
  Progress progress;
  Exchange exchange;
  const uint64_t serial;                // grows from one posting to the next
  uint64_t allowed = 0;                 // steps downstream has room for, as far as we know
  uint64_t granted = 0;                 // steps upstream may send, as we last told it
  std::optional<uint32_t> credit_lane;  // that we told it on
  bool queued = false;                  // waits in its link's SendQueue
  uint64_t told_finished = 0;           // elements
  bool told_transferred = false;
  bool done_here = false;
  std::vector<PeerId> done_at;  // other members
  bool combined = false;        // of an exchange: all copies were here
  bool upstream_lost = false;   // with the link: nothing more comes, on a new link either
  bool downstream_lost = false;
  bool voided = false;  // upstream gave up in the middle of a chunk
};

class OpTable {
 public:
  // REQUIRES: not there yet. References stay valid until remove().
  Operation& add(const Task& task);
  // Null when it was never posted here, or has ended.
  Operation* find(OpKey op);
  void remove(OpKey op);
  size_t size() const { return operations_.size(); }

  auto begin() { return operations_.begin(); }
  auto end() { return operations_.end(); }

 private:
  std::map<OpKey, Operation> operations_;
  uint64_t posted_ = 0;
};

}  // namespace pccl::ring
