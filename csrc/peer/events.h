// The options of a peer, the events that PeerCore takes and the effects that it asks for, all plain
// data. The shell carries out the effects in the order that step() appends them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/link/driver_events.h"
#include "csrc/protocol/absent_ranks.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/messages.h"
#include "csrc/ring/counters.h"
#include "csrc/ring/events.h"

namespace pccl::peer {

// Identifies an unfinished call of the application. Chosen by the shell, never reused.
using Handle = uint64_t;

// The address of this peer for other peers.
struct Advertised {
  std::string host;  // empty: the address that the master sees
  // `port_first`: the external number of the first port in the port range of the listener; the
  // others follow in order. 0: external and internal numbers are the same. `listens_first`: the
  // internal number of that port.
  uint16_t port_first = 0;
  uint16_t listens_first = 0;
};

struct Options {
  std::string run;
  GroupId group;
  uint32_t min_peers = 1;
  uint32_t founders = 0;  // number of peers that begin together; 0: min_peers
  int32_t rank = -1;      // wanted rank among the founders; -1: any
  std::string library = "pccl";
  protocol::VersionRange versions = protocol::kSpoken;
  Advertised advertised;
  protocol::GivenSettings given;  // settings that this peer gives; the run decides all others
  bool restore = true;  // whether data that a failed operation has overwritten is put back
  Duration join_timeout = std::chrono::minutes(30);
  // Name of the launch that started this process as one of several ranks. All members belong to the
  // same launch. Empty: no launch.
  std::string launch;
  // The processes that this peer meets in a reconfigure. Then the join fails at once if the
  // connection to the master breaks or is refused.
  std::optional<protocol::Rendezvous> rendezvous = {};
  std::string name;  // of this peer, for people
  Duration master_timeout = protocol::kMasterTimeoutDefault;
  std::string master_text;  // "host:port", for error messages
  bool hosted = false;      // the master is in the process of rank 0, and ends with it
  bool secured = false;     // this peer has a token: all its connections are encrypted
  bool insecure = false;    // without a token, the master may be on another machine
  // Bytes of a piece of shared state. All members use the same number; tests use a smaller one.
  uint64_t piece_bytes = protocol::kStateUnitBytes;
  // A probe of a link carries at most this many bytes in each direction. All members use the same
  // number; tests use a smaller one.
  uint64_t probe_bytes_max = uint64_t{64} << 30;
  // An operation takes at most this many bytes of scratch on a fast and long path.
  uint64_t scratch_bytes_max = uint64_t{1} << 30;
};

// The group as the application sees it. The application sees another topology when init or
// update_topology returns and, with policy retry, when it asks for its rank after a loss.
struct Topology {
  Epoch epoch;
  Epoch generation;  // operation numbers start at zero in it
  uint32_t rank = 0;
  std::vector<protocol::Member> members;  // in rank order
  std::vector<uint32_t> ring;             // ranks in ring order
  std::vector<PeerId> joined;
  std::vector<PeerId> left;
  uint32_t one_shot_bytes = 0;  // operations are one-shot if no part of them is larger
  // The longest RTT between ring neighbours or, with shares, between any members.
  Duration rtt{0};
  bool wan = false;  // `rtt` is the RTT of a wan path
  // `shares`: the shares of the ranks in the direct pattern; empty: all-reduces use the ring.
  // `direct`: the sizes of the all-reduces that use the direct pattern, if there are shares.
  std::vector<uint16_t> shares;
  protocol::DirectSizes direct;
};

// `root` of a receive that takes a send from any rank.
inline constexpr int32_t kAnySource = -1;

// A collective or transfer as the application posts it. `root` is a rank of the topology that the
// application sees. An operation that is called while a call of update_topology or
// optimize_topology is open is held until that call ends. It takes its number and starts its
// timeout after that.
struct OpRequest {
  Handle handle = 0;
  protocol::OpKind kind = protocol::OpKind::kAllReduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  uint64_t count = 0;  // as in OpInfo
  // kBroadcast, kReduce, kGather, kScatter: the root. kSend: the destination. kRecv: the source or
  // kAnySource.
  int32_t root = -1;
  std::string tag;
  Duration timeout{0};  // 0: none
  bool keep = false;    // kAllReduce: elements that are finished everywhere survive a loss
  bool parked = false;  // its data is still to be staged: OpStaged follows
  int8_t priority = 0;  // as in ring::Task; each member chooses its own
  WireFormat format{};  // kAllReduce: as in OpInfo
  // kAllGather and kAllToAll with parts of different sizes: the number of elements for each rank,
  // as in OpInfo.
  std::vector<uint64_t> sends{}, receives{};
  std::string site{};  // as in OpInfo
};

// ---- Events, from the application ----
struct JoinCalled {  // the first event, once
  Handle handle;
};
struct OpCalled {
  OpRequest request;
};
// The data of a parked operation is in its memory, or `status` is the error that prevents that.
// Ignored if the operation has ended.
struct OpStaged {
  Handle handle = 0;
  Status status;
};
struct JointCalled {
  Handle handle = 0;
  protocol::JointKind kind = protocol::JointKind::kUpdateTopology;
  protocol::Offer offer;
  Duration timeout{0};
  uint32_t budget_ms = 0;  // kOptimizeTopology: as in Vote
  uint64_t max_bytes = 0;  // kOptimizeTopology: as in Vote
  // The entries of a sync_shared_state whose offer has only their digest. The master may ask for
  // them.
  protocol::EntryList entries = {};
  bool background = false;  // as in Vote
  // kUpdateTopology: the application lists the members that go on, in the order of their ranks, all
  // of them members of this run. The host of the run waits for the calls of all of them.
  std::optional<protocol::Rendezvous> rendezvous = {};
};
// The application waits for the end of the call; ignored if it is unknown or finished.
struct JointAwaited {
  Handle handle = 0;
};
// The application has the outcome of a sync_shared_state, and its tensors have the fetched state.
struct JointConcluded {
  Handle handle = 0;
};
// The application cannot continue the call; ignored if it is unknown or finished.
struct JointGivenUp {
  Handle handle;
};
// The application asks for its rank or for the size of the group. See SeenTopology.
struct TopologyAsked {};
struct LeaveCalled {};
// The wait of one thread of the application. `bounded`: it ends after a time of its own.
struct ThreadWait {
  Handle handle = 0;  // 0: it waits for nothing that is known here; kInJointCall: the joint call
  Instant since;
  bool bounded = false;
};
inline constexpr Handle kInJointCall = ~Handle{0};
// Answer to LookAtWaits: the threads that have made calls of this group, whether they wait or not.
struct WaitsSeen {
  std::vector<ThreadWait> threads;  // at most kBlockedWaitsMax
  bool all = true;                  // false: there are more threads
  bool callbacks = false;           // a callback of a Future runs, or will run
};
// ---- from the connection to the master ----
struct MasterConnected {
  bool elsewhere = false;  // the master is on another machine
};
struct MasterClosed {  // the attempt to connect failed, or the connection broke
  Status why;
  bool refused = false;  // nothing listens at the address of the master
};
struct MasterSent {
  protocol::Message message;
};
// The file of this peer's token has another token now. `number` counts the tokens that were read:
// the first token of the peer has number 1.
struct TokenRead {
  uint32_t number = 0;
};
// ---- from the data plane ----
using link::LinkChanged;
using link::Listening;
using link::RateMeasured;
using ring::OpAgreed;  // answer to SayDone
using ring::OpDrained;
// The operation is aborted through the master. EndOp follows, and OpDrained has to follow EndOp.
using ring::OpFailed;
// Only of an operation with `keep`, and of a piece that this peer receives.
using ring::OpProgressed;
using ring::OpTransferred;
using PieceRequested = ring::Requested;  // the transfer is a piece of shared state
using LinkSampled = ring::LinkSample;    // answer to SampleLink
struct TelemetrySampled {                // answer to SampleTelemetry
  protocol::Telemetry telemetry;
};
// ---- from the shell ----
struct PieceChecked {  // answer to CheckPiece, with the same handle, plan, peer and `what`
  Handle handle = 0;
  uint64_t plan = 0;
  PeerId peer;
  uint32_t what = 0;
  Status status;
  std::vector<uint64_t> have = {};  // kHave: the pieces that `peer` has
};
struct TimePassed {};
using Event =
    std::variant<JoinCalled, OpCalled, OpStaged, JointCalled, LeaveCalled, MasterConnected,
                 MasterClosed, MasterSent, Listening, LinkChanged, OpTransferred, OpProgressed,
                 OpAgreed, OpDrained, OpFailed, PieceRequested, PieceChecked, TimePassed,
                 JointAwaited, JointConcluded, JointGivenUp, TopologyAsked, TokenRead, RateMeasured,
                 LinkSampled, WaitsSeen, TelemetrySampled>;

// ---- Effects, to be carried out in order ----
struct ConnectMaster {
  uint32_t token = 1;   // number of the token to show, if this peer has one
  Duration at_most{0};  // time for the connection and for its TLS handshake together
};
struct CloseMaster {};  // closes after all sent messages have left; no MasterClosed follows
struct ForgetTokens {   // tokens with a number below `before`; they are never shown again
  uint32_t before = 0;
};
struct SendMaster {
  protocol::Message message;
};
struct Listen {  // Listening follows
  bool loopback_only = false;
};
struct AcceptAs {  // connections are accepted from now on, if the listener is open
  PeerId self;
  uint64_t run_id = 0;
  uint16_t version = 0;                                  // protocol version that the run speaks
  std::optional<protocol::AcceptingKey> accepting = {};  // none: the run is not secured
  Duration peer_timeout = protocol::kPeerTimeoutDefault;
};
struct AcceptWith {  // the key of a restarted master, for the listener
  protocol::AcceptingKey key;
};
struct DialPeer {
  protocol::Dial dial;
};
struct ForgetPeer {
  PeerId peer;
};
struct BeginEpoch {
  Epoch epoch;
  uint32_t rank = 0;
  std::vector<PeerId> peers;       // the other members
  std::vector<PeerId> neighbours;  // the members that exchange large tensors with this peer
};
// The content of a transfer of shared state, in ring::Task::what. It is the number of a piece, or
//   kManifest   the sum of the tiles of each part of a large entry (memory::state_sum), 8 bytes a
//               part
//   kHave       the list of the pieces that its sender has, one bit a piece. The asking peer adds a
//               number to kHave: 0 if it has no list yet; else 1 + the number of pieces in its
//               list. Then the answer waits until the sender has more.
// kSpare is added to the number of a piece that is to be sent only when its source sends no other
// piece.
inline constexpr uint32_t kManifest = 1u << 24;
inline constexpr uint32_t kHave = 1u << 25;
inline constexpr uint32_t kSpare = 1u << 31;
// One end of a transfer of shared state.
struct PieceOp {
  bool receives = false;
  uint32_t what = 0;
  std::vector<uint64_t> have = {};  // kHave: the list to be sent
};
// The call `handle` has a plan: all members have voted. `keeps`: the plan has the same pieces as
// the plan before, and verified pieces stay. `receives`: this peer lacks entries.
struct BeginPieces {
  Handle handle = 0;
  protocol::SyncPlan plan;
  bool keeps = false;
  bool receives = false;
};
// Posts an operation to the data plane. Its memory is the memory that the application has lent for
// `handle`. For shared state (`piece`), it is the memory of that piece in the joint call `handle`.
//
// The application's spans are in rank order, and the ring may count by ring index. arrange() puts
// the spans into the order of the ring.
struct StartOp {
  Handle handle = 0;
  ring::Task task;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  int contributors = 1;
  std::optional<PieceOp> piece;
  uint64_t start = 0;           // number of elements of the application's tensor before the task
  std::vector<uint32_t> order;  // the rank at each index of the task, for arrange()
  bool probe = false;           // its memory comes from probe_memory()
};
struct OpenLanes {  // see link::LanesWanted
  PeerId peer;
  bool measured = false;
};
struct SampleLink {  // LinkSampled follows
  PeerId peer;
};
using ring::Ending;
using EndOp = ring::OpEnded;  // also for operations that never started here
struct SayDone {              // to the other members
  OpKey op;
};
struct CheckPiece {  // compares the arrived bytes with the agreed state; PieceChecked follows
  Handle handle = 0;
  uint64_t plan = 0;  // number of the plan; counts the plans of this peer
  OpKey op;
  PeerId peer;  // the sender of the piece
  uint32_t what = 0;
};
// The progress of this peer's fetch of a shared state. Emitted for each piece that is verified.
struct SyncProgress {
  Handle handle = 0;
  // `total`: bytes that this peer lacked; `done`: bytes of these that are verified.
  uint64_t done = 0, total = 0;
  uint32_t peers = 0;  // number of peers that are sending pieces to this one
};
struct ReturnPiece {  // the memory that the piece was sent from is not needed any more
  Handle handle = 0;
  OpKey op;
};
// A part of the tensor: the elements from the end of the previous part up to `end`. `contributors`:
// the peers whose tensors were reduced into this part; absent members are not among them.
struct Part {
  uint64_t end = 0;
  std::vector<PeerId> contributors;  // in rank order
  bool operator==(const Part&) const = default;
};
struct FinishOp {  // returns the tensor to the application
  Handle handle = 0;
  Status status;
  Epoch epoch;  // none: the operation has no number
  OpKey op;
  std::vector<Part> parts;         // of a committed operation with `keep`
  bool ended_before_call = false;  // its verdict came before the application called it here
  int32_t source = -1;             // of a kRecv that succeeded: the rank of the sender
  Duration committing{0};  // if it succeeded: the time from its end here until that was known
};
// The verdict on an operation has come: the member that called it last, and the time since then; 0
// if it has not called it, and kForever if it is this peer. The operation may have finished before.
struct OpJudged {
  Handle handle = 0;
  PeerId last;
  Duration ago{0};
};
struct FinishJoint {  // ends a join or a joint call
  Handle handle = 0;
  Status status;
  protocol::JointKind kind = protocol::JointKind::kUpdateTopology;
  // A join, an update_topology (even if nothing has changed) and an optimize_topology with a plan
  // have it.
  std::optional<Topology> topology;
  bool pending = false;
  // With a rendezvous: nothing has changed here, and the listed processes found another run.
  bool elsewhere = false;
  uint64_t revision = 0, state_hash = 0;
  // `install`: the keys whose verified pieces the shell copies into the tensors before the call
  // returns.
  std::vector<uint32_t> install;
  std::optional<protocol::TopologyPlan> plan = {};  // of optimize_topology
  // The entries of `install` that this peer has with another content, by key; it lacks the other
  // ones. `drifted`: this peer drifts (csrc/protocol/drift.h).
  std::vector<std::string> corrected = {};
  bool drifted = false;
};
// An epoch has begun after a loss, without update_topology (policy retry). The application sees
// this topology when it asks (TopologyAsked).
struct Reconfigured {
  Topology topology;
};
// The answer to TopologyAsked if there is news: ranks in later calls are ranks of this topology.
struct ShowTopology {
  Topology topology;
};
// The peer is out of the run for good. `why` is ok after LeaveCalled. This is the last effect:
// every handle has been finished. `lingers`: other members of a fixed world may still read data of
// an operation that this peer has completed, so the links should stay until the others close them.
struct Gone {
  Status why;
  bool lingers = false;
};
struct LookAtWaits {};    // WaitsSeen follows
struct SampleTelemetry {  // TelemetrySampled follows, with these links as far as they are up
  std::vector<PeerId> links;
};
struct Log {
  LogLevel level = LogLevel::kInfo;
  LogEvent event = LogEvent::kOther;
  std::string text;
};
using Effect =
    std::variant<ConnectMaster, CloseMaster, SendMaster, Listen, AcceptAs, AcceptWith, DialPeer,
                 ForgetPeer, BeginEpoch, BeginPieces, StartOp, EndOp, SayDone, CheckPiece,
                 SyncProgress, ReturnPiece, FinishOp, FinishJoint, Reconfigured, ShowTopology, Gone,
                 Log, ForgetTokens, OpenLanes, SampleLink, LookAtWaits, OpJudged, SampleTelemetry>;
using Effects = std::vector<Effect>;

}  // namespace pccl::peer
