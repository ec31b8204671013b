// pccl-sim: runs simulated worlds and checks the promises.
//   pccl-sim --seed N              one seed, with its transcript
//   pccl-sim --seeds COUNT [--first N]
//   pccl-sim --minutes M [--first N]
//   pccl-sim --campaign COUNT [--first N]
//                                  mixes long and short runs, about 100 faults in each; fails also
//                                  if some transition was never taken
//   pccl-sim --sweep COUNT         a loss at each of the first COUNT steps of a small run
//   pccl-sim --states PEERS        sync_shared_state with up to PEERS members: each set of stale
//                                  ones, and a loss at each moment
//   --bursts COUNT --faults MOST   bursts per seed (default 1), faults in each (default 12)
//   --pause SECONDS                longest time from one fault to the next (default 2)
//   --kill-at STEP                 with --seed: a loss at that step instead of the faults
//   --insider alone|faults         one peer lies to the master; alone: without other faults than
//                                  restarts of the master
//   --reconfigures on             the application decides who is in its group, and changes it
//   --devices on                  tensors are on devices in every run
//   --plant BUG                    with a planted bug (kPlants): succeeds at the first seed in
//                                  which the checker finds it by the promise that it breaks; with
//                                  --seed it only adds the bug
// At the end it prints the faults by kind, and, except with --seed or --sweep, which transitions
// of the cores' tables were taken. The exit status is 1 if a promise was broken (or, for a hunt
// with --plant, if none was), or if a seed hangs.
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "tests/sim/driver.h"
#include "tests/sim/scenario.h"

