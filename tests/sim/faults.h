// Faults: causes faults in a simulated run, one after another, at random. Some faults are over at
// once, others last for a while. A fault that may cost a peer its membership hits only peers that
// may be lost (Cluster). Gentle runs have no such faults. The Driver owns it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/cluster.h"
#include "tests/sim/lasting.h"

namespace pccl::sim {

class Faults {
 public:
  Faults(World& world, Cluster& cluster, Coverage* coverage, uint64_t seed);
  ~Faults();
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

  // Causes one of the faults that are possible now.
  void cause_one();
  // Arms a fault that happens when a state machine takes a certain transition. False: not possible.
  bool trigger();
  // Kills the master, which starts again soon. It may not be possible now.
  void restart_master() {
    if (kill_master()) count("master killed");
  }
  // Adds a newcomer that makes some mistake. False: not possible now.
  bool mistaken_newcomer();
  // A peer is late for its next call, often for too long. False: not possible now.
  bool be_late();
  // stop() ends all lasting faults and disarms the armed ones. No new fault may start before
  // go_on().
  void stop();
  void go_on() { paused_ = false; }
  const std::map<std::string, uint64_t>& caused() const { return caused_; }

 private:
  struct Kind {
    const char* name;  // null: the fault is counted when it happens
    uint32_t weight;
    bool (Faults::*cause)();  // false: not possible now
  };
  static const std::vector<Kind>& kinds();

  // ---- Process faults ----
  bool kill();
  bool stop_process();
  bool slow_down();
  bool jump_clock();
  bool leave();
  bool revoke();
  bool renew();
  // ---- Newcomers ----
  bool newcomer();
  bool unreachable_newcomer();
  bool closed_newcomer();
  bool newcomer_of_two_addresses();
  bool newcomer_dies();
  bool newcomer_leaves();
  bool newcomer_cannot_listen();
  bool newcomer_is_foreign();
  bool sender_dies();
  // ---- Master faults ----
  bool kill_master();
  bool stop_master();
  bool jump_master_clock();
  // ---- Connection faults ----
  bool cut_master_connection();
  bool half_cut_master_connection();
  bool break_link();
  bool half_break_link();
  bool stranger();
  bool wrong_key();
  bool copied_handshake();
  // ---- Network faults ----
  bool cut_off_pair();
  bool cut_off_pair_one_way();
  bool narrow_pair();
  bool cut_off_from_peers();
  bool cut_off_from_master();
  bool cut_off_from_master_one_way();
  bool cut_off_from_all();
  // ---- Faults at a certain transition ----
  void strike(PeerNode* who);
  void lose_power();

  bool pair_trouble(bool half);
  bool pair_cut_off(bool one_way);
  bool master_cut_off(bool one_way);
  void count(const std::string& kind) {
    ++caused_[kind];
    cluster_.disturb();
  }
  PeerNode* any();     // a random peer that faults may hit; null: none
  PeerNode* victim();  // a random peer that may be lost; null: none found
  PeerNode* partner(const PeerNode& peer);
  Duration outage(bool harmless);
  bool master_is_stable() const;
  Duration master_may_be_away();
  void block(Network::Host from, Network::Host to, Duration duration, Duration longer = {});
  void cut_off(PeerNode& peer, Duration duration);
  PeerNode* to_cut_off();  // a peer to cut off from all others; null: none
  bool rested(const PeerNode& peer) const;
  void deactivate(const PeerNode& peer, Duration until);

  World& world_;
  Cluster& cluster_;
  Coverage* const coverage_;
  Random chance_;
  std::map<std::string, uint64_t> caused_;
  Lasting lasting_;
  bool paused_ = false;
  bool sender_dies_ = false;
  bool sprung_ = false;                         // whether the trigger has fired
  Instant master_up_;                           // last start of the master, in the past or planned
  Instant master_away_since_;                   // start of the current series of master outages
  std::map<Network::Host, Instant> rested_;     // not to be disturbed again before
  std::map<Network::Host, Instant> next_jump_;  // no clock jump of a spared peer before
};

}  // namespace pccl::sim
