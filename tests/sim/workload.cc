#include "tests/sim/workload.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "csrc/memory/state_hash.h"

namespace pccl::sim {
namespace {

constexpr Duration kThinkMax = std::chrono::milliseconds(100);
// Timeout of a hasty operation. The operation may or may not complete within it.
constexpr Duration kHasteMin = std::chrono::milliseconds(1),
                   kHasteMax = std::chrono::milliseconds(100);
constexpr uint64_t kCounts[] = {0, 1, 7, 100, 1000, 3000};
// One call in kLargeOneIn is larger. It takes as many steps of the wires as all others together.
constexpr uint64_t kLargeOneIn = 20;
constexpr uint64_t kCountLarge = 20000;
// Several slices. On slow wires this would take a quarter of a minute.
constexpr uint64_t kCountKept = 150000;
constexpr uint64_t kKeptOneIn = 12;
// A peer forgets one step in kForgetsOneIn. All members skip one sync in kSkipsOneIn.
constexpr uint64_t kForgetsOneIn = 12, kSkipsOneIn = 6;
// All members optimize their topology in one turn of kOptimizesOneIn, within one of these times.
constexpr uint64_t kOptimizesOneIn = 4;
// Milliseconds, and max_bytes: 4 MiB are two turns.
constexpr std::array<std::pair<uint32_t, uint64_t>, 3> kBudgets = {
    {{0, 0}, {700, 0}, {3000, 4u << 20}}};

uint64_t hash_of(const std::vector<std::vector<std::byte>>& buffers) {
  uint64_t hash = 1;
  for (const auto& buffer : buffers)
    hash = mix(hash, memory::state_hash(buffer.data(), buffer.size()));
  return hash;
}

std::string hex(uint64_t value) {
  char out[17];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(value));
  return out;
}

// Whether the sync failed because a member has taken several steps since the last one.
bool refused_for_steps(const Status& status) {
  return status.message.find("may advance by one revision") != std::string::npos;
}

}  // namespace

Workload::Workload(PeerNode& node, Checker& checker, uint64_t seed, const Rules& rules)
    : node_(node), checker_(checker), seed_(seed), rules_(rules) {
  state_ = fresh_state();
  if (rules_.joins) node_.call(peer::JoinCalled{node_.new_handle()});
}

// ---- The program ----

Workload::Call Workload::planned_call(Random& random, uint64_t index) const {
  constexpr DType kDTypes[] = {DType::kFloat32, DType::kInt64, DType::kBfloat16};
  constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kProduct, ReduceOp::kAvg};
  const auto world = static_cast<uint32_t>(topology_.members.size());
  Call call;
  constexpr protocol::OpKind kKinds[] = {
      protocol::OpKind::kBroadcast,     protocol::OpKind::kAllGather, protocol::OpKind::kBarrier,
      protocol::OpKind::kReduceScatter, protocol::OpKind::kReduce,    protocol::OpKind::kGather,
      protocol::OpKind::kScatter,       protocol::OpKind::kAllToAll,  protocol::OpKind::kSend};
  const uint64_t kind = random.below(2 * std::size(kKinds));  // half of all are all-reduces
  if (kind < std::size(kKinds)) call.kind = kKinds[kind];
  if (call.kind == protocol::OpKind::kSend && world == 1) call.kind = protocol::OpKind::kAllReduce;
  call.apart = random.once_in(2);
  const bool may_be_uneven =
      call.kind == protocol::OpKind::kAllToAll || call.kind == protocol::OpKind::kAllGather;
  call.uneven = random.once_in(3) && may_be_uneven;
  call.dtype = kDTypes[random.below(3)];
  call.reduce = kOps[random.below(is_floating(call.dtype) ? 4 : 3)];
  call.count = kCounts[random.below(std::size(kCounts))];
  if (random.once_in(kLargeOneIn)) call.count = kCountLarge;
  if (call.kind == protocol::OpKind::kBarrier) call.count = 0;
  call.root = static_cast<uint32_t>(random.below(world));
  call.peer =
      static_cast<uint32_t>((call.root + 1 + random.below(world > 1 ? world - 1 : 1)) % world);
  call.tag = random.once_in(3) ? "" : "t" + std::to_string(index);
  // Under policy retry a loss ends the receive alone, and the send would wait for ever.
  call.any = random.once_in(2) && call.kind == protocol::OpKind::kSend && !rules_.retries;
  if (call.any) call.tag = "any" + std::to_string(index);  // no other send can be taken for it
  const bool may_keep = call.kind == protocol::OpKind::kAllReduce &&
                        (call.reduce == ReduceOp::kSum || call.reduce == ReduceOp::kAvg);
  call.keep = random.once_in(2) && may_keep;
  const bool fast = node_.world().options().wire.fast();
  if (call.keep && random.once_in(kKeptOneIn) && fast) call.count = kCountKept;
  return call;
}

