#include "master/topology/tour_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace pccl::master::topology {
namespace {

CostTable table(std::mt19937& random, size_t places) {
  std::uniform_real_distribution<double> cost(1, 100);
  CostTable costs(places);
  for (uint32_t from = 0; from < places; ++from) {
    for (uint32_t to = 0; to < places; ++to) costs.at(from, to) = from == to ? 0 : cost(random);
  }
  return costs;
}

double shortest(const CostTable& costs) {
  Tour tour(costs.places());
  std::iota(tour.begin(), tour.end(), 0);
  double best = costs.length(tour);
  while (std::next_permutation(tour.begin() + 1, tour.end()))
    best = std::min(best, costs.length(tour));
  return best;
}

TEST(TourSearch, FindsTheShortestTourOfAFewPlaces) {
  std::mt19937 random(1);
  for (size_t places = 3; places <= 8; ++places) {
    const CostTable costs = table(random, places);
    TourSearch search(costs, places);
    for (const bool greedy : {true, false}) {
      greedy ? search.begin_greedy() : search.begin_random();
      search.kick(200);
      search.check();
      EXPECT_NEAR(search.length(), shortest(costs), 1e-9) << places << " places";
    }
  }
}

// Only one tour of this length exists, and its hops cannot be told by their beginnings alone.
TEST(TourSearch, FindsAHiddenTour) {
  std::mt19937 random(2);
  const size_t places = 60;
  CostTable costs = table(random, places);
  Tour hidden(places);
  std::iota(hidden.begin(), hidden.end(), 0);
  std::shuffle(hidden.begin(), hidden.end(), random);
  for (size_t i = 0; i < places; ++i) costs.at(hidden[i], hidden[(i + 1) % places]) = 0.5;
  TourSearch search(costs, 1);
  search.begin_random();
  search.kick(3000);
  EXPECT_NEAR(search.length(), 0.5 * places, 1e-9);
}

TEST(TourSearch, AKickNeverMakesTheTourLonger) {
  std::mt19937 random(3);
  const CostTable costs = table(random, 100);
  TourSearch search(costs, 1);
  search.begin_random();
  for (int i = 0; i < 300; ++i) {
    const double before = search.length();
    search.kick(1);
    search.check();
    ASSERT_LE(search.length(), before + 1e-9);
    ASSERT_NEAR(search.length(), costs.length(search.tour()), 1e-9);
  }
}

TEST(TourSearch, TheSameSeedGivesTheSameTour) {
  std::mt19937 random(4);
  const CostTable costs = table(random, 80);
  const auto found = [&](uint64_t seed) {
    TourSearch search(costs, seed);
    search.begin_greedy();
    search.kick(500);
    return search.tour();
  };
  EXPECT_EQ(found(7), found(7));
}

TEST(TourSearch, CostsMayBeAllAlike) {
  CostTable costs(20);
  for (uint32_t from = 0; from < 20; ++from) {
    for (uint32_t to = 0; to < 20; ++to) costs.at(from, to) = 1;
  }
  TourSearch search(costs, 1);
  search.begin_greedy();
  search.kick(100);
  EXPECT_EQ(search.length(), 20);
}

}  // namespace
}  // namespace pccl::master::topology
