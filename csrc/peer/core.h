// PeerCore: one peer of one run, as the control plane sees it. Pure: `step` is the only way its
// state changes, `deadline` the only way time gets in. It talks to the master (messages), to the
// data plane (links, operations) and to the application (handles). Composed of connection (to the
// master), membership (phases, epochs, links), operation (one collective's life), joint (the joint
// call under way) and state_sync (shared-state transfers). PROTOCOL.md is its specification.
// Every handle that comes in with a call is finished exactly once, whatever happens.
// A message the protocol forbids closes the connection to the master (it is then resumed or given
// up); an event from our own shell that the tables forbid is an assertion.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/messages.h"
#include "csrc/ring/core.h"

namespace pccl::peer {

// What the application calls an outstanding call of its own. Chosen by the shell, never reused.
using Handle = uint64_t;

// Where others reach this peer.
struct Advertised {
  std::string host;  // empty: where the master sees it
  // The number that the first port of those it may listen on has outside; the others follow. 0: the
  // same as inside.
  uint16_t port_first = 0;
  uint16_t listens_first = 0;
};

struct Options {
  std::string run;
  GroupId group;
  uint32_t min_peers = 1;
  uint32_t founders = 0;  // so many begin together; 0: min_peers
  int32_t rank = -1;      // wanted among the founders; -1: any
  std::string library = "pccl";
  protocol::VersionRange versions = protocol::kSpoken;
  Advertised advertised;
  protocol::LossPolicy policy = protocol::LossPolicy::kRaise;
  bool restore = true;  // what a failed operation has overwritten is put back
  Duration join_timeout = std::chrono::minutes(30);
  Duration peer_timeout = protocol::kPeerTimeoutDefault;
  Duration first_call_timeout{0};  // how long members wait for a newcomer; 0: peer_timeout
  std::string launch;  // of which this is one of several ranks: all members are; empty: of none
  Duration master_timeout = protocol::kMasterTimeoutDefault;
  std::string master_text;  // "host:port", for error messages
};

// The group as the application sees it: changes when init or update_topology returns and, under
// policy retry, when it looks after a loss.
struct Topology {
  Epoch epoch;
  Epoch generation;  // numbers of operations start at zero in it
  uint32_t rank = 0;
  std::vector<protocol::Member> members;  // in rank order
  std::vector<uint32_t> ring;             // ranks in ring order
  std::vector<PeerId> joined;
  std::vector<PeerId> left;
  uint32_t exchange_bytes = 0;  // larger all-reduces go around the ring
  bool far = false;             // it takes long from one member to the next
};

// A collective as the application posts it. Root and peer are ranks of the topology it sees.
// What is called while a vote for update_topology is open is held until the answer: its timeout
// counts from then on, and it takes its number in the epoch in which it starts.
struct OpRequest {
  Handle handle = 0;
  protocol::OpKind kind = protocol::OpKind::kAllReduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  uint64_t count = 0;  // elements of one rank's tensor
  int32_t root = -1;   // kBroadcast: root; kSend: destination; kRecv: source
  std::string tag;
  Duration timeout{0};  // 0: none
  bool keep = false;    // kAllReduce: what a loss finds finished everywhere keeps its result
};

// ---- Events: from the application ----
struct JoinCalled {  // once, first
  Handle handle;
};
struct OpCalled {
  OpRequest request;
};
struct JointCalled {
  Handle handle = 0;
  protocol::JointKind kind = protocol::JointKind::kUpdateTopology;
  protocol::Offer offer;
  Duration timeout{0};
};
struct JointGivenUp {  // its timeout is now; unknown or finished: ignored
  Handle handle;
};
// Ranks that are named from here on are those of this epoch, one that EpochRenewed told of.
struct TopologySeen {
  Epoch epoch;
};
struct LeaveCalled {};
// ---- from the connection to the master ----
struct MasterConnected {};
struct MasterClosed {  // could not connect, or broke
  Status why;
};
struct MasterSent {
  protocol::Message message;
};
// ---- from the data plane ----
struct Listening {
  Result<uint16_t> port;
  std::vector<std::string> hosts = {};  // numeric, of the interfaces where it listens
};
struct LinkChanged {
  protocol::LinkReport report;
};
struct OpTransferred {
  Epoch epoch;
  OpKey op;
};
struct OpProgressed {  // of the elements that it started with; of an operation that is kept
  Epoch epoch;
  OpKey op;
  uint64_t finished = 0;
};
struct OpAgreed {  // answer to SayDone: all members are done
  Epoch epoch;
  OpKey op;
};
struct OpDrained {
  Epoch epoch;
  OpKey op;
};
// Here only (no memory): aborted by way of the master. EndOp follows, and OpDrained has to follow
// that.
struct OpFailed {
  Epoch epoch;
  OpKey op;
  Status why;
};
// ---- from the shell ----
struct StateVerified {  // answer to VerifyState
  Handle handle;
  Status status;
};
struct TimePassed {};
using Event =
    std::variant<JoinCalled, OpCalled, JointCalled, LeaveCalled, MasterConnected, MasterClosed,
                 MasterSent, Listening, LinkChanged, OpTransferred, OpProgressed, OpAgreed,
                 OpDrained, OpFailed, StateVerified, TimePassed, JointGivenUp, TopologySeen>;

// ---- Effects, to be carried out in order ----
struct ConnectMaster {};
struct CloseMaster {};  // after what was sent has left; no MasterClosed follows
struct SendMaster {
  protocol::Message message;
};
struct Listen {
  PeerId self;
  uint64_t run_id = 0;
  uint16_t version = 0;  // of the protocol, that the run speaks
  bool loopback_only = false;
};
struct DialPeer {
  protocol::Dial dial;
};
struct ForgetPeer {
  PeerId peer;
};
struct BeginEpoch {
  Epoch epoch;
  std::vector<PeerId> peers;       // the other members
  std::vector<PeerId> neighbours;  // those of them that are next to this one in the ring
};
// Posts to the data plane. Memory: the application's for `handle`; for shared state
// (task.shape.pattern kTransfer and `keys` not empty) the entries `keys` of that joint call, the
// tensors themselves on the source, staging elsewhere.
// Of an all-gather, task.shape.rank is the place in the ring, and so is the index of a block; the
// application's spans are in rank order: block i is the span of rank Topology::ring[i].
struct StartOp {
  Handle handle = 0;
  ring::Task task;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  int contributors = 1;
  std::vector<uint32_t> keys;
  uint64_t start = 0;  // elements of the application's tensor before those of the task
};
using ring::Ending;
using EndOp = ring::OpEnded;  // also of operations that never started here
struct SayDone {              // to the other members
  OpKey op;
};
struct VerifyState {  // of staging
  Handle handle;
  std::vector<uint32_t> keys;
  std::vector<uint64_t> hashes;
};
// Whose tensors the elements up to `end`, from where the one before it ends, were reduced over.
struct Part {
  uint64_t end = 0;
  std::vector<PeerId> contributors;  // in rank order
  bool operator==(const Part&) const = default;
};
struct FinishOp {  // the application's tensor is its own again
  Handle handle = 0;
  Status status;
  Epoch epoch;  // none: it never got as far as a number
  OpKey op;
  std::vector<Part> parts;         // of an operation that is kept, when it committed
  bool ended_before_call = false;  // it had a verdict when it was called here
};
struct FinishJoint {  // join and joint calls
  Handle handle = 0;
  Status status;
  protocol::JointKind kind = protocol::JointKind::kUpdateTopology;
  std::optional<Topology> topology;  // join, and update_topology whether it changed or not
  bool pending = false;
  uint64_t revision = 0, state_hash = 0;
  // Keys whose staging is to be copied into the tensors before the call returns, and the elected
  // state.
  std::vector<uint32_t> install;
  std::vector<protocol::StateEntry> entries;
};
// Members were lost and the rest goes on (policy retry): for when the application looks.
struct EpochRenewed {
  Topology topology;
};
// The peer is out of the run for good; ok after LeaveCalled. Last: every handle has been finished.
struct Gone {
  Status why;
};
struct Log {
  LogLevel level = LogLevel::kInfo;
  std::string text;
};
using Effect = std::variant<ConnectMaster, CloseMaster, SendMaster, Listen, DialPeer, ForgetPeer,
                            BeginEpoch, StartOp, EndOp, SayDone, VerifyState, FinishOp, FinishJoint,
                            EpochRenewed, Gone, Log>;
using Effects = std::vector<Effect>;

class PeerCore {
 public:
  explicit PeerCore(Options options);
  ~PeerCore();
  PeerCore(PeerCore&&) noexcept;

  void step(const Event& event, Instant now, Effects& effects);
  std::optional<Instant> deadline() const;
  // Why every call but update_topology fails: ok unless a member was lost since the epoch began.
  const Status& broken() const;

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace pccl::peer