std::vector<Workload::Call> Workload::plan() const {
  Random random(mix(mix(seed_, topology_.generation.value), turn_));
  std::vector<Call> calls;
  const uint64_t count = random.between(1, 5);
  for (uint64_t index = 0; index < count; ++index) calls.push_back(planned_call(random, index));
  // With a liar, any call may be aborted, which must not end it at different times.
  const bool apart = !rules_.one_lies;
  if (random.once_in(3) && apart) {
    calls.push_back(planned_call(random, count));
    calls.back().kind = protocol::OpKind::kAllReduce;
    calls.back().uneven = false;
    calls.back().tag = "late";
    calls.back().late = true;
  }
  if (random.once_in(3) && apart) {
    calls.push_back(planned_call(random, calls.size()));
    calls.back().kind = protocol::OpKind::kAllReduce;
    calls.back().uneven = false;
    calls.back().tag = "crossing";
    calls.back().crossing = true;
  }
  if (rules_.peers_may_be_lost && random.once_in(4) && apart) {
    calls.push_back(planned_call(random, calls.size()));
    calls.back().kind =
        random.once_in(2) ? protocol::OpKind::kAllReduce : protocol::OpKind::kAllGather;
    calls.back().keep &= calls.back().kind == protocol::OpKind::kAllReduce;
    calls.back().uneven &= calls.back().kind == protocol::OpKind::kAllGather;
    calls.back().tag = "hasty";
    calls.back().hasty = true;
  }
  // Apart from the other numbers, so that the runs of earlier seeds stay nearly as they were.
  Random formats(mix(mix(seed_ ^ 0xf02a7, topology_.generation.value), turn_));
  for (Call& call : calls) {
    if (formats.once_in(3)) quantize(call, formats);
  }
  Random averages(mix(mix(seed_ ^ 0xa5e7a6e, topology_.generation.value), turn_));
  for (Call& call : calls) {
    const bool sums = !is_floating(call.dtype) && call.reduce == ReduceOp::kSum;
    if (averages.once_in(2) && sums) call.reduce = ReduceOp::kAvg;
  }
  for (size_t index = 0; index < calls.size(); ++index) {
    calls[index].name = "generation " + text(topology_.generation) + " turn " +
                        std::to_string(turn_) + " call " + std::to_string(index);
  }
  return calls;
}

void Workload::post_batch(bool late) {
  std::vector<Call> calls = plan();
  std::erase_if(calls, [](const Call& call) { return call.crossing; });
  if (late)
    std::erase_if(calls,
                  [this](const Call& call) { return !call.late || call.root == topology_.rank; });
  if (!late)
    std::erase_if(calls,
                  [this](const Call& call) { return call.late && call.root != topology_.rank; });
  // The order of tags is random. Calls under one tag keep the order of the program.
  Random order(mix(mix(seed_, node_.id().value), turn_));
  for (size_t i = calls.size(); i > 1; --i) {
    const size_t j = order.below(i);
    if (calls[i - 1].tag != calls[j].tag) std::swap(calls[i - 1], calls[j]);
  }
  std::map<std::string, std::vector<Call>> by_tag;
  for (const Call& call : plan()) {
    if (std::any_of(calls.begin(), calls.end(),
                    [&](const Call& mine) { return mine.name == call.name; })) {
      by_tag[call.tag].push_back(call);
    }
  }
  std::map<std::string, size_t> taken;
  for (const Call& slot : calls) post(by_tag[slot.tag][taken[slot.tag]++]);
}

