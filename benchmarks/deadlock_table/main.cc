// pccl-deadlock-table: how often collectives deadlock that are matched by the order of the calls,
// for simulator.py. It reads the groups of a world (world.h) and prints
//   ROUNDS PUBLISHED EXACT
// the numbers of rounds, and of those with a deadlock by each check (verdict.h).
//   pccl-deadlock-table queue STAGES DISORDER ROUNDS SEED
//   pccl-deadlock-table synchronization STAGES DISORDER SYNCHRONIZATION ROUNDS SEED
// A round has STAGES copies of the world, which have no GPU in common.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>

#include "benchmarks/deadlock_table/single_queue.h"
#include "benchmarks/deadlock_table/synchronization.h"

namespace {

using namespace pccl::deadlock_table;

constexpr const char* kUsage =
    "usage: pccl-deadlock-table queue STAGES DISORDER ROUNDS SEED < GROUPS\n"
    "       pccl-deadlock-table synchronization STAGES DISORDER SYNCHRONIZATION ROUNDS SEED "
    "< GROUPS\n"
    "GROUPS has a line \"COUNT GPU GPU ...\" for each group: the number of its collectives, and 2 "
    "to 32 GPUs in ascending\norder, each from 0 to 127\n";

Verdict of_all_stages(unsigned long stages, const std::function<Verdict()>& round) {
  Verdict all;
  for (unsigned long i = 0; i < stages && !all.exact; ++i) {
    const Verdict one = round();
    all.published |= one.published;
    all.exact |= one.exact;
  }
  return all;
}

void simulate(unsigned long stages, unsigned long rounds, const std::function<Verdict()>& round) {
  unsigned long published = 0, exact = 0;
  for (unsigned long i = 0; i < rounds; ++i) {
    const Verdict found = of_all_stages(stages, round);
    published += found.published;
    exact += found.exact;
  }
  std::printf("%lu %lu %lu\n", rounds, published, exact);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "";
  const bool queue = model == "queue" && argc == 6;
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  const std::optional<World> world = World::read(text);
  if ((!queue && !(model == "synchronization" && argc == 7)) || !world) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const unsigned long stages = std::strtoul(argv[2], nullptr, 10);
  const double disorder = std::strtod(argv[3], nullptr);
  const unsigned long rounds = std::strtoul(argv[argc - 2], nullptr, 10);
  Random random(std::strtoull(argv[argc - 1], nullptr, 10));
  if (queue) {
    SingleQueue simulated(*world, disorder, random);
    simulate(stages, rounds, [&] { return simulated.round(); });
  } else {
    Synchronization simulated(*world, disorder, std::strtod(argv[4], nullptr), random);
    simulate(stages, rounds, [&] { return simulated.round(); });
  }
  return 0;
}
