// Scenario: runs a short story in text over the simulated network with fixed delays, and returns
// its transcript. A file holds blocks:
//
//   # a comment
//   join a b c; all_reduce tag=7 count=100000; run 3; kill c; settle
//   ----
//   [  35] master > peer 1.3 (rank 2, ...) lost: ...
//
// Commands (separated by ';' or line ends):
//   secured              first, on a line of its own: links need keys, and each peer has a token
//   elsewhere            likewise: the master is on another machine than the peers
//   fixed                likewise: rank 0 hosts the run of a fixed world
//   far [us=N]           links that are made from now on have this RTT in microseconds
//   join NAMES... [min_peers=N] [founders=N] [policy=retry|raise] [group=N]
//        [lowest=N] [highest=N] [state=BYTES] [pattern=direct]
//        [call_timeout=MS]
//       processes start; the first `join` of a group sets its min_peers to its number of names;
//       policy, pattern, call_timeout: settings of the run, which it gives (none: it leaves it out)
//       lowest, highest: how many versions of the protocol above those of this build they speak
//   all_reduce|broadcast|all_gather|barrier [tag=T] [count=N] [root=R] [timeout=MS] [on=a,b]
//        [on_loss=keep]
//   send|recv root=R on=NAME [tag=T] [count=N] [timeout=MS]
//       to rank R, from rank R
//   update_topology|are_peers_pending [timeout=MS] [on=a,b]
//   optimize_topology [budget=MS] [max_bytes=N] [timeout=MS] [on=a,b]
//   sync [revision=R] [fill=N] [shape=N] [strategy=S] [timeout=MS] [missing=1] [room=N] [on=a,b]
//   block_on [tag=T] [joint=1] [limit=1] [busy=N] [callback=1] [on=a,b]
//       a thread waits from now on, until it ends, for its oldest open operation under the tag, or
//       for its joint call; limit: the wait has a time of its own; busy: so many other threads have
//       made calls, and do not wait; callback: a callback of a Future will run
//   state [on=a,b]                         says what its shared state is filled with
//   rank [on=a,b]                          shows its rank and the world size as it sees them
//   kill|stop|go|leave|unreachable|closed NAME    also: kill|start|stop|go|end master
//       stop and go pause and resume a process; end: as the process that hosts it ends
//   hang NAME                              its thread lends and checks no pieces from now on
//   revoke NAME [token=N]                  its tokens are no longer good, or only the Nth
//   renew NAME [as=unknown|another]        its file has another token, which the master does not
//                                          know, or which is the token of somebody else
//   learn NAME                             the master knows all its tokens
//   slow NAME by=MS; jump NAME|master by=MS (its clock)
//   dies NAME after=N                      messages to and from the master, unless it is a member
//   cut NAME                               breaks its master connection
//   half_cut NAME hears=NAME|master        likewise, but only one side notices
//   break NAME NAME                        breaks their link
//   half_break NAME NAME                   likewise, but only the first notices
//   block|lift NAME|master NAME|master     nothing passes between the two, or the block ends
//   block_one_way|lift_one_way NAME NAME   nothing passes from the first to the second
//   narrow NAME NAME to=BYTES              larger packets from the first to the second vanish
//   run MS [us=N]                          lets virtual time pass
//   settle                                 until every call has ended, 60 virtual seconds at most
//   findings                               shows the diagnosis of the run at this time
//   expect WORDS...                        the transcript so far contains this text: the point of
//                                          the story, which a small change of times must not lose
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::sim {

// A transcript with this word fails, and is not written by --update.
inline constexpr const char* kUnmet = "UNMET";

// Runs the commands of one block and returns its transcript, one event per line.
std::string run_scenario(const std::string& commands);

// Runs the commands of one block, and returns the snapshot of the run at their end
// (master/operator/snapshot.h), with what the members have reported by then.
std::string snapshot_after(const std::string& commands);

// Runs sync_shared_state with up to `peers` members: with each set of stale members and each
// strategy of theirs, and a member that dies at one of many moments of the call. Returns what went
// wrong, a line for each run: survivors that do not agree; a state that nobody offered; a call that
// failed though a source was left. `runs`, `completed`: their number; how often receivers have
// completed each other without a source.
std::vector<std::string> sweep_states(uint32_t peers, uint64_t& runs, uint64_t& completed);

}  // namespace pccl::sim