Duration Workload::patience(const Call& call) const {
  // A newcomer whose very first call times out is removed.
  if (!call.hasty || !compared_ || topology_.rank != call.root) return rules_.timeout;
  return node_.world().random().duration(kHasteMin, kHasteMax);
}

void Workload::post(const Call& call) {
  const bool sending = call.kind == protocol::OpKind::kSend;
  if (sending && topology_.rank != call.root && topology_.rank != call.peer) return;
  peer::OpRequest request{.handle = node_.new_handle(),
                          .kind = call.kind,
                          .dtype = call.dtype,
                          .reduce = call.reduce,
                          .count = call.count,
                          .root = static_cast<int32_t>(call.root),
                          .tag = call.tag,
                          .timeout = patience(call),
                          .keep = call.keep,
                          .format = call.format};
  if (sending && topology_.rank == call.root) request.root = static_cast<int32_t>(call.peer);
  if (sending && topology_.rank == call.peer) {
    request.kind = protocol::OpKind::kRecv;
    if (call.any) request.root = peer::kAnySource;
  }
  request.priority = priority(request.handle);
  if (call.uneven) {
    request.count = 0;
    for (uint32_t other = 0; other < topology_.members.size(); ++other) {
      request.sends.push_back(part(call, topology_.rank, other));
      request.receives.push_back(part(call, other, topology_.rank));
    }
  }
  const Buffers outputs = outputs_of(call);
  Posted posted{call, outputs, outputs, inputs_of(call, topology_.rank), topology_.generation};
  if (!sending) posted.sequence = called_[call.tag]++;
  open_.emplace(request.handle, std::move(posted));
  node_.call(peer::OpCalled{request});
}

void Workload::enter(Stage stage) {
  waits_since_ = node_.clock();
  constexpr const char* kNames[] = {"sync", "batch", "pending", "update", "late", "optimize"};
  stage_ = stage;
  node_.world().note(node_.name(), where() + " " + kNames[static_cast<size_t>(stage)]);
  Random random(
      mix(mix(seed_, topology_.generation.value), turn_ * 8 + static_cast<uint64_t>(stage)));
  switch (stage) {
    case Stage::kSync: {
      // Usually each turn, since a revision may only advance by one. A newcomer needs the first
      // sync.
      const bool skips = turn_ > 0 && random.once_in(kSkipsOneIn);
      return rules_.shares_state && !skips ? offer_state() : enter(Stage::kBatch);
    }
    case Stage::kBatch: post_batch(false); break;
    case Stage::kPending:
      if (!random.once_in(3)) return enter(Stage::kOptimize);
      return ask_for_pending(random);
    case Stage::kOptimize:
      if (!random.once_in(kOptimizesOneIn)) return enter(Stage::kUpdate);
      return optimize(random);
    case Stage::kUpdate:
      if (!optimized_) post_crossing();
      return joint(protocol::JointKind::kUpdateTopology);
    case Stage::kLate:
      if (!late_is_over_) post_batch(true);
      break;
  }
  if (!waiting()) go_on();
}

void Workload::finished_stage() {
  switch (stage_) {
    case Stage::kSync: return enter(Stage::kBatch);
    case Stage::kBatch:
      if (!batch_failed_) fold_batch();
      return enter(Stage::kPending);
    case Stage::kPending: return enter(Stage::kOptimize);
    case Stage::kOptimize: return enter(Stage::kUpdate);
    case Stage::kUpdate: return enter(Stage::kLate);
    case Stage::kLate:
      batch_fold_ = 0;
      late_is_over_ = batch_failed_ = optimized_ = false;
      ++turn_;
      if (next_) topology_ = *std::exchange(next_, {});
      ++turns_;
      return think();
  }
}

