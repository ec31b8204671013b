// Operation: one collective or transfer of this peer, from the time when it gets its number until
// its outcome. It has the state, the progress in the present epoch and, for an all-reduce with
// `keep`, the parts that earlier epochs have finished. It belongs to Operations, which starts and
// ends it.
// Invariants:
//   1. It is announced (`begun`) before it is on the ring, and only in an epoch that is not frozen.
//   2. While it runs, it is on the ring unless its abort was requested or its data is still to be
//      staged. If it is done, it is on the ring or is a barrier. In a frozen epoch it does not run.
//   3. It is not announced between the end of an epoch and the begin of the next.
//   4. Only an all-reduce with `keep` starts after its first element. It starts at the end of its
//      kept parts.
//   5. If it was returned to the application, it is done, and its timeout has ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "csrc/peer/membership.h"

namespace pccl::peer {

struct Operation {
  enum class State {
    kCalled,
    kRunning,
    kDone,    // it is done on this peer
    kFrozen,  // not done here, and never done in this epoch
    kRestart,
    kSettled,  // it has its outcome and is no longer open
  };

  Handle handle = 0;
  protocol::OpInfo info;
  State state = State::kCalled;
  bool begun = false;                  // in this epoch: announced to the master
  bool started = false;                // in this epoch: posted to the ring, so its data is staged
  bool returned = false;               // the application has its memory back, with success
  bool answered = false;               // in this epoch: an abort proposal, so the master decides
  bool absent = false;                 // this peer contributes zeros
  int8_t priority = 0;                 // as in ring::Task
  protocol::AbsentRanks absent_ranks;  // with `keep`: absent ranks, once any element is final
  Epoch ended_in;                      // kRestart: the epoch in which it was stopped and is drained
  uint64_t finished = 0;               // with `keep`: elements that are final here
  std::vector<Part> parts;  // with `keep`: the parts that earlier epochs have finished for all
  Duration timeout{0};
  std::optional<Instant> deadline;
  Instant done_at;  // kDone
  std::optional<protocol::AbortRequest> request;

  void enter(State next);  // REQUIRES: the table in operation.cc allows it
  // Starts its progress in the present epoch.
  void begin(const Membership& membership);
  bool sends(PeerId self) const { return is_send() && info.root == self; }
  bool receives(PeerId self) const { return is_send() && info.receiver == self; }
  bool is_send() const { return info.kind == protocol::OpKind::kSend; }
  // Whether the master may commit it.
  bool may_commit(PeerId self) const { return state == State::kDone || (sends(self) && begun); }
  protocol::OpReport report(OpKey key) const;
  // The elements up to `end` are final. They are reduced over the members that were present.
  void add_part(uint64_t end, const Membership& membership);
  // The epoch has ended, and the generation continues. The operation begins again in the next
  // epoch, after its first `kept` elements. Returns true if it cannot: it has overwritten its
  // tensor in this epoch, and tensors are not restored (`restores`).
  bool repeat_later(uint64_t kept, const Membership& membership, bool restores);
  void check(const Membership& membership) const;  // asserts the invariants
};

}  // namespace pccl::peer
