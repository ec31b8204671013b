// Reconfigures: performs one simulated run, from a seed, of processes whose application decides
// which of them form a group. Reconfigures race with the loss of processes, with each other and
// with restarts, while the members of each group work. Checks, besides those of every Workload:
//   P1  a reconfigure succeeds on all listed processes or on none. If a fault touches a process
//       after the run has begun, the others lose it in its first epoch.
//   P4  a call ends by its timeout, and soon if a process is lost. A reconfigure that no fault
//       touches succeeds. A group whose
//       reconfigure has failed, and one that was left, goes on. After the faults, a reconfigure of
//       all processes succeeds, and each makes progress.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/driver.h"
#include "tests/sim/lasting.h"
#include "tests/sim/process.h"

namespace pccl::sim {

class Reconfigures {
 public:
  explicit Reconfigures(const RunOptions& options);
  RunReport run();
  const EventLoop& clock() const { return clock_; }

 private:
  struct Kind {
    const char* name;
    uint32_t weight;
    bool (Reconfigures::*cause)();  // false: not possible now
  };
  static const std::vector<Kind>& kinds();
  void cause_one();
  // ---- Reconfigures ----
  bool reconfigure();
  bool regroup();
  bool used_uuid();
  bool other_list();
  bool missing_call();
  bool abort_call();
  std::shared_ptr<Attempt> attempt(std::vector<Process*> listed);
  void call_all(const std::shared_ptr<Attempt>& attempt, const Process* silent = nullptr,
                const Handles& others_list = {});
  void judge(const Attempt& attempt);
  // ---- Faults of processes and paths ----
  bool newcomer();
  bool kill();
  bool restart();
  bool stop();
  bool cut_off();
  bool break_link();
  bool half_break_link();
  bool break_master_connection();
  bool link_trouble(bool half);

  void run_for(Duration duration);
  void settle();
  void check_progress(const char* when);
  void violation(const std::string& what) { checker_.violation(what); }
  RunReport report();
  Process* any(const std::function<bool(const Process&)>& fits = {});
  std::vector<Process*> some(size_t least);

  const RunOptions options_;
  EventLoop clock_;
  Checker checker_;
  Random chance_;
  Processes processes_;
  std::map<std::string, uint64_t> caused_;
  Lasting lasting_{clock_};
  uint64_t judged_ = 0;
  int64_t uuid_ = 0;
};

}  // namespace pccl::sim
