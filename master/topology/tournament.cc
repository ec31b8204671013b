#include "master/topology/tournament.h"

#include <algorithm>
#include <tuple>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::master::topology {
namespace {

bool contains(const std::vector<PeerId>& peers, PeerId peer) {
  return std::find(peers.begin(), peers.end(), peer) != peers.end();
}

}  // namespace

// The circle method: one member stays, and the others move on by one place in each round. With an
// odd number, the member that meets the empty place rests.
std::vector<std::vector<Pair>> round_robin(const std::vector<PeerId>& members) {
  std::vector<std::vector<Pair>> rounds;
  if (members.size() < 2) return rounds;
  const size_t places = members.size() + members.size() % 2, moving = places - 1;
  for (size_t round = 0; round < moving; ++round) {
    std::vector<Pair> pairs;
    const auto meet = [&](size_t a, size_t b) {
      if (a < members.size() && b < members.size())
        pairs.push_back(Pair::of(members[a], members[b]));
    };
    meet(round, moving);
    for (size_t step = 1; step < places / 2; ++step)
      meet((round + step) % moving, (round + moving - step) % moving);
    std::sort(pairs.begin(), pairs.end());
    rounds.push_back(std::move(pairs));
  }
  return rounds;
}

void Tournament::begin(std::vector<PeerId> members, Duration budget, uint64_t max_bytes) {
  PCCL_ASSERT(!round_ && budget >= Duration{0});
  PCCL_ASSERT(max_bytes == 0 || max_bytes >= protocol::kProbesBytesMin);
  max_bytes_ = max_bytes;
  turn_bytes_ = max_bytes == 0 ? 0
                               : std::max(max_bytes / 2 / std::max<uint64_t>(members.size(), 1),
                                          protocol::kProbeBytesMin);
  bytes_spent_.clear();
  tried_.clear();
  measured_.clear();
  repeated_.clear();
  first_time_ = second_time_ = Duration{0};
  budget_left_ = budget;
  resume(std::move(members));
}

// The rounds of the same members are always the same, whatever their ranks.
void Tournament::resume(std::vector<PeerId> members) {
  PCCL_ASSERT(!round_);
  members_ = std::move(members);
  std::sort(members_.begin(), members_.end());
  too_long_ = Duration{0};
}

// A round with more pairs that were never measured comes first, then one with more pairs that had
// no turn in this call, then the one whose oldest measurement is older.
struct Tournament::Priority {
  size_t unknown = 0, due = 0;
  Instant oldest{kForever};
  bool before(const Priority& other) const {
    return std::tuple(other.unknown, other.due, oldest) < std::tuple(unknown, due, other.oldest);
  }
};

bool Tournament::has_bytes_for(const Pair& pair) const {
  const auto fits = [this](PeerId peer) {
    const auto spent = bytes_spent_.find(peer);
    return (spent == bytes_spent_.end() ? 0 : spent->second) + 2 * turn_bytes_ <= max_bytes_;
  };
  return turn_bytes_ == 0 || (fits(pair.low) && fits(pair.high));
}

bool Tournament::is_due(const Pair& pair) const {
  return !tried_.contains(pair) && has_bytes_for(pair);
}

Tournament::Priority Tournament::priority_of(const std::vector<Pair>& pairs) const {
  Priority priority;
  for (const Pair& pair : pairs) {
    if (!is_due(pair)) continue;
    ++priority.due;
    const auto last = last_.find(pair);
    if (last == last_.end()) {
      ++priority.unknown;
    } else {
      priority.oldest = std::min(priority.oldest, last->second);
    }
  }
  return priority;
}

// The pairs of the next round that are due; none if all pairs had their first turn in this call, or
// if too few bytes are left for the others.
std::vector<Pair> Tournament::first_turns() const {
  std::vector<Pair> best;
  Priority best_priority;
  for (const std::vector<Pair>& pairs : round_robin(members_)) {
    const Priority priority = priority_of(pairs);
    if (priority.due == 0 || (!best.empty() && !priority.before(best_priority))) continue;
    best_priority = priority;
    best = pairs;
  }
  std::erase_if(best, [this](const Pair& pair) { return !is_due(pair); });
  return best;
}

Duration Tournament::left_for_second_turns() const {
  const auto part = std::chrono::duration_cast<Duration>(kSecondPart * first_time_);
  return std::min(std::max(part, kShort - first_time_) - second_time_, budget_left_);
}

