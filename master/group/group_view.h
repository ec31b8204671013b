// GroupView: the const side of a Group, for its parts that judge and describe the group. These
// parts change nothing: Group carries out the consequences of their results.
#pragma once

#include <cstdint>

#include "csrc/protocol/messages.h"

namespace pccl::master {

class Agreement;
class Ballot;
class Connections;
class CycleWatch;
class Epochs;
class Membership;
class PresentEpoch;
struct Context;
struct Quorum;

// Why a registered peer is not admitted yet.
enum class Delay : uint8_t {
  kNone,             // it has not waited long, or its links are about to be made
  kObstacle,         // Membership::obstacle() describes it
  kMembersAway,      // no member is connected
  kTooFewPeers,      // the group has not begun, and more founders are needed
  kUnlinkedPeers,    // enough founders are here, and they have not all reached each other
  kUnlinkedMembers,  // not all members have reached it
  kNoUpdate,         // all members have reached it, and have not called update_topology yet
};

struct GroupView {
  GroupId id;
  const Context& context;
  const Connections& connections;
  const Quorum& quorum;
  const Membership& membership;
  const PresentEpoch& present;
  const Epochs& epochs;
  const Ballot& ballot;
  const Agreement& agreement;
  const CycleWatch& cycle_watch;

  bool has_members() const;
  // No member of this group has taken part in anything yet.
  bool is_new() const;
  // Members can make calls: their epoch has begun, and it is not about to end.
  bool can_call() const;
  bool is_in_joint_call(PeerId member) const;
  // Whether the application of `member` waits for the outcome of a joint call. This is false if it
  // has called in the background, and only other members still fetch the state.
  bool waits_in_joint_call(PeerId member) const;
  // Whether `member` waits for the outcome of an operation or a joint call. An operation that is to
  // be repeated counts, too, except in a broken group: there it begins again soon.
  bool is_in_call(PeerId member) const;
  // Whether the last call of `member` has no outcome yet.
  bool is_in_last_call(PeerId member) const;
  // Whether other members wait for `member` because of its last call. It is in that call, or has
  // given it up lately, and the call cannot end before the others make it too. Either the last call
  // is a joint call, or it is an operation that members in a joint call have not begun.
  bool blocks_others(PeerId member) const;
  // REQUIRES: registered, and no member.
  Delay delay_of(PeerId peer) const;
  // Whether some peer is in a call, or waits to be admitted.
  bool is_busy() const;

  // Whether all members have voted for this kind. False while the loss of a member is not durable
  // yet: a master that restarts now would take the lost member back, and that member would wait for
  // the others in an older ballot.
  bool has_voted(protocol::JointKind kind) const;
  // Whether an update_topology would change the membership now.
  bool would_change() const;
  // The open ballot. REQUIRES: all members have voted in it.
  protocol::Settled settled_ballot() const;
  // Whether the open ballot is this one.
  bool votes_in(const protocol::Settled& settled) const;

  // The group has no peers, and no record of it is being made durable.
  bool is_deserted() const;
  // The group is deserted, and it has no agreed state to remember.
  bool is_forgettable() const;
  // Every decision is durable and was sent to all peers.
  bool is_settled() const;
};

}  // namespace pccl::master
