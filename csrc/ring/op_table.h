// OpTable: the operations in flight on this peer, each with its progress along the schedule, the
// credit it has received and the credit it has granted.
// It is plain data that belongs to RingCore; RingCore alone changes it.
// Invariants:
//  (1) An operation is filed under its key. A younger operation has a higher serial number.
//  (2) Granted credit never exceeds the present limit of the schedule.
//  (3) An operation whose downstream is lost is not in a queue.
//  (4) An operation that can send is queued. While it is queued, the arrival of a chunk may make it
//      unable to send: RingCore looks once more before it sends.
//  (5) The transfer is announced when all is sent and received, and only then.
//  (6) An exchange has no chunks. It consists of parts, one for each direction of bytes between
//      this member and another one. A part is a broadcast between these two members, with the key
//      of the exchange and a digest of its own. Only the exchange is in the table.
//  (7) Likewise, a direct all-reduce and a one-shot operation have no chunks themselves. Their
//      parts are legs, one for each direction of data between this member and another one. A leg
//      uses the memory of the whole operation. A leg of a direct all-reduce also has the digest of
//      the whole operation. A leg of a one-shot operation has a digest of its own, and one chunk.
//      The first leg goes to the next rank, so that not all members begin with the same owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/ids.h"
#include "csrc/protocol/frames.h"
#include "csrc/ring/duplicate_filter.h"
#include "csrc/ring/owner.h"
#include "csrc/ring/progress.h"
#include "csrc/ring/schedule.h"
#include "csrc/ring/task.h"

namespace pccl::ring {

struct Operation {
  Operation(Task posted, uint64_t age);
  Operation(const Operation&) = delete;  // progress holds a reference to schedule
  Operation& operator=(const Operation&) = delete;

  // True if some chunk may leave now, given its data and the credit.
  bool can_send() const { return !downstream_lost && progress.can_send(allowed); }
  protocol::FrameHeader header(protocol::FrameType type) const;
  // Returns why a chunk with this header breaks a rule; empty if it breaks none. `id` is then set
  // to its chunk id.
  std::string judge(const protocol::FrameHeader& chunk, uint64_t& id) const;
  uint64_t bytes_left() const { return progress.chunks_left() * schedule.slot_bytes(); }
  // credit(): the steps that upstream may have sent by now. owes_credit(): whether that exceeds
  // `granted`.
  uint64_t credit() const;
  bool owes_credit() const;
  // Whether all chunks are sent and received, also in all parts.
  bool finished() const;
  // Returns the number of elements, from the start of the tensor, that are final here. REQUIRES: an
  // operation that may have Task::keep.
  uint64_t finished_elements() const;
  // It is a leg, and has the memory of the whole operation.
  bool is_leg() const { return schedule.shape().leg.has_value(); }
  bool is_one_shot() const { return schedule.row().is_one_shot(); }
  // from(): this operation or the part of it that receives chunks from `peer`. to(): this operation
  // or the part of it that sends chunks to `peer`. Both return null if there is none.
  Operation* from(PeerId peer);
  const Operation* from(PeerId peer) const { return const_cast<Operation*>(this)->from(peer); }
  Operation* to(PeerId peer);
  // Itself, then its parts.
  void each(auto&& visit) {
    visit(*this);
    for (const auto& part : parts) visit(*part);
  }
  void each(auto&& visit) const {
    visit(*this);
    for (const auto& part : parts) visit(std::as_const(*part));
  }
  // The absent members of the reduction that are known here: this member if it is absent, and all
  // members that a frame has named. When a result is here, all absent members are known.
  protocol::AbsentRanks absent() const { return is_leg() ? whole->known_absent : known_absent; }
  bool may_be_absent(protocol::AbsentRanks ranks) const {
    return ranks.fit(schedule.row().reduces ? task.shape.world : 0);
  }
  void note_absent(protocol::AbsentRanks others) {
    (is_leg() ? whole->known_absent : known_absent).add(others);
  }
  void check() const;  // asserts the invariants

  const Task task;
  const Schedule schedule;
  Progress progress;
  Owner owner;            // of an operation in legs
  const uint64_t serial;  // grows with each posted operation
  uint64_t allowed = 0;   // credit from downstream: the steps that may be sent
  uint64_t granted = 0;   // credit announced to upstream: the steps that upstream may send
  std::optional<uint32_t> credit_lane;  // lane that carries the credit to upstream
  bool queued = false;                  // it is in the SendQueue of its link
  uint64_t announced_finished = 0;      // number of elements announced last
  bool announced_transferred = false;
  bool done_here = false;
  std::vector<PeerId> done_at;  // other members that have announced kDone
  bool upstream_lost = false;   // its link went down: nothing more comes, not even on a new link
  bool downstream_lost = false;
  bool voided = false;                               // upstream gave up in the middle of a chunk
  protocol::AbsentRanks known_absent = task.absent;  // not used in a leg
  Operation* whole = nullptr;                        // set in a part or leg
  std::vector<std::unique_ptr<Operation>> parts;
};

class OpTable {
 public:
  // REQUIRES: not in the table yet. References stay valid until remove().
  Operation& add(const Task& task);
  // Null if the operation was never posted here, or has ended.
  Operation* find(OpKey op);
  // Whether the operation was posted in this epoch, or has ended without being posted.
  bool knows(OpKey op) const { return known_.contains(op); }
  void ended(OpKey op) { known_.add(op); }
  void begin_epoch() {  // REQUIRES: it is empty
    PCCL_ASSERT(operations_.empty());
    known_.clear();
  }
  void remove(OpKey op);
  size_t size() const { return operations_.size(); }
  size_t pulled() const { return pulled_; }  // number of pulled transfers

  auto begin() { return operations_.begin(); }
  auto end() { return operations_.end(); }
  auto begin() const { return operations_.begin(); }
  auto end() const { return operations_.end(); }
  // All operations, and their parts.
  void each(auto&& visit) {
    for (auto& [key, operation] : operations_) operation.each(visit);
  }
  void each(auto&& visit) const {
    for (const auto& [key, operation] : operations_) operation.each(visit);
  }
  const Operation* find(OpKey op) const;
  bool holds(const Operation* operation) const;  // whether it leads to an operation of the table
  void check() const;                            // asserts the invariants

 private:
  void add_parts(Operation& whole);
  void add_legs(Operation& whole);

  std::map<OpKey, Operation> operations_;
  DuplicateFilter known_;  // of this epoch; has all operations in the table
  uint64_t posted_ = 0;
  size_t pulled_ = 0;
};

}  // namespace pccl::ring
