// pccl-tours: results of the planner's searches, and how long they take, for benchmarks/tours.py.
//   pccl-tours FILE...    asymmetric instances of TSPLIB with a full matrix of weights:
//                         tour NAME PLACES SEED SECONDS LENGTH, once for each seed
//   pccl-tours --worlds   generated worlds of hosts:
//                         exact MEMBERS SECONDS
//                         ring MEMBERS KIND SEED SECONDS SLOWEST/BOUND JOIN_ORDER/SLOWEST
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "master/topology/ring_planner.h"
#include "master/topology/tour_search.h"

namespace {

using namespace pccl::master::topology;

constexpr uint64_t kSeeds = 5, kRandomStarts = 3;
constexpr size_t kKicks = 20000;  // of each start
constexpr double kBytes = 64 << 20;
constexpr double kEndless = 1e15;  // bytes: only the slowest hop counts

double timed(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns no places if the file is no such instance.
CostTable read(const char* path) {
  std::ifstream file(path);
  std::string word;
  size_t places = 0;
  while (file >> word && word != "EDGE_WEIGHT_SECTION") {
    if (word == "DIMENSION:" || (word == "DIMENSION" && file >> word)) file >> places;
  }
  CostTable costs(places);
  for (uint32_t from = 0; from < places; ++from) {
    for (uint32_t to = 0; to < places; ++to) file >> costs.at(from, to);
  }
  return file ? costs : CostTable(0);
}

double best_length(const CostTable& costs, uint64_t seed) {
  double best = std::numeric_limits<double>::infinity();
  for (uint64_t start = 0; start <= kRandomStarts; ++start) {
    TourSearch search(costs, seed * (kRandomStarts + 1) + start);
    start == 0 ? search.begin_greedy() : search.begin_random();
    search.kick(kKicks);
    best = std::min(best, search.length());
  }
  return best;
}

int measure_files(int count, char** paths) {
  for (int i = 0; i < count; ++i) {
    const CostTable costs = read(paths[i]);
    if (costs.places() < 3) {
      std::fprintf(stderr, "%s: not an instance of TSPLIB with a FULL_MATRIX of 3 or more places\n",
                   paths[i]);
      return 2;
    }
    std::string name = paths[i];
    name = name.substr(name.rfind('/') + 1);
    name = name.substr(0, name.rfind('.'));
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      double length = 0;
      const double seconds = timed([&] { length = best_length(costs, seed); });
      std::printf("tour %s %zu %llu %.4f %.0f\n", name.c_str(), costs.places(),
                  static_cast<unsigned long long>(seed), seconds, length);
      std::fflush(stdout);
    }
  }
  return 0;
}

// Hosts at random places, 20 to 1000 Mbit/s between them: each path has a rate of its own, or paths
// between near hosts are faster.
Paths world(size_t members, bool on_map, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> place(0, 0.1);
  std::uniform_real_distribution<double> rate(std::log(2.5e6), std::log(1.25e8));
  std::vector<std::pair<double, double>> hosts(members);
  for (auto& [x, y] : hosts) x = place(random), y = place(random);
  Paths paths(members);
  for (uint32_t from = 0; from < members; ++from) {
    for (uint32_t to = 0; to < members; ++to) {
      if (from == to) continue;
      const double x = hosts[from].first - hosts[to].first;
      const double y = hosts[from].second - hosts[to].second;
      const double delay = std::hypot(x, y) + 0.001, own = std::exp(rate(random));
      paths.hop.at(from, to) = delay;
      paths.rate.at(from, to) =
          on_map ? std::min(1.25e8, 2.5e5 / delay * std::sqrt(own / 1e7)) : own;
    }
  }
  return paths;
}

int measure_worlds() {
  for (const size_t members : {12, 16}) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const Paths paths = world(members, seed % 2 == 0, seed);
      std::printf("exact %zu %.5f\n", members, timed([&] { fastest_ring(paths, kBytes); }));
    }
  }
  for (const size_t members : {32, 100, 500}) {
    for (const bool on_map : {false, true}) {
      for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        const Paths paths = world(members, on_map, seed);
        Ring ring;
        const double seconds =
            timed([&] { ring = fastest_ring(paths, kEndless, {.kicks = 2000, .seed = seed}); });
        Tour join(members);
        std::iota(join.begin(), join.end(), 0);
        const double slowest = ring.slowest;
        std::printf("ring %zu %s %llu %.4f %.4f %.2f\n", members, on_map ? "map" : "random",
                    static_cast<unsigned long long>(seed), seconds,
                    slowest_hop_bound(paths) / slowest, slowest / ring_of(paths, join).slowest);
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--worlds") return measure_worlds();
  if (argc > 1) return measure_files(argc - 1, argv + 1);
  std::fprintf(stderr, "usage: pccl-tours FILE... | --worlds\n");
  return 2;
}
