#include "tests/sim/cluster.h"

#include <algorithm>
#include <iterator>

namespace pccl::sim {
namespace {

// Longest time for which a newcomer's mistake may delay the next success of the others (promise
// P7), if a message to the master takes at most kNearMax. If messages are slower, a loss costs
// kMessagesOfALoss of them more.
constexpr Duration kMistakeMax = std::chrono::seconds(1);
constexpr Duration kNearMax = std::chrono::milliseconds(20);
constexpr int kMessagesOfALoss = 8;
constexpr char kLiar[] = "mallory";

std::string name_of(size_t number) {
  return number < 26 ? std::string(1, static_cast<char>('a' + number))
                     : "p" + std::to_string(number);
}

bool names_liar(const std::string& why) { return why.find(kLiar) != std::string::npos; }

}  // namespace

PeerNode& Cluster::add(size_t group, bool joins, Mistake mistake) {
  peer::Options options;
  options.group = GroupId{static_cast<uint32_t>(group)};
  options.founders = groups_[group].founders;
  options.min_peers = groups_[group].min_peers;
  options.given = protocol::give_all(rules_.settings());
  options.piece_bytes = kPieceBytes;
  options.probe_bytes_max = kProbeBytes;
  options.master_timeout = kPeerTimeout * 3;
  options.join_timeout = std::chrono::hours(1);
  const size_t number = world_.peers().size();
  const bool lies = rules_.insider == number;
  PeerNode& node = world_.add_peer(lies ? kLiar : name_of(number), options);
  if (lies) node.insider = std::make_unique<Insider>(rules_.seed ^ 0x11e5);
  const bool disturbed = !rules_.gentle && !groups_[group].quiet;
  const Workload::Rules rules{
      .timeout = kCallTimeout,
      .peers_may_be_lost = disturbed,
      .ranks_give_up = !rules_.gentle,
      .retries = rules_.retries,
      .shares_state = !rules_.mortal,
      .rings_only = rules_.pattern == protocol::PatternChoice::kRing,
      .joins = joins,
      .one_lies = rules_.insider.has_value(),
      .may_time_out =
          [this, group] {
            const auto there = of_group(group);
            return rules_.insider && std::any_of(there.begin(), there.end(),
                                                 [](PeerNode* peer) { return !peer->is_member(); });
          },
      .mistake = mistake,
      .excused = [this, &node] { return excused(node); },
      .aftermath = kPeerTimeout,
      .may_be_refused = [this, &node] { return node.unreachable || troubled(node.group().value); },
      // The spared peer holds the state of the run when all others are lost.
      .may_forget = [this, &node] { return !spared(node); },
      .on_forgotten = [this, group] { groups_[group].forgotten = true; },
      .state_is_lost =
          [this, group](const std::string& error) {
            // It may have been the only holder of the newest state, and gone before others had it.
            if (rules_.insider && names_liar(error)) return true;
            const auto there = of_group(group);
            return (groups_[group].forgotten || rules_.insider) &&
                   std::none_of(there.begin(), there.end(), [&error](PeerNode* peer) {
                     return workload(*peer).agreed_on_state_in(error);
                   });
          },
      .on_mistake = [this, &node] { made_mistake(node); }};
  node.set_app(std::make_unique<Workload>(node, lies ? lies_ : checker_, rules_.seed, rules));
  return node;
}

std::vector<PeerNode*> Cluster::all() const {
  std::vector<PeerNode*> found;
  for (const auto& peer : world_.peers()) {
    const bool counts = !peer->unreachable && !peer->insider && workload(*peer).joins();
    if (peer->alive() && !peer->gone() && counts) found.push_back(peer.get());
  }
  return found;
}

std::vector<PeerNode*> Cluster::of_group(size_t group) const {
  std::vector<PeerNode*> found = all();
  std::erase_if(found, [group](const PeerNode* peer) { return peer->group().value != group; });
  return found;
}

std::vector<PeerNode*> Cluster::others(const PeerNode& peer) const {
  std::vector<PeerNode*> found = of_group(peer.group().value);
  std::erase(found, &peer);
  return found;
}

bool Cluster::holds(PeerNode& peer) {
  const Workload& about = workload(peer);
  return about.is_founder() || about.has_state();
}

bool Cluster::spared(const PeerNode& peer) const {
  const Group& group = groups_[peer.group().value];
  if (group.quiet || group.immortal == &peer) return true;
  if (rules_.mortal) return false;
  if (group.immortal != nullptr) return is_witness(peer);
  // All peers that could be chosen as immortal are at risk. Until that is over, nobody else may be.
  const auto members = of_group(peer.group().value);
  return std::any_of(members.begin(), members.end(), [](PeerNode* one) { return holds(*one); });
}

void Cluster::cut_off(const PeerNode& peer, Duration until) {
  cut_off_[&peer] = world_.event_loop().now() + until;
}

std::vector<PeerNode*> Cluster::sure_others(const PeerNode& peer) const {
  std::vector<PeerNode*> found = others(peer);
  std::erase_if(found, [this](PeerNode* one) { return !one->is_member() || unsure(*one); });
  return found;
}

bool Cluster::is_witness(const PeerNode& peer) const {
  constexpr size_t kWitnesses = 2;
  const auto others = this->others(peer);
  const bool needed = std::any_of(others.begin(), others.end(), [&](const PeerNode* one) {
    const auto at = cut_off_.find(one);
    return at != cut_off_.end() && at->second > world_.event_loop().now();
  });
  return needed && peer.is_member() && sure_others(peer).size() < kWitnesses;
}

bool Cluster::may_lose(const PeerNode& peer) const {
  if (spared(peer) || rules_.gentle) return false;
  if (rules_.mortal) return true;
  const auto left = others(peer);
  const auto sure =
      std::count_if(left.begin(), left.end(), [this](PeerNode* one) { return !unsure(*one); });
  return static_cast<size_t>(sure) >= groups_[peer.group().value].min_peers;
}

void Cluster::at_risk(const PeerNode& peer, Duration until) {
  Instant& at = at_risk_[&peer];
  at = std::max(at, world_.event_loop().now() + until);
}

bool Cluster::at_risk(const PeerNode& peer) const {
  const auto at = at_risk_.find(&peer);
  return at != at_risk_.end() && at->second > world_.event_loop().now();
}

bool Cluster::unsure(PeerNode& peer) const {
  return at_risk(peer) || workload(peer).mistaken() || workload(peer).is_late() || peer.insider;
}

bool Cluster::calm(size_t group) const {
  const auto members = of_group(group);
  return std::none_of(members.begin(), members.end(),
                      [this](PeerNode* peer) { return at_risk(*peer); });
}

bool Cluster::troubled(size_t group) const {
  const Instant now = world_.event_loop().now();
  return std::any_of(at_risk_.begin(), at_risk_.end(), [&](const auto& at) {
    return at.first->group().value == group && at.second > now;
  });
}

bool Cluster::has_judge(const std::vector<PeerNode*>& members) {
  return std::any_of(members.begin(), members.end(), [](PeerNode* peer) {
    return !workload(*peer).mistaken() && workload(*peer).is_compared();
  });
}

void Cluster::end_unjudged(size_t group) {
  auto members = of_group(group);
  std::erase_if(members, [](const PeerNode* peer) { return !peer->is_member(); });
  if (has_judge(members)) return;
  for (PeerNode* peer : members) {
    if (workload(*peer).mistaken()) peer->kill("ended: nobody is left that could judge it");
  }
}

// Whether the peer was disturbed, or may have waited for another newcomer that is mistaken.
bool Cluster::excused(const PeerNode& peer) const {
  const auto others = this->others(peer);
  return at_risk(peer) || std::any_of(others.begin(), others.end(),
                                      [](PeerNode* other) { return workload(*other).mistaken(); });
}

// Schedules the check of a mistake. The check is dropped if something else happens meanwhile for
// which the others might have to wait.
void Cluster::made_mistake(PeerNode& peer) {
  if (groups_.size() > 1) return;  // update_topology also waits for the other group
  const bool silent = workload(peer).silent();
  watch(peer, {.what = "P7 the mistake of " + peer.name(),
               .made = world_.event_loop().now(),
               .limit = kMistakeMax + (silent ? kPeerTimeout : Duration{0}),
               .checked = &mistakes_checked_});
}

// The others wait for it when they have come to their next call.
void Cluster::be_late(PeerNode& peer, Duration time) {
  workload(peer).be_late(time, [this, &peer, time] {
    const Duration limit = kMistakeMax + rules_.call_timeout;
    const auto others = this->others(peer);
    const auto members = std::count_if(others.begin(), others.end(), [this](PeerNode* other) {
      return other->is_member() && !unsure(*other) && workload(*other).is_compared();
    });
    const bool enough = static_cast<size_t>(members) >= groups_[0].min_peers;
    // A member that has just come is a newcomer, whose first call the others await for longer.
    const bool far = !world_.options().wire.fast() || world_.options().control_delay_max > kNearMax;
    if (groups_.size() > 1 || time <= limit || !enough || !workload(peer).is_compared() || far)
      return;
    watch(peer, {.what = "P4 the lateness of " + peer.name(),
                 .made = world_.event_loop().now(),
                 .limit = limit,
                 .checked = &late_checked_});
  });
}

void Cluster::watch(PeerNode& peer, const Delay& given) {
  Delay delay = given;
  const Duration message = world_.options().control_delay_max;
  if (message > kNearMax) delay.limit += kMessagesOfALoss * message;
  const Instant made = delay.made;
  // Invalidates the pending checks of other delays: this one may delay their members, too.
  disturb();
  const uint64_t before = disturbances_;
  const auto others = this->others(peer);
  const bool not_alone = std::any_of(others.begin(), others.end(), [](PeerNode* other) {
    return workload(*other).mistaken() && other->is_member();
  });
  // This includes peers that are gone: the others may not have been informed of the loss yet.
  const bool risky = std::any_of(at_risk_.begin(), at_risk_.end(),
                                 [made](const auto& at) { return at.second > made; });
  std::vector<PeerNode*> waiting;  // not those that are admitted later
  std::copy_if(others.begin(), others.end(), std::back_inserter(waiting),
               [](const PeerNode* other) { return other->is_member(); });
  // Otherwise those that are left wait for more peers.
  const bool enough = waiting.size() >= groups_[0].min_peers;
  if (!has_judge(others) || not_alone || risky || !enough || !calm(0) || !world_.master_runs() ||
      world_.master_paused())
    return;
  world_.event_loop().after(
      delay.limit, [this, &peer, delay, before, waiting, count = others.size()] {
        // A loss that was on its way when the mistake was made may have come first.
        const bool undisturbed = before == disturbances_ && this->others(peer).size() >= count &&
                                 !workload(peer).ended_by_loss();
        if (undisturbed && calm(0)) check(peer, waiting, delay);
      });
}

void Cluster::check(PeerNode& peer, const std::vector<PeerNode*>& waiting, const Delay& delay) {
  ++*delay.checked;
  const bool fast = world_.options().wire.fast();  // on slower wires a collective may take longer
  if (peer.alive() && !peer.gone())
    checker_.violation(delay.what + " has not cost it its membership after " + text(delay.limit));
  const std::vector<PeerNode*> there = of_group(0);
  for (PeerNode* member : waiting) {
    if (std::find(there.begin(), there.end(), member) == there.end()) continue;
    const Workload& about = workload(*member);
    if (!fast || about.mistaken() || !member->is_member()) continue;
    if (about.last_success() >= delay.made) continue;
    checker_.violation(delay.what + " keeps " + member->name() + " waiting for more than " +
                       text(delay.limit) + ": " + about.doing());
  }
}

void Cluster::choose_immortals() {
  if (rules_.mortal) return;
  for (size_t group = 0; group < groups_.size(); ++group) {
    PeerNode*& immortal = groups_[group].immortal;
    for (PeerNode* peer : of_group(group)) {
      const bool safe = !at_risk(*peer) && !workload(*peer).is_late() && !peer->insider;
      if (immortal == nullptr && holds(*peer) && safe) immortal = peer;
    }
    const bool is_out = immortal != nullptr && (!immortal->alive() || immortal->gone());
    if (!is_out) continue;
    if (!rules_.insider || !names_liar(workload(*immortal).gone_why()))
      checker_.violation(
          "P1 " + immortal->name() +
          ", which no fault may touch, is out of the run: " + workload(*immortal).gone_why());
    if (!rules_.insider) continue;
    // The others may be lost by faults, and the state of the run with them.
    immortal = nullptr;
    groups_[group].forgotten = true;
  }
}

void Cluster::check_insider(bool alone) {
  PCCL_ASSERT(rules_.insider && *rules_.insider < world_.peers().size());
  const PeerNode& liar = *world_.peers()[*rules_.insider];
  size_t lost = 0;
  for (const auto& peer : world_.peers()) {
    if (peer->insider || !peer->alive() || !peer->gone()) continue;
    const std::string& why = workload(*peer).gone_why();
    if (why.find("no master at ") != std::string::npos) continue;  // the master was away
    // A link with the liar can break, as any other.
    if (alone || (names_liar(why) && why.find("contradict") != std::string::npos)) ++lost;
    if (alone && liar.alive() && !liar.gone() && !names_liar(why))
      checker_.violation("P1 the liar stays, and " + peer->name() + " is out: " + why);
    if (why.find("it broke ") != std::string::npos)
      checker_.violation("P1 " + peer->name() + " is honest, and is out: " + why);
  }
  if (lost > 1) checker_.violation("P1 a liar costs " + std::to_string(lost) + " honest members");
}

}  // namespace pccl::sim
