// Membership: the peers of one group and the rules about them (PROTOCOL.md, sections 2 and 4). It
// keeps the phase of each peer (welcomed, registered, member) and the ranks of the members. It
// finds the peers that can be admitted now, and the peers that are lost because they were away too
// long. Group owns it. It is pure bookkeeping: group.cc sends the messages.
// Invariants:
// 1. Members are registered peers.
// 2. A peer that is gone never comes back.
// 3. Between every two registered peers there is one link. links.h decides which side dials.
// 4. Each member has one rank, and the members are in the order of their ranks.
// 5. The newcomers and the highest and lowest standing follow from the members' standings.
// 6. A peer that was away for the whole timeout is no longer here.
// 7. No two registered peers have the same order of registration.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/protocol/messages.h"
#include "master/members/address_choice.h"
#include "master/members/last_call.h"
#include "master/members/links.h"
#include "master/members/loss_cause.h"
#include "master/runs/records.h"
#include "master/text_format.h"

namespace pccl::master {

// Peer counts that a group needs, as its first peer set them.
struct Quorum {
  uint32_t founders = 1;   // peers that begin the group together
  uint32_t min_peers = 1;  // with fewer peers it does not continue
};

class Membership {
 public:
  struct Peer : Location {
    int32_t wish = -1;   // wanted rank, -1: any; used only at the founding
    std::string launch;  // name of the fixed-world launch that it is a rank of; empty: none
    protocol::Standing standing = protocol::Standing::kNone;
    std::string name;    // for people
    uint64_t order = 0;  // order of registration, from 1; 0: not registered
    bool connected = true;
    // Why the master has closed its connection: it broke a rule. The log has this reason. Empty:
    // the connection closed by itself.
    std::string breach;
    uint32_t breaches = 0;  // in this epoch, of rules about messages
    int away_ticks = 0;     // ticks since its connection closed
    int waiting_ticks = 0;  // ticks from its registration until it is a member
    bool held_up = false;   // a warning about its wait was logged
    LastCall last_call;     // of a member
    // The token of its last connection, which can be from before a restart of the master. None: the
    // master had no keyring then, or wrote an older version of the journal.
    std::optional<Holder> holder;
  };

  // The reader of a text. A stranger may be hostile and use the others to explore their networks.
  enum class Reader : uint8_t {
    kStranger,  // a peer that is no member: at most the kind of an obstacle (see Disclosure)
    kMember,    // the kind of each obstacle
    kObserver,  // of a run without tokens, so it may be anybody: the disclosed news
    kOperator,  // the words of the system
  };
  // A member that breaks so many rules in one epoch is removed.
  static constexpr uint32_t kBreachesMax = 3;
  // Ticks that a link between members is down until one of them is lost. If nothing is received on
  // a link, it is down after half the peer timeout. The other half is for re-establishing it.
  static constexpr int kLinkDownTicks = 10;
  // The advice for two peers that cannot be linked.
  static constexpr const char* kWhatToOpen =
      "One of the two has to accept connections: open a port of its machine (PCCL_PORT_RANGE), or "
      "forward one at its router (PCCL_ADVERTISE): docs/running.md, section 7";

  // ---- Joining and leaving ----
  void welcome(PeerId peer, Peer about);
  // Adds its links. Returns the peers at their other ends. REQUIRES: welcomed and not registered.
  std::vector<PeerId> register_peer(PeerId peer, const protocol::Register& where);
  void set_holder(PeerId peer, std::optional<Holder> holder);
  // The peers whose last connection has proven one of these tokens. After a restart these include
  // members that are not back yet.
  std::vector<PeerId> holders_of(const std::set<std::string>& tokens) const;
  void set_connected(PeerId peer, bool connected, std::string breach = {});
  // Why a peer without a connection is lost: "its process ended or its network broke".
  std::string loss_text(PeerId peer) const;
  // Counts a breach. False: it is the last one that is accepted.
  bool may_resume_after_breach(PeerId peer);
  // Removes the peer for good. A later Resume of it is rejected with `why`. Only the last
  // kMembersMax gone peers are remembered: returns the peer that is forgotten now, if there is one.
  std::optional<PeerId> remove(PeerId peer, const std::string& why);
  // Sets the members of the next epoch, in rank order. REQUIRES: all registered.
  void admit(std::vector<PeerId> members, Instant now = {});
  void called(PeerId member, LastCall call);
  // The operation `op` has an outcome; without `op`: every operation has one. Notes it in the last
  // calls of the members.
  void operation_ended(std::optional<OpKey> op, Code outcome, Instant now);
  void joint_call_ended(PeerId member, Code outcome, Instant now);
  // A member no longer asks for sends from any source.
  void stopped_asking(PeerId member, Instant now);
  void set_held_up(PeerId peer, bool held_up) { peers_.at(peer).held_up = held_up; }
  // After a restart. `ranked`: the members of the epoch in rank order; `left`: the members that
  // were not lost. No member is connected yet, and the state of all links is unknown. REQUIRES: no
  // peers.
  void restore(const std::vector<protocol::Member>& ranked, const std::vector<MemberRecord>& left);
  MemberRecord record(PeerId member) const;