// The end of the batch changes the state, which is lent until the sync has ended.
void Workload::go_on() {
  if (std::exchange(apart_, false)) return node_.wait_for_sync();
  failed_ ? recover() : finished_stage();
}

// Computes for a while. A loss may end the generation meanwhile, but only a call reports that.
void Workload::think() {
  const Duration pause = node_.world().random().duration(Duration{0}, kThinkMax) +
                         std::exchange(late_by_, Duration{0});
  if (pause > kThinkMax) {
    late_until_ = node_.world().event_loop().now() + pause + rules_.aftermath;
    node_.world().note(node_.name(), where() + " is late");
    on_late_();
  }
  thinks_ = true;
  node_.world().event_loop().after(pause, [this, generation = topology_.generation] {
    if (!node_.alive() || gone_ || generation != topology_.generation) return;
    thinks_ = false;
    has_thought_ = regroup_over_ != nullptr;
    if (!has_thought_) enter(Stage::kSync);
  });
}

void Workload::be_late(Duration time, std::function<void()> begun) {
  late_by_ = time;
  on_late_ = std::move(begun);
}

bool Workload::is_late() const {
  return late_by_ > Duration{0} || node_.world().event_loop().now() < late_until_;
}

bool Workload::waiting() const {
  return std::any_of(open_.begin(), open_.end(), [this](const auto& entry) {
    const Call& call = entry.second.call;
    return !(call.late || call.crossing) || stage_ == Stage::kLate;
  });
}

void Workload::joint(protocol::JointKind kind) {
  joint_ = kind;
  joint_handle_ = node_.new_handle();
  joint_since_ = node_.world().event_loop().now();
  waits_since_ = node_.clock();
  node_.call(peer::JointCalled{
      .handle = joint_handle_, .kind = kind, .offer = {}, .timeout = rules_.timeout});
}

void Workload::post_crossing() {
  for (const Call& call : plan()) {
    if (call.crossing) post(call);
  }
}

// Operations in flight go on, and nothing fails, whether a plan is adopted or not.
void Workload::optimize(Random& random) {
  optimized_ = true;
  post_crossing();
  const auto [budget, max_bytes] = kBudgets[random.below(kBudgets.size())];
  joint_ = protocol::JointKind::kOptimizeTopology;
  joint_handle_ = node_.new_handle();
  joint_since_ = node_.world().event_loop().now();
  node_.call(peer::JointCalled{.handle = joint_handle_,
                               .kind = *joint_,
                               .offer = {},
                               .timeout = rules_.timeout + std::chrono::milliseconds(budget),
                               .budget_ms = budget,
                               .max_bytes = max_bytes});
}

// One rank may give up before all have called. The call then fails for all, and all continue.
void Workload::ask_for_pending(Random& random) {
  const bool hasty = rules_.ranks_give_up && random.once_in(2);
  const uint64_t impatient = random.below(topology_.members.size());
  joint(protocol::JointKind::kArePeersPending);
  // A newcomer whose very first call times out is removed.
  if (!hasty || !compared_ || topology_.rank != impatient) return;
  const Duration haste = node_.world().random().duration(Duration{0}, kHasteMax);
  node_.world().event_loop().after(haste, [this, handle = joint_handle_] {
    if (node_.alive() && !gone_) node_.call(peer::JointGivenUp{handle});
  });
}

void Workload::on_decided(bool receives) {
  if (gone_) return;
  PCCL_ASSERT(joint_ == protocol::JointKind::kSyncSharedState && stage_ == Stage::kSync);
  fetches_ = receives;
  lent_ = state_;
  const bool waits_at_once = receives && node_.world().random().once_in(2);
  if (failed_ || waits_at_once) return node_.wait_for_sync();
  apart_ = true;
  enter(Stage::kBatch);
}

void Workload::on_install() {
  if (!lent_.empty() && lent_ != state_)
    fail("P2 " + where() + ": a lent tensor was written before wait");
}

// The collectives that the others call first in this generation and then wait for.
std::vector<Workload::Call> Workload::first_collectives() const {
  std::vector<Call> calls = plan();
  std::erase_if(calls, [](const Call& call) {
    return call.late || call.crossing || call.hasty || call.kind == protocol::OpKind::kSend;
  });
  return calls;
}

