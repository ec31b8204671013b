// The schema of the control plane: plain structs, one per message between a peer and its master, in
// the order in which a connection sees them. PROTOCOL.md tells the story; codec.h turns them into
// bytes and back. Field order here is field order on the wire.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/endpoint.h"
#include "csrc/base/ids.h"
#include "csrc/base/link_fault.h"
#include "csrc/base/status.h"
#include "csrc/protocol/version.h"

namespace pccl::protocol {

inline constexpr uint32_t kControlMagic = 0x4c434350;  // "PCCL" in little-endian bytes

// What a group does with operations in flight when it loses a member: they fail until the
// application calls update_topology, or they begin again among the survivors.
enum class LossPolicy : uint8_t { kRaise = 0, kRetry = 1 };

// A member's part in its group since it was admitted, in rising order: none yet; in a joint call
// that compares nothing; in a collective, which compares digests; in a sync_shared_state, which
// compares layouts and leaves the member with the state of the run.
enum class Standing : uint8_t { kNone = 0, kCalled = 1, kCompared = 2, kSynced = 3 };

// ---- Introduction -------------------------------------------------------------------------------

// Peer -> master, first on a new connection. `magic` and `versions` keep their place in every
// version.
struct Hello {
  uint32_t magic = kControlMagic;
  VersionRange versions = kSpoken;
  std::string library;  // for the error text of a version mismatch: "pccl 0.1.0"
  std::string run;
  GroupId group;
  uint32_t founders = 1;   // so many begin together,
  uint32_t min_peers = 1;  // and the group goes on with no fewer than so many
  int32_t rank = -1;       // wanted among the founders; -1: the master chooses
  LossPolicy policy = LossPolicy::kRaise;
  uint32_t peer_timeout_ms = 0;        // must be the same for all peers of a run,
  uint32_t first_call_timeout_ms = 0;  // and so must this: how long members wait for a newcomer
  uint32_t join_timeout_ms = 0;        // so long this peer waits for its group to begin
  std::string launch;  // of which launch's fixed world this is a rank; empty: of none
  bool operator==(const Hello&) const = default;
};

// Master -> peer: the end of an introduction that cannot succeed. Keeps its layout in every
// version.
struct Reject {
  Code code = Code::kProtocol;
  std::string text;
  bool operator==(const Reject&) const = default;
};

// Master -> peer. The peer now opens its listener and answers with Register.
struct Welcome {
  PeerId peer;
  uint64_t run_id =
      0;  // random: which life of the run this is; a peer resumes only into the same one
  uint32_t incarnation = 0;            // grows with every start of the master
  std::string seen_host;               // the peer's address as the master sees it
  bool loopback_only = false;          // the master listens on loopback: so should the peer
  uint16_t version = kSpoken.highest;  // that the run speaks
  bool operator==(const Welcome&) const = default;
};

// Peer -> master: others reach my listener here. An empty host means "where the master sees me".
// `others`: numeric addresses where it may be reached, too.
struct Register {
  std::string host;
  uint16_t port = 0;
  std::vector<Endpoint> others = {};
  bool operator==(const Register&) const = default;
};

// Both ways, whenever nothing else was sent for a while. A Ping is answered by a Pong with the same
// counter. From a peer both acknowledge: `verdict_index` verdicts of `epoch` (its last EpochStart)
// have been seen. The master sends 0.
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
// master's own host, by the name you reached it" (the other peer shares a machine with the master).
// Connections up to `dead_serial` are dead, even if they do not seem so here.
// `others`: where it may be found, too.
struct Dial {
  PeerId peer;
  std::string host;
  uint16_t port = 0;
  uint32_t dead_serial = 0;
  std::vector<Endpoint> others = {};
  bool operator==(const Dial&) const = default;
};

// Master -> peer: `peer` is gone; close the link, stop dialling.
struct Forget {
  PeerId peer;
  bool operator==(const Forget&) const = default;
};

enum class LinkState : uint8_t { kUp = 0, kDown = 1, kUnreachable = 2 };

// Peer -> master: what became of the link to `peer`. Either side may say each. kUnreachable is said
// once while a peer goes on trying. `serial` (frames.h): of kUp and kDown, of the connection; of
// kUnreachable, of the last one that is known to be dead. A word about an older one is no news.
// `round_trip` in microseconds, of kUp; 0: not measured.
struct LinkReport {
  PeerId peer;
  LinkState state = LinkState::kDown;
  std::string text;  // "10.0.0.7:48201: connection timed out", for the master's log and members
  uint32_t serial = 0;
  uint32_t round_trip = 0;
  LinkFault fault = LinkFault::kOther;  // of kUnreachable: what `peer` itself may be told
  bool operator==(const LinkReport&) const = default;
};

// Master -> a peer, for people: why it is not pending yet, or what the members' call waits for.
struct Notice {
  std::string text;
  bool operator==(const Notice&) const = default;
};

// ---- Epochs -------------------------------------------------------------------------------------

struct Member {
  PeerId peer;
  std::string address;  // for error messages
  bool operator==(const Member&) const = default;
};

// A group's ballot that was settled. `number`: of all its votes; in a broken group, whose members
// count apart, of the vote of `voter`.
struct Settled {
  GroupId group;
  Epoch generation;
  PeerId voter;
  uint32_t number = 0;
  bool operator==(const Settled&) const = default;
};

// Master -> all members, newcomers included: a new epoch begins. Members in rank order. When it
// begins a generation, which then has its name, it is also the answer to the joint update_topology
// of those that voted, and says with which groups it was agreed on.
struct EpochStart {
  Epoch epoch;
  Epoch generation;
  std::vector<Member> members;
  std::vector<uint32_t> ring;  // ranks in ring order: ring[i] sends to ring[i + 1]
  std::vector<PeerId> joined;
  std::vector<PeerId> left;
  uint32_t min_peers = 1;
  std::vector<Settled> together;
  uint32_t exchange_bytes = 0;  // larger all-reduces go around the ring, others are exchanged
  uint32_t round_trip = 0;      // the longest between neighbours in the ring, in microseconds
  bool operator==(const EpochStart&) const = default;
};

// Master -> survivors: the epoch is ending because `lost` were lost. Answer with Report.
struct Ask {
  Epoch epoch;
  std::vector<Member> lost;
  bool operator==(const Ask&) const = default;
};

enum class OpState : uint8_t { kNotDone = 0, kDone = 1, kCommitted = 2, kAborted = 3 };

struct OpReport {
  OpKey op;
  OpState state = OpState::kNotDone;
  uint64_t finished = 0;  // OpInfo::keep, in a Report: elements from the start that are final here
  bool operator==(const OpReport&) const = default;
};

// Survivor -> master: the state of every operation this peer has open in `epoch`. What it has said
// stays so.
struct Report {
  Epoch epoch;
  std::vector<OpReport> ops;
  bool operator==(const Report&) const = default;
};

enum class Outcome : uint8_t { kCommitted = 0, kAborted = 1 };

// How one operation ended, for all members alike. `code` and `text` are set when it aborted. Of a
// kSend it concerns `sender` and `receiver` alone; else they are nobody.
struct Verdict {
  OpKey op;
  Outcome outcome = Outcome::kCommitted;
  Code code = Code::kOk;
  std::string text;
  PeerId sender{};
  PeerId receiver{};
  bool operator==(const Verdict&) const = default;
};

// Master -> members: operations settled while the epoch goes on. `first_index` numbers the first of
// them; verdicts of an epoch are numbered from 0. All before `stable_index` are known to every
// member and may be forgotten.
struct Verdicts {
  Epoch epoch;
  uint64_t first_index = 0;
  uint64_t stable_index = 0;
  std::vector<Verdict> verdicts;
  bool operator==(const Verdicts&) const = default;
};

// What goes on after the end of an epoch, in a renewal whose EpochStart follows: nothing, every
// operation that did not commit, or those alone that are kept.
enum class GoesOn : uint8_t { kNothing = 0, kEverything = 1, kKept = 2 };

// An operation that goes on where it was: `finished` elements from its start have their result.
struct Kept {
  OpKey op;
  uint64_t finished = 0;
  bool operator==(const Kept&) const = default;
};

// Master -> survivors: the epoch is over. Operations that `committed` did; what `goes_on` begins
// again, those `kept` after what they have finished, the others from their start; all else aborted
// with kPeerLost and `text`. Unless everything goes on, nothing can be called before a joint
// update_topology.
struct EpochEnd {
  Epoch epoch;
  std::vector<Member> lost;
  std::vector<OpKey> committed;
  std::string text;
  GoesOn goes_on = GoesOn::kNothing;
  std::vector<Kept> kept;
  bool operator==(const EpochEnd&) const = default;
};

// ---- Operations ---------------------------------------------------------------------------------

enum class OpKind : uint8_t {
  kAllReduce = 0,
  kBroadcast = 1,
  kAllGather = 2,
  kBarrier = 3,
  kSend = 4,
  kRecv = 5
};

// What all members must agree on. For kSend and kRecv: `root` is the sender and both sides describe
// a kSend.
struct OpInfo {
  OpKind kind = OpKind::kAllReduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  uint64_t count = 0;       // elements of one rank's tensor
  PeerId root{};            // broadcast: the root; kSend: the sender
  PeerId receiver{};        // kSend only
  uint32_t world_size = 0;  // as the application saw it when it called
  std::string tag;
  bool keep = false;   // kAllReduce, sum or average: what a loss finds finished keeps its result,
  uint64_t start = 0;  // which so many elements have from earlier epochs
  bool operator==(const OpInfo&) const = default;
};

// Peer -> master: posted. No answer is awaited.
struct Begin {
  Epoch epoch;
  OpKey op;
  OpInfo info;
  bool operator==(const Begin&) const = default;
};

// Peer -> master: all bytes are here and none of mine is still to be sent. `verdict_index`
// acknowledges verdicts.
struct Done {
  Epoch epoch;
  OpKey op;
  uint64_t verdict_index = 0;
  bool operator==(const Done&) const = default;
};

// Peer -> master: please abort (a timeout, no memory). A peer that is not done yet never will be,
// in this epoch. The answer is a verdict, which may be kCommitted.
struct AbortRequest {
  Epoch epoch;
  OpKey op;
  Code code = Code::kOperationTimeout;
  std::string text;
  bool operator==(const AbortRequest&) const = default;
};

// Master -> a member that is not done, as far as the master knows: one that is wants the operation
// aborted, and whoever is done may have committed it by now (agreed()). Not done: answer with an
// AbortRequest of the same, and never be done in this epoch. Done: say so, as ever.
struct Withhold {
  Epoch epoch;
  OpKey op;
  Code code = Code::kOperationTimeout;
  std::string text;
  bool operator==(const Withhold&) const = default;
};

// ---- Joint calls --------------------------------------------------------------------------------

enum class JointKind : uint8_t { kUpdateTopology = 0, kArePeersPending = 1, kSyncSharedState = 2 };
enum class SyncStrategy : uint8_t { kEnforcePopular = 0, kSendOnly = 1, kReceiveOnly = 2 };

struct StateEntry {
  std::string key;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  uint64_t hash = 0;
  bool operator==(const StateEntry&) const = default;
};

// Entries are sorted by key, keys are unique.
struct Offer {
  uint64_t revision = 0;
  SyncStrategy strategy = SyncStrategy::kEnforcePopular;
  std::vector<StateEntry> entries;
  bool operator==(const Offer&) const = default;
};

// Peer -> master: the `number`-th joint call of this peer in the generation, cast in `epoch`. It
// may cross an EpochStart, which answers it or, in a renewal, has it cast again: one of an older
// epoch is void.
struct Vote {
  uint32_t number = 0;
  JointKind kind = JointKind::kUpdateTopology;
  Offer offer;  // kSyncSharedState only
  Epoch epoch;
  bool operator==(const Vote&) const = default;
};

// Peer -> master: joint call `number` has waited for its timeout. The answer is an Answer: the
// call's own, if it was settled meanwhile, else kOperationTimeout with the ranks that are missing,
// for every voter alike. Void when `epoch` is an older one, like its Vote.
struct JointAbort {
  uint32_t number = 0;
  Epoch epoch;
  bool operator==(const JointAbort&) const = default;
};

// Master -> voters: the end of joint call `number`, unless that is an EpochStart.
struct Answer {
  uint32_t number = 0;
  JointKind kind = JointKind::kUpdateTopology;
  Code code = Code::kOk;
  std::string text;
  bool pending = false;   // kArePeersPending
  uint64_t revision = 0;  // kSyncSharedState: what was agreed
  uint64_t state_hash = 0;
  std::vector<Settled> together;  // of a call of all groups that was settled, where there are some
  bool operator==(const Answer&) const = default;
};

struct Transfer {
  PeerId source;
  PeerId destination;
  std::vector<uint32_t> keys;  // indices into the offer, ascending
  bool operator==(const Transfer&) const = default;
};

// Master -> voters of a shared-state sync in which some are stale: who sends which entries to whom.
// A peer gets the transfers it takes part in. A destination answers with Fetched; all get the
// Answer when the last has.
struct SyncPlan {
  uint32_t number = 0;
  uint64_t revision = 0;
  std::vector<StateEntry> entries;  // what the elected state looks like
  std::vector<Transfer> transfers;
  bool operator==(const SyncPlan&) const = default;
};

// Peer -> master: every entry has arrived in staging and has the elected hash (kOk), or why not.
struct Fetched {
  uint32_t number = 0;
  Code code = Code::kOk;
  std::string text;
  bool operator==(const Fetched&) const = default;
};

// ---- Endings and reconnection -------------------------------------------------------------------

// Peer -> master: I go, by my own will.
struct Leave {
  bool operator==(const Leave&) const = default;
};

// Master -> peer: you were declared lost. Last on the connection.
struct Kicked {
  std::string text;
  bool operator==(const Kicked&) const = default;
};

// Peer -> master, first on a connection that replaces a broken one (PROTOCOL.md, section 7).
struct Resume {
  uint32_t magic = kControlMagic;
  VersionRange versions = kSpoken;
  std::string run;
  uint64_t run_id = 0;
  PeerId peer;
  Epoch epoch;                        // the last EpochStart seen
  bool ended = false;                 // its EpochEnd was seen
  bool disturbed = false;             // it was asked about, or a link to a member of it has broken
  std::vector<OpReport> ops;          // open ones
  std::vector<OpInfo> infos;          // beside `ops`
  uint64_t verdict_index = 0;         // verdicts seen
  uint64_t stable_index = 0;          // verdicts below are not repeated in `verdicts`
  std::vector<Verdict> verdicts;      // [stable_index, verdict_index)
  uint32_t joint_answered = 0;        // joint calls of this generation that were answered
  std::optional<Answer> last_answer;  // the last Answer to one of them
  std::vector<Settled> together;      // as the last Answer or EpochStart had it that had any,
  bool pending = false;               // and whether that was a yes to are_peers_pending
  Standing standing = Standing::kNone;
  std::optional<Hello> hello;  // before admission: a restarted master has forgotten it
  bool operator==(const Resume&) const = default;
};

// Master -> peer: go on. Whatever the peer missed follows on this connection; it sends again its
// open Vote, Fetched and AbortRequests.
struct Resumed {
  uint32_t incarnation = 0;
  bool operator==(const Resumed&) const = default;
};

using Message =
    std::variant<Hello, Reject, Welcome, Register, Ping, Pong, Dial, Forget, LinkReport, Notice,
                 EpochStart, Ask, Report, Verdicts, EpochEnd, Begin, Done, AbortRequest, Vote,
                 JointAbort, Answer, SyncPlan, Fetched, Leave, Kicked, Resume, Resumed, Withhold>;

// Such an operation may commit as soon as a member knows of all that they are done: nobody is
// before all have called it, so that whoever is asked to withhold it knows it.
inline bool agreed_among_members(const OpInfo& info) {
  return (info.kind == OpKind::kAllReduce || info.kind == OpKind::kAllGather) && info.count > 0;
}

// What master and peers compare to find a mismatch: 64 bits over every field of OpInfo. Never 0.
uint64_t digest(const OpInfo& info);

// "all_reduce(sum, float32, 1048576 elements, world size 4)": for error messages.
std::string text(const OpInfo& info);
// "(layer.3, #12)", or "(#12)" for the default tag.
std::string text(const OpInfo& info, OpKey op);
// Of everybody who took part in such a joint call, when it has succeeded.
inline Standing standing_after(JointKind kind) {
  return kind == JointKind::kSyncSharedState ? Standing::kSynced : Standing::kCalled;
}

const char* text(JointKind kind);  // "update_topology"
const char* text(OpKind kind);     // "all_reduce"

}  // namespace pccl::protocol