// Disjoint pairs, the most doubtful first.
std::vector<Pair> Tournament::second_turns(const Known& known) const {
  if (left_for_second_turns() < kRoundMin) return {};
  std::vector<std::pair<double, Pair>> doubtful;
  for (const Pair& pair : measured_) {
    const bool here = contains(members_, pair.low) && contains(members_, pair.high);
    const bool may = here && !repeated_.contains(pair) && has_bytes_for(pair);
    const double doubt = may ? known.doubt(pair) : 0;
    if (doubt > kDoubtful) doubtful.emplace_back(-doubt, pair);
  }
  std::sort(doubtful.begin(), doubtful.end());
  std::vector<Pair> pairs;
  for (const auto& one : doubtful) {
    const Pair& pair = one.second;
    const bool free = std::ranges::none_of(
        pairs, [&](const Pair& taken) { return taken.has(pair.low) || taken.has(pair.high); });
    if (free) pairs.push_back(pair);
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

std::optional<Tournament::Round> Tournament::next(const Known& known, Instant now) {
  PCCL_ASSERT(!round_);
  std::vector<Pair> pairs = first_turns();
  const bool repeats = pairs.empty();
  if (repeats) pairs = second_turns(known);
  if (pairs.empty()) return std::nullopt;
  Duration longest{0};
  for (const Pair& pair : pairs) longest = std::max(longest, known.rtt(pair));
  const Duration length = std::max(kRoundMin, kRoundTrips * longest);
  if (length > (repeats ? left_for_second_turns() : budget_left_)) {
    if (!repeats) too_long_ = length;
    return std::nullopt;
  }
  budget_left_ -= length;
  (repeats ? second_time_ : first_time_) += length;
  const Duration slack = 2 * longest + kLate;
  UnderWay under_way;
  under_way.round = {++rounds_, length, turn_bytes_, pairs};
  under_way.due = now + length + slack;
  under_way.late_at = now + kLongest * length + slack;
  under_way.repeats = repeats;
  for (const Pair& pair : pairs) {
    (repeats ? repeated_ : tried_).insert(pair);
    bytes_spent_[pair.low] += 2 * turn_bytes_;
    bytes_spent_[pair.high] += 2 * turn_bytes_;
    under_way.awaited[pair] = {pair.low, pair.high};
    under_way.good.insert(pair);
  }
  round_ = std::move(under_way);
  return round_->round;
}

std::optional<Instant> Tournament::deadline() const {
  return round_ ? std::optional(round_->late_at) : std::nullopt;
}

bool Tournament::expects(PeerId from, PeerId about, uint32_t round) const {
  if (!round_ || round_->round.number != round || from == about) return false;
  const auto awaited = round_->awaited.find(Pair::of(from, about));
  return awaited != round_->awaited.end() && awaited->second.contains(from);
}

void Tournament::report(PeerId from, PeerId about, bool good) {
  PCCL_ASSERT(expects(from, about, round_->round.number));
  const Pair pair = Pair::of(from, about);
  const auto awaited = round_->awaited.find(pair);
  awaited->second.erase(from);
  if (awaited->second.empty()) round_->awaited.erase(awaited);
  if (!good) round_->good.erase(pair);
}

void Tournament::lose(PeerId peer) {
  if (!round_) return;
  std::erase_if(round_->awaited, [&](const auto& at) {
    if (at.first.has(peer)) round_->good.erase(at.first);
    return at.first.has(peer);
  });
}

bool Tournament::end_if_over(Instant now) {
  if (!round_ || (!round_->awaited.empty() && now < round_->late_at)) return false;
  for (const auto& [pair, ends] : round_->awaited) round_->good.erase(pair);
  if (now > round_->due) budget_left_ -= std::min(budget_left_, now - round_->due);
  for (const Pair& pair : round_->good) {
    measured_.insert(pair);
    last_[pair] = now;
  }
  round_.reset();
  return true;
}

void Tournament::cancel() {
  if (!round_) return;
  for (const Pair& pair : round_->round.pairs) (round_->repeats ? repeated_ : tried_).erase(pair);
  round_.reset();
}

std::set<Pair> Tournament::failed() const {
  std::set<Pair> failed;
  for (const Pair& pair : tried_) {
    const bool here = contains(members_, pair.low) && contains(members_, pair.high);
    const bool probed_now = round_ && round_->good.contains(pair);
    if (here && !probed_now && !measured_.contains(pair)) failed.insert(pair);
  }
  return failed;
}

std::vector<Pair> Tournament::left_over() const {
  std::vector<Pair> left;
  for (const std::vector<Pair>& pairs : round_robin(members_)) {
    for (const Pair& pair : pairs) {
      if (!tried_.contains(pair)) left.push_back(pair);
    }
  }
  std::sort(left.begin(), left.end());
  return left;
}

void Tournament::forget(PeerId peer) {
  lose(peer);
  const auto of_peer = [peer](const Pair& pair) { return pair.has(peer); };
  std::erase(members_, peer);
  std::erase_if(tried_, of_peer);
  std::erase_if(measured_, of_peer);
  std::erase_if(repeated_, of_peer);
  bytes_spent_.erase(peer);
  std::erase_if(last_, [&](const auto& at) { return of_peer(at.first); });
}

void Tournament::check() const {
  for (const Pair& pair : measured_) PCCL_ASSERT(tried_.contains(pair) && last_.contains(pair));
  for (const Pair& pair : repeated_) PCCL_ASSERT(measured_.contains(pair));
  PCCL_ASSERT(budget_left_ >= Duration{0});
  for (const auto& [peer, bytes] : bytes_spent_) PCCL_ASSERT(bytes <= max_bytes_);
  if (!round_) return;
  std::set<PeerId> busy;
  for (const Pair& pair : round_->round.pairs) {
    PCCL_ASSERT(pair.low < pair.high);
    PCCL_ASSERT(busy.insert(pair.low).second && busy.insert(pair.high).second);
  }
  for (const auto& [pair, ends] : round_->awaited)
    PCCL_ASSERT(!ends.empty() && busy.contains(pair.low));
  for (const Pair& pair : round_->good) PCCL_ASSERT(busy.contains(pair.low));
}

}  // namespace pccl::master::topology