void Workload::post_alone() {
  Random random(node_.id().value);
  Call call = planned_call(random, 0);
  call.kind = protocol::OpKind::kAllReduce;
  call.uneven = false;
  call.tag = "nobody else has this tag";
  post(call);
}

// All calls that a mistaken newcomer makes in this generation.
void Workload::make_mistake() {
  node_.world().note(node_.name(), where() + " makes its mistake");
  // Without collectives there is nothing with which it could be compared.
  silent_ = rules_.mistake == Mistake::kSilent || rules_.mistake == Mistake::kHangs ||
            (!rules_.shares_state && first_collectives().empty());
  switch (rules_.mistake) {
    case Mistake::kSilent: break;
    case Mistake::kHangs: offer_and_hang(); break;
    case Mistake::kPending: joint(protocol::JointKind::kArePeersPending); break;
    case Mistake::kUpdate: joint(protocol::JointKind::kUpdateTopology); break;
    case Mistake::kDigest:
      for (Call& call : first_collectives()) {
        call.count += 1;
        call.kind = protocol::OpKind::kAllReduce;
        call.uneven = false;
        post(call);
      }
      break;
    case Mistake::kOperation: post_alone(); break;
    default: offer_wrong_state();
  }
  if (rules_.on_mistake) rules_.on_mistake();
}

// Folds the reduced values into the state, which must stay equal on all members.
void Workload::fold_batch() {
  Random fold(batch_fold_ + revision_);
  batch_fold_ = 0;
  Random forgets(mix(mix(seed_, node_.id().value), revision_));
  const bool may_forget = rules_.shares_state && rules_.may_forget && rules_.may_forget();
  if (may_forget && forgets.once_in(kForgetsOneIn)) {
    node_.world().note(node_.name(), where() + " forgets its step");
    diverged_ = true;
    if (rules_.on_forgotten) rules_.on_forgotten();
    return;
  }
  for (auto& entry : state_) {
    for (auto& byte : entry) byte ^= static_cast<std::byte>(fold.next());
  }
  ++revision_;
}

void Workload::recover() {
  // A send between two peers has no common outcome. If only sends failed, the batch counts, as it
  // does for everybody else.
  if (stage_ == Stage::kBatch && !batch_failed_) fold_batch();
  failed_ = batch_failed_ = false;
  stage_ = Stage::kUpdate;
  node_.world().note(node_.name(), where() + " recovers");
  joint(protocol::JointKind::kUpdateTopology);
}

void Workload::new_generation(const peer::Topology& topology) {
  topology_ = topology;
  next_.reset();
  // Epochs after this one stay: a reconfiguration may have been announced before this result, while
  // tensors of an operation that this call ended were still borrowed.
  epochs_.erase(epochs_.begin(), epochs_.upper_bound(topology.epoch));
  epochs_[topology.epoch] = topology;
  const PeerId self = node_.id();
  const bool founding = topology.joined.size() == topology.members.size();
  const bool joined =
      std::find(topology.joined.begin(), topology.joined.end(), self) != topology.joined.end();
  founder_ |= founding;
  // A peer that has not received the state yet continues to request it.
  newcomer_ = (joined || newcomer_) && !founding;
  turn_ = 0;
  batch_fold_ = 0;
  called_.clear();
  failed_ = batch_failed_ = late_is_over_ = optimized_ = false;
  if (!open_.empty())
    checker_.violation("P1 " + where() + ": operations outlived their generation");
  std::string members;
  for (const auto& member : topology.members) members += " " + text(member.peer);
  checker_.saw("members of epoch " + text(topology.generation), node_.name(), members);
  if (!mistaken()) return enter(Stage::kSync);
  // An update_topology after a loss may have made it the eldest. Then the others are newcomers.
  const auto is_new = [&](const protocol::Member& member) {
    return member.peer == self || std::find(topology.joined.begin(), topology.joined.end(),
                                            member.peer) != topology.joined.end();
  };
  const bool eldest = std::all_of(topology.members.begin(), topology.members.end(), is_new);
  eldest && !joined ? node_.kill("ended: it would judge the others") : make_mistake();
}

