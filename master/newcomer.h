// newcomer: what a member may cost the others before it has once been compared with them (promise
// P7). A mistake costs it its membership: it is a misfit, wherever this is found (operations,
// ballot, election). A Probation bounds the wait for a call. Another member waits for a newcomer no
// longer than first_call_timeout, from when it waits; and no longer than kElsewhereMax while the
// newcomer waits in a call that nobody else makes. Pure: time comes in with look(). Invariant: a
// newcomer is overdue only at the second look that finds it so, kLookAgain after the first: if the
// process was held up, what the newcomer has said may not have been read yet.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/ids.h"

namespace pccl::master {

// A newcomer that does not do what all other members do, and how.
struct Misfit {
  PeerId peer;
  std::string why;
  bool operator==(const Misfit&) const = default;
};

class Probation {
 public:
  // Looks cost a walk through the operations in flight: no more than one in this time.
  static constexpr Duration kLookAgain = std::chrono::milliseconds(50);
  static constexpr Duration kElsewhereMax = std::chrono::milliseconds(500);

  // A newcomer as it is now. `awaited`: what other members wait for, and it has not called;
  // empty: nobody waits for it. `elsewhere`: what it waits for itself instead, if nothing can
  // follow from that. `instead`: what it has called and nobody else, for the text.
  struct Seen {
    PeerId peer;
    std::string awaited, elsewhere, instead;
    bool held_up = false;  // by a third, in a call that it shares with another
  };

  // Whether it is time to look. False: deadline() is when.
  bool due(Instant now);
  // All newcomers there are. Returns those that are overdue. REQUIRES: due().
  std::vector<Misfit> look(const std::vector<Seen>& all, Duration first_call_timeout, Instant now);
  // Time has passed in which nobody could be heard: everybody gets all of its time again.
  void restart() { *this = {}; }
  void restart(PeerId peer) { waits_.erase(peer); }  // it has taken part in something
  std::optional<Instant> deadline() const;           // nothing while nobody is on probation

 private:
  struct Wait {
    Instant since;                     // another member waits for it
    std::optional<Instant> elsewhere;  // since it waits elsewhere, too
    bool overdue = false;              // as the last look has found it
  };
  static Instant end(const Wait& wait, Duration first_call_timeout);

  std::map<PeerId, Wait> waits_;
  std::optional<Instant> next_look_, last_look_;
};

}  // namespace pccl::master
