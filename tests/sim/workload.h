// Workload: the application of a simulated peer. A training in small: sync the shared state, post a
// batch of collectives under several tags, fold the results into the state, ask for a topology
// update, again. All peers derive the same program from (seed, generation, turn); each posts a
// batch in an order of its own. After an error it calls update_topology and goes on, as a user is
// told to. Every outcome goes to the Checker.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/checker.h"
#include "tests/sim/peer_node.h"

namespace pccl::sim {

// How a newcomer may be wrong. The members' first call after an update_topology is
// sync_shared_state or, in groups without a shared state, a batch of collectives.
enum class Mistake : uint8_t {
  kNone,
  kShape,      // a state of another shape,
  kDtype,      // of another type,
  kExtraKey,   // with another entry,
  kAhead,      // of a revision that nobody else has,
  kSendOnly,   // that must not be overwritten
  kPending,    // another joint call
  kUpdate,     // likewise
  kOperation,  // a collective that nobody else calls
  kDigest,     // the collectives of the others, with other sizes
  kSilent,     // nothing
};

class Workload : public App {
 public:
  struct Rules {
    Duration timeout;               // of every call
    bool peers_may_be_lost = true;  // else nothing may fail for a loss
    bool retries = false;           // policy retry: only what no longer means anything may fail
    bool shares_state = true;       // else it never syncs
    bool joins = true;              // else it does nothing at all
    // Unless it founds its group, all that it ever calls is this.
    Mistake mistake = Mistake::kNone;
    std::function<bool()> excused = {};  // whether what befell it may have kept it from calling
    std::function<bool()> may_be_refused = {};  // whether a member may not have reached it
    std::function<bool()> may_forget = {};      // a step that the others take
    std::function<void()> on_mistake = {};
  };
  Workload(PeerNode& node, Checker& checker, uint64_t seed, const Rules& rules);

  void on_op(const peer::FinishOp& result) override;
  void on_joint(const peer::FinishJoint& result) override;
  void on_renewed(const peer::Topology& topology) override;
  void on_gone(const Status& status) override;
  ring::Memory memory(peer::Handle handle) override;
  std::vector<std::span<std::byte>> state(peer::Handle handle, const std::vector<uint32_t>& keys,
                                          bool staging) override;

  uint64_t turns() const { return turns_; }  // batches finished well since the start
  bool is_founder() const { return founder_; }
  bool joins() const { return rules_.joins; }
  bool has_state() const { return has_state_; }  // took part in a sync that agreed
  bool in_call() const { return joint_.has_value() || !open_.empty(); }
  bool mistaken() const { return rules_.mistake != Mistake::kNone && !founder_; }
  bool is_compared() const { return compared_; }
  bool silent() const { return silent_; }                 // its mistake is to call nothing
  Instant last_success() const { return last_success_; }  // of a call
  Instant last_progress() const { return last_progress_; }
  std::string doing() const;

 private:
  struct Call {  // one planned collective
    protocol::OpKind kind = protocol::OpKind::kAllReduce;
    DType dtype = DType::kFloat32;
    ReduceOp reduce = ReduceOp::kSum;
    uint64_t count = 0;
    uint32_t root = 0, peer = 0;  // ranks: broadcast's root; sender and receiver
    std::string tag, name;
    bool keep = false;      // on_loss
    bool crossing = false;  // posted by all before the topology update, and waited for after it
    bool hasty = false;     // its root may not want to wait until it is over
    bool late = false;      // posted by one rank before the topology update, by the others after it
  };
  enum class Stage : uint8_t { kSync, kBatch, kPending, kUpdate, kLate };
  struct Posted {
    Call call;
    std::vector<std::vector<std::byte>> buffers;  // by rank for all-gather, else one
    std::vector<std::vector<std::byte>> before;
  };
  std::vector<Call> plan() const;
  Call planned_call(Random& random, uint64_t index) const;
  void post(const Call& call);
  Duration patience(const Call& call) const;
  void post_batch(bool late);
  void enter(Stage stage);
  void finished_stage();  // whatever comes after a stage that ended well
  void think();
  bool waiting() const;  // for an operation of this stage
  void fold_batch();
  void recover();  // after a loss, when nothing is open any more
  void joint(protocol::JointKind kind);
  void offer_state();
  peer::JointCalled offer() const;
  void make_mistake();
  std::vector<Call> first_collectives() const;
  void post_alone();
  void offer_wrong_state();
  void on_refused_state(const Status& status);
  // Perhaps nobody is left that could say which of two newcomers is wrong.
  bool is_unjudged() const;
  void state_agreed(const peer::FinishJoint& result);
  void new_generation(const peer::Topology& topology);
  void check_result(const Posted& posted, const peer::FinishOp& result);
  void fail(const std::string& what);
  uint8_t input(PeerId peer, const Call& call, uint64_t index) const;
  void fill(std::vector<std::byte>& bytes, PeerId peer, const Call& call) const;
  double reduced(const Call& call, const std::vector<PeerId>& over, uint64_t index) const;
  std::vector<std::byte> expected(const Call& call, uint32_t block,
                                  const std::vector<peer::Part>& parts) const;
  uint64_t state_hash() const;
  std::string where() const;

  PeerNode& node_;
  Checker& checker_;
  const uint64_t seed_;
  const Rules rules_;
  peer::Topology topology_;                 // of this turn
  std::optional<peer::Topology> next_;      // of the next, when a loss has changed it
  std::map<Epoch, peer::Topology> epochs_;  // since the generation began: who took part
  std::map<peer::Handle, Posted> open_;
  std::optional<protocol::JointKind> joint_;
  std::vector<std::vector<std::byte>> state_, staging_;
  uint64_t revision_ = 0, turn_ = 0, turns_ = 0, batch_fold_ = 0;
  Stage stage_ = Stage::kSync;
  bool has_state_ = false, newcomer_ = false, failed_ = false, batch_failed_ = false, gone_ = false;
  bool founder_ = false, compared_ = false, silent_ = false;
  bool late_is_over_ = false;  // the late call of this turn has its outcome, the same on all ranks
  Instant last_progress_, last_success_;
  protocol::SyncStrategy strategy_ = protocol::SyncStrategy::kEnforcePopular;  // of the last offer
  uint64_t agreed_ = 0;    // the revision of the last sync
  bool diverged_ = false;  // by its own fault, since then
};

}  // namespace pccl::sim