namespace {

using pccl::sim::Bug;
using pccl::sim::Coverage;
using pccl::sim::RunOptions;
using pccl::sim::RunReport;

struct Plant {
  const char* name;
  Bug bug;
  const char* breaks;
  enum class Needs : uint8_t { kNothing, kLiar, kReconfigures } needs = Needs::kNothing;
};
constexpr Plant kPlants[] = {
    {"early-commit", Bug::kEarlyCommit, "P1"},
    {"no-restore", Bug::kNoRestore, "P2"},
    {"foreign-size", Bug::kForeignSize, "P3"},
    {"never-absent", Bug::kNeverAbsent, "P3"},
    {"lost-answer", Bug::kLostAnswer, "P4"},
    {"told-too-early", Bug::kToldTooEarly, "P6"},
    {"any-run", Bug::kAnyRun, "P5"},
    {"no-forget", Bug::kNoForget, "P4"},
    {"hasty-end", Bug::kHastyEnd, "P1"},
    {"hidden-return", Bug::kHiddenReturn, "P1", Plant::Needs::kLiar},
    {"unasked", Bug::kUnasked, "P1", Plant::Needs::kLiar},
    {"unbound", Bug::kUnbound, "P1", Plant::Needs::kLiar},
    {"any-decision", Bug::kAnyDecision, "P1", Plant::Needs::kLiar},
    {"few-founders", Bug::kFewFounders, "P1", Plant::Needs::kReconfigures},
    {"no-invitation", Bug::kNoInvitation, "P4", Plant::Needs::kReconfigures}};

const Plant* find_plant(const std::string& name) {
  for (const Plant& plant : kPlants) {
    if (name == plant.name) return &plant;
  }
  return nullptr;
}

// A seed takes milliseconds. A rough seed under a sanitizer takes seconds. This is CPU time, since
// a simulation never waits: a machine that is busy, or a process that is stopped, is no hang.
constexpr int kSeedSecondsMax = 120;
char g_hang[80];  // message for a seed that hangs; a signal handler cannot format it

void end_hanging(int) {
  // A failed write cannot be handled in a process that ends.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, g_hang, std::strlen(g_hang));
  _exit(1);
}

void watch(int seconds) {
  const itimerval time{.it_interval = {}, .it_value = {.tv_sec = seconds, .tv_usec = 0}};
  setitimer(ITIMER_PROF, &time, nullptr);
}

// An endless loop counts as a failure and prints its seed, as a broken promise does.
RunReport run_watched(const RunOptions& options) {
  std::snprintf(g_hang, sizeof g_hang, "--seed %llu is not done after %d s of CPU time\n",
                static_cast<unsigned long long>(options.seed), kSeedSecondsMax);
  watch(kSeedSecondsMax);
  RunReport report = pccl::sim::run_seed(options);
  watch(0);
  return report;
}

struct Totals {
  uint64_t runs = 0, steps = 0, outcomes = 0, turns = 0, mistakes = 0, late = 0, failed = 0,
           reconfigures = 0;
  std::map<std::string, uint64_t> faults;
  double virtual_seconds = 0;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Most runs of a campaign are long and rough. Some have their faults close together, others have
// them far apart and in three bursts.
void shape(RunOptions& options) {
  const uint64_t kind = options.seed % 10;
  options.bursts = kind < 7 ? 2 : kind < 9 ? 1 : 3;
  options.faults_max = kind < 7 ? 150 : kind < 9 ? 12 : 60;
  options.pause_max = std::chrono::milliseconds(kind < 7 ? 500 : kind < 9 ? 250 : 2000);
}

void add(Totals& totals, const RunOptions& options, const RunReport& report) {
  ++totals.runs;
  totals.steps += report.steps;
  for (const auto& [kind, count] : report.faults) totals.faults[kind] += count;
  totals.outcomes += report.outcomes;
  totals.turns += report.turns;
  totals.mistakes += report.mistakes;
  totals.late += report.late;
  totals.reconfigures += report.reconfigures;
  totals.virtual_seconds += pccl::to_seconds(report.virtual_time);
  if (report.violations.empty()) return;
  ++totals.failed;
  std::printf("%s broke a promise:\n", pccl::sim::repeat_text(options).c_str());
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

int summary(const Totals& totals, double wall) {
  uint64_t faults = 0;
  for (const auto& [kind, count] : totals.faults) {
    faults += count;
    std::printf("  %8llu  %s\n", static_cast<unsigned long long>(count), kind.c_str());
  }
  std::printf(
      "%llu runs, %llu steps, %llu faults, %llu outcomes compared, %llu turns, %llu "
      "mistakes of newcomers, %llu late peers and %llu reconfigures looked at; %.1f seeds/s, %.2f "
      "virtual hours per minute\n",
      static_cast<unsigned long long>(totals.runs), static_cast<unsigned long long>(totals.steps),
      static_cast<unsigned long long>(faults), static_cast<unsigned long long>(totals.outcomes),
      static_cast<unsigned long long>(totals.turns),
      static_cast<unsigned long long>(totals.mistakes),
      static_cast<unsigned long long>(totals.late),
      static_cast<unsigned long long>(totals.reconfigures), static_cast<double>(totals.runs) / wall,
      totals.virtual_seconds / 60 / wall);
  std::printf("%llu passed, %llu failed\n",
              static_cast<unsigned long long>(totals.runs - totals.failed),
              static_cast<unsigned long long>(totals.failed));
  return totals.failed > 0 ? 1 : 0;
}

// Returns 0 and prints the first seed in which a violation of the broken promise is found, else 1.
int hunt(const Plant& plant, Coverage& coverage, uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    RunOptions options;
    options.seed = seed;
    options.plant = plant.bug;
    if (plant.needs == Plant::Needs::kLiar) options.insider = RunOptions::Insider::kAlone;
    options.reconfigures = plant.needs == Plant::Needs::kReconfigures;
    options.coverage = &coverage;
    for (const std::string& violation : run_watched(options).violations) {
      if (violation.find(plant.breaks) == std::string::npos) continue;
      std::printf("planted bug %s: found in seed %llu, the %llu. of %llu:\n  %s\n", plant.name,
                  static_cast<unsigned long long>(seed),
                  static_cast<unsigned long long>(seed - first + 1),
                  static_cast<unsigned long long>(count), violation.c_str());
      return 0;
    }
  }
  std::printf("planted bug %s: not found in %llu seeds\n", plant.name,
              static_cast<unsigned long long>(count));
  return 1;
}

int sweep_states(uint64_t peers) {
  uint64_t runs = 0, completed = 0;
  const auto wrong = pccl::sim::sweep_states(static_cast<uint32_t>(peers), runs, completed);
  for (const std::string& why : wrong) std::printf("%s\n", why.c_str());
  std::printf("%llu runs, in %llu of them receivers completed each other, %zu failed\n",
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(completed),
              wrong.size());
  return wrong.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
#ifdef _OPENMP
  omp_set_num_threads(1);  // a run uses one thread; a team would only wait for it
#endif
  std::signal(SIGPROF, end_hanging);
  auto given = arguments(argc, argv);
  if (!given || given->empty()) {
    std::fprintf(stderr,
                 "usage: pccl-sim --seed N | --seeds COUNT | --minutes M | --campaign COUNT | "
                 "--sweep COUNT | --states PEERS  [--first N] "
                 "[--bursts COUNT] [--faults MOST] [--pause SECONDS] [--kill-at STEP] [--devices "
                 "on] [--reconfigures on] [--insider alone|faults] [--plant BUG]\n");
    return 2;
  }
  if (given->contains("states"))
    return sweep_states(std::strtoul((*given)["states"].c_str(), nullptr, 10));
  const Plant* const plant = given->contains("plant") ? find_plant((*given)["plant"]) : nullptr;
  if (given->contains("plant") && plant == nullptr) {
    std::fprintf(stderr, "pccl-sim: --plant is one of");
    for (const Plant& known : kPlants) std::fprintf(stderr, " %s", known.name);
    std::fprintf(stderr, "\n");
    return 2;
  }
  using Insider = RunOptions::Insider;
  const std::string lies = given->contains("insider") ? (*given)["insider"] : "";
  const Insider insider = lies == "alone"    ? Insider::kAlone
                          : lies == "faults" ? Insider::kAmongFaults
                                             : Insider::kNone;
  if (!lies.empty() && insider == Insider::kNone) {
    std::fprintf(stderr, "pccl-sim: --insider is alone or faults\n");
    return 2;
  }
  const auto number = [&](const char* name, double otherwise) {
    const auto found = given->find(name);
    return found == given->end() ? otherwise : std::strtod(found->second.c_str(), nullptr);
  };
  const bool one = given->contains("seed"), sweep = given->contains("sweep");
  const bool campaign = given->contains("campaign");
  Coverage coverage;
  const auto start = std::chrono::steady_clock::now();
  const double seconds_max = number("minutes", 0) * 60;
  const auto first = static_cast<uint64_t>(one ? number("seed", 1) : number("first", 1));
  const char* const count_text = sweep ? "sweep" : campaign ? "campaign" : "seeds";
  const auto count = static_cast<uint64_t>(one ? 1 : number(count_text, 0));
  if (plant != nullptr && !one) return hunt(*plant, coverage, first, count);
  Totals totals;
  for (uint64_t i = 0; seconds_max > 0 ? seconds_since(start) < seconds_max : i < count; ++i) {
    RunOptions options;
    options.seed = first + i;
    options.coverage = &coverage;
    if (plant != nullptr) options.plant = plant->bug;
    options.devices = given->contains("devices");
    // In a mixture, the application changes its groups in every fifth run.
    const bool mixed = (campaign || seconds_max > 0) && insider == Insider::kNone;
    options.reconfigures = given->contains("reconfigures") || (mixed && options.seed % 5 == 0);
    options.insider = insider;
    options.bursts = static_cast<uint64_t>(number("bursts", 1));
    options.faults_max = static_cast<uint64_t>(number("faults", 12));
    options.pause_max = std::chrono::nanoseconds(static_cast<int64_t>(number("pause", 2) * 1e9));
    if (campaign) shape(options);
    if (one)
      options.transcript = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
    if (one) options.kill_at_step = static_cast<int64_t>(number("kill-at", -1));
    if (sweep) options.kill_at_step = static_cast<int64_t>(i);
    add(totals, options, run_watched(options));
  }
  if (!one && !sweep) std::printf("%s", coverage.report().c_str());
  const int broken = summary(totals, seconds_since(start));
  return campaign && !coverage.complete() ? 1 : broken;
}
