// Peer is one process's part in a run: its PeerCore and master connection, and the data plane
// (ring::DataPlane) beside it, all on the peer loop. It is all that csrc/torch needs to know of the
// layers below. All peers of a process may share the loop.
// Threads:
//   - Every method may be called from any thread.
//   - post() never blocks.
//   - join(), joint calls and leave() block their caller, who should hold no lock (nor the GIL).
//     join() and joint calls call `interrupted` every 100 ms, and give up when it returns true.
//   - Joint calls from inside a completion fail with kInvalidState; leave() does nothing there.
//   - A completion is called on the peer loop, once for each posted operation, successful or
//     not, when the caller may use the memory again. It must be short and never block, but it may
//     post.
// Nothing works in a forked child: calls fail with kInvalidState, and the error names the process
// that owns the group.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/memory/device.h"
#include "csrc/net/socket.h"
#include "csrc/peer/events.h"
#include "csrc/peer/shell/state/state_spans.h"
#include "csrc/peer/shell/token_file.h"
#include "csrc/peer/time_account.h"
#include "csrc/ring/data_event.h"
#include "csrc/ring/lent_memory.h"

namespace pccl::ring {
struct PeerThread;
}

namespace pccl::peer {

// How an operation ended.
struct OpResult {
  OpResult(Status how) : status(std::move(how)) {}  // NOLINT(google-explicit-constructor)
  OpResult(Status how, std::vector<Part> over) : status(std::move(how)), parts(std::move(over)) {}
  Status status;
  std::vector<Part> parts;         // of a successful operation with `keep`
  bool ended_before_call = false;  // it was settled for all members before its call here
  int32_t source = -1;             // of a successful receive: the rank of the sender
  Epoch epoch;                     // the epoch in which it ended; none: it has no number
  OpKey op;
};
using Completion = std::function<void(OpResult)>;
using Interrupted = std::function<bool()>;  // may be empty

struct JointResult {
  std::optional<Topology> topology;
  bool pending = false;
  bool elsewhere = false;  // of regroup(): nothing has changed, and the processes found another run
  uint64_t revision = 0, state_hash = 0;
  uint64_t bytes_sent = 0, bytes_received = 0;  // bytes of shared state that this call has moved
  std::vector<AddedEntry> added = {};           // entries that this call has added; see StateSpans
  std::optional<protocol::TopologyPlan> plan = {};  // of optimize_topology
  std::vector<std::string> corrected = {};          // see FinishJoint
  bool drifted = false;
};

// Is called for each piece that was verified; see SyncProgress.
using OnProgress = std::function<void(const SyncProgress&)>;

struct SyncRequest {
  uint64_t revision = 0;
  protocol::SyncStrategy strategy = protocol::SyncStrategy::kEnforcePopular;
  std::shared_ptr<StateSpans> entries;
  Duration timeout{0};
};
// How a sync_shared_state continues in the background. Functions may be empty.
struct InBackground {
  std::shared_ptr<void> keeps = {};  // owns the memory of the entries; kept while that is lent
  // The background thread calls this function once. The function calls `work`, which does all of
  // the thread's work.
  std::function<void(const std::function<void()>& work)> around = {};
  // Called before an entry is overwritten. If it returns an error, no entry is overwritten, and the
  // call ends with this error.
  std::function<Status()> may_install = {};
  std::function<void()> installed = {};  // called when the fetched data is in the entries
};
class SyncCall;
class WaitRecord;

struct OpRecord {    // one of the latest operations, for run_info
  std::string text;  // "all_reduce(sum, float32, 1024 elements, world size 2) (layer.3, #12)"
  std::string outcome;
  uint64_t bytes = 0;         // of one rank's tensor, or of each part of it
  double seconds = 0;         // from the call until its end
  double commit_seconds = 0;  // the part of `seconds` from its end here until its success was known
};

struct Info {
  Topology topology;
  PeerId self;
  std::string run;
  bool broken = false;  // after a loss, until update_topology
  std::string broken_by;
  ring::DataCounters data;
  std::vector<OpRecord> history;
  TimeTotals time;
  Options options;
  protocol::RunSettings settings;
  std::optional<protocol::TopologyPlan>
      plan;  // of the last optimize_topology; none: there was none
};

class Peer {
 public:
  // Connects to the master and waits for admission. Master and peers may start in any order: the
  // peer tries to reach the master for its peer_timeout, with a warning after one second. Sets
  // options.master_text and options.secured. Without `thread`, the peer has a thread of its own.
  static Result<std::unique_ptr<Peer>> join(const net::Endpoint& master, Options options,
                                            link::DriverOptions data,
                                            const Interrupted& interrupted, TokenSource token = {},
                                            std::shared_ptr<ring::PeerThread> thread = {});
  // Leaves the run if that was not done. After that no completion is called any more: open
  // operations have failed.
  ~Peer();

