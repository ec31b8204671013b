#include "tests/sim/driver.h"

#include <algorithm>

#include "tests/sim/checker.h"
#include "tests/sim/workload.h"

namespace pccl::sim {
namespace {

constexpr Duration kPeerTimeout = std::chrono::seconds(2);
constexpr Duration kCallTimeout = std::chrono::seconds(30);
// When faults have stopped, every peer must have finished two more turns by then: losing a silent
// peer takes kPeerTimeout, and it may be found one peer after another.
constexpr Duration kSettleMax = std::chrono::seconds(25);
constexpr size_t kPeersMax = 9;    // at a time,
constexpr size_t kBornMax = 1000;  // and in all
// Peers try again every second at the latest: by then all are back.
constexpr Duration kMasterStable = std::chrono::milliseconds(1500);

class Driver {
 public:
  explicit Driver(const RunOptions& options);
  RunReport run();

 private:
  Workload& workload(PeerNode& node) { return static_cast<Workload&>(node.app()); }
  std::vector<PeerNode*> healthy();
  void add_peer(bool unreachable);
  void run_for(Duration duration);
  void fault();
  void kill_master();
  void settle();

  const RunOptions options_;
  Checker checker_;
  World world_;
  Random chance_;
  uint32_t founders_ = 1, min_peers_ = 1;
  bool retries_ = false;  // policy retry
  bool gentle_ = false;   // links break, nobody goes: no operation may fail for it
  // One founder is spared from when there are some: else the shared state could die with its last
  // holder.
  PeerNode* immortal_ = nullptr;
  uint64_t faults_ = 0;
  Instant master_up_;          // when it was, or will be, started last
  Instant master_away_since_;  // before that it had been up for long
};

WorldOptions world_options(const RunOptions& options) {
  WorldOptions world;
  Random random(options.seed ^ 0x5eed);
  if (random.once_in(3)) world.control_delay_max = std::chrono::milliseconds(20);
  if (random.once_in(3)) world.wire.piece_bytes_max = 1000;
  if (random.once_in(4)) world.wire.delay_max = std::chrono::milliseconds(10);
  world.plant = options.plant;
  return world;
}

Driver::Driver(const RunOptions& options)
    : options_(options),
      world_(options.seed, world_options(options)),
      chance_(options.seed ^ 0xfa17) {
  if (options.transcript) {
    world_.on_note = [this](const std::string& line) {
      char head[32];
      std::snprintf(head, sizeof head, "[%10.6f] ",
                    to_seconds(world_.clockwork().now().since_start));
      options_.transcript(head + line);
    };
  }
}

void Driver::add_peer(bool unreachable) {
  peer::Options options;
  options.founders = founders_;
  options.min_peers = min_peers_;
  options.policy = retries_ ? protocol::LossPolicy::kRetry : protocol::LossPolicy::kRaise;
  options.peer_timeout = kPeerTimeout;
  options.master_timeout = kPeerTimeout * 3;
  options.join_timeout = std::chrono::hours(1);
  const size_t number = world_.peers().size();
  PeerNode& node = world_.add_peer(
      number < 26 ? std::string(1, static_cast<char>('a' + number)) : "p" + std::to_string(number),
      options);
  node.unreachable = unreachable;
  const Workload::Rules rules{kCallTimeout, !gentle_, retries_};
  node.set_app(std::make_unique<Workload>(node, checker_, options_.seed, rules));
}

std::vector<PeerNode*> Driver::healthy() {
  std::vector<PeerNode*> found;
  for (const auto& peer : world_.peers()) {
    if (peer->alive() && !peer->gone() && !peer->unreachable) found.push_back(peer.get());
  }
  return found;
}

void Driver::run_for(Duration duration) {
  const Instant until = world_.clockwork().now() + duration;
  while (world_.clockwork().run_one(until)) {
  }
}

void Driver::fault() {
  ++faults_;
  const auto peers = healthy();
  for (PeerNode* peer : peers) {
    if (immortal_ == nullptr && workload(*peer).is_founder()) immortal_ = peer;
  }
  if (immortal_ != nullptr && (!immortal_->alive() || immortal_->gone())) {
    checker_.violation("P1 the peer that no fault may touch is out of the run");
  }
  if (peers.empty()) return add_peer(false);
  PeerNode* victim = peers[chance_.below(peers.size())];
  const bool spared = victim == immortal_;
  if (chance_.once_in(6)) return kill_master();
  if (gentle_ && (peers.size() == kPeersMax || !chance_.once_in(4))) {
    PeerNode* other = peers[chance_.below(peers.size())];
    if (other != victim) world_.break_link(*victim, *other);
    return;
  }
  switch (gentle_ ? 6 : chance_.below(7)) {
    case 0:
    case 1:
      if (!spared && peers.size() > min_peers_) victim->kill("killed");
      break;
    case 2: {  // stopped like a laptop that is closed: for a moment, or until it is given up
      if (spared || peers.size() <= min_peers_) break;
      victim->stop();
      const Duration pause = chance_.once_in(2) ? kPeerTimeout * 3 : kPeerTimeout / 10;
      world_.clockwork().after(pause, [victim] { victim->go_on(); });
      break;
    }
    case 3: world_.break_master_connection(*victim); break;
    case 4: {
      PeerNode* other = peers[chance_.below(peers.size())];
      // A peer whose connection to the master breaks at the same time is given up.
      if (other != victim && !spared && other != immortal_) world_.break_link(*victim, *other);
      break;
    }
    default:
      // One that cannot be reached, only where others are to hold out against it.
      if (peers.size() < kPeersMax && world_.peers().size() < kBornMax) {
        const bool unreachable = chance_.once_in(4);
        add_peer(unreachable && immortal_ != nullptr);
      }
  }
}

// Again and again, perhaps, but in all for less than peers wait for one (master_timeout), and in
// gentle runs for less than those that want to join do.
void Driver::kill_master() {
  const Instant now = world_.clockwork().now();
  if (!world_.master_runs()) return;
  if (now - master_up_ > kMasterStable) master_away_since_ = now;
  const Duration most = gentle_ ? kPeerTimeout / 2 : kPeerTimeout * 2;
  const Duration left = master_away_since_ + most - now;
  if (left <= Duration{0}) return;
  world_.kill_master();
  const Duration away = chance_.duration(Duration{0}, chance_.once_in(2) ? left : left / 10);
  master_up_ = now + away;
  world_.clockwork().after(away, [this] { world_.start_master(); });
}

void Driver::settle() {
  for (const auto& peer : world_.peers()) peer->go_on();
  run_for(kPeerTimeout * 2);  // who was given up hears of it, and a master that was killed is back
  while (healthy().size() < (immortal_ != nullptr ? min_peers_ : founders_)) add_peer(false);
  run_for(kPeerTimeout * 2);
  std::map<PeerNode*, uint64_t> before;
  for (PeerNode* peer : healthy()) before[peer] = workload(*peer).turns();
  const Instant deadline = world_.clockwork().now() + kSettleMax;
  const auto well = [&] {
    return std::all_of(before.begin(), before.end(), [&](const auto& entry) {
      return !entry.first->alive() || entry.first->gone() ||
             workload(*entry.first).turns() >= entry.second + 2;
    });
  };
  while (!well() && world_.clockwork().run_one(deadline)) {
  }
  for (const auto& [peer, turns] : before) {
    if (!peer->alive() || peer->gone() || workload(*peer).turns() >= turns + 2) continue;
    checker_.violation("P4 " + peer->name() + " makes no progress: " + workload(*peer).doing());
  }
}

RunReport Driver::run() {
  const bool sweep = options_.kill_at_step >= 0;
  const size_t founders = sweep ? 3 : chance_.between(1, 5);
  gentle_ = !sweep && chance_.once_in(4);
  retries_ = !sweep && chance_.once_in(3);
  min_peers_ = sweep ? 2 : static_cast<uint32_t>(chance_.between(1, std::min<size_t>(founders, 3)));
  founders_ = sweep || chance_.once_in(2) ? min_peers_ : static_cast<uint32_t>(founders);
  for (size_t i = 0; i < founders; ++i) add_peer(false);
  if (sweep) {
    // The world is founded by two; the third is let in by them. Then one of the three goes, at
    // exactly that step.
    while (world_.clockwork().steps() < static_cast<uint64_t>(options_.kill_at_step)) {
      if (!world_.clockwork().run_one(Instant{std::chrono::seconds(30)})) break;
    }
    ++faults_;
    world_.peers()[options_.seed % 3]->kill("killed");
  } else {
    run_for(chance_.duration(Duration{0}, std::chrono::seconds(1)));
    for (uint64_t left = chance_.between(1, options_.faults_max); left > 0; --left) {
      fault();
      const bool soon = chance_.once_in(2);
      run_for(chance_.duration(Duration{0},
                               soon ? Duration(std::chrono::milliseconds(20)) : kPeerTimeout));
    }
  }
  settle();
  checker_.compare_survivors([this](const std::string& who) {
    const auto& peers = world_.peers();
    return std::any_of(peers.begin(), peers.end(), [&](const auto& peer) {
      return peer->name() == who && peer->alive() && !peer->gone();
    });
  });
  RunReport report;
  report.violations = checker_.violations();
  report.steps = world_.clockwork().steps();
  report.faults = faults_;
  report.outcomes = checker_.outcomes();
  for (const auto& peer : world_.peers()) report.turns += workload(*peer).turns();
  report.virtual_time = world_.clockwork().now().since_start;
  return report;
}

}  // namespace

RunReport run_seed(const RunOptions& options) { return Driver(options).run(); }

}  // namespace pccl::sim
