// pccl-sim: runs simulated worlds and checks the promises.
//   pccl-sim --seed N              one seed, with its transcript
//   pccl-sim --seeds COUNT [--first N]
//   pccl-sim --minutes M [--first N]
//   pccl-sim --sweep COUNT         a loss at every one of the first COUNT steps of a small run
//   --plant early-commit           with a planted bug: succeeds if the checker finds it
// Exit status 1 if a promise was broken (or, with --plant, if none was).
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include "tests/sim/driver.h"

namespace {

using pccl::sim::RunOptions;
using pccl::sim::RunReport;

struct Totals {
  uint64_t runs = 0, steps = 0, faults = 0, outcomes = 0, turns = 0, failed = 0;
  double virtual_seconds = 0;
  uint64_t first_failed = 0;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void add(Totals& totals, const RunOptions& options, const RunReport& report) {
  ++totals.runs;
  totals.steps += report.steps;
  totals.faults += report.faults;
  totals.outcomes += report.outcomes;
  totals.turns += report.turns;
  totals.virtual_seconds += pccl::to_seconds(report.virtual_time);
  if (report.violations.empty()) return;
  if (totals.failed++ == 0) totals.first_failed = options.seed;
  if (options.plant_early_commit) return;
  const std::string step =
      options.kill_at_step < 0 ? "" : " --kill-at " + std::to_string(options.kill_at_step);
  std::printf("seed %llu%s broke a promise:\n", static_cast<unsigned long long>(options.seed),
              step.c_str());
  for (const auto& violation : report.violations) std::printf("  %s\n", violation.c_str());
  std::fflush(stdout);
}

std::optional<std::map<std::string, std::string>> arguments(int argc, char** argv) {
  std::map<std::string, std::string> given;
  for (int i = 1; i < argc; i += 2) {
    if (std::strncmp(argv[i], "--", 2) != 0 || i + 1 == argc) return std::nullopt;
    given[argv[i] + 2] = argv[i + 1];
  }
  return given;
}

int summary(const Totals& totals, double wall, bool plant) {
  std::printf(
      "%llu runs, %llu steps, %llu faults, %llu outcomes compared, %llu turns; %.1f seeds/s, %.0f "
      "virtual s per s\n",
      static_cast<unsigned long long>(totals.runs), static_cast<unsigned long long>(totals.steps),
      static_cast<unsigned long long>(totals.faults),
      static_cast<unsigned long long>(totals.outcomes),
      static_cast<unsigned long long>(totals.turns), static_cast<double>(totals.runs) / wall,
      totals.virtual_seconds / wall);
  if (plant) {
    std::printf("planted bug: found in %llu of %llu runs, first in seed %llu\n",
                static_cast<unsigned long long>(totals.failed),
                static_cast<unsigned long long>(totals.runs),
                static_cast<unsigned long long>(totals.first_failed));
    return totals.failed > 0 ? 0 : 1;
  }
  std::printf("%llu passed, %llu failed\n",
              static_cast<unsigned long long>(totals.runs - totals.failed),
              static_cast<unsigned long long>(totals.failed));
  return totals.failed > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  auto given = arguments(argc, argv);
  if (!given || given->empty()) {
    std::fprintf(
        stderr,
        "usage: pccl-sim --seed N | --seeds COUNT | --minutes M | --sweep COUNT  [--first N] "
        "[--kill-at STEP] [--plant early-commit]\n");
    return 2;
  }
  const auto number = [&](const char* name, double otherwise) {
    const auto found = given->find(name);
    return found == given->end() ? otherwise : std::strtod(found->second.c_str(), nullptr);
  };
  const bool one = given->contains("seed"), sweep = given->contains("sweep");
  const auto start = std::chrono::steady_clock::now();
  const double seconds_max = number("minutes", 0) * 60;
  const auto first = static_cast<uint64_t>(one ? number("seed", 1) : number("first", 1));
  const auto count = static_cast<uint64_t>(one ? 1 : number(sweep ? "sweep" : "seeds", 0));
  Totals totals;
  for (uint64_t i = 0; seconds_max > 0 ? seconds_since(start) < seconds_max : i < count; ++i) {
    RunOptions options;
    options.seed = first + i;
    options.plant_early_commit = given->contains("plant");
    if (one)
      options.transcript = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
    if (one) options.kill_at_step = static_cast<int64_t>(number("kill-at", -1));
    if (sweep) options.kill_at_step = static_cast<int64_t>(i);
    add(totals, options, pccl::sim::run_seed(options));
  }
  return summary(totals, seconds_since(start), given->contains("plant"));
}
