// Rendezvous: where the processes of a reconfigure meet. Each process with reconfigurable groups
// has a master. A reconfigure lists one handle per rank, and all listed processes go to the master
// of the first one, with a Hello that has the same list. The master lets them into a new run, whose
// founders they are, as soon as its own process has called this reconfigure.
//   idle       no call of the group is under way: whoever comes waits
//   hosting    the own process has called, and it is the first in its list: the listed peers come
//   elsewhere  the own process has called, and it goes to the master of another process
// If all listed processes are members of the run that this process hosts already, they come over
// their open connections (Regroup), and the run goes on with them alone. No link is made anew. As
// soon as one of them comes with a Hello, the others have to come in the same way.
// The host also invites the listed processes: its master connects to theirs. So it learns at once
// if a process is gone that has not come yet, or if its call has ended, and why. If all may come
// over their open connections, the invitations follow only if somebody is missing for kPatience.
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
  static constexpr Duration kPatience = std::chrono::milliseconds(100);

  struct Call {
    int64_t uuid = 0;
    std::vector<protocol::ReconfigureHandle> handles;  // in the order of the ranks
    uint32_t rank = 0;                                 // of this process
    Instant until{};                                   // the caller waits so long
    Duration silence{};  // a process that sends nothing for this time is lost
    Instant since{};
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
  // This member has to come with a Hello.
  struct SendToDoor {
    ConnectionId connection;
  };
  // The run goes on with these members, in the order of the ranks. regrouped() has to follow.
  struct Regroup {
    std::string run;
    int64_t uuid = 0;
    std::vector<ConnectionId> members;
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
  using Decision = std::variant<Admit, Refuse, SendToDoor, Regroup, End, Fail, Invite, Dismiss>;
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
  // A member of this run has called a reconfigure. `rank`: its present rank there.
  Decisions offer(ConnectionId connection, const std::string& run, uint32_t rank,
                  const protocol::Rendezvous& seen, Instant until);
  Decisions closed(ConnectionId connection);
  Decisions begun(const std::string& run);  // all its founders are members
  // The answer to Regroup. `begun`: its members have their new ranks.
  void regrouped(const std::string& run, bool begun);

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
    std::string run = {};  // it has come by offer(), as a member of this run; empty: by arrive()
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
    std::map<uint32_t, ConnectionId> offered;   // by rank; only if hosting, and all may come so
    bool regroups = false;                      // all listed processes may come by offer()
    std::set<uint32_t> invited;                 // by rank; only if hosting
    std::optional<Instant> invites_at;          // the invitations have not left yet
    std::set<uint32_t> lost;  // of the invited: its connection has closed, its master knows why
    bool has_begun = false;   // the run of the call, if hosting
    std::optional<protocol::Reject> ended;  // why the call was ended here
    std::set<int64_t> used;                 // of the calls whose host it was
    std::string run;                        // the last one that it has hosted
    std::vector<std::string> members;       // its members by their groups; empty: not known
    std::vector<std::string> regrouping;    // likewise, once the Regroup that is under way is over
    // Why peers that come late are refused: the last calls that failed, and those that a peer has
    // refused before the process of this master has called them.
    std::deque<Reason> reasons;
    std::map<ConnectionId, Waiting> waiting;
    std::map<ConnectionId, Waiting> invitations;  // of other masters to this group
  };
  static bool gathers(const Group& group);  // it hosts a call whose fate is open
  static bool may_regroup(const Group& group);
  static bool has_come(const Group& group, uint32_t rank);
  static void take(Group& group, uint32_t rank, ConnectionId connection, Decisions& out);
  static void send_to_door(const std::string& name, Group& group, Decisions& out);
  void lose(const std::string& name, Group& group, uint32_t rank, Decisions& out);
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
