// Membership: the phase of this peer in its run, the epoch as this peer sees it, and its links. It
// belongs to the PeerCore; the other parts only read it.
// Invariants:
//   1. The members of the epoch contain this peer, and each member once.
//   2. The ring is a permutation of the ranks.
//   3. Epochs only grow. An epoch belongs to a generation that is not later than itself.
//   4. A member has an epoch, and a peer that was not welcomed has no id.
//   5. The application sees an epoch of this generation. See SeenTopology.
//   6. An epoch that has ended is frozen. Only an epoch that has ended can continue in the next.
//      An epoch that was frozen and has not ended needs reconfiguration.
//   7. An epoch that has ended and does not continue leaves the group broken: by a loss, or because
//      the master ends.
//   8. Each report is in links_ under the peer of its link. If only an earlier master wanted a
//      link, the link leads to a member.
// A message that would violate an invariant is refused and changes nothing.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/peer/context.h"
#include "csrc/peer/seen_topology.h"

namespace pccl::peer {

enum class Phase {
  kIdle,         // join was not called yet
  kConnecting,   // trying to reach the master for the first time
  kHandshaking,  // Hello sent
  kWelcomed,     // the listener is being opened
  kRegistered,   // Register sent: waiting for admission
  kMember,
  kEnding,  // out of the run; borrowed tensors are being drained
  kGone,
};

class Membership {
 public:
  explicit Membership(Context& context) : context_(context) {}

  Phase phase() const { return phase_; }
  // REQUIRES: the table in membership.cc allows it.
  void enter(Phase next);
  // Whether a new connection to the master begins with Resume. Before Welcome it begins with Hello.
  bool welcomed() const { return phase_ >= Phase::kWelcomed && phase_ <= Phase::kMember; }
  bool out() const { return phase_ >= Phase::kEnding; }
  // The run is secured: links need keys. REQUIRES: welcomed.
  bool secured() const { return welcome_.accepting.has_value(); }

  // kProtocol if PROTOCOL.md does not let the master send this message now. `resuming`: Resume was
  // sent and not answered yet.
  Status check(const protocol::Message& message, bool resuming) const;

  void welcome(const protocol::Welcome& welcome);  // REQUIRES: kWelcomed, once
  PeerId self() const { return welcome_.peer; }
  uint64_t run_id() const { return welcome_.run_id; }
  uint32_t incarnation() const { return welcome_.incarnation; }
  // Takes the incarnation of the master, which is higher after a restart. If it is lower, returns
  // false and changes nothing.
  bool accept_incarnation(uint32_t incarnation);

  // Adopts a new epoch. REQUIRES: registered or a member, and continues() if the generation stays.
  Status begin(const protocol::EpochStart& start);
  // The epoch is ending. Operations that are not done stay so. REQUIRES: a member.
  Status freeze(const protocol::FreezeRequest& ask);
  // The epoch is over. Unless all operations continue, the group is broken until the next
  // generation. `in_doubt`: some calls have no outcome, so the end is logged as a warning.
  // Otherwise it is logged as information, because at the end of a run the peers leave one after
  // another. REQUIRES: a member.
  Status end(const protocol::EpochEnd& end, bool in_doubt);

  // The master has sent Farewell: the group is broken for good. REQUIRES: the epoch has ended, and
  // nothing continues.
  void be_dismissed();

  Epoch epoch() const { return topology_.epoch; }
  Epoch generation() const { return topology_.generation; }
  const Topology& topology() const { return topology_; }
  // The topology that the application sees. The ranks in its calls are ranks of this topology.
  const SeenTopology& seen() const { return seen_; }
  SeenTopology& seen() { return seen_; }
  // The application asks for its rank. See SeenTopology.
  void topology_asked(bool has_operation_in_flight);
  uint32_t world_size() const { return static_cast<uint32_t>(topology_.members.size()); }
  bool frozen() const { return frozen_; }  // from FreezeRequest to the next begin()
  bool ended() const { return ended_; }    // from EpochEnd to the next begin()
  // After EpochEnd: whether the generation continues in the next epoch.
  bool continues() const { return continues_; }
  // Whether the epoch needs reconfiguration: it was frozen, or a link to one of its members has
  // broken. Operations may have lost data, so the epoch cannot simply continue under a restarted
  // master.
  bool needs_reconfiguration() const { return needs_reconfiguration_; }
  const Status& broken() const { return broken_; }

  std::optional<uint32_t> rank_of(PeerId peer) const;
  // The first epoch with the present members.
  Epoch members_since() const { return seen_.latest_since(); }
  // The ring index of a rank, and the peer at a ring index (modulo the world size).
  uint32_t ring_index_of(uint32_t rank) const;
  PeerId peer_at(uint32_t ring_index) const;
  // The other peers that exchange large tensors directly with this one: upstream and downstream. If
  // there are shares, also the owners of a block and, if this peer owns one, all other members.
  std::vector<PeerId> neighbours() const;

  // The bytes of scratch for an operation around the ring whose steps take `slots` slots each. 0:
  // the standard size (ring::Shape).
  uint64_t scratch_bytes(uint32_t slots) const;
  // Whether the run asks for the ring for all large all-reduces.
  bool rings_only() const { return context_.settings.pattern == protocol::PatternChoice::kRing; }

  // Links. The master names the peers to dial; the data plane reports the results.
  Status dial(const protocol::Dial& dial);
  void forget(PeerId peer);
  // With `tells` the report is sent to the master now, otherwise after Resumed.
  void link_changed(const protocol::LinkReport& report, bool tells);
  void repeat_reports();  // after Resumed: repeats the reports and the rates
  void rate_measured(const protocol::LinkRate& link);
  void tell_rates();  // sends the rates that are news to the master
  // A restarted master knows only `members`, perhaps the members of an epoch that has not begun
  // here yet. All other peers may be gone. This peer forgets its links to them, until this master
  // sends Dial for them: it does so at once or, for members of the present epoch, when the next
  // epoch begins.
  void master_restarted(const std::vector<PeerId>& members);

  void check() const;  // asserts the invariants

 private:
  bool is_ours_to_say(const protocol::LinkReport& report) const;
  void lost_in_epoch(const protocol::LinkReport& report);

  Context& context_;
  Phase phase_ = Phase::kIdle;
  protocol::Welcome welcome_;
  Topology topology_;
  SeenTopology seen_;
  bool frozen_ = false;
  bool ended_ = false;
  bool continues_ = false;
  bool needs_reconfiguration_ = false;
  Status broken_;
  bool warned_ = false;  // a loss was logged as a warning, and the next epoch has not begun
  // The last report about the link to a peer.
  struct Reported {
    std::optional<protocol::LinkReport> last;
    // The link to a member was lost in the present epoch, with the data on it: the last report of
    // such a loss. It is repeated to each master, so that the epoch is reconfigured.
    std::optional<protocol::LinkReport> lost;
    bool of_master_before = false;  // only an earlier master has named this peer
    bool named = false;             // the master has named this peer
    uint64_t rate = 0;              // bytes per second that the link has shown; 0: none yet
    uint64_t rate_told = 0;         // the rate that the master knows
  };
  void forget_unnamed();
  void forget_non_members();
  void check_epoch() const;

  std::map<PeerId, Reported> links_;
};

}  // namespace pccl::peer
