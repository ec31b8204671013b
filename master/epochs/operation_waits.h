// OperationWaits: the waits of the members of one epoch for each other's operations: the members in
// no call, those that wait for others to begin an operation, and the clauses about them. Pure
// functions of the table of operations. Newcomers are Membership::newcomers().
#pragma once

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
  // Whether it was in an operation when the epoch before ended, and has not begun it again.
  bool is_to_repeat(PeerId peer) const;

  // ---- All members ----
  // The waits of the members: for each one, its oldest open operation that others have not begun.
  // `waiting`: the ranks that wait in it; `missing`: the ranks that have not begun it. `is_facing`:
  // a send whose receiver waits in a send to the sender.
  struct Waiting {
    OpKey key;
    Instant since;
    std::vector<uint32_t> waiting, missing;
    bool is_facing = false;
  };
  std::vector<Waiting> all() const;
  // The members, without newcomers, that are in open operations which concern `peer` and which it
  // has not begun, and the first of these operations, as "all_reduce(...) (#0)"; empty: none.
  struct Awaited {
    std::set<PeerId> by;
    std::string call;
  };
  Awaited awaited(PeerId peer, const std::vector<PeerId>& newcomers) const;
  // The send that a member asks for, newcomers aside; empty: none.
  std::string asked_send(const std::vector<PeerId>& newcomers) const;
  // An operation that all members which it concerns have begun, and that has no outcome yet:
  // "all_reduce(...) (t, #1)". Empty: there is none.
  std::string under_way() const;
  // "3 operations are in flight, for instance all_reduce(...) (t, #1)"; empty: none is open.
  std::string in_flight() const;

  // ---- An operation that others have not begun, in words ----
  // "all_reduce(...) (t, #1) in epoch 1.5", as those that wait in it have called it.
  std::string name(OpKey waiting) const;
  // The receiver of a send, if it waits in a send to the sender: "rank 1, which waits ...".
  std::string facing_text(OpKey send) const;

  // ---- Newcomers ----
  // Open operations that either a newcomer or the other members have begun and the other side has
  // not. They are named as "all_reduce(...) (#0)"; empty: none. A transfer counts only if it
  // concerns the newcomer.
  struct Standoff {
    // the newcomer and a member that is no newcomer have begun the same operation
    bool shares = false;
    // likewise, and a third member that it concerns has not begun it; or a second newcomer has not
    // begun a transfer that concerns only these two
    bool held_up = false;
    std::string awaited;  // begun by some other members, not by the newcomer
    // begun by all other members that it concerns: only the newcomer is missing
    std::string awaited_by_all;
    std::string alone;  // begun by the newcomer, by none of the others that it concerns
  };
  Standoff standoff(PeerId newcomer, const std::vector<PeerId>& newcomers) const;
  // Whether `peer` has begun this operation and is not done, and the operation concerns a member
  // that is no newcomer.
  bool holds_up(PeerId peer, OpKey op, const std::vector<PeerId>& newcomers) const;

  // ---- An operation that a member gives up ----
  struct GivenUp {
    std::string text;        // with the members that the others have waited for
    bool is_facing = false;  // a send that waited for the opposite send
  };
  GivenUp giving_up(const protocol::AbortRequest& request, const MissingText& missing) const;
  // Whether each of the two is a send to the sender of the other, and no receiver has begun.
  bool faces(const OpTable::Op& op, const OpTable::Op& other) const;

 private:
  using At = OpTable::At;
  using Op = OpTable::Op;
  // The numbers of members (without newcomers) concerned by it that have begun it, and that have
  // not.
  std::pair<size_t, size_t> others(const Op& op, const std::vector<PeerId>& newcomers) const;
  Waiting wait_of(OpKey key, const Op& op, std::vector<uint32_t> waiting) const;
  std::string call(const Op& op, OpKey key) const;  // "all_reduce(...) (#0)"
  bool is_facing(const Op& op) const;

  const OpTable& table_;
};

}  // namespace pccl::master
