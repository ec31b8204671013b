// Links: the state of the links between the peers of one group, as the peers report it. Each pair
// has one link, and each side has its own view of it. Membership owns the Links. They are pure
// bookkeeping: Membership decides on the consequences of a dead link for a member or a newcomer.
// Either side may dial. The side that made the last connection dials first (before the first
// connection: the peer with the lower id). Once that side has reported that it cannot reach the
// other, the other side may dial, too.
// The connections of a pair have serial numbers (frames.h), so that a late report about an old
// connection is not taken for news about a newer one.
// Invariants:
// 1. `up_count_` is the number of links that are up.
// 2. If a link is up, at least one side has reported it as up, and no side has reported it as dead
//    since.
// 3. Ticks are counted only for a link that is down, and for attempts that are not disclosed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/protocol/messages.h"
#include "master/members/address_choice.h"

namespace pccl::master {

class Links {
 public:
  // One peer's report about its link to another.
  struct View {
    enum class State { kUnknown, kUp, kDown, kUnreachable };
    State state = State::kUnknown;
    std::string text;                     // why it is not up; shown to members and in our log
    LinkFault fault = LinkFault::kOther;  // the reason in the form that a waiting peer may see
    // The news that the other peer may get about the attempts of this side, by the last Dial.
    Disclosure disclosure = Disclosure::kFull;
    int tried_ticks = 0;  // since that Dial, if it discloses only the failure
    bool dead() const { return state == State::kDown || state == State::kUnreachable; }
    bool unreachable() const { return state == State::kUnreachable; }
    // unreachable(), and the other peer may learn it.
    bool shows_failure() const {
      return unreachable() && (disclosure != Disclosure::kFailure || tried_ticks >= kTriedTicks);
    }
  };
  // A failure to reach an address at which the master does not see the peer is not shown earlier.
  // By then each attempt has failed, whatever is at that address: connecting takes at most ten
  // ticks, and an answer at most kHelloTimeout. So the time of the news shows nothing, either.
  static constexpr int kTriedTicks = 12;

  void add(PeerId a, PeerId b);  // REQUIRES: not added yet
  void forget(PeerId peer);
  // The peer `from` is to dial the peer `to` now.
  void dialled(PeerId from, PeerId to, Disclosure disclosure);

  // The effect of a report.
  enum class News {
    // Nothing changes: there is no such link any more, the report repeats a known one, it is about
    // an older connection, or its serial number is too high: more than kSerialStepMax above the
    // last one. This limit prevents a peer from using up the numbers of a pair. A number above it
    // is no violation: the other peer may have raised the numbers before a restart of the master.
    kNone,
    // The link is up on a new connection: data on the old one is lost. The first report about a
    // link is not kMade: after a restart of the master, the link may have been up for long. But if
    // the loss of an older connection is reported then, the new one was made meanwhile: kMade.
    kMade,
    kDead,  // down, or this side still cannot connect
  };
  News report(PeerId from, const protocol::LinkReport& report);

  size_t up_count() const { return up_count_; }
  bool linked(PeerId a, PeerId b) const;
  // The RTT in microseconds, as measured when the link was made; 0: unknown.
  uint32_t rtt(PeerId a, PeerId b) const;
  // The peer `from` reports the rates of its links. kProtocol if a rate is 0, or is about a link of
  // this peer to itself.
  Status measured(PeerId from, const protocol::LinkRates& rates);
  // The result of a probe in one direction. Probes of the same round ran at the same time.
  struct Probe {
    uint64_t rate = 0;  // in bytes per second; 0: there was none
    uint32_t round = 0;
  };
  // A probe has measured the rate from the peer `from` to the peer `to`. Ignored if the two peers
  // have no link any more.
  void probed(PeerId from, PeerId to, const Probe& probe);
  Probe probe(PeerId from, PeerId to) const;  // the last argument of probed()
  // A second probe of the pair has measured this rate. A lower rate than before changes nothing,
  // because the path has carried the higher one. probe() still returns the first probe, which ran
  // together with the probes of other pairs.
  void probed_again(PeerId from, PeerId to, uint64_t rate);
  // The rate that probes and traffic have shown in this direction, in bytes per second; 0: unknown.
  uint64_t rate(PeerId from, PeerId to) const;
  // Serial number of the last connection between the two peers that is known to be dead.
  uint32_t dead_serial(PeerId a, PeerId b) const;
  // Whether the peer `from` is to dial the peer `to` now, if they are not linked. True for at least
  // one of the two directions.
  bool dials(PeerId from, PeerId to) const;
  // The view that the peer `from` has of its link to the peer `to`.
  const View& view(PeerId from, PeerId to) const;
  // The counted ticks since the link went down; 0 if it is not down.
  int down_ticks(PeerId a, PeerId b) const;

  // A tick has passed. If the link between `a` and `b` is down, it counts the tick if `counts(a,
  // b)` is true.
  void tick(const std::function<bool(PeerId, PeerId)>& counts);
  // A link that has been down for some time, and why.
  struct Dead {
    PeerId a, b;
    std::string text;
    bool both_unreachable = false;  // neither side can reach the other, as far as both may know
    int ticks = 0;                  // counted since it went down, or since both may know it
  };
  // The links that have been down for at least this number of counted ticks.
  std::vector<Dead> dead(int ticks) const;
  // Number of links between `peer` and the others that are down.
  size_t dead_count(PeerId peer, const std::vector<PeerId>& others) const;
  size_t size() const { return links_.size(); }
  // Asserts the invariants.
  void check() const;

 private:
  using Pair = std::pair<PeerId, PeerId>;  // the lower id first
  // One direction of a link, as far as it is known.
  struct Speed {
    uint64_t rate = 0;
    Probe probe = {};
    void note(uint64_t measured);
  };
  // The reports of both sides about one link.
  struct Views {
    View by_lower, by_higher;
    bool known = false;           // a report has arrived
    bool may_be_old = false;      // the only connection that was ever reported may be an old one
    uint32_t made = 0, dead = 0;  // serial numbers of the last connection made, and dead
    int down_ticks = 0;
    uint32_t rtt = 0;
    Speed of_lower, of_higher;  // from the peer with the lower id, and from the other peer
    bool up() const { return made > dead; }
    bool down() const { return by_lower.dead() || by_higher.dead(); }
  };
  Speed speed(PeerId from, PeerId to) const;
  static Speed& speed_of(Views& link, PeerId from, PeerId to) {
    return from < to ? link.of_lower : link.of_higher;
  }
  static Pair pair(PeerId a, PeerId b) { return a < b ? Pair{a, b} : Pair{b, a}; }
  static int ticks_shown(const Views& link);

  std::map<Pair, Views> links_;
  size_t up_count_ = 0;
};

}  // namespace pccl::master
