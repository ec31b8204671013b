// Tournament: assigns pairs of members to the rounds of probes, when optimize_topology measures
// their links. A round has disjoint pairs, so no member is in two probes at once. All rounds
// together are a round-robin tournament: N-1 rounds for an even number of members, N for an odd
// one, with each pair once. The rounds with the most unmeasured pairs come first, then the rounds
// with the oldest measurements. One call makes each pair once, as far as its budget goes, and the
// next call continues with the rest.
// A path may seem to have a tenth of its real rate: it loses packets while it comes up to its rate,
// or its acknowledgements wait in a queue of the other direction. Its lanes stay as they are when
// the probe is over, so the next probe begins nearer to the rate. That is why the pairs whose rate
// is doubtful have a second turn at the end of the call, the most doubtful first.
// It is pure: it gets the time, and sends nothing.
// Invariants:
// 1. The pairs of a round are disjoint, and both ends are members.
// 2. A round lasts until all its reports have arrived, or until its deadline. The time of waiting
//    for late ones counts as time of the call, too.
// 3. With a limit of bytes, the probes of a call carry no more for any member, in both directions
//    together. A turn of an end counts with the most that it may carry, also if the turn failed.
// 4. One call has at most one round for each pair. Then come few more rounds, with at most one for
//    each pair. They take at most kSecondPart of the time of the first ones, or until all together
//    take kShort, if that is more.
// Failure: a pair that does not report in time, or reports that its probe has failed, is not
// measured. It gets its turn again in the next call.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/ids.h"

namespace pccl::master::topology {

// Two peers, the lower id first.
struct Pair {
  PeerId low, high;
  static Pair of(PeerId a, PeerId b) { return a < b ? Pair{a, b} : Pair{b, a}; }
  bool has(PeerId peer) const { return peer == low || peer == high; }
  PeerId other(PeerId peer) const { return peer == low ? high : low; }
  friend auto operator<=>(const Pair&, const Pair&) = default;
};

// The rounds of a round-robin tournament. Each has disjoint pairs, and each pair is in one round.
std::vector<std::vector<Pair>> round_robin(const std::vector<PeerId>& members);

class Tournament {
 public:
  // A probe of 12 round trips is long enough for a path to come up to its rate in the first third,
  // which does not count. Near paths need some time, too: the processes at both ends start.
  static constexpr Duration kRoundMin = std::chrono::milliseconds(800);
  static constexpr int64_t kRoundTrips = 12;
  // A report is late after the length of its round, two round trips and this time.
  static constexpr Duration kLate = std::chrono::seconds(1);
  // A probe takes at most this multiple of its length (csrc/peer/link_probe.h): its lanes may open
  // late, and its first byte may arrive late. A late report counts.
  static constexpr int kLongest = 3;
  // A pair has a second turn if its doubt is above kDoubtful. Invariant 4 has the other limits.
  static constexpr double kDoubtful = 2;
  static constexpr double kSecondPart = 0.15;
  static constexpr Duration kShort = std::chrono::milliseconds(4500);

  struct Round {
    uint32_t number = 0;
    Duration length{0};
    uint64_t bytes_max = 0;  // of each probe, in each direction; 0: no limit
    std::vector<Pair> pairs;
  };
  // The master's knowledge about a pair.
  struct Known {
    std::function<Duration(Pair)> rtt;  // zero: unknown
    // How doubtful the rates of the pair are, see Doubts (epochs/routes.h).
    std::function<double(Pair)> doubt;
  };

  // A call begins, or continues after the members have changed. `members` in any order. A call that
  // continues keeps its budget and its measurements. `max_bytes`: as in Vote. It is cut into equal
  // turns, one for each other member and one second turn, or into fewer if these were too short.
  void begin(std::vector<PeerId> members, Duration budget, uint64_t max_bytes = 0);
  void resume(std::vector<PeerId> members);
  // Begins the next round of the call; nothing if all pairs had their turn, or the budget has too
  // little left for another round. REQUIRES: no round is under way.
  std::optional<Round> next(const Known& known, Instant now);

  bool under_way() const { return round_.has_value(); }
  std::optional<Instant> deadline() const;  // of the round under way
  // Whether the round under way expects this report.
  bool expects(PeerId from, PeerId about, uint32_t round) const;
  // Whether the round under way is a second turn of its pairs.
  bool repeats() const { return round_ && round_->repeats; }
  // REQUIRES: expects() it. `good`: bytes arrived.
  void report(PeerId from, PeerId about, bool good);
  void lose(PeerId peer);  // its pairs are not waited for any longer
  // Ends the round if it is over: all reports have arrived, or it is late. Returns whether it is.
  bool end_if_over(Instant now);
  void cancel();  // ends the round, whose pairs count as not measured

  // The pairs measured in this call, and those that had their turn in vain, in order.
  const std::set<Pair>& measured() const { return measured_; }
  std::set<Pair> failed() const;
  // The pairs of present members that had no turn in this call.
  std::vector<Pair> left_over() const;
  // The length of the round that the budget was too short for; zero if there was none. Then
  // max_bytes was too small for the pairs that are left over.
  Duration too_long() const { return too_long_; }
  Duration budget_left() const { return budget_left_; }
  void forget(PeerId peer);  // it is gone for good

  void check() const;  // asserts the invariants

 private:
  struct UnderWay {
    Round round;
    Instant due, late_at;                      // when its reports should be here; its deadline
    std::map<Pair, std::set<PeerId>> awaited;  // the ends that have not reported yet
    std::set<Pair> good;                       // ends with a good report so far
    bool repeats = false;
  };
  struct Priority;
  Priority priority_of(const std::vector<Pair>& pairs) const;
  std::vector<Pair> first_turns() const;
  std::vector<Pair> second_turns(const Known& known) const;
  Duration left_for_second_turns() const;
  bool is_due(const Pair& pair) const;  // a first turn
  bool has_bytes_for(const Pair& pair) const;

  std::vector<PeerId> members_;
  Duration budget_left_{0};
  Duration too_long_{0};
  uint64_t max_bytes_ = 0, turn_bytes_ = 0;  // of a turn: in each direction; 0: no limit
  std::map<PeerId, uint64_t> bytes_spent_;   // in this call
  uint32_t rounds_ = 0;                      // so far, in all calls
  std::optional<UnderWay> round_;
  std::set<Pair> tried_, measured_, repeated_;  // in this call
  Duration first_time_{0}, second_time_{0};     // likewise: of the rounds
  std::map<Pair, Instant> last_;                // when each pair was measured last, in any call
};

}  // namespace pccl::master::topology