// ---- Results ----

void Workload::on_op(const peer::FinishOp& result) {
  const Status& status = result.status;
  const auto found = open_.find(result.handle);
  PCCL_ASSERT(found != open_.end());
  const Posted posted = std::move(found->second);
  open_.erase(found);
  waits_since_ = node_.clock();
  node_.world().note(node_.name(),
                     posted.call.name + (status.ok() ? " ok" : ": " + status.message));
  if (gone_) return;
  if (mistaken()) {
    ended_by_loss_ |= status.code == Code::kPeerLost;
    if (status.ok() && was_judged(result.epoch))
      fail("P7 " + posted.call.name + ": a mistake went through");
    if (posted.buffers != posted.before) fail("P2 " + posted.call.name + ": tensor changed");
    return;
  }
  if (status.ok()) last_success_ = node_.world().event_loop().now();
  compared_ |= status.ok() && posted.call.kind != protocol::OpKind::kSend;
  late_is_over_ |= posted.call.late;
  const bool left = status.code == Code::kInvalidState && node_.has_left();
  const bool out = left || is_out(status.code);
  if (status.ok()) {
    check_result(posted, result);
    const bool known_to_all = !posted.call.late && !posted.call.crossing && !posted.call.hasty &&
                              posted.call.kind != protocol::OpKind::kSend;
    if (known_to_all && same_on_all(posted.call))
      batch_fold_ += hash_of(posted.buffers) * (posted.call.name.back() | 1u);
  } else {
    if (posted.buffers != posted.before)
      fail("P2 " + posted.call.name + ": tensor changed by a failure: " + status.message);
    const bool cycle = status.message.find("wait for each other") != std::string::npos;
    if (cycle && !is_unjudged() && !rules_.one_lies)
      fail("P4 " + posted.call.name + ": no ranks of this program do: " + status.message);
    const bool given_up = posted.call.hasty && status.code == Code::kOperationTimeout;
    if (status.code == Code::kOperationTimeout && !given_up && !may_time_out())
      fail("P4 " + posted.call.name + ": " + status.message);
    if (status.code == Code::kPeerLost && !rules_.peers_may_be_lost)
      fail("P1 " + posted.call.name + " failed though nobody was lost: " + status.message);
    // Under policy retry this is no reason to stop: the others continue, too.
    failed_ = failed_ || (!rules_.retries && !given_up) || status.code == Code::kPeerLost;
    batch_failed_ = batch_failed_ || (!posted.call.late && !posted.call.crossing && !given_up &&
                                      posted.call.kind != protocol::OpKind::kSend);
  }
  // A master that ends well leaves nothing in doubt, so nobody is out of the run for what another
  // peer has.
  const bool ends =
      status.ok() || (status.code == Code::kMasterLost && !has_lost_master(status.message));
  if (ends && posted.call.kind != protocol::OpKind::kSend) {
    checker_.saw(posted.call.name + " when the master ends", node_.name(),
                 status.ok() ? "ok" : text(status.code));
  }
  if (!out && posted.call.kind != protocol::OpKind::kSend) {
    std::string outcome = !status.ok() ? "error " + std::string(text(status.code)) : "ok";
    if (status.ok() && same_on_all(posted.call)) outcome += " " + hex(hash_of(posted.buffers));
    for (const peer::Part& part : result.parts) {
      outcome += " to " + std::to_string(part.end) + " over";
      for (const PeerId peer : part.contributors) outcome += " " + text(peer);
    }
    // The peers that knew such an outcome may be lost. The survivors may then still call the
    // operation.
    const bool forgettable = posted.call.kind == protocol::OpKind::kBarrier ||
                             status.code == Code::kMembershipChanged || posted.call.hasty;
    forgettable ? checker_.saw_if_it_survives(posted.call.name, node_.name(), outcome)
                : checker_.saw(posted.call.name, node_.name(), outcome);
  }
  if (out || (joint_ && !apart_)) return;
  if (failed_ ? open_.empty() : !waiting()) go_on();
}

