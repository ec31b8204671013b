// Processes: simulated processes with reconfigurable groups, one on each machine. Each has the
// shipped Rendezvous of its master, hosts runs, and is a member of one run at most, apart from runs
// that it leaves. Its calls of reconfigure go the way of csrc/torch/reconfiguration.cc. The owner
// causes the calls and the faults.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "master/runs/rendezvous.h"
#include "tests/sim/hosted_run.h"

namespace pccl::sim {

using Handles = std::vector<protocol::ReconfigureHandle>;
struct Process;

// One reconfigure, as the application wants it: these processes call it.
struct Attempt {
  enum class Outcome : uint8_t { kSucceeded, kFailed, kNotCalled, kDied };
  int64_t uuid = 0;
  std::vector<Process*> listed;  // in the order of the ranks
  Handles handles;
  bool may_fail = false;             // for another reason than a fault that touches a process
  std::set<const Process*> touched;  // a fault may have cost the process its part
  bool only_losses = true;           // these faults were the ends of processes
  Instant last_event{};              // the last call, or fault
  HostedRun* run = nullptr;
  std::map<const Process*, Outcome> outcomes;
  // The listed process of this machine, which another one may have replaced there; null: none.
  const Process* listed_at(size_t machine) const;
  bool over() const { return outcomes.size() == listed.size(); }
  bool succeeded(const Process& process) const;
};

struct Process {
  struct Call {
    std::shared_ptr<Attempt> attempt;
    std::vector<std::string> met;  // the groups of its list
    PeerNode* peer = nullptr;
    HostedRun* run = nullptr;
    Instant until{};
    std::optional<Status> over;  // its master ends the call, for this reason
    bool interrupted = false;    // abort() ends the call
    bool known = false;          // to the rendezvous
    bool ended = false;          // its peer has joined, or has failed to
    bool regroups = false;       // the peer of its group asks the host for new ranks
  };
  std::string name;
  size_t machine = 0;
  std::string group;
  uint64_t generation = 1;
  bool alive = true, stopped = false;
  uint64_t stops = 0;
  Instant went_on{};
  std::deque<std::function<void()>> backlog;  // while it is stopped
  master::Rendezvous meets;
  uint64_t timer = 0;
  std::set<std::pair<std::string, int64_t>> used;  // the group of the host, and the uuid
  std::shared_ptr<Call> call;                      // null: none is under way
  PeerNode* peer = nullptr;                        // of its group; null: it has no members yet
  HostedRun* run = nullptr;                        // of its group
  std::vector<std::string> met;                    // as Reconfiguration::met_
};

class Processes {
 public:
  Processes(EventLoop& clock, uint64_t seed, WorldOptions options,
            const protocol::RunSettings& settings);

  // A new process on a new machine, or on the machine of a process that is dead.
  Process& add(const Process* after = nullptr);
  const std::vector<std::unique_ptr<Process>>& all() const { return all_; }
  std::vector<Process*> alive() const;
  std::deque<HostedRun>& runs() { return runs_; }
  uint64_t regroups() const { return regroups_; }  // calls that kept their run

  // ---- Calls ----
  static protocol::ReconfigureHandle handle(const Process& process);
  void open(const std::shared_ptr<Attempt>& attempt);  // before its calls
  // `handles`: those of the attempt, unless the process is wrong.
  void call(Process& process, const std::shared_ptr<Attempt>& attempt, const Handles& handles,
            Duration timeout);
  void skip_call(Process& process, const std::shared_ptr<Attempt>& attempt);
  void interrupt(Process& process);  // abort(). REQUIRES: a call is under way.

  // ---- Faults ----
  void kill(Process& process);
  void stop(Process& process);
  void go_on(Process& process);
  // Nothing passes between the two machines. Returns what ends this.
  std::function<void()> cut(Process& a, Process& b);
  bool is_cut(const Process& a, const Process& b) const;
  // A fault touches this process: in all attempts that are under way.
  void touch(const Process& process, bool kills = false);

