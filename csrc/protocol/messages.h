// messages: the schema of the control plane. There is one plain struct for each message between a
// peer and its master, roughly in their order on a connection. fields.h decides the order of the
// fields on the wire; the structs show the same order to the reader. PROTOCOL.md has the rules;
// codec.h turns the structs into bytes and back. Plain values: any thread may use them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/code.h"
#include "csrc/base/endpoint.h"
#include "csrc/base/ids.h"
#include "csrc/base/link_fault.h"
#include "csrc/base/shared_list.h"
#include "csrc/protocol/joint_kind.h"
#include "csrc/protocol/keys.h"
#include "csrc/protocol/op_info.h"
#include "csrc/protocol/plan.h"
#include "csrc/protocol/rendezvous.h"
#include "csrc/protocol/run_settings.h"
#include "csrc/protocol/version.h"

namespace pccl::protocol {

inline constexpr uint32_t kControlMagic = 0x4c434350;  // "PCCL" in little-endian bytes

// The highest kind of call that a member has taken part in, with success, since it was admitted.
// kNone: none yet. kCalled: a joint call that compares nothing. kCompared: a collective, which
// compares digests. kSynced: a sync_shared_state, which compares layouts and the state itself.
enum class Standing : uint8_t { kNone = 0, kCalled = 1, kCompared = 2, kSynced = 3 };

// ---- Admission ----------------------------------------------------------------------------------

// Peer -> master, first on a new connection. `magic` and `versions` keep their positions in every
// version.
struct Hello {
  uint32_t magic = kControlMagic;
  VersionRange versions = kSpoken;
  std::string library;  // for the error text of a version mismatch: "pccl 0.1.0"
  std::string run;
  GroupId group;
  uint32_t founders = 1;         // number of peers that found the group together
  uint32_t min_peers = 1;        // the group continues only with this number of members or more
  int32_t rank = -1;             // wished rank among the founders; -1: the master chooses
  uint32_t join_timeout_ms = 0;  // how long this peer waits for its group to begin
  std::string launch;            // the launch whose fixed world this rank belongs to; empty: none
  std::string name;  // name of this peer for people; several peers may have the same name
  GivenSettings settings = {};
  std::optional<Rendezvous> rendezvous = {};
  bool operator==(const Hello&) const = default;
};

// Master -> peer: the admission fails. This message has the same layout in every version.
struct Reject {
  Code code = Code::kProtocol;
  std::string text;
  bool operator==(const Reject&) const = default;
};

// Master -> peer. The peer now opens its listener and sends Register, unless it has done so before.
struct Welcome {
  PeerId peer;
  // Random; identifies one life of the run. A peer resumes only with the same run_id.
  uint64_t run_id = 0;
  uint32_t incarnation = 0;    // grows with every start of the master
  std::string seen_host;       // the peer's address as the master sees it
  bool loopback_only = false;  // the master listens on loopback only; the peer does the same
  uint16_t version = kSpoken.highest;  // protocol version of the run
  // The peer accepts only links whose dialler has a key that is derived from this key. None: the
  // run is not secured.
  std::optional<Key> accepting = {};
  RunSettings settings = {};
  bool operator==(const Welcome&) const = default;
};

// Peer -> master: the address of this peer's listener for other peers. An empty host means "the
// address that the master sees". `others`: further numeric addresses of the listener.
struct Register {
  std::string host;
  uint16_t port = 0;
  std::vector<Endpoint> others = {};
  bool operator==(const Register&) const = default;
};

// Each side sends a Ping when it has sent nothing else for a while. The other side answers with a
// Pong that has the same counter. In a Ping or Pong of a peer, `epoch` is the epoch of its last
// EpochStart, and `verdict_index` is the number of verdicts of this epoch that it has received. In
// a message of the master, `verdict_index` is 0.
struct Ping {
  uint64_t counter = 0;
  uint64_t verdict_index = 0;
  Epoch epoch;
  bool operator==(const Ping&) const = default;
};
struct Pong {
  uint64_t counter = 0;
  uint64_t verdict_index = 0;
  Epoch epoch;
  bool operator==(const Pong&) const = default;
};

// ---- Links --------------------------------------------------------------------------------------

// Master -> peer: open a link to `peer`, and keep trying until Forget. An empty host means "the
// host of the master, under the name by which you reach it", because `peer` is on that machine, or
// in its private network. All earlier connections with serial numbers up to `dead_serial` are dead,
// even if they seem alive here. `others`: further addresses of `peer`.
struct Dial {
  PeerId peer;
  std::string host;
  uint16_t port = 0;
  uint32_t dead_serial = 0;
  std::vector<Endpoint> others = {};
  std::optional<LaneCredential> credential = {};  // none if the run is not secured
  bool operator==(const Dial&) const = default;
};

// Master -> peer: `peer` is gone. Close the link and stop dialling.
struct Forget {
  PeerId peer;
  bool operator==(const Forget&) const = default;
};

enum class LinkState : uint8_t { kUp = 0, kDown = 1, kUnreachable = 2 };

// Peer -> master: the state of the link to `peer`. Either side may report kDown and kUnreachable.
// Only the side that made the connection reports kUp, unless a Dial asks the other side. A peer
// reports kUnreachable once, and continues to try. `serial` (frames.h): for kUp and kDown, the
// serial number of the connection; for kUnreachable, the serial number of the last connection that
// is known to be dead. A report about an older connection is ignored. `rtt`: for kUp, in
// microseconds; 0: not measured.
struct LinkReport {
  PeerId peer;
  LinkState state = LinkState::kDown;
  std::string text;  // "10.0.0.7:48201: connection timed out", for the master's log and members
  uint32_t serial = 0;
  uint32_t rtt = 0;
  // For kUnreachable: the reason. The master may pass it on to `peer`.
  LinkFault fault = LinkFault::kOther;
  bool operator==(const LinkReport&) const = default;
};

// The bytes per second that the link has carried from the sender of this message to `peer`.
struct LinkRate {
  PeerId peer;
  uint64_t rate = 0;  // above 0
  bool operator==(const LinkRate&) const = default;
};

// Member -> master: the rates of its links, measured while only the network limited the rates. The
// message has the links whose rates have changed by more than a tenth. It comes before a Vote for
// update_topology, before a StateReport and after Resumed. If no message has named a link, the rate
// of the link is unknown.
struct LinkRates {
  std::vector<LinkRate> links;
  bool operator==(const LinkRates&) const = default;
};

// Master -> a peer, a text for people: why the peer is not pending yet, or why the call of the
// members waits.
struct Notice {
  std::string text;
  bool operator==(const Notice&) const = default;
};

// ---- Epochs -------------------------------------------------------------------------------------

struct Member {
  PeerId peer;
  std::string address;    // for error messages
  std::string name = {};  // for error messages, too: Hello::name
  bool operator==(const Member&) const = default;
};

// A settled ballot of a group. `number`: Vote::number, which is the same in all votes of the
// ballot. The members of a broken group number their votes independently: there it is the number in
// the vote of `voter`.
struct Settled {
  GroupId group;
  Epoch generation;
  PeerId voter;
  uint32_t number = 0;
  bool operator==(const Settled&) const = default;
};

// Master -> all members, including those that it admits now: a new epoch begins. `members` is in
// rank order. A generation has the number of its first epoch. After a joint update_topology, this
// is also the answer to each member that voted. `together`: the ballots of all groups that this
// update_topology has settled, if it has settled several. Later epochs of the generation repeat
// `together`.
struct EpochStart {
  Epoch epoch;
  Epoch generation;
  std::vector<Member> members;
  std::vector<uint32_t> ring;  // ranks in ring order: ring[i] sends to ring[i + 1]
  std::vector<PeerId> joined;
  std::vector<PeerId> left;
  uint32_t min_peers = 1;
  std::vector<Settled> together;
  uint32_t one_shot_bytes = 0;  // largest part of a one-shot operation, in bytes
  // In microseconds. Without shares: the longest RTT between neighbours in the ring. With shares:
  // the longest RTT between any two members.
  uint32_t rtt = 0;
  // The members' shares by rank, in the direct pattern. Empty: all-reduces use the ring.
  std::vector<uint16_t> shares = {};
  // If there are shares: the sizes of the all-reduces that use them. All-reduces of other sizes use
  // the ring.
  DirectSizes direct = {};
  bool operator==(const EpochStart&) const = default;
};

// Master -> survivors, the freeze request: the epoch is ending because `lost` were lost. The
// survivor answers with StateReport.
struct FreezeRequest {
  Epoch epoch;
  std::vector<Member> lost;
  bool operator==(const FreezeRequest&) const = default;
};

// kReturned: done, and the application has its result, because the members have agreed
// (agreed_among_members()). So every other member was done.
enum class OpState : uint8_t { kNotDone = 0, kDone = 1, kReturned = 2 };

struct OpReport {
  OpKey op;
  OpState state = OpState::kNotDone;
  // In a StateReport, for an operation with OpInfo::keep: the number of elements, from the first,
  // that have their result at this member.
  uint64_t finished = 0;
  bool operator==(const OpReport&) const = default;
};

// Survivor -> master, the state report: the state of every operation that this peer has open in
// `epoch`. A reported state never changes.
struct StateReport {
  Epoch epoch;
  std::vector<OpReport> ops;
  bool operator==(const StateReport&) const = default;
};

enum class Outcome : uint8_t { kCommitted = 0, kAborted = 1 };

// The end of one operation, the same for all members. `code` and `text` are set if it aborted. For
// a kSend the verdict concerns `sender` and `receiver` alone; otherwise both are 0. The members use
// `last` and `last_us` for statistics only.
struct Verdict {
  OpKey op;
  Outcome outcome = Outcome::kCommitted;
  Code code = Code::kOk;
  std::string text;
  PeerId sender{};
  PeerId receiver{};
  uint32_t last = 0;     // the rank that began it last, or the lowest rank that has not begun it
  uint32_t last_us = 0;  // microseconds from that Begin to the verdict; 0: it has not begun it
  uint32_t unacknowledged = 0;  // number of verdicts before it that some member may not know
  uint64_t mac = 0;             // master/epochs/decision_mac.h
  bool operator==(const Verdict&) const = default;
};

// Master -> members: the verdicts on operations that end while the epoch continues. Verdicts of an
// epoch are numbered from 0, and `first_index` is the number of the first one in this message.
struct Verdicts {
  Epoch epoch;
  uint64_t first_index = 0;
  std::vector<Verdict> verdicts;
  bool operator==(const Verdicts&) const = default;
};

// After a reconfiguration: the operations of the ended epoch that continue in the next epoch.
// kNothing: none. kEverything: every operation that did not commit. kKept: only the operations with
// kept elements.
enum class Continuation : uint8_t { kNothing = 0, kEverything = 1, kKept = 2 };

// An operation that continues where it stopped: its first `finished` elements have their result.
struct Kept {
  OpKey op;
  uint64_t finished = 0;
  bool operator==(const Kept&) const = default;
};

// Master -> survivors: the epoch is over. The operations in `committed` have committed. The
// operations that `continuation` selects continue: an operation in `kept` continues after its
// finished elements, and any other one begins again. All remaining operations are aborted with
// kPeerLost and `text`. Unless `continuation` is kEverything, the next call must be a joint
// update_topology. If nothing continues and no member is lost, the master ends (Farewell): then the
// code of the aborted operations is kMasterLost.
struct EpochEnd {
  Epoch epoch;
  std::vector<Member> lost;
  std::vector<OpKey> committed;
  std::string text;
  Continuation continuation = Continuation::kNothing;
  std::vector<Kept> kept;
  bool operator==(const EpochEnd&) const = default;
};

// ---- Operations ---------------------------------------------------------------------------------

// Peer -> master: the operation is posted. The peer awaits no answer.
struct Begin {
  Epoch epoch;
  OpKey op;
  OpInfo info;
  bool operator==(const Begin&) const = default;
};

// Peer -> master: all bytes have arrived, and this peer has no byte left to send. `verdict_index`
// acknowledges verdicts as in Ping.
struct Done {
  Epoch epoch;
  OpKey op;
  uint64_t verdict_index = 0;
  bool operator==(const Done&) const = default;
};

// Peer -> master: a request to abort the operation (a timeout, no memory). If this peer is not done
// yet, it never becomes done in this epoch. If it is done, it does not return the operation before
// the verdict. The answer is a verdict, which can be kCommitted.
struct AbortRequest {
  Epoch epoch;
  OpKey op;
  Code code = Code::kOperationTimeout;
  std::string text;
  bool operator==(const AbortRequest&) const = default;
};

// Master -> members, the abort proposal: the operation is to be aborted. Members may have committed
// it without the master (agreed_among_members()), so the master asks all of them.
struct AbortProposal {
  Epoch epoch;
  OpKey op;
  Code code = Code::kOperationTimeout;
  std::string text;
  bool operator==(const AbortProposal&) const = default;
};

// Peer -> master, the answer to AbortProposal, binding in this epoch. kNotDone: the operation never
// becomes done here, even if it is called later. kDone: this peer waits for the verdict.
struct AbortAnswer {
  Epoch epoch;
  OpKey op;
  OpState state = OpState::kNotDone;
  bool operator==(const AbortAnswer&) const = default;
};

// Peer -> master: `count` receives from any source wait here under `tag`. This message replaces the
// earlier AwaitSend of this peer under the tag. The answers are at most `count` SendBegun messages.
struct AwaitSend {
  Epoch epoch;
  std::string tag;
  uint32_t count = 0;  // at most kAwaitedSendsMax
  bool operator==(const AwaitSend&) const = default;
};

// Master -> receiver, the answer to AwaitSend: `sender` has begun its send number `sequence` to
// this peer under `tag`, and this peer has not begun the receive for it. If `sender` is 0, all
// other members have left the fixed world.
struct SendBegun {
  Epoch epoch;
  PeerId sender;
  std::string tag;
  uint32_t sequence = 0;
  bool operator==(const SendBegun&) const = default;
};

// Peer -> master: the calls in which the application of this peer has waited for kBlockedAfter. It
// replaces the earlier Blocked. Without a call: the application does not block. A peer that begins
// an operation or votes does not block, and has withdrawn its Blocked before.
struct Blocked {
  Epoch epoch;
  std::vector<OpKey> ops;  // at most kBlockedWaitsMax; begun in `epoch`, without an outcome
  bool joint = false;      // the open joint call, too
  // The application continues only if one of these calls ends: each thread that has made a call
  // waits, without a limit of its own, and no callback of a Future can run.
  bool certain = false;
  bool threads = false;  // several threads of the application have made calls
  bool operator==(const Blocked&) const = default;
};

// ---- Joint calls --------------------------------------------------------------------------------

enum class SyncStrategy : uint8_t { kEnforcePopular = 0, kSendOnly = 1, kReceiveOnly = 2 };

struct StateEntry {
  std::string key;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  uint64_t hash = 0;
  // For kBytes: the application's number for the dtype of the tensor. Only a peer that lacks the
  // entry uses it.
  uint8_t subtype = 0;
  bool operator==(const StateEntry&) const = default;
};
using EntryList = SharedList<StateEntry>;

// A member's proposal of a shared state. The entries are sorted by key, and the keys are unique.
struct Offer {
  uint64_t revision = 0;
  SyncStrategy strategy = SyncStrategy::kEnforcePopular;
  std::vector<StateEntry> entries;
  // state_hash() of the entries, in place of a long list in `entries`. The master asks for the list
  // if not all members offer the same state.
  std::optional<uint64_t> digest = {};
  // True if the elected state may have further entries: this peer fetches them, too. Only with
  // kReceiveOnly.
  bool partial = false;
  bool operator==(const Offer&) const = default;
};

// Peer -> master: the `number`-th joint call of this peer in the generation, cast in `epoch`. The
// vote can cross an EpochStart on the way. That EpochStart answers the vote or, in a
// reconfiguration, makes the peer cast it again. A vote of an older epoch is void.
struct Vote {
  uint32_t number = 0;
  JointKind kind = JointKind::kUpdateTopology;
  Offer offer;  // kSyncSharedState only
  Epoch epoch;
  // kSyncSharedState only: true if the application waits for the votes of all members, and not for
  // the transfers that follow. If it waits for their end later, the peer casts the same vote again
  // with false.
  bool background = false;
  // kOptimizeTopology only: the limits of the probes. `budget_ms`: at most kProbeBudgetMax.
  // `max_bytes`: the bytes at each member, sent and received together; 0: no limit; else at least
  // kProbesBytesMin.
  uint32_t budget_ms = 0;
  uint64_t max_bytes = 0;
  bool operator==(const Vote&) const = default;
};

// Peer -> master: joint call `number` has waited for its timeout. Every voter gets the same Answer:
// the outcome of the call if it was settled meanwhile, else kOperationTimeout with the missing
// ranks. A JointAbort of an older epoch is void, like a Vote.
struct JointAbort {
  uint32_t number = 0;
  Epoch epoch;
  bool operator==(const JointAbort&) const = default;
};

// Master -> voters: the end of joint call `number`, unless an EpochStart ends it.
struct Answer {
  uint32_t number = 0;
  JointKind kind = JointKind::kUpdateTopology;
  Code code = Code::kOk;
  std::string text;
  bool pending = false;   // kArePeersPending
  uint64_t revision = 0;  // kSyncSharedState: the agreed state
  uint64_t state_hash = 0;
  std::vector<Settled> together;  // ballots settled with this one, if it was a call of all groups
  std::optional<TopologyPlan> plan = {};  // kOptimizeTopology
  uint64_t mac = 0;                       // master/epochs/decision_mac.h
  bool operator==(const Answer&) const = default;
};

// Master -> voters of an optimize_topology: exchange data with `peer` in both directions, as fast
// as the link carries it. `peer` gets a Probe for this link, too. The answer is ProbeReport. A
// later probe ends this one.
struct Probe {
  uint32_t round = 0;
  PeerId peer;
  uint32_t milliseconds = 0;  // above 0, at most kProbeBudgetMax
  uint64_t bytes_max = 0;     // in each direction; 0: no limit; else at least kProbeBytesMin
  bool operator==(const Probe&) const = default;
};

// Peer -> master: the number of bytes that arrived from `peer`, and the time that they took. The
// first third of the probe does not count, because a path needs some time to reach its rate. If
// `bytes` is 0, the probe has failed.
struct ProbeReport {
  uint32_t round = 0;
  PeerId peer;
  uint64_t bytes = 0;
  uint32_t milliseconds = 0;  // above 0 if there are bytes
  bool operator==(const ProbeReport&) const = default;
};

// Master -> voters of a shared-state sync, if some are stale. `sources`: the members that have the
// elected state. `receivers`: the members that lack entries of it. Each receiver gets the pieces of
// `keys` that it lacks, from the sources and from other receivers, and answers with Fetched. All
// members get the Answer when the last receiver has fetched. `gone`: the members that were lost
// during the transfers. If there are no sources, these include all members with the whole state,
// and the receivers have received pieces of it before the loss.
struct SyncPlan {
  uint32_t number = 0;
  uint64_t revision = 0;
  EntryList entries;  // of the elected state
  // The indices of the entries that some receiver lacks, ascending. The pieces are made of these
  // entries.
  std::vector<uint32_t> keys;
  std::vector<PeerId> sources, receivers;  // in rank order
  std::string gone;
  bool operator==(const SyncPlan&) const = default;
};

// Peer -> master. A receiver sends kOk when every entry that it lacked has arrived and has the
// elected hash. A receiver or a source that cannot continue sends the reason.
struct Fetched {
  uint32_t number = 0;
  Code code = Code::kOk;
  std::string text;
  bool operator==(const Fetched&) const = default;
};

// Peer -> master: more of the missing data has arrived at this receiver since its last Fetching, or
// since the SyncPlan. A newcomer that sends no Fetching for too long is removed (PROTOCOL.md,
// section 2).
struct Fetching {
  uint32_t number = 0;
  bool operator==(const Fetching&) const = default;
};

// Master -> some voters of a sync_shared_state: send the list of the entries that you offer. A
// StateList follows, unless the call has ended.
struct ListRequest {
  uint32_t number = 0;
  bool operator==(const ListRequest&) const = default;
};

// Peer -> master, the answer to ListRequest: the entries of the offer. A StateList of an older
// epoch is void.
struct StateList {
  uint32_t number = 0;
  Epoch epoch;
  EntryList entries;
  bool operator==(const StateList&) const = default;
};

// ---- Endings and reconnection -------------------------------------------------------------------

// Peer -> master: this peer leaves by its own decision.
struct Leave {
  bool operator==(const Leave&) const = default;
};

// Master -> peer: the receiver was declared lost. Last message on the connection.
struct Kicked {
  std::string text;
  bool operator==(const Kicked&) const = default;
};

// Master -> peer: the master ends, together with the process that hosts it, and so does the run.
// The peer has received every decision of the master. Last message on the connection.
struct Farewell {
  bool operator==(const Farewell&) const = default;
};
inline constexpr const char* kFarewellText =
    "the master ended together with the process that hosted it (rank 0), and so the run is over. A "
    "separate master (`pccl master`, with its URL in PCCL_MASTER) outlives rank 0";

// An operation that this member has not called yet, although its verdict has arrived. `sender` and
// `receiver` are set only for a send.
struct Uncalled {
  OpKey op;
  PeerId sender{};
  PeerId receiver{};
  bool operator==(const Uncalled&) const = default;
};

// Peer -> master, first on a connection that replaces a broken one (PROTOCOL.md, section 7).
struct Resume {
  uint32_t magic = kControlMagic;
  VersionRange versions = kSpoken;
  std::string run;
  uint64_t run_id = 0;
  PeerId peer;
  Epoch epoch;         // epoch of the last EpochStart received
  bool ended = false;  // the EpochEnd of `epoch` was received
  // `epoch` needs reconfiguration: a freeze request for it came, or a link to a member has broken.
  bool needs_reconfiguration = false;
  std::vector<OpReport> ops;          // open operations
  std::vector<OpInfo> infos;          // of the operations in `ops`, in the same order
  uint64_t verdict_index = 0;         // number of verdicts received
  uint64_t stable_index = 0;          // all members know the verdicts below this
  std::vector<Verdict> verdicts;      // [stable_index, verdict_index)
  uint32_t joint_answered = 0;        // number of joint calls of this generation that were answered
  std::optional<Answer> last_answer;  // the last Answer to one of them
  std::vector<Settled> together;      // from the last Answer or EpochStart with settled ballots
  bool pending = false;               // `together` came with a yes to are_peers_pending
  Standing standing = Standing::kNone;
  std::optional<Hello> hello;      // only before admission: a restarted master has forgotten it
  std::vector<Uncalled> uncalled;  // of this generation
  bool operator==(const Resume&) const = default;
};

// Master -> peer: the connection is resumed. The messages that the peer missed follow on it. The
// peer sends its open Vote, Fetched and AbortRequests again.
struct Resumed {
  uint32_t incarnation = 0;
  std::optional<Key> accepting = {};  // of this incarnation; see Welcome
  // If the receiver is a member: the members of its group, in the present epoch of the master. That
  // epoch may not have begun for the receiver, which keeps its links to these members. Empty if the
  // receiver is no member.
  std::vector<PeerId> members = {};
  bool operator==(const Resumed&) const = default;
};

// ---- Observation --------------------------------------------------------------------------------

// Observer -> master, first on its connection: asks for a snapshot of the run. Each later Watch, of
// the same run, asks again, when the whole answer to the one before it is here.
struct Watch {
  uint32_t magic = kControlMagic;
  VersionRange versions = kSpoken;
  std::string run;
  bool operator==(const Watch&) const = default;
};

// Master -> observer: the next part of the answer. The parts of an answer together are one JSON
// object (master/operator/snapshot.h).
struct Snapshot {
  std::string part;   // bytes; a character may be cut
  bool last = false;  // of its answer
  bool operator==(const Snapshot&) const = default;
};

// ---- Checks of a path to a master ---------------------------------------------------------------

// First on its connection, from a machine that wants to know whether others can reach it: asks the
// master to connect to `port` of the address from which this connection comes. 0: it asks for the
// clock of the master only.
struct DialBack {
  uint32_t magic = kControlMagic;
  VersionRange versions = kSpoken;
  uint16_t port = 0;
  bool operator==(const DialBack&) const = default;
};

// Master -> sender of the DialBack, last on the connection.
struct DialedBack {
  std::string host;        // the address from which the connection comes, as the master sees it
  bool connected = false;  // the master has made a connection, and has sent `proof` on it
  LinkFault fault = {};    // otherwise: the kind of the failure
  uint64_t proof = 0;      // random
  uint64_t unix_ms = 0;    // the clock of the master: milliseconds since 1970
  bool operator==(const DialedBack&) const = default;
};

// ---- Telemetry: for people only. No decision of a master or a peer depends on it ----------------

// Master -> member: somebody watches the run. The member sends Telemetry once in each interval,
// until the next Observe. 0: nobody watches.
struct Observe {
  uint32_t interval_ms = 0;
  bool operator==(const Observe&) const = default;
};

// A number of the application, such as its loss.
struct Scalar {
  std::string name;
  double value = 0;  // finite
  bool operator==(const Scalar&) const = default;
};

// The link to one other peer, since it is up.
struct LinkTelemetry {
  PeerId peer;
  uint64_t bytes_sent = 0, bytes_received = 0;  // with framing
  uint32_t lanes = 0, lanes_used = 0;
  uint32_t rtt_us = 0, segments_again = 0;  // segments_again: TCP segments that were sent again
  bool operator==(const LinkTelemetry&) const = default;
};

// Member -> master: totals since this peer has joined. Times are in microseconds, and as in
// TimeTotals (csrc/peer/time_account.h).
struct Telemetry {
  uint64_t all_us = 0, waiting_us = 0, transferring_us = 0, joint_us = 0, saving_us = 0;
  uint64_t failing_us = 0;
  PeerId waits_for{};         // it has waited for this member longest, since its last Telemetry
  uint64_t waits_for_us = 0;  // so long; 0, and no member: for none
  uint64_t bytes_sent = 0, bytes_received = 0;  // of tensors, as on the wire
  std::vector<LinkTelemetry> links;             // to its neighbours in the ring
  std::vector<Scalar> scalars;                  // of the application
  bool operator==(const Telemetry&) const = default;
};

using Message =
    std::variant<Hello, Reject, Welcome, Register, Ping, Pong, Dial, Forget, LinkReport, Notice,
                 EpochStart, FreezeRequest, StateReport, Verdicts, EpochEnd, Begin, Done,
                 AbortRequest, Vote, JointAbort, Answer, SyncPlan, Fetched, Leave, Kicked, Resume,
                 Resumed, AbortProposal, AbortAnswer, Farewell, AwaitSend, SendBegun, LinkRates,
                 Fetching, ListRequest, StateList, Probe, ProbeReport, Blocked, Watch, Snapshot,
                 Observe, Telemetry, DialBack, DialedBack, Regroup, Regrouped>;

bool is_wan(const EpochStart& start);  // whether some path between the members is a wan path
// Each member that took part in a successful joint call of this kind has at least this standing.
inline Standing standing_after(JointKind kind) {
  return kind == JointKind::kSyncSharedState ? Standing::kSynced : Standing::kCalled;
}

// "tokyo-3 (peer 1.3, 10.0.0.7:48201)"; without a name "peer 1.3 (10.0.0.7:48201)". `more` goes
// between the id and the address, such as "rank 2".
std::string text(const Member& member, const std::string& more = "");

const char* text(JointKind kind);  // "update_topology"

}  // namespace pccl::protocol
