#include "master/topology/tour_search.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::master::topology {

double CostTable::length(const Tour& tour) const {
  double sum = 0;
  for (size_t i = 0; i < tour.size(); ++i) sum += at(tour[i], tour[(i + 1) % tour.size()]);
  return sum;
}

TourSearch::TourSearch(const CostTable& costs, uint64_t seed)
    : costs_(costs), state_(seed * 0x9e3779b97f4a7c15u + 1), queued_(costs.places()) {
  const auto places = static_cast<uint32_t>(costs.places());
  PCCL_ASSERT(places >= 3);
  neighbours_ = std::min<size_t>(kNeighbours, places - 1);
  Tour others;
  const auto keep_nearest = [&](uint32_t place, std::vector<uint32_t>& list, const auto& cost) {
    others.resize(places);
    std::iota(others.begin(), others.end(), 0);
    others.erase(others.begin() + place);
    const auto cheaper = [&](uint32_t a, uint32_t b) {
      return std::pair(cost(a), a) < std::pair(cost(b), b);
    };
    const auto end = others.begin() + static_cast<std::ptrdiff_t>(neighbours_);
    std::partial_sort(others.begin(), end, others.end(), cheaper);
    list.insert(list.end(), others.begin(), end);
  };
  for (uint32_t place = 0; place < places; ++place) {
    keep_nearest(place, nearest_to_, [&](uint32_t to) { return costs.at(place, to); });
    keep_nearest(place, nearest_from_, [&](uint32_t from) { return costs.at(from, place); });
  }
}

// xorshift64*
uint32_t TourSearch::random(uint32_t below) {
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  return static_cast<uint32_t>(((state_ * 0x2545f4914f6cdd1du) >> 32) * below >> 32);
}

uint32_t TourSearch::next(uint32_t place) const {
  const size_t at = place_[place] + 1;
  return tour_[at == tour_.size() ? 0 : at];
}

uint32_t TourSearch::previous(uint32_t place) const {
  const size_t at = place_[place];
  return tour_[at == 0 ? tour_.size() - 1 : at - 1];
}

uint32_t TourSearch::distance(uint32_t from, uint32_t to) const {
  const uint32_t a = place_[from], b = place_[to];
  return b >= a ? b - a : b + static_cast<uint32_t>(tour_.size()) - a;
}

// ---- Beginnings ---------------------------------------------------------------------------------

void TourSearch::set(Tour tour) {
  tour_ = std::move(tour);
  place_.resize(tour_.size());
  for (uint32_t i = 0; i < tour_.size(); ++i) place_[tour_[i]] = i;
  length_ = costs_.length(tour_);
}

void TourSearch::begin(Tour tour) {
  PCCL_ASSERT(tour.size() == costs_.places());
  set(std::move(tour));
  for (const uint32_t place : tour_) wake(place);
  improve();
}

void TourSearch::begin_random() {
  Tour tour(costs_.places());
  std::iota(tour.begin(), tour.end(), 0);
  for (uint32_t i = static_cast<uint32_t>(tour.size()) - 1; i > 0; --i)
    std::swap(tour[i], tour[random(i + 1)]);
  begin(std::move(tour));
}

// Joins places to paths by the cheapest hops, if these lead to one of the nearest places. Then
// joins the remaining paths: from the end of one path to the nearest beginning of another.
void TourSearch::begin_greedy() {
  const auto places = static_cast<uint32_t>(costs_.places());
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> after(places, kNone), before(places, kNone), other_end(places);
  std::iota(other_end.begin(), other_end.end(), 0);
  const auto join = [&](uint32_t from, uint32_t to) {
    after[from] = to;
    before[to] = from;
    const uint32_t begin = other_end[from], end = other_end[to];
    other_end[begin] = end;
    other_end[end] = begin;
  };
  std::vector<std::pair<uint32_t, uint32_t>> hops;
  for (uint32_t from = 0; from < places; ++from) {
    for (size_t k = 0; k < neighbours_; ++k)
      hops.emplace_back(from, nearest_to_[from * neighbours_ + k]);
  }
  std::stable_sort(hops.begin(), hops.end(), [&](const auto& a, const auto& b) {
    return costs_.at(a.first, a.second) < costs_.at(b.first, b.second);
  });
  for (const auto& [from, to] : hops) {
    if (after[from] == kNone && before[to] == kNone && other_end[from] != to) join(from, to);
  }
  uint32_t begin = 0;
  while (before[begin] != kNone) begin = before[begin];
  for (uint32_t end = other_end[begin];; end = other_end[begin]) {
    uint32_t best = kNone;
    for (uint32_t to = 0; to < places; ++to) {
      if (before[to] != kNone || to == begin) continue;
      if (best == kNone || costs_.at(end, to) < costs_.at(end, best)) best = to;
    }
    if (best == kNone) break;
    join(end, best);
  }
  Tour tour;
  for (uint32_t at = begin; at != kNone; at = after[at]) tour.push_back(at);
  this->begin(std::move(tour));
}

// ---- The search ---------------------------------------------------------------------------------

void TourSearch::wake(uint32_t place) {
  if (queued_[place]) return;
  queued_[place] = true;
  queue_.push_back(place);
}

