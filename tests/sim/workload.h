// Workload: the application of a simulated peer, a small training. It syncs the shared state, posts
// a batch of collectives under several tags, folds the results into the state, calls
// update_topology, and repeats. All peers derive the same program from (seed, generation, turn).
// Each posts a batch in its own order. After an error it calls update_topology and continues, as
// the README tells users to do. Every outcome goes to the Checker.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "tests/sim/checker.h"
#include "tests/sim/peer_node.h"

namespace pccl::sim {

// How a newcomer may be wrong. The members' first call after an update_topology is
// sync_shared_state or, in groups without a shared state, a batch of collectives.
enum class Mistake : uint8_t {
  kNone,
  kShape,      // offers a state of another shape
  kDtype,      // offers a state of another dtype
  kExtraKey,   // offers a state with another entry
  kAhead,      // offers a revision that nobody else has
  kSendOnly,   // offers a state that must not be overwritten
  kPending,    // makes another joint call
  kUpdate,     // likewise
  kOperation,  // posts a collective that nobody else calls
  kDigest,     // posts the collectives of the others, with other sizes
  kSilent,     // calls nothing
  kHangs,      // makes the right call, and fetches nothing
};

// The peer is out of the run: its calls end as no call of the others does.
inline bool is_out(Code code) {
  return code == Code::kKicked || code == Code::kMasterLost || code == Code::kAuthentication;
}

// It has searched for its master in vain, or has lost it in a reconfigure: it is out of the run.
inline bool has_lost_master(const std::string& error) {
  return error.find("no master at ") != std::string::npos ||
         error.find("where all meet") != std::string::npos;
}

class Workload : public App {
 public:
  struct Rules {
    Duration timeout;               // limit of every call
    bool peers_may_be_lost = true;  // false: nothing may fail because of a loss
    bool ranks_give_up = true;      // ranks of the run may give up are_peers_pending
    bool retries = false;           // policy retry: only obsolete operations may fail
    bool shares_state = true;       // false: it never syncs
    bool rings_only = false;        // the run asks for the ring, for quantized tensors too
    bool joins = true;              // false: it does nothing at all
    bool one_lies = false;          // so any call may fail, and the ranks wait for each other
    // With a liar: while a peer is pending, no cycle of waits is found, and the timeout ends it.
    std::function<bool()> may_time_out = {};
    // The only thing that it ever calls, unless it founds its group.
    Mistake mistake = Mistake::kNone;
    std::function<bool()> excused = {};         // whether faults may have kept it from calling
    Duration aftermath{0};                      // after this time all know who was removed
    std::function<bool()> may_be_refused = {};  // whether a member may have failed to reach it
    std::function<bool()> may_forget = {};      // whether it may skip a step of the others
    std::function<void()> on_forgotten = {};    // it has skipped one
    // Whether nobody is left that took part in agreeing on the state that this error names.
    std::function<bool(const std::string&)> state_is_lost = {};
    std::function<void()> on_mistake = {};
  };
  Workload(PeerNode& node, Checker& checker, uint64_t seed, const Rules& rules);

  void on_op(const peer::FinishOp& result) override;
  void on_joint(const peer::FinishJoint& result) override;
  void on_reconfigured(const peer::Topology& topology) override;
  void on_gone(const Status& status) override;
  ring::Memory memory(peer::Handle handle) override;
  std::vector<peer::StateSpan> state() override;
  std::optional<peer::StateSpans::MayAdd> may_add() const override;
  void on_added(std::vector<peer::AddedEntry> added) override;
  bool receives_only() const override { return strategy_ == protocol::SyncStrategy::kReceiveOnly; }

  bool syncs_in_background() const override { return in_background_; }
  void on_decided(bool receives) override;
  void on_install() override;
  void on_called(peer::Handle handle, bool fetches) override;
  peer::WaitsSeen waits() const override;
  void on_started(const peer::StartOp& start, std::vector<PeerId> order) override;

