// Runs: the runs of one master: a MasterCore and a timer for each living run, the registry that
// limits them, and the journal, if there is one. The Shell owns it. All methods but open() run on
// the loop. The first Hello that names a run creates it; with a journal, runs outlive the process.
// Normal case: a connection is attached to its run. Every message of it is a step of the run's
// core, and the core's effects are performed at once.
// Failures: if there are too many runs, the new one is refused or a run that has not begun is
// ended. If a run has no peers left, its line stays.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/net/loop.h"
#include "master/core.h"
#include "master/operator/snapshot.h"
#include "master/runs/keyring.h"
#include "master/runs/registry.h"
#include "master/shell/journal_file.h"
#include "master/shell/notifier.h"
#include "master/shell/shell.h"

namespace pccl::master {

// Returns `events` without the events of connections that have closed by now. The core has received
// none of these events, and would answer a closed connection.
std::deque<Event> of_open_connections(std::deque<Event> events);

class Runs {
 public:
  struct Run;
  struct Callbacks {
    // The effects of a core. close(): the shell calls detach() at once. It closes the connection
    // after all sent messages have left.
    std::function<void(ConnectionId, const protocol::Message&)> send;
    std::function<void(ConnectionId)> close;
    // This object has stepped a run by itself: finish_turn() is due.
    std::function<void()> on_stepped;
    // The run has its first members. It may be empty.
    std::function<void(const std::string& run)> on_founded = {};
    // The answer to regroup(). `begun`: its members have their new ranks.
    std::function<void(const std::string& run, bool begun)> on_regrouped = {};
  };
  // `secured`: every run gets a seed for the keys of its links. `keep_days`: a finished run is
  // forgotten after this number of days.
  Runs(net::Loop& loop, bool loopback_only, bool secured, int keep_days,
       const protocol::VersionRange& versions, Callbacks callbacks);
  ~Runs();

  // Before open(): shares of the direct pattern in all runs, as in master::Options.
  void set_shares(std::vector<uint16_t> shares) { shares_ = std::move(shares); }
  // Rank 0 hosts the runs that begin from now on: they are of fixed worlds.
  void set_fixed_worlds() { fixed_worlds_ = true; }
  // Any thread, once, before all other calls. Fails like Shell::open().
  Status open(const Remembering& remembering);
  // The summary of the journal at open() (summary.h). It does not change later.
  const std::vector<std::string>& remembered() const { return remembered_; }

  // The run that a connection's first message names, or the refusal. REQUIRES: a version in common.
  struct Found {
    Run* run = nullptr;  // null if rejected
    std::optional<protocol::Reject> rejected;
  };
  Found admit(const protocol::Hello& hello, const std::string& host);
  Found find(const protocol::Resume& resume);
  static uint64_t id(const Run& run);
  static const std::string& name(const Run& run);
  // The rank of the member on this connection; nothing if there is none.
  static std::optional<uint32_t> rank_of(const Run& run, ConnectionId id);

  // Adds a connection to the run. `first`: its first message.
  void attach(Run& run, const Accepted& accepted, const protocol::Message& first);
  void detach(Run& run);  // removes a connection from the run
  void step(Run& run, const Event& event);
  void regroup(const std::string& name, const RegroupAgreed& agreed);  // REQUIRES: it lives
  // Ends a run, if it lives. Its peers get the reason.
  void end(const std::string& name, const std::string& why);
  // Removes the peers that have proven these tokens, and returns their number.
  size_t revoke(const std::set<TokenId>& tokens);

  // Must be called at the end of every turn of the loop that has stepped a core.
  void finish_turn();
  // The host of the run leaves it soon. drain() ends the run and asks its peers to confirm all
  // messages. Call it again after each turn. settled() returns true when the peers have confirmed
  // and are dismissed, or if there is no such run.
  void drain(const std::string& name);
  bool settled(const std::string& name) const;
  // The process that hosts the run wants to exit. may_exit() returns whether it may; true if there
  // is no such run.
  void host_exits(const std::string& name, Duration patience);
  bool may_exit(const std::string& name) const;
  std::string awaited_peers(const std::string& name) const;  // for people
  bool lives(const std::string& name) const { return runs_.contains(name); }

  // ---- For the operator ----
  std::map<std::string, Registry::Listed> list() const;
  // Forgets a run for the operator, or returns the reason why it cannot, as a sentence.
  std::variant<Registry::Forget, std::string> forget(const std::string& run);
  // A snapshot of a run (operator/snapshot.h); nothing if it does not live.
  std::optional<nlohmann::json> snapshot_of(const std::string& name,
                                            Detail detail = Detail::kPresent);
  // The numbers of all living runs (operator/metrics.h). A reader of them counts as a watcher.
  std::string metrics();
  // From now on, findings that stand are logged, and a command runs for them. Once.
  void notify(const Notifier::Options& to);
  // False once the journal could not be written: the master is about to end.
  bool journal_works() const { return !journal_failed_; }
  // A peer was refused, because it speaks no version that this master speaks. Its run is not known.
  // So the diagnosis gets it only if one run lives.
  void turned_away(const std::string& host, const protocol::Reject& reject);

 private:
  void restore(const Memory& memory);
  // Any thread. Runs `what` on this loop, unless this object is gone by then.
  void later(std::function<void()> what);
  Run& make(const std::string& name, const RunRecord& remembered);
  Run& begin(const std::string& name, const Registry::Admission& admission, uint16_t version);
  std::function<void()> on_loop(const Run& run, std::function<void(Run&)> then);
  void write(const Run& run, Entry entry, std::function<void(Run&)> then);
  void journalled(Entry entry);
  void step_once(Run& run, const Event& event);
  void apply(Run& run, const Send& effect);
  void apply(Run& run, const Close& effect);
  void apply(Run& run, const Persist& effect);
  void apply(Run& run, const PlanRing& effect);
  void apply(Run& run, const Log& effect);
  void apply(Run& run, const RegroupOver& effect) {
    callbacks_.on_regrouped(name(run), effect.begun);
  }
  FindingsByRun findings();  // of all runs that live, as of now
  void carry_out(const std::vector<Registry::Decision>& decisions);
  void log_forgotten(const Registry::Forget& forgotten) const;
  void finish(const std::string& name);
  void on_time(const std::string& name);
  void look_at_clock();

  net::Loop& loop_;
  const bool loopback_only_;
  const bool secured_;
  const protocol::VersionRange versions_;
  std::vector<uint16_t> shares_;
  bool fixed_worlds_ = false;
  const Callbacks callbacks_;
  uint32_t incarnation_;
  const std::shared_ptr<int> here_ = std::make_shared<int>();  // expires with this object
  std::unique_ptr<net::Loop> planner_;                         // from the first search on
  std::atomic<bool> journal_failed_{false};                    // its thread sets it
  std::unique_ptr<JournalFile> journal_;                       // null: the master forgets
  std::vector<std::string> remembered_;
  Registry registry_;
  std::map<std::string, std::unique_ptr<Run>> runs_;
  std::vector<std::string> idle_;  // names of runs that may be over at the end of this turn
  std::unique_ptr<net::Timer> timer_;
  std::unique_ptr<Notifier> notifier_;
};

}  // namespace pccl::master
