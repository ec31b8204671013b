// wild: random walks of a PeerCore, which events from all sides drive.
// The application makes random calls. The data plane and the connection keep their contracts, but
// are otherwise random. The master sends any message at any time, and sometimes one that makes
// sense.
// Invariants:
// 1. No assertion fails.
// 2. Every call finishes exactly once.
// 3. Nothing is returned while it is borrowed.
// 4. Every message that is sent can be encoded.
// 5. Leaving ends everything.

#pragma once

#include <deque>
#include <map>
#include <set>

#include "csrc/base/status.h"
#include "csrc/peer/request.h"
#include "csrc/protocol/shares.h"
#include "tests/cpp/chance.h"
#include "tests/cpp/change_list.h"
#include "tests/cpp/peer/transcript.h"
#include "tests/cpp/protocol/random_message.h"

namespace pccl::peer {

class Wild {
 public:
  explicit Wild(Chance chance) : core_(Transcript::default_options()), random_(std::move(chance)) {}

  void run(int steps) {
    open_joints_.insert(1);
    step(JoinCalled{1});
    for (int i = 0; i < steps && !random_.over(); ++i) anything();
    step(LeaveCalled{});
    for (int i = 0; i < 1000 && !gone_; ++i) drain_one();
    EXPECT_TRUE(gone_);
    EXPECT_TRUE(open_ops_.empty());
    EXPECT_TRUE(open_joints_.empty());
    EXPECT_EQ(core_.deadline(), std::nullopt);
  }
  bool was_member() const { return was_member_; }
  size_t count(const std::string& what) const {
    return counts_.contains(what) ? counts_.at(what) : 0;
  }

 private:
  struct Lent {
    Handle handle = 0;
    bool transferred = false, ended = false, state = false;
  };
  using OpId = std::pair<Epoch, OpKey>;

  uint64_t below(uint64_t bound) { return random_.below(bound); }