  // At the end of its turn it computes for so much longer than usual. `begun`: called then. Zero:
  // not any more, unless it has begun.
  void be_late(Duration time, std::function<void()> begun = {});
  // It is about to be late, is late, or was so just now: it may be removed for it.
  bool is_late() const;
  // Before its first call: the process comes from another run, with this state.
  void begin_with(const Workload& before) {
    state_ = before.state_;
    revision_ = before.revision_;
  }
  // The application reconfigures its group, and the call comes between two others. Returns false if
  // it is in a joint call. `over`: called with the result.
  using RegroupOver = std::function<void(const peer::FinishJoint&)>;
  bool regroup(const protocol::Rendezvous& with, Duration timeout, RegroupOver over);
  void give_up_regroup();                    // REQUIRES: it is not over
  uint64_t turns() const { return turns_; }  // batches that ended well since the start
  bool is_founder() const { return founder_; }
  bool joins() const { return rules_.joins; }
  bool may_time_out() const { return rules_.may_time_out && rules_.may_time_out(); }
  bool has_state() const { return has_state_; }  // took part in a sync that agreed
  // Whether it last agreed on the state that this error names.
  bool agreed_on_state_in(const std::string& error) const;
  bool mistaken() const { return rules_.mistake != Mistake::kNone && !founder_; }
  bool is_compared() const { return compared_; }
  bool silent() const { return silent_; }  // its mistake is to do nothing, or to fetch nothing
  bool ended_by_loss() const { return ended_by_loss_; }      // a call of its mistake was
  const std::string& gone_why() const { return gone_why_; }  // why it is out of the run
  Instant last_success() const { return last_success_; }     // end of the last successful call
  std::string doing() const;
  // For the end of a call.
  bool is_in_call() const { return (joint_ && !apart_) || !open_.empty(); }

 private:
  struct Call {  // one planned collective
    protocol::OpKind kind = protocol::OpKind::kAllReduce;
    DType dtype = DType::kFloat32;
    ReduceOp reduce = ReduceOp::kSum;
    uint64_t count = 0;
    uint32_t root = 0, peer = 0;  // ranks: the root, or the sender; the receiver
    std::string tag, name;
    bool uneven = false;    // parts of different sizes
    bool any = false;       // a send that is received from any source
    bool apart = false;     // an all-gather or a reduce-scatter that is not in place
    bool keep = false;      // on_loss="keep"
    bool crossing = false;  // all post it before the topology update, and wait for it after
    bool hasty = false;     // its root may give up before it is over
    bool late = false;      // one rank posts it before the topology update, the others after
    WireFormat format = {};
  };
  enum class Stage : uint8_t { kSync, kBatch, kPending, kUpdate, kLate, kOptimize };
  using Buffers = std::vector<std::vector<std::byte>>;
  struct Attempt {  // to carry out an operation, in one epoch
    ring::Shape shape;
    std::vector<PeerId> order;  // the members, as in on_started()
  };
  struct Posted {
    Call call;
    Buffers buffers;  // what the operation writes: one per rank, or one
    Buffers before, inputs;
    Epoch generation = {};
    uint32_t sequence = 0;  // its number under its tag, unless it is a send
    // If it may be quantized around a ring, by its first element: each attempt began with the first
    // element that was not kept.
    std::map<uint64_t, Attempt> attempts = {};
  };
  static Buffers fresh_state();
  static bool same_on_all(const Call& call);  // whether all ranks get the same result
  uint64_t part(const Call& call, uint32_t from, uint32_t to) const;  // elements
  static bool is_into_input(const Call& call);
  Buffers inputs_of(const Call& call, uint32_t rank) const;
  Buffers outputs_of(const Call& call) const;
  std::vector<std::byte> block_of(const Call& call, uint32_t from, uint32_t to) const;
  std::vector<Call> plan() const;
  Call planned_call(Random& random, uint64_t index) const;
  void quantize(Call& call, Random& random) const;
  void post(const Call& call);
  Duration patience(const Call& call) const;
  int8_t priority(peer::Handle handle) const;
  void post_batch(bool late);
  void enter(Stage stage);
  void finished_stage();  // what follows a stage that ended well
  void think();
  void after_regroup(const peer::FinishJoint& result);
  bool waiting() const;  // for an operation of this stage
  void go_on();          // no operation of this stage is open any more
  void fold_batch();
  void recover();  // after a loss, when no operation is open any more
  void joint(protocol::JointKind kind);
  void optimize(Random& random);
  void post_crossing();
  void ask_for_pending(Random& random);
  void offer_state();
  void call_sync(peer::JointCalled call);
  peer::JointCalled offer() const;
  std::set<size_t> lacking() const;
  void make_mistake();
  std::vector<Call> first_collectives() const;
  void post_alone();
  void offer_wrong_state();
  void offer_and_hang();
  void on_refused_state(const Status& status);
  bool was_judged(Epoch epoch) const;
  // Whether perhaps no member is left that could decide which of two newcomers is wrong.
  bool is_unjudged() const;
  void state_agreed(const peer::FinishJoint& result);
  void new_generation(const peer::Topology& topology);
  void check_result(const Posted& posted, const peer::FinishOp& result);
  void fail(const std::string& what);
  uint8_t input(PeerId peer, const Call& call, uint64_t index) const;
  void fill(std::vector<std::byte>& bytes, PeerId peer, const Call& call) const;
  double reduced(const Call& call, const std::vector<PeerId>& over, uint64_t index) const;
  bool is_quantized(const Call& call, size_t members) const;
  std::vector<PeerId> members_at(Epoch epoch) const;
  // Without those that are absent from the call.
  std::vector<PeerId> present(const Call& call, std::vector<PeerId> members) const;
  // Appends the elements from `start` to the end of the part, which are quantized. `members`: of
  // the epoch in which they were reduced.
  void append_quantized(std::vector<std::byte>& out, const Posted& posted, uint64_t start,
                        const peer::Part& part, size_t members) const;
  // The bytes of the span with the number `block` after a success; nothing if they are a reduction.
  std::optional<std::vector<std::byte>> moved(const Posted& posted, uint32_t block) const;
  // The elements from `start` to the end of the part, reduced in an epoch of `members` members.
  std::vector<std::byte> reduced_part(const Posted& posted, uint64_t start, const peer::Part& part,
                                      size_t members) const;
  // How many members the epoch may have had in which the part was reduced. `known`: so many.
  std::vector<size_t> member_counts(const Call& call, const peer::Part& part,
                                    std::optional<size_t> known) const;
  bool is_right(const Posted& posted, uint32_t block, const std::vector<peer::Part>& parts,
                std::optional<size_t> members) const;
  // For a run that asks for the ring: all elements, as the attempts have reduced them.
  std::vector<std::byte> reduced_around(const Posted& posted) const;
  std::vector<std::byte> quantized_around(const Posted& posted, uint64_t start,
                                          const Attempt& attempt) const;
  std::string where() const;

