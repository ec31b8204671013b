// Links: what the peers of one group have said about the links between them. Each pair has one, and
// each side has its own view. Either side may dial: first the one that made the last connection
// (before there was one, the one with the smaller number), and once it has said that it cannot
// reach the other, that one, too. The connections of a pair have serial numbers (frames.h), so that
// what is said late of one is not taken for news of the next. Pure bookkeeping: what a dead link
// means for a member or a newcomer is membership's to decide.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "csrc/protocol/messages.h"

namespace pccl::master {

class Links {
 public:
  // What one peer says of its link to another.
  struct View {
    enum class State { kUnknown, kUp, kDown, kUnreachable };
    State state = State::kUnknown;
    std::string text;                     // why it is not up; for members and our log
    LinkFault fault = LinkFault::kOther;  // what a stranger may know of it
    bool dead() const { return state == State::kDown || state == State::kUnreachable; }
    bool unreachable() const { return state == State::kUnreachable; }
  };

  void add(PeerId a, PeerId b);  // the two are to be linked. REQUIRES: new
  void forget(PeerId peer);

  enum class News {
    kNone,  // there is no link between these two any more, or it is known, or of an older
            // connection
    kMade,  // it is up, on a new connection: nothing of the one before arrives any more. The first
            // word about a link is none of that: after a restart it may be up for long
    kDead,  // it is down, or this side still cannot have it
  };
  News report(PeerId from, const protocol::LinkReport& report);

  size_t up_count() const { return up_count_; }
  bool linked(PeerId a, PeerId b) const;
  // As it was measured when the link was made, in microseconds; 0: not known.
  uint32_t round_trip(PeerId a, PeerId b) const;
  // The last connection between the two that is known to be dead.
  uint32_t dead_serial(PeerId a, PeerId b) const;
  // Whether `from` is to dial `to` now, if they are not linked. Always true of one of the two.
  bool dials(PeerId from, PeerId to) const;
  // What `from` says of its link to `to`.
  const View& view(PeerId from, PeerId to) const;

  // A tick has passed. Counts how long a link has been down for which `counts(a, b)` says so.
  void tick(const std::function<bool(PeerId, PeerId)>& counts);
  // Links that have been down for at least `ticks`, and why.
  struct Dead {
    PeerId a, b;
    std::string text;
    bool hopeless = false;  // neither side can reach the other
    int ticks = 0;          // for so long
  };
  std::vector<Dead> dead(int ticks) const;
  // How many links between `peer` and these are down.
  size_t dead_count(PeerId peer, const std::vector<PeerId>& others) const;

 private:
  using Pair = std::pair<PeerId, PeerId>;  // the smaller id first
  struct Link {
    View by_lower, by_higher;
    bool known = false;           // something was reported of it
    uint32_t made = 0, dead = 0;  // serials of the last connections made, dead
    int down_ticks = 0;
    uint32_t round_trip = 0;
    bool up() const { return made > dead; }
    bool down() const { return by_lower.dead() || by_higher.dead(); }
  };
  static Pair pair(PeerId a, PeerId b) { return a < b ? Pair{a, b} : Pair{b, a}; }

  std::map<Pair, Link> links_;
  size_t up_count_ = 0;
};

}  // namespace pccl::master