  // The topology that the application sees. It is constant until update_topology() returns. With
  // policy retry, rank() and world_size() may also change it, after a loss and while no operation
  // is in flight. These two functions then wait for the loop.
  uint32_t rank() const;
  uint32_t world_size() const;
  std::shared_ptr<const Topology> topology() const;

  // REQUIRES: memory that stays valid until `completion` is called. It has one span, with the
  // tensor. For an all-gather it has one span per rank, in rank order, or one span with the parts
  // of all ranks; the part of this rank holds its contribution already. For a barrier it has no
  // span. Peer sets dtype, reduce, contributors and request.handle.
  // Returns the handle of the operation; 0 if its completion was called at once.
  // With `request.parked` the memory is not read before staged() reports that its data is there.
  Handle post(OpRequest request, ring::Memory memory, Completion completion);
  // The waits of the application's threads for this peer's calls. Joint calls record their own.
  const std::shared_ptr<WaitRecord>& waits() const;
  // See OpStaged. Does nothing if the operation has ended. If `status` is an error, the operation
  // ends for all members.
  void staged(Handle handle, Status status);

  // Joint calls. kInvalidState if another one of this process is under way.
  Result<JointResult> update_topology(Duration timeout, const Interrupted& interrupted);
  // The listed processes of a reconfigure, which are all members of this run, go on in it without
  // the others. REQUIRES: the process of the first one hosts the run. See JointResult::elsewhere.
  Result<JointResult> regroup(protocol::Rendezvous with, Duration timeout,
                              const Interrupted& interrupted);
  Result<JointResult> are_peers_pending(Duration timeout, const Interrupted& interrupted);
  // Measures links for at most `budget`, and adopts a better plan. The call may take `budget`
  // longer than `timeout`. `max_bytes`: as in Vote.
  Result<JointResult> optimize_topology(std::chrono::milliseconds budget, uint64_t max_bytes,
                                        Duration timeout, const Interrupted& interrupted);
  // Hashes every entry, then votes. Stale entries are overwritten. The calling thread hashes the
  // entries in host memory, with its OpenMP team. The devices hash their entries, after the work
  // that this thread has given to them. A device that fails ends the call for all members, with an
  // error that names the entry. If a device fails while the elected state is copied to it, the call
  // fails on this peer only, and the content of its entries on that device is undefined. The
  // calling thread calls `on_progress`, which may be empty. kInvalidArgument if the entries cannot
  // be offered; see StateSpans. Entries may be added only with kReceiveOnly.
  Result<JointResult> sync_shared_state(SyncRequest request, const Interrupted& interrupted,
                                        const OnProgress& on_progress = {});
  Result<JointResult> sync_shared_state(uint64_t revision, protocol::SyncStrategy strategy,
                                        std::vector<StateSpan> entries, Duration timeout,
                                        const Interrupted& interrupted);
  // Like sync_shared_state(), but returns when all members have voted. The transfers continue in
  // the background; see sync_call.h. Every joint call fails with kInvalidState until
  // SyncCall::wait() has returned an outcome.
  Result<std::shared_ptr<SyncCall>> begin_sync(SyncRequest request, InBackground background,
                                               const Interrupted& interrupted);

  // Leaves the run: sends Leave to the master, fails open calls with kInvalidState, and ends this
  // peer's part of the loop. Idempotent.
  void leave(Duration at_most);
  Info info();
  // Sets numbers of the application, for people that watch the run; see Control::report().
  Status report(const std::vector<protocol::Scalar>& scalars);

 private:
  struct Impl;
  explicit Peer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pccl::peer