  PeerNode& node_;
  Checker& checker_;
  const uint64_t seed_;
  const Rules rules_;
  peer::Topology topology_;                 // of this turn
  std::optional<peer::Topology> next_;      // of the next turn, when a loss has changed it
  std::map<Epoch, peer::Topology> epochs_;  // who took part, since the generation began
  std::map<peer::Handle, Posted> open_;
  std::map<std::string, uint32_t> called_;  // collectives in this generation, by tag
  std::optional<protocol::JointKind> joint_;
  Instant waits_since_;            // it waits for one call after the other
  peer::Handle joint_handle_ = 0;  // of the last call that is no sync
  Instant joint_since_;            // it began then
  std::vector<std::vector<std::byte>> state_;
  std::set<size_t> lacks_;  // entries that its last offer did not have
  uint64_t revision_ = 0, turn_ = 0, turns_ = 0, batch_fold_ = 0;
  Stage stage_ = Stage::kSync;
  bool has_state_ = false, newcomer_ = false, failed_ = false, batch_failed_ = false, gone_ = false;
  bool founder_ = false, compared_ = false, silent_ = false;
  bool ended_by_loss_ = false;
  std::string gone_why_;
  std::optional<uint64_t> agreed_hash_;  // of the state that it last agreed on
  bool optimized_ = false;               // in this turn: what crosses the update is posted already
  bool late_is_over_ = false;  // the late call of this turn has its outcome, as on all ranks
  Instant last_success_;
  Duration late_by_{0};  // see be_late(); zero: it is not about to be late
  Instant late_until_;
  std::function<void()> on_late_;
  RegroupOver regroup_over_;                   // empty: no reconfigure is under way
  bool thinks_ = false, has_thought_ = false;  // it computes; it has, while a reconfigure began
  protocol::SyncStrategy strategy_ = protocol::SyncStrategy::kEnforcePopular;  // of the last offer
  bool in_background_ = false;  // so is the last sync
  bool apart_ = false;          // it goes on with its batch, and has not waited for the sync yet
  bool fetches_ = false;        // in that sync
  std::vector<std::vector<std::byte>> lent_;  // the state, when that sync was decided
  uint64_t agreed_ = 0;                       // the revision of the last sync
  bool diverged_ = false;                     // its state differs by its own fault, since then
};

}  // namespace pccl::sim