// Two cases. If a member has taken several steps since the last sync, it merges them into one, and
// everybody tries again. Otherwise all remaining members are new, since the others left before they
// could send the state; this turn then has no batch.
void Workload::on_refused_state(const Status& status) {
  if (refused_for_steps(status)) {
    if (!newcomer_ && revision_ > agreed_ + 1) {
      revision_ = agreed_ + 1;
      diverged_ = true;
    }
    return offer_state();
  }
  // The state of a peer that skipped a step may have been elected in a tie. When all its holders
  // are lost, a person has to decide how the run goes on.
  const bool lost = rules_.state_is_lost && rules_.state_is_lost(status.message);
  if (!newcomer_ && !is_unjudged() && !lost) fail("P1 joint call: " + status.message);
  newcomer_ = false;
  failed_ = late_is_over_ = true;
  if (open_.empty()) recover();
}

bool Workload::agreed_on_state_in(const std::string& error) const {
  return agreed_hash_ && error.find(hex(*agreed_hash_)) != std::string::npos;
}

void Workload::state_agreed(const peer::FinishJoint& result) {
  if (!result.install.empty() && has_state_ && !diverged_ && !rules_.one_lies)
    fail("P1 " + where() + ": a survivor's state differed");
  if (result.revision < revision_ && strategy_ != protocol::SyncStrategy::kReceiveOnly)
    fail("P6 " + where() + ": set back from revision " + std::to_string(revision_) + " to " +
         std::to_string(result.revision));
  revision_ = agreed_ = result.revision;
  agreed_hash_ = result.state_hash;
  newcomer_ = diverged_ = false;
  has_state_ = compared_ = true;
  checker_.saw(where() + " state", node_.name(),
               std::to_string(revision_) + " " + hex(hash_of(state_)));
  checker_.saw("P6 the state of group " + std::to_string(node_.group().value) + ", revision " +
                   std::to_string(revision_),
               node_.name(), hex(hash_of(state_)));
}

void Workload::on_joint(const peer::FinishJoint& result) {
  joint_.reset();
  if (regroup_over_) return after_regroup(result);
  apart_ = false;
  lent_.clear();
  const Status& status = result.status;
  // A batch beside a sync that fails does not count: this peer may not have the state of the
  // others, or they wait for the end of the sync first and have not begun the batch.
  const bool beside_sync =
      result.kind == protocol::JointKind::kSyncSharedState && stage_ == Stage::kBatch;
  batch_failed_ |= !status.ok() && (fetches_ || beside_sync);
  fetches_ = false;
  if (gone_ || (status.code == Code::kInvalidState && node_.has_left())) return;
  if (is_out(status.code)) return;
  const bool new_generation_begins =
      status.ok() && result.topology && result.topology->generation != topology_.generation;
  if (new_generation_begins) {
    if (topology_.generation) last_success_ = node_.world().event_loop().now();
    return new_generation(*result.topology);
  }
  // An update_topology of a group that needs reconfiguration is no mistake.
  if (mistaken()) {
    ended_by_loss_ |= status.code == Code::kPeerLost;
    const bool by_others = status.code == Code::kSharedState;
    if (by_others && refused_for_steps(status)) return make_mistake();
    // If the others have nothing to compare, their next joint call may be the same. If all others
    // may be lost, this peer may be the only one left to vote.
    const bool judged = !silent_ && rules_.shares_state;
    if (status.ok() && judged && result.kind != protocol::JointKind::kUpdateTopology)
      fail(std::string("P7 ") + protocol::text(result.kind) + ": a mistake went through");
    return;
  }
  if (!status.ok()) {
    if (status.code == Code::kSystem && node_.cannot_listen) return;  // the failure of its join
    if (status.code == Code::kProtocol && node_.foreign) return;      // likewise
    const bool pending = result.kind == protocol::JointKind::kArePeersPending;
    // All groups get one answer to this call, and a rank of any group may have given up.
    const bool in_time = node_.world().event_loop().now() < joint_since_ + rules_.timeout;
    const bool given_up =
        pending && in_time && rules_.ranks_give_up && status.code == Code::kOperationTimeout;
    if (pending && status.code != Code::kPeerLost)
      checker_.saw_if_it_survives(where() + " pending", node_.name(), text(status.code));
    if (given_up) return failed_ ? recover() : finished_stage();
    const bool late = status.code == Code::kOperationTimeout;
    if (late && !may_time_out()) fail("P4 joint call: " + status.message);
    if (status.code == Code::kSharedState) return on_refused_state(status);
    const bool unjudged = status.code == Code::kMismatch && (is_unjudged() || rules_.one_lies);
    if (status.code != Code::kPeerLost && !unjudged && !late)
      fail("P1 joint call: " + status.message);
    if (status.code == Code::kPeerLost && !rules_.peers_may_be_lost)
      fail("P1 joint call failed though nobody was lost: " + status.message);
    failed_ = true;
    if (open_.empty()) recover();
    return;
  }
  last_success_ = node_.world().event_loop().now();
  if (result.kind == protocol::JointKind::kSyncSharedState) state_agreed(result);
  if (failed_) return recover();
  if (result.topology && result.topology->members != topology_.members) next_ = result.topology;
  if (result.plan) {
    std::string plan =
        text(Epoch{result.plan->epoch}) + (result.plan->adopted ? " adopted" : " kept");
    for (const uint32_t rank : result.plan->ring) plan += " " + std::to_string(rank);
    checker_.saw_if_it_survives(where() + " plan", node_.name(), plan + " " + result.plan->note);
  }
  if (result.kind == protocol::JointKind::kArePeersPending) {
    checker_.saw_if_it_survives(where() + " pending", node_.name(), result.pending ? "yes" : "no");
  }
  if (stage_ != Stage::kBatch || !waiting()) finished_stage();
}

