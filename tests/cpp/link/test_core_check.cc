// Random walks of a LinkCore. Peers dial, are dialled, cross each other, lie, fall silent and are
// forgotten, in any order.
// Invariants:
// 1. check() holds after every step.
// 2. The core never mentions a lane again after its Close.
// 3. LinkDown comes before another LaneUp of the same peer that is not `further`.

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "csrc/link/core.h"
#include "tests/cpp/chance.h"

namespace pccl::link {
namespace {

using protocol::LaneHello;
using std::chrono::milliseconds;

constexpr PeerId kHere{5}, kPeers[] = {{3}, {4}, {8}, {9}};
constexpr uint64_t kThisRun = 99;

class Walk {
 public:
  explicit Walk(uint64_t seed) : random_(seed) {
    core_.set_identity({.self = kHere, .run_id = kThisRun});
  }
  void run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) anything();
  }
  std::map<std::string, int> counts;

 private:
  enum class State { kConnecting, kOpen, kUp };
  struct Lane {
    State state = State::kConnecting;
    LaneHello said;  // by us
    PeerId peer;
    bool dialled = false;
    bool accepted = false;  // and its first frame is still to come
  };

  PeerId someone() { return kPeers[random_.below(std::size(kPeers))]; }
  std::optional<ConnectionId> some_lane(State state) {
    std::vector<ConnectionId> all;
    for (const auto& [id, lane] : lanes_) {
      if (lane.state == state) all.push_back(id);
    }
    if (all.empty()) return std::nullopt;
    return all[random_.below(all.size())];
  }
  std::vector<Endpoint> addresses() {
    const std::vector<Endpoint> all = {{"10.0.0.3", 1}, {"8.8.8.8", 2}, {"9.9.9.9", 3}};
    return {all.begin(), all.begin() + static_cast<int>(1 + random_.below(3))};
  }

  void anything() {
    now_ = now_ + milliseconds(random_.below(200));
    switch (random_.below(12)) {
      case 0: return step(Dial{someone(), addresses(), static_cast<uint32_t>(random_.below(4))});
      case 1: return random_.once_in(3) ? step(Forget{someone()}) : tick();
      case 2:
      case 3: return connect();
      case 4: return accept();
      case 5:
      case 6:
      case 7: return greet();
      case 8:
        if (const auto id = some_lane(random_.once_in(2) ? State::kUp : State::kOpen)) fail(*id);
        return;
      case 9: return tick();
      case 10: return neighbours();
      default:
        if (const auto at = core_.deadline()) now_ = std::max(now_, *at);
        return step(TimePassed{});
    }
  }
  void connect() {
    const auto id = some_lane(State::kConnecting);
    if (!id) return;
    if (random_.once_in(3)) {
      lanes_.erase(*id);
      return step(Refused{*id, "no", LinkFault::kRefused});
    }
    lanes_[*id].state = State::kOpen;
    step(Connected{*id});
  }
  void accept() {
    const ConnectionId id = core_.new_lane();
    lanes_[id] = {.state = State::kOpen, .said = {}, .peer = {}, .accepted = true};
  }
  // Mostly a hello that fits, otherwise a lie.
  void greet() {
    const auto id = some_lane(State::kOpen);
    if (!id) return;
    Lane& lane = lanes_[*id];
    LaneHello hello{.run_id = kThisRun, .self = someone(), .other = kHere};
    hello.serial = static_cast<uint32_t>(random_.below(8));
    hello.further = random_.once_in(4);
    if (lane.dialled) {
      hello = {.run_id = kThisRun, .self = lane.peer, .other = kHere};
      hello.serial = lane.said.serial;
      hello.further = lane.said.further;
    }
    if (random_.once_in(10)) ++hello.serial;
    HelloReceived first{*id, hello, milliseconds(random_.below(3))};
    if (random_.once_in(20)) first.hello.reset();
    if (!std::exchange(lane.accepted, false)) return step(first);
    step(Accepted{first, "10.0.0.9:5"});
  }
  void fail(ConnectionId id) {
    lanes_.erase(id);
    step(Failed{id, {Code::kSystem, "reset", {}}, LinkFault::kOther});
  }
  void tick() {
    Tick tick;
    for (const auto& [id, lane] : lanes_) {
      if (lane.state != State::kUp) continue;
      if (!random_.once_in(3)) tick.received.push_back(id);
      if (random_.once_in(2)) tick.progress.push_back({id, 1460, random_.once_in(6)});
    }
    step(tick);
    if (!pings_.empty() && random_.once_in(2)) step(PongReceived{pings_.begin()->first, last_});
  }
  void neighbours() {
    NeighboursKnown known;
    for (const PeerId peer : kPeers) {
      if (random_.once_in(2)) known.peers.push_back(peer);
    }
    step(known);
    step(LanesLearnt{someone(), 2});
    if (random_.once_in(4)) step(Suspected{someone(), "it lies"});
  }

  void step(const Event& event) {
    Effects effects;
    core_.step(event, now_, effects);
    core_.check();
    for (const Effect& effect : effects) {
      std::visit([this](const auto& what) { on(what); }, effect);
    }
  }
  void on(const Connect& e) {
    EXPECT_TRUE(used_.insert(e.lane).second);
    lanes_[e.lane] = {.said = {}, .peer = e.peer, .dialled = true};
    ++counts["connect"];
  }
  void on(const SendHello& e) { mentioned(e.lane).said = e.hello; }
  void on(const SendPing& e) {
    mentioned(e.lane);
    pings_[e.lane] = last_ = e.number;
  }
  void on(const LaneUp& e) {
    mentioned(e.lane).state = State::kUp;
    EXPECT_TRUE(e.further || linked_.insert(e.peer).second) << "it has a link";
    ++counts[e.further ? "further lane" : "link"];
  }
  void on(const LinkDown& e) { EXPECT_EQ(linked_.erase(e.peer), 1u); }
  void on(const Close& e) {
    lanes_.erase(e.lane);
    pings_.erase(e.lane);
    EXPECT_TRUE(closed_.insert(e.lane).second) << "closed twice";
  }
  void on(const ReportLink& e) {
    if (e.what.state == protocol::LinkState::kUnreachable) ++counts["unreachable"];
  }
  void on(const LimitAccepted&) { ++counts["limit"]; }
  void on(const SmallerHelped& e) { mentioned(e.lane); }
  void on(const NarrowPathGone&) {}
  Lane& mentioned(ConnectionId id) {
    EXPECT_FALSE(closed_.contains(id)) << "mentioned after its Close";
    return lanes_[id];
  }

  Chance random_;
  LinkCore core_{{.lanes_max = 3}};
  Instant now_{std::chrono::seconds(100)};
  std::map<ConnectionId, Lane> lanes_;
  std::map<ConnectionId, uint64_t> pings_;
  uint64_t last_ = 0;
  std::set<ConnectionId> used_, closed_;
  std::set<PeerId> linked_;
};

TEST(LinkCoreCheck, HoldsWhateverHappensInWhateverOrder) {
  std::map<std::string, int> counts;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Walk walk(seed);
    walk.run(1000);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
    for (const auto& [what, count] : walk.counts) counts[what] += count;
  }
  for (const char* what : {"connect", "link", "further lane", "unreachable", "limit"}) {
    EXPECT_GT(counts[what], 500) << what;
  }
}

}  // namespace
}  // namespace pccl::link