  // ---- Queries ----
  bool empty() const { return peers_.empty(); }
  const Peer* find(PeerId peer) const;
  const std::map<PeerId, Peer>& peers() const { return peers_; }
  const std::vector<PeerId>& members() const { return members_; }  // that are left, by rank
  // The rank in the epoch. It does not change when others are lost.
  std::optional<uint32_t> rank(PeerId peer) const;
  bool is_member(PeerId peer) const { return ranks_.contains(peer); }
  std::vector<PeerId> waiting() const;  // registered, not members; in order of registration
  // The newcomers, in rank order: their standing is below kCompared, and below the highest standing
  // of a member. Founders are no newcomers, because at first all have the same standing.
  const std::vector<PeerId>& newcomers() const { return newcomers_; }
  bool is_newcomer(PeerId peer) const;
  protocol::Standing highest_standing() const { return highest_standing_; }
  protocol::Standing lowest_standing() const { return lowest_standing_; }  // of all members
  // Raises the standing of these peers to `to`, unless it is higher already.
  void raise(const std::vector<PeerId>& peers, protocol::Standing to);
  // The peer that wished this rank and is not a member, if any.
  std::optional<PeerId> wished_by(int32_t rank) const;
  // A peer that is gone, and why. Only the last ones are remembered.
  struct Gone {
    PeerId peer;
    std::string why;
  };
  const std::deque<Gone>& gone() const { return gone_; }

  // ---- Rules ----
  // The pending peers, at most `room`, in order of registration; those that some of the others
  // cannot reach come last, by the number of these. A peer is pending if it is connected, linked
  // with all members, and linked with every pending peer before it.
  std::vector<PeerId> pending(size_t room) const;
  // The first members in rank order, once `count` peers are pending; nothing before that, or if
  // there are members already.
  std::optional<std::vector<PeerId>> founders(size_t count) const;
  // For a waiting peer: the peers with which no link is possible in either direction. For a member:
  // the waiting peers with which no link is possible.
  std::vector<PeerId> out_of_reach(PeerId peer, Reader reader) const;
  // Names the peers out of reach, with the reasons. For a waiting peer also how a person can change
  // that. Empty if there are none.
  std::string obstacle(PeerId peer, Reader reader = Reader::kStranger) const;
  // Whether a link between the peer and some member is still being made: the two are not linked,
  // and at least one of them has not reported a failure to connect. Before there are members, all
  // registered peers count.
  bool is_being_dialled(PeerId peer) const;
  // A tick has passed. Returns the members that are lost now, the waiting peers that are given up
  // (section 4, rules 2 and 4), and the newcomers that are refused. `lively`: whether the peer is
  // not held up.
  struct Lost {
    PeerId peer;
    std::string why;
    // The text for the members if a newcomer is refused: it and a member cannot connect to each
    // other.
    std::string refusal = {};
    LossCause cause = LossCause::kConnection;
  };
  std::vector<Lost> tick(Duration peer_timeout, const std::function<bool(PeerId)>& lively);
  // Rule 1: whether `peer` is a member without a connection to the master, and another member has
  // just reported its link to `peer` as down.
  bool lost_at_once(PeerId peer) const;

  // ---- Text formatting ----
  protocol::Member member(PeerId peer) const;
  std::string describe(PeerId peer) const;  // "tokyo-3 (peer 1.3, rank 2, 10.0.0.7:48201)"
  std::string name(PeerId peer) const;      // "tokyo-3 (peer 1.3)"
  RankNames rank_names() const;             // of the members that are left
  std::string ranks_text(const std::vector<uint32_t>& ranks) const;  // "ranks 0 (tokyo) and 1"
  // Why they cannot connect.
  std::string apart(PeerId peer, PeerId other, Reader reader) const;
  // "the link between A and tokyo-3 (peer 1.3, ...) is down: connection reset". `one`: its name.
  std::string down_text(const std::string& one, PeerId other, const std::string& why) const;
  AddressChoice addresses(PeerId dialler, PeerId target) const;  // of the target
  // The news about the attempts that the target may get. A member gets all of them.
  Disclosure disclosure(PeerId dialler, PeerId target) const;
  protocol::Dial dial(PeerId dialler, PeerId target) const;

  // Asserts the invariants. REQUIRES: the losses that tick() returned were carried out.
  void check() const;

  Links links;

 private:
  std::vector<PeerId> by_links() const;
  std::string why_apart(PeerId from, PeerId to, Reader reader) const;
  bool reached(PeerId peer, const std::vector<PeerId>& by) const;
  PeerId weaker(PeerId a, PeerId b) const;
  bool cannot_be_linked(PeerId newcomer, const Links::Dead& link) const;
  void look_at_standings();
  void check_members() const;
  void check_standings() const;

  std::map<PeerId, Peer> peers_;
  std::vector<PeerId> members_;
  std::map<PeerId, uint32_t> ranks_;  // rank of each member
  std::vector<PeerId> newcomers_;     // these three follow from the standings of members_
  protocol::Standing highest_standing_ = protocol::Standing::kNone;
  protocol::Standing lowest_standing_ = protocol::Standing::kSynced;
  std::deque<Gone> gone_;  // the last kMembersMax peers that are gone
  uint64_t registrations_ = 0;
};

}  // namespace pccl::master