  // ---- Events ----
  void anything() {
    random_.next_event();
    if (std::exchange(looked_, false)) see_waits();
    switch (below(15)) {
      case 13: return ask_for_piece();
      case 14: return verify();
      case 0: return call();
      case 1: return call();
      case 2: return joint();
      case 3: return connection();
      case 4: return pass_time();
      case 5: return move_one();
      case 6: return move_one();
      case 7: return drain_one();
      case 8: return link();
      case 9: return verify();
      case 10: return stage_one();
      default: return master();
    }
  }
  // A thread has waited for its oldest operation, and sometimes another one for the joint call.
  void see_waits() {
    const Instant since{now_.since_start - std::chrono::seconds(2)};
    WaitsSeen seen;
    if (!open_ops_.empty()) seen.threads.push_back({*open_ops_.begin(), since});
    if (!open_joints_.empty()) seen.threads.push_back({kInJointCall, since});
    step(seen);
  }
  void call() {
    OpRequest request;
    request.handle = ++handles_;
    request.kind = static_cast<protocol::OpKind>(below(6));
    request.root = static_cast<int32_t>(below(5)) - 1;  // kAnySource, too
    request.count = below(3);
    if (below(3) == 0) request.tag = "a";
    if (below(4) == 0) request.timeout = std::chrono::seconds(1);
    request.parked = below(3) == 0;
    if (request.parked) {
      unstaged_.insert(request.handle);
      parked_.insert(request.handle);
    }
    open_ops_.insert(request.handle);
    step(OpCalled{request});
  }
  void joint() {
    JointCalled call;
    call.handle = ++handles_;
    call.kind = static_cast<protocol::JointKind>(below(2) == 0 ? 2 : below(3));
    if (below(3) == 0) call.timeout = std::chrono::seconds(1);
    for (int i = 0; i < 3; ++i)
      call.offer.entries.push_back({"w" + std::to_string(i), DType::kInt8, {4}, 1});
    open_joints_.insert(call.handle);
    step(call);
    if (below(10) == 0) step(JointGivenUp{call.handle});
  }
  void connection() {
    if (trying_) {
      trying_ = false;
      connected_ = below(3) > 0;
      if (connected_) return step(MasterConnected{.elsewhere = below(2) == 0});
      return step(MasterClosed{{Code::kSystem, "refused", {}}});
    }
    if (connected_ && below(20) == 0) {
      connected_ = false;
      step(MasterClosed{{below(30) == 0 ? Code::kProtocol : Code::kSystem, "reset", {}}});
    }
  }
  void pass_time() {
    now_ = now_ + std::chrono::milliseconds(below(100));
    if (core_.deadline() && below(was_member_ ? 3 : 50) == 0)
      now_ = std::max(now_, *core_.deadline());
    step(TimePassed{});
  }
  void stage_one() {
    if (unstaged_.empty()) return;
    const Handle handle = *unstaged_.begin();
    unstaged_.erase(handle);
    if (below(10) == 0) return step(OpStaged{handle, {Code::kSystem, "the device failed", {}}});
    parked_.erase(handle);
    staged_ = handle;
    step(OpStaged{handle, {}});
    staged_ = 0;
  }
  void move_one() {
    for (auto& [op, lent] : lent_) {
      if (lent.transferred || below(2) == 0) continue;
      if (below(20) == 0)
        return step(OpFailed{op.first, op.second, {Code::kSystem, "no memory", {}}});
      lent.transferred = true;
      return step(OpTransferred{op.first, op.second});
    }
  }
  void drain_one() {
    for (auto& [op, lent] : lent_) {
      if (!lent.ended || below(2) == 0) continue;
      const OpId drained = op;
      lent_.erase(op);
      return step(OpDrained{drained.first, drained.second});
    }
  }
  void link() {
    if (opening_) {
      opening_ = false;
      return step(Listening{uint16_t{4000}});
    }
    if (!listening_) return;
    const PeerId peer = peer_id(static_cast<uint32_t>(below(6)));
    if (below(3) == 0) return step(RateMeasured{{peer, 1 + below(1000)}});
    if (below(2) == 0) return step(LinkSampled{peer, below(10) > 0, below(10'000), below(2)});
    step(LinkChanged{{peer, static_cast<protocol::LinkState>(below(3)), "because"}});
  }
  void verify() {
    if (checks_.empty()) return;
    const CheckPiece what = checks_.front();
    checks_.pop_front();
    PieceChecked event{what.handle, what.plan, what.peer, what.what, {}, {}};
    if (below(20) == 0) event.status = {Code::kSharedState, "no", {}};
    if ((what.what & kHave) != 0) event.have = {below(8)};
    step(event);
  }
  // The request comes from another member, or from a peer that is none; it is often nonsense.
  void ask_for_piece() {
    if (others_.empty() || !was_member_) return;
    PieceRequested event;
    event.epoch = epoch_;
    event.peer = below(10) == 0 ? peer_id(9) : others_[below(others_.size())];
    event.op = {reserved_tag("state " + text(peer_id(2)) + " " + text(event.peer)),
                static_cast<uint32_t>(below(30))};
    if (lent_.contains({event.epoch, event.op})) return;  // the ring has it, and tells nobody
    event.what = below(4) == 0   ? kManifest
                 : below(3) == 0 ? kHave
                                 : static_cast<uint32_t>(below(4));
    if (below(5) == 0) event.what |= kSpare;
    event.digest = below(100);
    step(event);
  }
  void master() {
    if (!connected_) return;
    if (below(300) == 0) return step(MasterSent{protocol::random_message(random_)});
    step(MasterSent{sensible()});
  }

  // ---- A master that mostly makes sense ----
  protocol::Message sensible() {
    if (hello_) {
      hello_ = false;
      return protocol::Welcome{peer_id(2), 7, 1, "h", false};
    }
    if (resume_) {
      resume_ = false;
      return protocol::Resumed{1};
    }
    const bool reckless = below(200) == 0;  // sends what the protocol forbids now
    const bool updates = voted_ && vote_.kind == protocol::JointKind::kUpdateTopology;
    switch (below(13)) {
      case 0: return protocol::Dial{peer_id(static_cast<uint32_t>(below(6))), "h", 1};
      case 1: return protocol::Forget{peer_id(static_cast<uint32_t>(below(6)))};
      case 2:
      case 3:
        if (reckless || (listening_ && !was_member_) || (updates && nothing_open())) return start();
        break;
      case 4:
        if (reckless || (was_member_ && !ended_ && below(4) == 0))
          return protocol::FreezeRequest{epoch_, {{peer_id(3), ""}}};
        break;
      case 5:
        if (reckless || (was_member_ && !ended_ && below(12) == 0)) return end();
        break;
      case 6:
        if (reckless || (voted_ && below(planned_ && !fetched_ ? 30 : 3) == 0)) return answer();
        break;
      case 7:
      case 8:
        if (reckless ||
            (voted_ && vote_.kind == protocol::JointKind::kSyncSharedState && !planned_ && !ended_))
          return plan();
        break;
      case 9:
        if (awaited_ && !ended_ && !others_.empty()) {
          ++counts_["send begun"];
          return protocol::SendBegun{epoch_, others_[below(others_.size())], awaited_->tag,
                                     static_cast<uint32_t>(below(6))};
        }
        break;
      case 10:
        if (reckless || (was_member_ && !ended_)) return probe();
        break;
      default:
        if (reckless || (was_member_ && !ended_)) return verdicts();
    }
    return protocol::Ping{1, 0, {}};
  }
  bool nothing_open() const {
    for (const auto& [op, lent] : lent_) {
      if (!lent.ended) return false;
    }
    return ended_;  // while the epoch lasts, operations that have not started are open too
  }
  protocol::Message start() {
    protocol::EpochStart start;
    start.epoch = start.generation = epoch_id(static_cast<uint32_t>(epoch_.value & 0xffff) + 1);
    for (uint32_t peer = 1; peer < 5; ++peer) {
      if (peer == 2 || below(2) == 0) start.members.push_back({peer_id(peer), ""});
    }
    for (uint32_t rank = 0; rank < start.members.size(); ++rank) start.ring.push_back(rank);
    std::shuffle(start.ring.begin(), start.ring.end(), random_);
    if ((shares_ = below(3) == 0)) start.shares = protocol::equal_shares(start.members.size());
    if (below(50) == 0) start.shares.push_back(1);
    return start;
  }
  protocol::Message end() {
    ended_ = true;
    protocol::EpochEnd end{epoch_, {{peer_id(3), ""}}, {}, "peer 1.3 lost", {}, {}};
    for (OpKey op : done_) {
      if (below(2) == 0) end.committed.push_back(op);
    }
    return end;
  }
  protocol::Message verdicts() {
    protocol::Verdicts out{epoch_, verdicts_++, {}};
    const OpKey some{tag_id(below(2) == 0 ? "a" : ""), static_cast<uint32_t>(below(20))};
    if (done_.contains(some)) {
      out.verdicts.push_back(Transcript::committed(some));
    } else {
      out.verdicts.push_back(Transcript::aborted(some, Code::kMismatch, "so"));
    }
    return out;
  }
  protocol::Message answer() {
    protocol::Answer answer;
    answer.number = vote_.number;
    answer.kind = vote_.kind;
    voted_ = false;
    if (below(3) == 0) answer.code = Code::kOperationTimeout;
    return answer;
  }
  // Sometimes it repeats one, and sometimes it names a peer that is no member.
  protocol::Message probe() {
    rounds_ += static_cast<uint32_t>(below(2));
    return protocol::Probe{rounds_, peer_id(below(4) == 0 ? 5 : 3),
                           1 + static_cast<uint32_t>(below(200))};
  }
  protocol::Message plan() {
    protocol::SyncPlan plan{vote_.number, 0, vote_.offer.entries, {0, 2}, {}, {}, ""};
    const PeerId other = others_.empty() ? peer_id(1) : others_[below(others_.size())];
    planned_ = true;
    fetched_ = false;
    const bool receives = below(2) == 0;
    change_list(plan.entries, [receives](auto& entries) {
      for (protocol::StateEntry& entry : entries) {
        if (entry.key != "w1") entry.hash += receives ? 1 : 0;
      }
    });
    plan.sources = {receives ? other : peer_id(2)};
    plan.receivers = {receives ? peer_id(2) : other};
    return plan;
  }

  // ---- Invariants ----
  void step(const Event& event) {
    Effects effects;
    core_.step(event, now_, effects);
    core_.check();
    for (const Effect& effect : effects) {
      ASSERT_FALSE(gone_ && !std::holds_alternative<FinishOp>(effect) &&
                   !std::holds_alternative<FinishJoint>(effect));
      std::visit([&](const auto& what) { check(what); }, effect);
    }
  }
  void check(const ConnectMaster&) {
    EXPECT_FALSE(trying_ || connected_);
    trying_ = true;
  }
  void check(const CloseMaster&) {
    EXPECT_TRUE(trying_ || connected_);
    trying_ = connected_ = false;
  }
  void check(const SendMaster& what) {
    EXPECT_TRUE(connected_);
    std::vector<std::byte> bytes;
    protocol::encode(what.message, bytes);
    const auto& message = what.message;
    if (std::holds_alternative<protocol::Hello>(message)) hello_ = true;
    if (std::holds_alternative<protocol::Register>(message)) listening_ = true;
    if (const auto* resume = std::get_if<protocol::Resume>(&message)) {
      resume_ = true;
      verdicts_ = resume->verdict_index;
      ended_ = resume->ended;
      planned_ = voted_ = false;  // the core votes again
      ++counts_["resume"];
    }
    if (std::holds_alternative<protocol::Fetched>(message)) fetched_ = true;
    if (const auto* blocked = std::get_if<protocol::Blocked>(&message)) {
      EXPECT_EQ(blocked->epoch, epoch_);
      ++counts_[blocked->ops.empty() && !blocked->joint ? "withdrawn" : "blocked"];
    }
    if (const auto* await = std::get_if<protocol::AwaitSend>(&message)) awaited_ = *await;
    if (const auto* done = std::get_if<protocol::Done>(&message)) {
      done_.insert(done->op);
    }
    if (const auto* vote = std::get_if<protocol::Vote>(&message)) {
      planned_ = planned_ && voted_ && vote_ == *vote;
      vote_ = *vote;
      voted_ = true;
    }
  }
  void check(const LookAtWaits&) { looked_ = true; }
  void check(const Listen&) { opening_ = true; }
  void check(const BeginEpoch& what) {
    for (const PeerId neighbour : what.neighbours) {
      EXPECT_EQ(std::count(what.peers.begin(), what.peers.end(), neighbour), 1);
    }
    EXPECT_EQ(what.neighbours.size(),
              shares_ ? what.peers.size() : std::min<size_t>(what.peers.size(), 2));
    epoch_ = what.epoch;
    others_ = what.peers;
    voted_ = ended_ = false;
    done_.clear();
    verdicts_ = 0;
    was_member_ = true;
    ++counts_["epoch"];
    for (auto& [op, lent] : lent_) EXPECT_TRUE(lent.ended);  // the ring would drop open operations
  }
  void check(const StartOp& what) {
    EXPECT_EQ(what.task.epoch, epoch_);
    EXPECT_TRUE(what.probe   ? what.handle == 0
                : what.piece ? open_joints_.contains(what.handle)
                             : open_ops_.contains(what.handle));
    EXPECT_TRUE(lent_
                    .emplace(OpId{what.task.epoch, what.task.op},
                             Lent{what.handle, false, false, what.piece.has_value()})
                    .second);
    if (what.probe) ++counts_["probe"];
    EXPECT_FALSE(parked_.contains(what.handle)) << "its data is not here";
    if (staged_ == what.handle) ++counts_["started by its data"];
  }
  void check(const EndOp& what) {
    const auto at = lent_.find({epoch_, what.op});
    if (at == lent_.end()) return;  // it never started here
    EXPECT_FALSE(at->second.ended);
    if (what.ending == Ending::kCommitted) {
      EXPECT_TRUE(at->second.transferred);
      ++counts_["commit"];
      lent_.erase(at);
      return;
    }
    at->second.ended = true;
    ++counts_["abort"];
  }
  void check(const CheckPiece& what) { checks_.push_back(what); }
  void check(const FinishOp& what) {
    EXPECT_EQ(open_ops_.erase(what.handle), 1u) << what.handle;
    for (const auto& [op, lent] : lent_) EXPECT_NE(lent.handle, what.handle) << "is still lent";
  }
  void check(const FinishJoint& what) {
    EXPECT_EQ(open_joints_.erase(what.handle), 1u) << what.handle;
    for (const auto& [op, lent] : lent_) EXPECT_NE(lent.handle, what.handle) << "is still lent";
    if (what.status.ok() && !what.install.empty()) ++counts_["install"];
  }
  void check(const Gone&) {
    gone_ = true;
    EXPECT_TRUE(open_ops_.empty() && open_joints_.empty() && lent_.empty());
  }
  template <typename E>
  void check(const E&) {}

  PeerCore core_;
  Chance random_;
  Instant now_{std::chrono::seconds(1000)};
  Handle handles_ = 1;
  std::set<Handle> open_ops_, open_joints_;
  std::deque<CheckPiece> checks_;
  std::set<Handle> unstaged_;  // OpStaged is to come
  std::set<Handle> parked_;    // OpStaged without an error has not come
  Handle staged_ = 0;          // OpStaged is being handled
  std::map<OpId, Lent> lent_;
  bool trying_ = false, connected_ = false, listening_ = false, gone_ = false, was_member_ = false;
  bool looked_ = false;   // the core has asked for the waits
  bool opening_ = false;  // the listener is being opened
  bool hello_ = false, resume_ = false;
  Epoch epoch_ = epoch_id(0);
  uint64_t verdicts_ = 0;
  uint32_t rounds_ = 0;                         // of probes
  std::optional<protocol::AwaitSend> awaited_;  // the last question about a send
  std::set<OpKey> done_;
  protocol::Vote vote_;
  bool voted_ = false, planned_ = false, fetched_ = false, ended_ = false;
  bool shares_ = false;  // the last EpochStart has shares
  std::vector<PeerId> others_;
  std::map<std::string, size_t> counts_;
};

}  // namespace pccl::peer
