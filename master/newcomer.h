// newcomer: limits the harm that a new member can do before it was compared with the others
// (promise P7). A newcomer that makes a mistake becomes a misfit and loses its membership;
// operations, ballot and election find misfits. A Probation limits the wait for a newcomer's call:
// another member waits for it no longer than first_call_timeout, and no longer than kElsewhereMax
// while the newcomer waits in a call that nobody else makes.
// Group owns one. It is pure: time comes in through look().
// Invariants:
// 1. A newcomer is overdue only if two looks, at least kLookAgain apart, find it so. If the process
//    was held up, messages of the newcomer may not have been read at the first look.
// 2. While somebody waits for a newcomer, the time of the next look is known, and is after the last
//    look.
// 3. Every wait began at a look, and not after the last one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/ids.h"

namespace pccl::master {

// A newcomer that does not do what all other members do, and the reason.
struct Misfit {
  PeerId peer;
  std::string why;
  bool operator==(const Misfit&) const = default;
};

class Probation {
 public:
  // Minimum time between two looks: each walks through the operations in flight.
  static constexpr Duration kLookAgain = std::chrono::milliseconds(50);
  static constexpr Duration kElsewhereMax = std::chrono::milliseconds(500);

  // The state of a newcomer. `awaited`: the call that other members wait for and the newcomer has
  // not made; empty: none. `elsewhere`: the call in which the newcomer waits instead, if that call
  // cannot succeed. `instead`: a call that only the newcomer has made, for the text.
  struct Seen {
    PeerId peer;
    std::string awaited, elsewhere, instead;
    bool held_up = false;  // by a third member, in a call that it shares with another
    bool fetches = false;  // `awaited` is the call in which it fetches the state
  };

  // Whether a look is due. If not, deadline() says when.
  bool due(Instant now);
  // `all`: all newcomers. Returns the overdue ones. REQUIRES: due().
  std::vector<Misfit> look(const std::vector<Seen>& all, Duration first_call_timeout, Instant now);
  // Nothing could be received for a while: all newcomers get their full time again.
  void restart() { *this = {}; }
  void restart(PeerId peer) { waits_.erase(peer); }  // it has taken part in something
  std::optional<Instant> deadline() const;           // nothing while no member is on probation
  // Asserts the invariants.
  void check() const;

 private:
  struct Wait {
    Instant since;                     // since another member waits for it
    std::optional<Instant> elsewhere;  // since it also waits in another call
    bool overdue = false;              // at the last look
  };
  static Instant end(const Wait& wait, Duration first_call_timeout);

  std::map<PeerId, Wait> waits_;
  std::optional<Instant> next_look_, last_look_;
};

}  // namespace pccl::master
