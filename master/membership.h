// Membership: the peers of one group: who is welcomed, who is registered and waits, who is a member
// and at which rank, who could be admitted now, and who must be given up (PROTOCOL.md, sections 2
// and 4). Pure bookkeeping and rules; what is said to whom about it is group.cc's business.
// Invariants: members are registered peers; a peer that is gone never comes back; between every two
// registered peers there is one link (links.h says who dials).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/protocol/messages.h"
#include "master/links.h"
#include "master/records.h"

namespace pccl::master {

// How many a group needs: as its first peer said.
struct Quorum {
  uint32_t founders = 1;   // begin it together
  uint32_t min_peers = 1;  // with fewer it does not go on
};

class Membership {
 public:
  struct Peer {
    std::string seen_host;
    bool seen_loopback = false;
    int32_t wish = -1;   // wanted rank, -1: any; counts only at the founding
    std::string launch;  // whose fixed world it is a rank of; empty: of none
    protocol::Standing standing = protocol::Standing::kNone;
    std::string host;  // as it registered; empty: where it is seen
    uint16_t port = 0;
    std::vector<Endpoint> others = {};  // further addresses
    uint64_t order = 0;                 // of registration, from 1; 0: not yet
    bool connected = true;
    int away_ticks = 0;     // since its connection closed
    int waiting_ticks = 0;  // since it registered, until it is a member
  };

  // ---- Coming and going ----
  void welcome(PeerId peer, Peer about);
  // Adds its links. Returns with whom. REQUIRES: welcomed and not registered.
  std::vector<PeerId> register_peer(PeerId peer, const protocol::Register& where);
  void set_connected(PeerId peer, bool connected);
  // It is gone for good, for the reason that a later Resume of it is given. Returns who is no
  // longer remembered as gone, for that.
  std::optional<PeerId> remove(PeerId peer, const std::string& why);
  // The next epoch's members, in rank order. REQUIRES: all registered.
  void admit(std::vector<PeerId> members);
  // After a restart: who was left of `ranked`, the members of the epoch in rank order. None is
  // connected, and nothing is known of the links. REQUIRES: nobody is here.
  void restore(const std::vector<protocol::Member>& ranked, const std::vector<MemberRecord>& left);
  MemberRecord record(PeerId member) const;

  // ---- Who is there ----
  bool empty() const { return peers_.empty(); }
  const Peer* find(PeerId peer) const;
  const std::map<PeerId, Peer>& peers() const { return peers_; }
  const std::vector<PeerId>& members() const { return members_; }  // that are left, in rank order
  // In the epoch: does not change when others are lost.
  std::optional<uint32_t> rank(PeerId peer) const;
  bool is_member(PeerId peer) const { return ranks_.contains(peer); }
  std::vector<PeerId> waiting() const;  // registered, not members; in order of registration
  // Members that have taken part in less than some other member, and were not compared with the
  // others yet: founders have nobody to be compared with. In rank order.
  const std::vector<PeerId>& newcomers() const { return newcomers_; }
  bool is_newcomer(PeerId peer) const;
  protocol::Standing highest_standing() const { return highest_standing_; }
  protocol::Standing lowest_standing() const { return lowest_standing_; }  // of all members
  // These have taken part in something that raises their standing, unless it is higher already.
  void raise(const std::vector<PeerId>& peers, protocol::Standing to);
  // Who wished this rank and is not a member, if anybody.
  std::optional<PeerId> wished_by(int32_t rank) const;
  // Why a peer went, if that is remembered.
  struct Gone {
    PeerId peer;
    std::string why;
  };
  const std::deque<Gone>& gone() const { return gone_; }

  // ---- Rules ----
  // Who is pending, at most `room` of them, in order of registration: reached by all members, and
  // linked with every pending peer before it.
  std::vector<PeerId> pending(size_t room) const;
  // The first members in rank order: as soon as `count` are pending, while there are none.
  std::optional<std::vector<PeerId>> founders(size_t count) const;
  // Why a waiting peer is not pending, if there is something that a person can do about.
  std::string obstacle(PeerId peer) const;
  // A tick has passed. Returns who is lost or no longer waited for by it (section 4, rules 2 and
  // 4), and newcomers that are refused. `lively`: nothing holds that peer up.
  struct Lost {
    PeerId peer;
    std::string why;
    // A newcomer and this member cannot connect to each other: for the members to know.
    std::string refusal = {};
  };
  std::vector<Lost> tick(Duration peer_timeout, const std::function<bool(PeerId)>& lively);
  // Rule 1: a member whose connection is closed and to which another member's link is down.
  bool lost_at_once(PeerId peer) const;

  // ---- Words ----
  protocol::Member member(PeerId peer) const;
  std::string describe(PeerId peer) const;             // "peer 1.3 (rank 2, 10.0.0.7:48201)"
  std::string apart(PeerId peer, PeerId other) const;  // why they cannot connect to each other
  protocol::Dial dial(PeerId dialler, PeerId target) const;

  Links links;

 private:
  bool reached(PeerId peer, const std::vector<PeerId>& by) const;
  PeerId weaker(PeerId a, PeerId b) const;
  bool is_hopeless(PeerId newcomer, const Links::Dead& link) const;
  void look_at_standings();

  std::map<PeerId, Peer> peers_;
  std::vector<PeerId> members_;
  std::map<PeerId, uint32_t> ranks_;  // of the members
  std::vector<PeerId> newcomers_;     // this, and the next, follow from members_ and their standing
  protocol::Standing highest_standing_ = protocol::Standing::kNone;
  protocol::Standing lowest_standing_ = protocol::Standing::kSynced;
  std::deque<Gone> gone_;  // the last kMembersMax
  uint64_t registrations_ = 0;
};

}  // namespace pccl::master