  std::function<void(const std::string& who, const std::string& what)> on_note;
  std::function<void(const std::string&)> on_violation;
  std::function<void(const Attempt&)> on_over;  // all its calls have ended

 private:
  struct Invitation {
    Process* from = nullptr;
    Process* to = nullptr;
    uint32_t rank = 0;
  };
  struct Door {  // a connection at the master of a hosted run
    HostedRun* run = nullptr;
    master::ConnectionId id;  // in its World
    bool waits = true;
    std::optional<int64_t> offers = {};  // the uuid of the reconfigure that this member has called
  };
  struct Cut {
    size_t a = 0, b = 0;  // machines
    std::vector<std::function<void()>> lifts;
  };

  void note(const Process& process, const std::string& what) const;
  Process* at(const Endpoint& endpoint) const;  // who lives there; null: nobody
  static void run(Process& process, std::function<void()> what);
  void later(Process& process, std::function<void()> what);
  void send(const Process& from, Process& to, std::function<void()> what);
  bool hears(const Process& from, const Process& to) const;

  void arrive(HostedRun& run, master::ConnectionId id, const protocol::Hello& hello);
  void closed(const HostedRun& run, master::ConnectionId id);
  void keep_pinging(uint64_t door);
  uint64_t door_of(const HostedRun& run, master::ConnectionId id) const;  // 0: none
  void offer(HostedRun& run, master::ConnectionId id, uint32_t rank,
             const protocol::Regroup& message);
  static bool may_regroup(const Process& process, const Handles& handles);
  bool regroup(Process& process, const std::shared_ptr<Process::Call>& call,
               const protocol::Rendezvous& seen, Duration timeout);
  HostedRun& run_of(const Attempt& attempt, const protocol::ReconfigureHandle& host);
  void join(Process& process, const std::shared_ptr<Process::Call>& call,
            const protocol::Rendezvous& seen, Duration timeout);
  void end_call(Process& process, const std::shared_ptr<Process::Call>& call, const Status& joined);
  void give_up_soon(Process& process);
  void end_in_time(Process& process, const std::shared_ptr<Process::Call>& call, Instant limit);
  void record(const Process& process, Attempt& attempt, Attempt::Outcome outcome);

  void carry_out(Process& process, const master::Rendezvous::Decisions& decisions);
  void carry_out(Process& process, const master::Rendezvous::Admit& decision);
  void carry_out(Process& process, const master::Rendezvous::Refuse& decision);
  void carry_out(Process& process, const master::Rendezvous::SendToDoor& decision);
  void carry_out(Process& process, const master::Rendezvous::Regroup& decision);
  void carry_out(Process& process, const master::Rendezvous::End& decision);
  void carry_out(Process& process, const master::Rendezvous::Fail& decision);
  void carry_out(Process& process, const master::Rendezvous::Invite& decision);
  void carry_out(Process& process, const master::Rendezvous::Dismiss& decision);
  void arm(Process& process);
  void unreachable(uint64_t invitation, const std::string& why);
  void withdraw(uint64_t invitation);
  template <typename Affects>
  void lose_invitations(const Affects& affects, const std::string& why);
  static void block(Cut& cut, HostedRun& run, Network::Host from, Network::Host to);
  static void apply(Cut& cut, HostedRun& run, const Process& process, const PeerNode& peer);

  EventLoop& clock_;
  Random random_;
  const uint64_t seed_;
  const WorldOptions options_;
  const protocol::RunSettings settings_;
  std::vector<std::unique_ptr<Process>> all_;
  std::vector<Process*> machines_;  // who lives there; dead ones stay
  std::deque<HostedRun> runs_;
  std::map<std::string, HostedRun*> by_name_;
  std::vector<std::shared_ptr<Attempt>> attempts_;  // under way
  uint64_t connections_ = 0, regroups_ = 0;
  std::map<uint64_t, Invitation> invitations_;
  std::map<uint64_t, Door> doors_;
  std::vector<std::shared_ptr<Cut>> cuts_;
  Network network_;  // between the masters; a host is a machine
};

}  // namespace pccl::sim