void Workload::on_reconfigured(const peer::Topology& topology) {
  epochs_[topology.epoch] = topology;
}

void Workload::on_gone(const Status& status) {
  gone_ = true;
  gone_why_ = status.message;
  node_.world().note(node_.name(), "gone: " + status.message);
  const bool removed = status.message.find("as a newcomer it was removed") != std::string::npos;
  if (removed && !mistaken() && !(rules_.excused && rules_.excused()))
    fail("P7 removed, though it made no mistake: " + status.message);
  const bool late = status.message.find("it was late, and the others go on") != std::string::npos;
  if (late && !is_late() && !mistaken() && !(rules_.excused && rules_.excused()))
    fail("P4 removed as late, though it was not: " + status.message);
  const bool refused = status.message.find("One side has to be able") != std::string::npos;
  if (refused && rules_.may_be_refused && !rules_.may_be_refused())
    fail("P4 refused, though it can be reached: " + status.message);
  // The master is never away for as long as a member tries to reach it.
  if (status.message.find("does not take this peer back") != std::string::npos)
    fail("P6 the master has forgotten this member: " + status.message);
}

// Whether a member of this epoch is no newcomer. After losses, only newcomers may be left.
bool Workload::was_judged(Epoch epoch) const {
  const auto& joined = topology_.joined;
  const auto& members = epochs_.at(epoch).members;
  return std::any_of(members.begin(), members.end(), [&joined](const protocol::Member& member) {
    return std::find(joined.begin(), joined.end(), member.peer) == joined.end();
  });
}

bool Workload::is_unjudged() const { return !is_compared() && rules_.excused && rules_.excused(); }

// ---- Text ----

void Workload::fail(const std::string& what) { checker_.violation(node_.name() + ": " + what); }

std::string Workload::where() const {
  return "generation " + text(topology_.generation) + " turn " + std::to_string(turn_);
}

std::string Workload::doing() const {
  std::string out = where();
  if (joint_) out += std::string(" in ") + protocol::text(*joint_);
  for (const auto& [handle, posted] : open_) {
    out += " waits for " + posted.call.name + " " + protocol::text(posted.call.kind);
  }
  return out;
}

}  // namespace pccl::sim
