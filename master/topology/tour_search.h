// TourSearch: a short tour through all places, for costs that differ by direction (the asymmetric
// travelling salesman). It is a local search: it exchanges two neighbouring stretches of the tour
// (Or-3opt) as long as this makes the tour shorter, then reverses the order of three random short
// stretches (a kick), repairs the tour around them, and takes the kick back if the tour is longer
// than before. It is pure and seeded: the same costs, seed and number of kicks give the same tour.
// Invariants:
// 1. tour_ has each place once, and place_[tour_[i]] is i.
// 2. length_ is the length of tour_, and kick() never makes it larger.
// REQUIRES: 3 places or more; costs are finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pccl::master::topology {

using Tour = std::vector<uint32_t>;

// The cost of the way from each place to every other place.
class CostTable {
 public:
  explicit CostTable(size_t places) : places_(places), costs_(places * places) {}
  size_t places() const { return places_; }
  double& at(uint32_t from, uint32_t to) { return costs_[from * places_ + to]; }
  double at(uint32_t from, uint32_t to) const { return costs_[from * places_ + to]; }
  double length(const Tour& tour) const;

 private:
  size_t places_;
  std::vector<double> costs_;
};

class TourSearch {
 public:
  static constexpr size_t kNeighbours = 12;      // considered for each place, in each direction
  static constexpr uint32_t kKickedPlaces = 50;  // maximum length of the part that one kick changes

  // `costs` must outlive it.
  TourSearch(const CostTable& costs, uint64_t seed);
  void begin_greedy();  // with the cheapest hops that fit together
  void begin_random();
  void begin(Tour tour);
  // Kicks the tour `times` times.
  void kick(size_t times);
  const Tour& tour() const { return tour_; }
  double length() const { return length_; }
  void check() const;  // asserts the invariants

 private:
  struct Exchange {
    double gain = 0;
    uint32_t first = 0, second = 0, third = 0;  // the hop after each of these places is replaced
  };
  uint32_t random(uint32_t below);
  uint32_t next(uint32_t place) const;
  uint32_t previous(uint32_t place) const;
  // Number of hops forwards from the place `from` to the place `to`.
  uint32_t distance(uint32_t from, uint32_t to) const;
  void improve();
  Exchange best_exchange(uint32_t from) const;
  void consider(Exchange& best, uint32_t a, uint32_t b, uint32_t c) const;
  double gain(uint32_t a, uint32_t b, uint32_t c) const;
  void exchange(uint32_t a, uint32_t b, uint32_t c);
  void kick_once();
  void wake(uint32_t place);
  void set(Tour tour);

  const CostTable& costs_;
  uint64_t state_;
  std::vector<uint32_t> nearest_to_, nearest_from_;  // kNeighbours of each place, cheapest first
  size_t neighbours_ = 0;
  Tour tour_;
  std::vector<uint32_t> place_;
  double length_ = 0;
  std::vector<uint32_t> queue_;  // places whose hop may be improved
  std::vector<bool> queued_;
  Tour stretch_;
};

}  // namespace pccl::master::topology
