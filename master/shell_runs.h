// ShellRuns: the runs of one master: a MasterCore and a timer for each that lives, the registry
// that says which there may be, and the journal, if there is one. Belongs to the loop, but for
// open(). Runs are made by the first Hello that names them; with a journal they outlive the
// process. The happy path: a connection is attached to its run, every message of it is a step of
// the run's core, and what the core wants is done at once. What can go wrong: there are too many
// runs (refused, or one that has not begun has to go); nobody of a run is left (its line stays).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/net/loop.h"
#include "master/core.h"
#include "master/registry.h"
#include "master/shell.h"
#include "master/shell_journal.h"

namespace pccl::master {

class ShellRuns {
 public:
  struct Run;
  struct Callbacks {
    // A core wants it. close(): after what was sent has left; the shell has to detach() it.
    std::function<void(ConnectionId, const protocol::Message&)> send;
    std::function<void(ConnectionId)> close;
    // Something was stepped from here: finish_turn() is due.
    std::function<void()> on_stepped;
  };
  // `keep_days`: how long a finished run is remembered.
  ShellRuns(net::Loop& loop, bool loopback_only, int keep_days,
            const protocol::VersionRange& versions, Callbacks callbacks);
  ~ShellRuns();

  // Any thread, once, before the rest. kSystem or kInvalidArgument as of Shell::open().
  Status open(const Remembering& remembering);

  // The run that a connection introduces itself to. Or why not. REQUIRES: a version in common.
  struct Found {
    Run* run = nullptr;  // unless it is rejected
    std::optional<protocol::Reject> rejected;
  };
  Found admit(const protocol::Hello& hello, const std::string& host);
  Found find(const protocol::Resume& resume);
  static uint64_t id(const Run& run);

  // A connection becomes one of the run. `first` is what it said.
  void attach(Run& run, const Accepted& accepted, const protocol::Message& first);
  void detach(Run& run);  // it is none of the run any more
  void step(Run& run, const Event& event);

  // At the end of every turn of the loop in which something was stepped.
  void finish_turn();
  // Peers are asked to confirm that all has arrived; whether they have.
  void drain();
  bool settled() const;

  // ---- For the operator ----
  std::map<std::string, Registry::Listed> list() const;
  // Forgets a run for the operator, or returns a sentence that says why it cannot.
  std::variant<Registry::Forget, std::string> forget(const std::string& run);

 private:
  void restore(const Memory& memory);
  // Any thread. On this loop, unless this object is gone by then.
  void later(std::function<void()> what);
  Run& make(const std::string& name, const RunRecord& remembered);
  Run& begin(const std::string& name, const Registry::Admission& admission, uint16_t version);
  void write(const Run& run, Entry entry, std::function<void(Run&)> then);
  void journalled(Entry entry);
  void step_once(Run& run, const Event& event);
  void perform(Run& run, const Effect& effect);
  void carry_out(const std::vector<Registry::Decision>& decisions);
  void end(const std::string& name, const std::string& why);
  void log_forgotten(const Registry::Forget& forgotten) const;
  void finish(const std::string& name);
  void on_time(const std::string& name);
  void look_at_clock();

  net::Loop& loop_;
  const bool loopback_only_;
  const protocol::VersionRange versions_;
  const Callbacks callbacks_;
  uint32_t incarnation_;
  const std::shared_ptr<int> here_ = std::make_shared<int>();  // ends with this object
  std::unique_ptr<JournalFile> journal_;                       // null: the master forgets
  Registry registry_;
  std::map<std::string, std::unique_ptr<Run>> runs_;
  std::vector<std::string> idle_;  // names of runs that may be over at the end of this turn
  std::unique_ptr<net::Timer> timer_;
};

}  // namespace pccl::master
