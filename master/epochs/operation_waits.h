// OperationWaits: finds in the table of operations which members wait for others to begin an
// operation, and describes these waits in texts. Pure functions of the table. `newcomers` is
// Membership::newcomers() everywhere.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/protocol/messages.h"
#include "master/epochs/op_table.h"

namespace pccl::master {

class OperationWaits {
 public:
  explicit OperationWaits(const OpTable& table) : table_(table) {}

  // ---- One member ----
  // Whether the operation is open, and the member has begun it.
  bool is_in(PeerId peer, OpKey op) const;
  // Whether the operation is known, concerns the member, and was not begun by the member yet.
  bool awaits(PeerId peer, OpKey op) const;
  bool asks_for_sends(PeerId peer) const { return table_.any_source.asks(peer); }
  // Whether the member asks for a send, or is in an open operation.
  bool is_in_any(PeerId peer) const;
  // Whether the member asks for a send, or has begun an open operation and is not done.
  bool is_held_up(PeerId peer) const;
  // Whether the member has begun, in an earlier epoch of the generation, an operation that has no
  // outcome yet.
  bool is_to_repeat(PeerId peer) const;
  // The ranks that have not called an open operation which the member has begun. Without those that
  // have begun it in an earlier epoch: they begin it again. Nothing: the member has not begun it,
  // or it is settled, or an abort proposal is open.
  std::optional<std::vector<uint32_t>> missing_in(PeerId member, OpKey op) const;

  // ---- All members ----
  // An open operation that some members have begun and others have not. `waiting`: the ranks for
  // which it is the oldest such operation that they have begun. `missing`: the ranks that have not
  // begun it. `is_facing`: it is a send, and its receiver waits in a send to its sender.
  struct Waiting {
    OpKey key;
    Instant since;
    std::vector<uint32_t> waiting, missing;
    bool is_facing = false;
  };
  std::vector<Waiting> all() const;
  // The open operations that concern `peer` and that `peer` has not begun. `by`: the members in
  // these operations, without newcomers. `call`: the first of these operations, as "all_reduce(...)
  // (#0)"; empty: there is none.
  struct Awaited {
    std::set<PeerId> by;
    std::string call;
  };
  Awaited awaited(PeerId peer, const std::vector<PeerId>& newcomers) const;
  // A text about the send for which a member waits in a receive from any source; empty: no member
  // but newcomers waits for one.
  std::string asked_send(const std::vector<PeerId>& newcomers) const;
  // An operation that all members which it concerns have begun, and that has no outcome yet:
  // "all_reduce(...) (t, #1)". Empty: there is none.
  std::string under_way() const;
  // "3 operations are in flight, for instance all_reduce(...) (t, #1)"; empty: none is open.
  std::string in_flight() const;

  // ---- An operation that others have not begun, in words ----
  // "all_reduce(...) (t, #1) in epoch 1.5", with the call of the waiting members: recv if a
  // receiver waits for its send.
  std::string name(OpKey waiting) const;
  // Whether it is a send that only its receiver has begun.
  bool awaits_sender(OpKey waiting) const;
  // The receiver of a send that faces another send: "rank 1, which waits in a send to rank 0 ...".
  std::string facing_text(OpKey send) const;

  // ---- Newcomers ----
  // Compares the open operations of a newcomer and of the other members. Only operations that
  // concern the newcomer count. The texts name one operation, as "all_reduce(...) (#0)"; empty:
  // there is none.
  struct Standoff {
    // the newcomer and a member that is no newcomer have begun the same operation
    bool shares = false;
    // the newcomer waits for somebody else: a third member has not begun an operation that both
    // have begun, or a second newcomer has not begun its transfer with this newcomer
    bool held_up = false;
    std::string awaited;  // begun by some of the other members, not by the newcomer
    // begun by all members that it concerns and that are no newcomers, but not by the newcomer
    std::string awaited_by_all;
    std::string alone;  // begun by newcomers only, this one included
  };
  Standoff standoff(PeerId newcomer, const std::vector<PeerId>& newcomers) const;
  // Whether `peer` has begun this open operation and is not done, the operation concerns a member
  // that is no newcomer, and it has no abort proposal.
  bool holds_up(PeerId peer, OpKey op, const std::vector<PeerId>& newcomers) const;

  // ---- An operation that a member gives up ----
  struct GivenUp {
    std::string text;        // names the members that the others have waited for
    bool is_facing = false;  // a send that waited for the opposite send
  };
  GivenUp giving_up(const protocol::AbortRequest& request, const MissingText& missing) const;
  // Whether both are open sends between the same two members, in opposite directions, and neither
  // receiver has begun its receive.
  bool faces(const OpTable::Op& op, const OpTable::Op& other) const;

 private:
  using At = OpTable::At;
  using Op = OpTable::Op;
  // Counts the members that the operation concerns and that are no newcomers. The first number:
  // those that have begun it. The second: those that have not.
  std::pair<size_t, size_t> others(const Op& op, const std::vector<PeerId>& newcomers) const;
  Waiting wait_of(OpKey key, const Op& op, std::vector<uint32_t> waiting) const;
  std::string call(const Op& op, OpKey key) const;  // "all_reduce(...) (#0)"
  bool is_facing(const Op& op) const;

  const OpTable& table_;
};

}  // namespace pccl::master
