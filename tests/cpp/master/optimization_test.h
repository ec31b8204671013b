// OptimizationTest: a group whose members make optimize_topology, for the tests of Optimization and
// of Group. The links between them carry what rate_ says.
#pragma once

#include "tests/cpp/master/harness.h"

namespace pccl::master {

inline constexpr auto kOptimize = protocol::JointKind::kOptimizeTopology;
inline constexpr uint32_t kBudget = 10'000;

// Peers whose links carry what rate_ says, in MB per second. They report as soon as a Probe comes.
class OptimizationTest : public testing::Test {
 protected:
  void found(const std::vector<std::string>& names) {
    names_ = names;
    h.found(names, 0, 2);
    for (size_t rank = 0; rank < names.size(); ++rank) rate_.emplace_back(names.size(), 100.0);
  }
  void vote(uint32_t in_epoch, uint32_t number, uint32_t budget = kBudget) {
    for (const std::string& name : names_) vote(name, in_epoch, number, budget);
  }
  void vote(const std::string& name, uint32_t in_epoch, uint32_t number,
            uint32_t budget = kBudget) {
    protocol::Vote vote{number, kOptimize, {}, epoch(in_epoch)};
    vote.budget_ms = budget;
    vote.max_bytes = max_bytes_;
    h.say(name, vote);
  }
  size_t rank(PeerId peer) const {
    for (size_t rank = 0; rank < names_.size(); ++rank) {
      if (h.id(names_[rank]) == peer) return rank;
    }
    ADD_FAILURE() << "no member " << text(peer);
    return 0;
  }
  // Whether a Probe has come to this peer that it has not reported about yet.
  bool is_probing(const std::string& name) const {
    const protocol::Probe* probe = h.last<protocol::Probe>(name);
    const auto seen = reported_.find(name);
    return probe != nullptr && (seen == reported_.end() || seen->second != probe->round);
  }
  void report(const std::string& name, bool good = true) {
    const protocol::Probe probe = *h.last<protocol::Probe>(name);
    reported_[name] = probe.round;
    const double mb = good ? rate_[rank(probe.peer)][rank(h.id(name))] : 0;
    const auto bytes = static_cast<uint64_t>(mb * 1e3 * probe.milliseconds);
    h.say(name, protocol::ProbeReport{probe.round, probe.peer, bytes, probe.milliseconds});
  }
  // The next rounds, until nobody probes any more.
  size_t run_rounds(size_t most = 100) {
    size_t rounds = 0;
    for (bool any = true; any && rounds < most; rounds += any) {
      any = false;
      for (const std::string& name : names_) {
        if (!is_probing(name)) continue;
        any = true;
        report(name);
      }
    }
    return rounds;
  }
  // The members end the epoch and vote again.
  void renew(uint32_t before, uint32_t number) {
    for (const std::string& name : names_) h.say(name, protocol::StateReport{epoch(before), {}});
    vote(before + 1, number);
  }
  // The same, if a better plan is adopted.
  void renew_if_adopted(uint32_t before, uint32_t number) {
    const auto* freeze = h.last<protocol::FreezeRequest>("a");
    if (freeze != nullptr && freeze->epoch == epoch(before)) renew(before, number);
  }
  // The fast ring is the one in this order; all other paths are slow.
  void make_ring_fast(const std::vector<size_t>& order, double fast = 200, double slow = 5) {
    for (auto& row : rate_) std::fill(row.begin(), row.end(), slow);
    for (size_t place = 0; place < order.size(); ++place)
      rate_[order[place]][order[(place + 1) % order.size()]] = fast;
  }
  protocol::TopologyPlan plan(const std::string& name = "a") const {
    const auto* answer = h.last<protocol::Answer>(name);
    EXPECT_TRUE(answer != nullptr && answer->plan);
    return answer != nullptr && answer->plan ? *answer->plan : protocol::TopologyPlan{};
  }
  protocol::Answer answer(const std::string& name = "a") const {
    const auto* answer = h.last<protocol::Answer>(name);
    EXPECT_NE(answer, nullptr);
    return answer != nullptr ? *answer : protocol::Answer{};
  }

  Harness h;
  std::vector<std::string> names_;
  std::vector<std::vector<double>> rate_;
  std::map<std::string, uint32_t> reported_;
  uint64_t max_bytes_ = 0;  // of the votes to come
};

}  // namespace pccl::master
