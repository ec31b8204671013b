// Probation: limits the time that members wait for another member's call. No member waits for a
// newcomer's call longer than first_call_timeout, or longer than kElsewhereMax while the newcomer
// waits in a call that no other member makes (promise P7). No member waits for the call of any
// other member longer than call_timeout, if the run has one. OverdueMembers owns two, one for each
// of these times. It is pure: time comes in through look().
// Invariants:
// 1. A member is overdue only if two looks, at least kLookAgain apart, find it so. If the process
//    was held up, messages of the member may not have been read at the first look.
// 2. While a member waits for another one, the time of the next look is known, and is after the
//    last look.
// 3. Every wait began at a look, and not after the last one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/ids.h"
#include "master/members/misfit.h"

namespace pccl::master {

class Probation {
 public:
  // Minimum time between two looks: each walks through the operations in flight.
  static constexpr Duration kLookAgain = std::chrono::milliseconds(50);
  static constexpr Duration kElsewhereMax = std::chrono::milliseconds(500);

  // The state of a member. `awaited`: the call that other members wait for and this member has not
  // made; empty: none. `elsewhere`: the call that this member waits in instead, if that call cannot
  // succeed. `instead`: a call that only this member has made, for the text. `silent`: nothing was
  // received from this member lately. Its call may be on its way, so it is not overdue meanwhile.
  struct Seen {
    PeerId peer;
    std::string awaited, elsewhere, instead;
    bool held_up = false;  // a third member holds it up, in a call that it shares with others
    bool silent = false;
    bool fetches = false;  // it fetches the state; `awaited` is this call
    bool asked = false;    // the master has asked it about `awaited`, and waits for the answer
  };
  // `setting`: the name of the time that look() gets, for the text.
  explicit Probation(std::string setting) : setting_(std::move(setting)) {}

  // Whether a look is due. If not, deadline() is the time of the next one.
  bool due(Instant now);
  // Looks at `all` members on probation. Returns the overdue ones. REQUIRES: due().
  std::vector<Misfit> look(const std::vector<Seen>& all, Duration timeout, Instant now);
  // This process could not receive for a while: all members get their full time again.
  void restart() { *this = Probation(std::move(setting_)); }
  void restart(PeerId peer) { waits_.erase(peer); }  // it has taken part in something
  std::optional<Instant> deadline() const;           // nothing while no member is on probation
  // Asserts the invariants.
  void check() const;

 private:
  struct Wait {
    Instant since;                     // when another member began to wait for it
    std::optional<Instant> elsewhere;  // when it began to wait in another call, too
    bool overdue = false;              // at the last look
  };
  static Instant end(const Wait& wait, Duration timeout);

  std::string setting_;
  std::map<PeerId, Wait> waits_;
  std::optional<Instant> next_look_, last_look_;
};

}  // namespace pccl::master
