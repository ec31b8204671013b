// Tournament: assigns pairs of members to the rounds of probes, when optimize_topology measures
// their links. A round has disjoint pairs, so no member is in two probes at once. All rounds
// together are a round-robin tournament: N-1 rounds for an even number of members, N for an odd
// one, with each pair once. Rounds with more unmeasured pairs come first, then rounds with older
// measurements. One call of optimize_topology probes each pair once, as far as its budget allows,
// and the next call continues with the rest.
// A probe may measure only a tenth of the real rate of a path: packets are lost while the rate
// grows, or acknowledgements wait in a queue of the other direction. The lanes keep their state
// when the probe is over, so the next probe begins nearer to the real rate. Therefore pairs with a
// doubtful rate have a second turn (one more probe) at the end of the call, the most doubtful pairs
// first.
// It is pure: the time is an argument, and it sends nothing.
// Invariants:
// 1. The pairs of a round are disjoint, and both ends are members.
// 2. A round lasts until all its reports have arrived, or until its deadline. The time of waiting
//    for late reports is taken from the budget of the call, too.
// 3. If there is a limit of bytes, all probes of a call together carry at most this number of bytes
//    for each member, in both directions together. Each turn of a member counts in full, even if
//    the turn failed.
// 4. In one call, each pair has at most one first turn. After all first turns, it has at most one
//    second turn. The time of all rounds of second turns has two limits, and the larger one holds:
//    kSecondPart of the time of the first rounds, or the rest of kShort after the first rounds.
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

// The rounds of a round-robin tournament. Each round has disjoint pairs, and each pair is in
// exactly one round.
std::vector<std::vector<Pair>> round_robin(const std::vector<PeerId>& members);

class Tournament {
 public:
  // A round takes 12 round trips, but at least kRoundMin. In 12 round trips, a path reaches its
  // full rate within the first third of the probe, which is not measured. On near paths, the
  // processes at both ends need some time to start.
  static constexpr Duration kRoundMin = std::chrono::milliseconds(800);
  static constexpr int64_t kRoundTrips = 12;
  // A report is late if it arrives after the length of its round, plus two round trips, plus this
  // time.
  static constexpr Duration kLate = std::chrono::seconds(1);
  // A probe takes at most this multiple of its length (csrc/peer/link_probe.h): its lanes may open
  // late, and its first byte may arrive late. A late report still counts.
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

  // begin(): a call begins. resume(): the call continues after the members have changed, and keeps
  // its budget and its measurements. `members`: in any order. `max_bytes`: as in Vote. It is
  // divided into equal turns: one for each other member, and one second turn. If these turns would
  // be too small, there are fewer turns.
  void begin(std::vector<PeerId> members, Duration budget, uint64_t max_bytes = 0);
  void resume(std::vector<PeerId> members);
  // Begins the next round of the call; nothing if all pairs had their turn, or the rest of the
  // budget is too short for another round. REQUIRES: no round is under way.
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
  // Ends the round if all its reports have arrived, or if its deadline has passed. Returns whether
  // it has ended the round.
  bool end_if_over(Instant now);
  // Ends the round. Its pairs count as not probed in it, so another round may have them.
  void cancel();

  // The pairs that were measured in this call, and the pairs whose turn in this call failed; both
  // in order.
  const std::set<Pair>& measured() const { return measured_; }
  std::set<Pair> failed() const;
  // The pairs of present members that had no turn in this call.
  std::vector<Pair> left_over() const;
  // The length of the round that the budget was too short for; zero: there was none. If it is zero
  // and pairs are left over, max_bytes was too small for them.
  Duration too_long() const { return too_long_; }
  Duration budget_left() const { return budget_left_; }
  void forget(PeerId peer);  // it is gone for good

  void check() const;  // asserts the invariants

 private:
  struct UnderWay {
    Round round;
    Instant due, late_at;                      // when its reports should be here; its deadline
    std::map<Pair, std::set<PeerId>> awaited;  // the ends that have not reported yet
    std::set<Pair> good;                       // pairs without a bad report so far
    bool repeats = false;
  };
  struct Priority;
  Priority priority_of(const std::vector<Pair>& pairs) const;
  std::vector<Pair> first_turns() const;
  std::vector<Pair> second_turns(const Known& known) const;
  Duration left_for_second_turns() const;
  bool is_due(const Pair& pair) const;  // for its first turn
  bool has_bytes_for(const Pair& pair) const;

  std::vector<PeerId> members_;
  Duration budget_left_{0};
  Duration too_long_{0};
  // `max_bytes_`: limit of a call; `turn_bytes_`: limit of a turn, in each direction; 0: no limit
  uint64_t max_bytes_ = 0, turn_bytes_ = 0;
  std::map<PeerId, uint64_t> bytes_spent_;  // in this call
  uint32_t rounds_ = 0;                     // so far, in all calls
  std::optional<UnderWay> round_;
  std::set<Pair> tried_, measured_, repeated_;  // in this call
  Duration first_time_{0}, second_time_{0};     // in this call: of the rounds
  std::map<Pair, Instant> last_;                // when each pair was measured last, in any call
};

}  // namespace pccl::master::topology
