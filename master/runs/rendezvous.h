// Rendezvous: where the processes of a reconfigure meet. Each process with reconfigurable groups
// has a master. A reconfigure lists one handle per rank, and all listed processes go to the master
// of the first one, with a Hello that has the same list. The master lets them into a new run, whose
// founders they are, as soon as its own process has called this reconfigure.
//   idle       no call of the group is under way: whoever comes waits
//   hosting    the own process has called, and it is the first in its list: the listed peers come
//   elsewhere  the own process has called, and it goes to the master of another process
// The host also invites the listed processes: its master connects to theirs. So it learns at once
// if a process is gone that has not come yet, or if its call has ended, and why.
// Laws:
// 1. Until the run has begun, it begins for all listed peers or ends for all: one of them is lost,
//    refuses, calls another reconfigure, or does not come in time.
// 2. If two listed processes have different lists for one uuid, and one of them comes to the master
//    of the other or is invited by it, both calls end, and the reason names the difference.
//    A process that the own list lacks ends nothing, and learns nothing of the call.
// 3. A uuid serves one call that goes to the same process. A handle serves until its call is over.
// It is pure: the Shell owns it, and carries out its decisions in their order.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/protocol/messages.h"
#include "master/events.h"

namespace pccl::master {

class Rendezvous {
 public:
  enum class Phase : uint8_t { kIdle, kHosting, kElsewhere };

  struct Call {
    int64_t uuid = 0;
    std::vector<protocol::ReconfigureHandle> handles;  // in the order of the ranks
    uint32_t rank = 0;                                 // of this process
    Instant until{};                                   // the caller waits so long
    Duration silence{};  // a process that sends nothing for this time is lost
  };

  // ---- Decisions ----
  struct Admit {
    ConnectionId connection;
    std::string run;
  };
  struct Refuse {
    ConnectionId connection;
    protocol::Reject why;
  };
  // The run ends before it has begun: its peers get the reason.
  struct End {
    std::string run;
    protocol::Reject why;
  };
  // The call of the own process ends. Its peer is on its way to the master of another process.
  struct Fail {
    std::string group;
    protocol::Reject why;
  };
  // Invites a process: `seen` has its rank, and is for its master.
  struct Invite {
    std::string group;  // of the own process
    protocol::Rendezvous seen;
    Instant until{};
    Duration silence{};
  };
  // The invitations of this group have served.
  struct Dismiss {
    std::string group;
  };
  using Decision = std::variant<Admit, Refuse, End, Fail, Invite, Dismiss>;
  using Decisions = std::vector<Decision>;

  static std::string run_name(const std::string& group, int64_t uuid);
  static bool is_run_name(const std::string& run);

  // ---- The own process ----
  void open(const std::string& group);  // REQUIRES: not open
  Decisions close(const std::string& group);
  // REQUIRES: no call of the group is under way, no call to the same process had this uuid, and the
  // handles are different ones.
  Decisions call(const std::string& group, Call call);
  // The call has returned: its handle is used up. `failed`: why; none: it has succeeded.
  // REQUIRES: there was one.
  Decisions over(const std::string& group, const std::optional<protocol::Reject>& failed);

  // ---- Peers ----
  Decisions arrive(ConnectionId connection, const protocol::Rendezvous& seen, Instant until);
  Decisions closed(ConnectionId connection);
  Decisions begun(const std::string& run);  // all its founders are members

  // ---- Invitations that this group has sent ----
  // The process refuses, or its call has ended.
  Decisions declined(const std::string& group, uint32_t rank, const protocol::Reject& why);
  // Its master cannot be reached, or is lost.
  Decisions unreachable(const std::string& group, uint32_t rank, const Status& why);

  Decisions expire(Instant now);
  std::optional<Instant> deadline() const;
  void check() const;  // asserts the invariants

 private:
  struct Waiting {
    protocol::Rendezvous seen;
    Instant until{};
  };
  struct Reason {
    int64_t uuid = 0;
    std::optional<protocol::ReconfigureHandle> refuser = {};  // it counts only in a list with it
    protocol::Reject why;
  };
  struct Group {
    Phase phase = Phase::kIdle;
    uint64_t generation = 1;
    Call call;                                  // not if idle
    std::map<uint32_t, ConnectionId> admitted;  // by rank; only if hosting
    std::set<uint32_t> invited;                 // by rank; only if hosting
    std::set<uint32_t> lost;  // of the invited: its connection has closed, its master knows why
    bool has_begun = false;   // the run of the call, if hosting
    std::optional<protocol::Reject> ended;  // why the call was ended here
    std::set<int64_t> used;                 // of the calls whose host it was
    // Why peers that come late are refused: the last calls that failed, and those that a peer has
    // refused before the process of this master has called them.
    std::deque<Reason> reasons;
    std::map<ConnectionId, Waiting> waiting;
    std::map<ConnectionId, Waiting> invitations;  // of other masters to this group
  };
  static bool gathers(const Group& group);  // it hosts a call whose fate is open
  static void invite(const std::string& name, Group& group, Decisions& out);
  void hear(const std::string& name, Group& group, ConnectionId connection, Waiting waiting,
            Decisions& out);
  static void answer_invitations(Group& group, const protocol::Reject& failed, Decisions& out);
  void meet(const std::string& name, Group& group, ConnectionId connection, Waiting waiting,
            Decisions& out);
  void end(const std::string& name, Group& group, Code code, const std::string& why,
           Decisions& out);
  static void wait(Group& group, ConnectionId connection, Waiting waiting, Decisions& out);
  void look_again(const std::string& name, Group& group, Decisions& out);
  static void remember(Group& group, Reason reason);
  // Nullptr if nothing speaks against this call of a process with these handles.
  static const protocol::Reject* reason(const Group& group, int64_t uuid,
                                        const std::vector<protocol::ReconfigureHandle>& handles);
  static std::optional<protocol::Reject> refused(const Group& group,
                                                 const protocol::Rendezvous& seen);
  static void step(Group& group, Phase to);

  std::map<std::string, Group> groups_;
};

const char* text(Rendezvous::Phase phase);

}  // namespace pccl::master
