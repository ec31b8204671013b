// Membership: how far this peer has come in its run, the epoch as it sees it, and its links.
// Invariants: the epoch's members contain this peer, each once; the ring is a permutation of the
// ranks; epochs only grow. A message that would break one is refused and changes nothing.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/peer/context.h"

namespace pccl::peer {

enum class Phase {
  kIdle,         // join was not called yet
  kConnecting,   // trying to reach the master for the first time
  kIntroducing,  // Hello sent
  kWelcomed,     // the listener is being opened
  kRegistered,   // Register sent: waiting to be admitted
  kMember,
  kEnding,  // out of the run; memory that is lent is being drained
  kGone,
};

class Membership {
 public:
  explicit Membership(Context& context) : context_(context) {}

  Phase phase() const { return phase_; }
  // REQUIRES: the table in membership.cc allows it.
  void enter(Phase next);
  // Before admission there is nothing to resume, after it nothing to introduce.
  bool introduced() const { return phase_ >= Phase::kWelcomed && phase_ <= Phase::kMember; }
  bool out() const { return phase_ >= Phase::kEnding; }

  // Whether PROTOCOL.md lets the master say this now; kProtocol if not. `resuming`: Resume was sent
  // and not answered yet.
  Status check(const protocol::Message& message, bool resuming) const;

  void welcome(const protocol::Welcome& welcome);
  PeerId self() const { return welcome_.peer; }
  uint64_t run_id() const { return welcome_.run_id; }
  uint32_t incarnation() const { return welcome_.incarnation; }
  // A restarted master has a higher incarnation; false, and nothing changes, for a lower one.
  bool accept_incarnation(uint32_t incarnation);

  // Adopts a new epoch.
  Status begin(const protocol::EpochStart& start);
  // The epoch is ending: what is not done stays so.
  Status freeze(const protocol::Ask& ask);
  // It is over; unless everything goes on, the group is broken from here to the next generation.
  // Worth a warning when calls are in doubt: at the end of a run one peer leaves after the other.
  Status end(const protocol::EpochEnd& end, bool in_doubt);

  Epoch epoch() const { return topology_.epoch; }
  Epoch generation() const { return topology_.generation; }
  const Topology& topology() const { return topology_; }
  // As the application knows it: what it means by a rank.
  const Topology& seen() const { return seen_; }
  void look(Epoch epoch);
  std::vector<PeerId> left_unseen() const;
  uint32_t world_size() const { return static_cast<uint32_t>(topology_.members.size()); }
  bool frozen() const { return frozen_; }    // from Ask to the next begin()
  bool ended() const { return ended_; }      // from EpochEnd to the next begin(),
  bool goes_on() const { return goes_on_; }  // which is a renewal
  // Something of this epoch is undone or lost here, so that it cannot just go on under a master
  // that was restarted: it was frozen, or a link to a member of it has broken.
  bool disturbed() const { return disturbed_; }
  const Status& broken() const { return broken_; }

  std::optional<uint32_t> rank_of(PeerId peer) const;
  // Since this epoch the members are what they are, or what the application thinks that they are.
  Epoch members_since() const { return members_since_; }
  Epoch seen_since() const { return seen_since_; }
  // In the ring: the place of a rank, and the peer at a place (modulo the world size).
  uint32_t place_of(uint32_t rank) const;
  PeerId peer_at(uint32_t place) const;
  std::vector<PeerId> neighbours() const;  // before and after this one, if they are others

  // Links: what the master wants to be dialled, and what became of it.
  Status dial(const protocol::Dial& dial);
  void forget(PeerId peer);
  // `tells`: the master hears it now; else after Resumed.
  void link_changed(const protocol::LinkReport& report, bool tells);
  void repeat_reports() const;  // after Resumed
  // The new one does not know of peers that are gone since: who is no member (in the next epoch, if
  // one begins) is forgotten, until this master has it dialled.
  void master_restarted();

 private:
  bool is_ours_to_say(const protocol::LinkReport& report) const;

  Context& context_;
  Phase phase_ = Phase::kIdle;
  protocol::Welcome welcome_;
  Topology topology_, seen_;
  std::map<Epoch, Topology> unseen_;  // that changed the members
  Epoch members_since_, seen_since_;
  bool frozen_ = false;
  bool ended_ = false;
  bool goes_on_ = false;
  bool disturbed_ = false;
  Status broken_;
  struct Link {
    std::optional<protocol::LinkReport> last;
    bool of_master_before = false;  // a master that was restarted has not spoken of it yet
  };
  void forget_strangers();

  std::map<PeerId, Link> links_;
};

}  // namespace pccl::peer
