// Links: the state of the links between the peers of one group, as the peers report it. Each pair
// has one link, and each side has its own view of it. Membership owns it. It is pure bookkeeping:
// Membership decides on the consequences of a dead link for a member or a newcomer.
// Either side may dial. The side that made the last connection dials first (before the first
// connection: the lower id). Once that side has reported that it cannot reach the other, the
// other side may dial, too.
// The connections of a pair have serial numbers (frames.h), so that a late report about one
// connection is not taken for news of the next.
// Invariants:
// 1. The number of links that are up is known at any time.
// 2. While a link is up, no side reports it as dead, and a side has reported it as up.
// 3. Ticks are counted only for a link that is down.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/protocol/messages.h"

namespace pccl::master {

class Links {
 public:
  // One peer's report about its link to another.
  struct View {
    enum class State { kUnknown, kUp, kDown, kUnreachable };
    State state = State::kUnknown;
    std::string text;                     // why it is not up; for members and our log
    LinkFault fault = LinkFault::kOther;  // the part of it that a waiting peer may know
    bool dead() const { return state == State::kDown || state == State::kUnreachable; }
    bool unreachable() const { return state == State::kUnreachable; }
  };

  void add(PeerId a, PeerId b);  // REQUIRES: not added yet
  void forget(PeerId peer);

  // The effect of a report.
  enum class News {
    // no such link any more, already known, about an older connection, or a serial number too far
    // above the last one (kSerialStepMax), so that no peer uses up the numbers of a pair. That is
    // no violation, because it may be the other peer that has raised them, before a restart
    kNone,
    // up on a new connection: data on the old one is lost. The first report about a link is not
    // kMade: after a restart the link may have been up for long
    kMade,
    kDead,  // down, or this side still cannot connect
  };
  News report(PeerId from, const protocol::LinkReport& report);

  size_t up_count() const { return up_count_; }
  bool linked(PeerId a, PeerId b) const;
  // Measured when the link was made, in microseconds; 0: unknown.
  uint32_t rtt(PeerId a, PeerId b) const;
  // `from` reports the rates of its links. kProtocol if a rate is 0, or belongs to a link to `from`
  // itself.
  Status measured(PeerId from, const protocol::LinkRates& rates);
  // A probe has shown this rate from `from` to `to`. The probes of one round ran together. Ignored
  // if the two have no link any more.
  struct Probe {
    uint64_t rate = 0;  // in bytes per second; 0: there was none
    uint32_t round = 0;
  };
  void probed(PeerId from, PeerId to, const Probe& probe);
  Probe probe(PeerId from, PeerId to) const;  // the last one
  // A second probe has shown this rate. A lower rate than before changes nothing, because the path
  // has carried the higher one. probe() stays the first one, which ran together with others.
  void probed_again(PeerId from, PeerId to, uint64_t rate);
  // Rates that probes and traffic have shown, in bytes per second; 0: unknown.
  uint64_t rate(PeerId from, PeerId to) const;
  // Serial number of the last connection between the two that is known to be dead.
  uint32_t dead_serial(PeerId a, PeerId b) const;
  // Whether `from` is to dial `to` now, if they are not linked. Always true for one of the two.
  bool dials(PeerId from, PeerId to) const;
  // The view that `from` has of its link to `to`.
  const View& view(PeerId from, PeerId to) const;
  // The counted ticks since the link went down; 0 if it is not down.
  int down_ticks(PeerId a, PeerId b) const;

  // A tick has passed. A down link counts the tick if `counts(a, b)` is true.
  void tick(const std::function<bool(PeerId, PeerId)>& counts);
  // A link that has been down for some time, and why.
  struct Dead {
    PeerId a, b;
    std::string text;
    bool both_unreachable = false;  // neither side can reach the other
    int ticks = 0;                  // counted since it went down
  };
  // The links that have been down for at least `ticks`.
  std::vector<Dead> dead(int ticks) const;
  // Number of down links between `peer` and these.
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
    uint32_t made = 0, dead = 0;  // serial numbers of the last connection made, and dead
    int down_ticks = 0;
    uint32_t rtt = 0;
    Speed of_lower, of_higher;  // from the peer with that id to the other
    bool up() const { return made > dead; }
    bool down() const { return by_lower.dead() || by_higher.dead(); }
  };
  Speed speed(PeerId from, PeerId to) const;
  static Speed& speed_of(Views& link, PeerId from, PeerId to) {
    return from < to ? link.of_lower : link.of_higher;
  }
  static Pair pair(PeerId a, PeerId b) { return a < b ? Pair{a, b} : Pair{b, a}; }

  std::map<Pair, Views> links_;
  size_t up_count_ = 0;
};

}  // namespace pccl::master
