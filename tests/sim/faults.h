// Faults: what goes wrong in a simulated run, one thing after another, by chance. Some are over at
// once, some last for a while. What one may cost a peer its membership hits only those who may be
// lost (Cast), and in gentle runs nothing is that bad.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/cast.h"

namespace pccl::sim {

class Faults {
 public:
  Faults(World& world, Cast& cast, Coverage* coverage, uint64_t seed);
  ~Faults();
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

  // One of those that are possible now.
  void cause_one();
  // Something is to happen when a state machine takes a certain step.
  bool ambush();
  // A newcomer that is wrong in some way. False: not in this run.
  bool mistaken_newcomer();
  // No new ones before go_on(), and those that last are over.
  void stop();
  void go_on();
  const std::map<std::string, uint64_t>& caused() const { return caused_; }

 private:
  struct Kind {
    const char* name;  // null: it is counted when it happens
    uint32_t weight;
    bool (Faults::*cause)();  // false: not now
  };
  static const std::vector<Kind>& kinds();

  // ---- Of processes ----
  bool kill();
  bool stop_process();
  bool slow_down();
  bool jump_clock();
  bool leave();
  // ---- Of newcomers ----
  bool newcomer();
  bool unreachable_newcomer();
  bool closed_newcomer();
  bool newcomer_of_two_addresses();
  bool newcomer_dies();
  bool newcomer_leaves();
  bool newcomer_cannot_listen();
  bool newcomer_is_foreign();
  bool sender_dies();
  // ---- Of the master ----
  bool kill_master();
  bool stop_master();
  bool jump_master_clock();
  // ---- Of connections ----
  bool cut_master_connection();
  bool half_cut_master_connection();
  bool break_link();
  bool half_break_link();
  bool stranger();
  // ---- Of the network ----
  bool cut_off_pair();
  bool cut_off_pair_one_way();
  bool narrow_pair();
  bool cut_off_from_peers();
  bool cut_off_from_master();
  bool cut_off_from_master_one_way();
  bool cut_off_from_all();
  // ---- Whatever is worst at that moment ----
  void strike(PeerNode* who);
  void lose_power();

  bool pair_trouble(bool half);
  bool pair_cut_off(bool one_way);
  bool master_cut_off(bool one_way);
  void count(const std::string& kind) {
    ++caused_[kind];
    cast_.disturb();
  }
  PeerNode* any();     // that faults may hit
  PeerNode* victim();  // that may be lost; null: none
  PeerNode* partner(const PeerNode& peer);
  Duration outage(bool harmless);
  bool master_is_stable() const;
  Duration master_may_be_away();
  void last(Duration duration, std::function<void()> end);
  void block(Network::Host from, Network::Host to, Duration duration, Duration longer = {});
  void cut_off(PeerNode& peer, Duration duration);
  PeerNode* to_cut_off();  // from all others; null: nobody
  bool rested(const PeerNode& peer) const;
  void let_rest(const PeerNode& peer, Duration until);

  World& world_;
  Cast& cast_;
  Coverage* const coverage_;
  Random chance_;
  std::map<std::string, uint64_t> caused_;
  std::vector<std::pair<uint64_t, std::function<void()>>> lasting_;
  uint64_t started_ = 0;
  bool stopped_ = false;
  bool sender_dies_ = false;
  bool sprung_ = false;                         // the ambush
  Instant master_up_;                           // when it was, or will be, started last
  Instant master_away_since_;                   // before that it had been up for long
  std::map<Network::Host, Instant> rested_;     // not to be disturbed again before
  std::map<Network::Host, Instant> next_jump_;  // of a spared one's clock, not before
};

}  // namespace pccl::sim