void TourSearch::improve() {
  while (!queue_.empty()) {
    const uint32_t place = queue_.back();
    queue_.pop_back();
    queued_[place] = false;
    const Exchange best = best_exchange(place);
    if (best.gain <= 0) continue;
    for (const uint32_t end : {best.first, best.second, best.third}) {
      wake(next(end));
      wake(end);
    }
    exchange(best.first, best.second, best.third);
  }
}

// Returns by how much the tour becomes shorter if the hops after a, b and c are replaced. These
// places follow each other in the tour: a goes to the place after b, c to the place after a, and b
// to the place after c.
double TourSearch::gain(uint32_t a, uint32_t b, uint32_t c) const {
  const uint32_t to_a = next(a), to_b = next(b), to_c = next(c);
  return costs_.at(a, to_a) + costs_.at(b, to_b) + costs_.at(c, to_c) - costs_.at(a, to_b) -
         costs_.at(c, to_a) - costs_.at(b, to_c);
}

void TourSearch::consider(Exchange& best, uint32_t a, uint32_t b, uint32_t c) const {
  const double gained = gain(a, b, c);
  if (gained > best.gain + 1e-9 * length_) best = {gained, a, b, c};
}

TourSearch::Exchange TourSearch::best_exchange(uint32_t from) const {
  Exchange best;
  // The place `from` stays where it is in the tour, and gets a cheaper hop.
  const uint32_t a = from, to_a = next(a);
  const double hop = costs_.at(a, to_a);
  const auto size = static_cast<uint32_t>(tour_.size());
  for (size_t k = 0; k < neighbours_; ++k) {
    const uint32_t to_b = nearest_to_[a * neighbours_ + k];
    const double gained = hop - costs_.at(a, to_b);
    if (gained <= 0) break;
    if (to_b == to_a) continue;
    const uint32_t b = previous(to_b), span = distance(a, b);
    const double open = gained + costs_.at(b, to_b);
    for (size_t m = 0; m < neighbours_; ++m) {
      const uint32_t to_c = nearest_to_[b * neighbours_ + m];
      if (open <= costs_.at(b, to_c)) break;
      const uint32_t c = previous(to_c);
      if (to_c != to_b && distance(a, c) > span && distance(a, c) < size) consider(best, a, b, c);
    }
    for (size_t m = 0; m < neighbours_; ++m) {
      const uint32_t c = nearest_from_[to_a * neighbours_ + m];
      if (open <= costs_.at(c, to_a) - costs_.at(c, next(c))) continue;
      if (c != a && distance(a, c) > span) consider(best, a, b, c);
    }
  }
  return best;
}

// Exchanges two stretches that follow each other. The rest of the tour is a third stretch. The
// exchange of any two of the three gives the same tour, so the longest stretch stays where it is.
void TourSearch::exchange(uint32_t a, uint32_t b, uint32_t c) {
  length_ -= gain(a, b, c);
  const auto size = static_cast<uint32_t>(tour_.size());
  const uint32_t lengths[] = {distance(a, b), distance(b, c), distance(c, a)};
  const uint32_t starts[] = {place_[a] + 1, place_[b] + 1, place_[c] + 1};
  const auto longest = static_cast<size_t>(std::max_element(lengths, std::end(lengths)) - lengths);
  const size_t left = (longest + 1) % 3, right = (longest + 2) % 3;
  stretch_.clear();
  for (const size_t which : {right, left}) {
    for (uint32_t i = 0; i < lengths[which]; ++i)
      stretch_.push_back(tour_[(starts[which] + i) % size]);
  }
  for (uint32_t i = 0; i < stretch_.size(); ++i) {
    const uint32_t at = (starts[left] + i) % size;
    tour_[at] = stretch_[i];
    place_[stretch_[i]] = at;
  }
}

// Three short stretches that follow each other get the opposite order (a double bridge). No single
// exchange undoes that.
void TourSearch::kick_once() {
  const auto size = static_cast<uint32_t>(tour_.size());
  const uint32_t most = std::min(kKickedPlaces, size - 1) / 3;
  const uint32_t start = random(size);
  uint32_t at = start, ends[3];
  for (uint32_t& end : ends) {
    at = (at + 1 + random(most)) % size;
    end = tour_[at];
  }
  const uint32_t a = tour_[start], b = ends[0], c = ends[1], d = ends[2];
  for (const uint32_t end : {a, b, c, d}) {
    wake(next(end));
    wake(end);
  }
  exchange(a, b, d);  // now c and d follow a, and then b
  exchange(a, c, d);
}

void TourSearch::kick(size_t times) {
  if (tour_.size() < 4) return;
  for (size_t i = 0; i < times; ++i) {
    const Tour before = tour_;
    const double length = length_;
    kick_once();
    improve();
    if (length_ > length) set(before);
  }
  length_ = costs_.length(tour_);  // without the rounding errors of the steps
}

void TourSearch::check() const {
  PCCL_ASSERT(tour_.size() == costs_.places());
  for (uint32_t i = 0; i < tour_.size(); ++i) PCCL_ASSERT(place_[tour_[i]] == i);
}

}  // namespace pccl::master::topology
