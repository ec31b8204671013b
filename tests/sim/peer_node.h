// PeerNode: one simulated process. It has a PeerCore, an Engine and its links. Two inboxes join
// them, each is late by chance; in the real shell all are on one loop. The process can be killed
// (its connections close, nothing runs any more), paused for a while, slowed down, and have its
// clock jump. The World owns it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "csrc/peer/core.h"
#include "csrc/peer/outbox.h"
#include "csrc/peer/shell/state/shared_entries.h"
#include "csrc/ring/engine.h"
#include "tests/sim/device.h"
#include "tests/sim/insider.h"
#include "tests/sim/sim_links.h"
#include "tests/sim/world.h"

namespace pccl::sim {

class PeerNode {
 public:
  PeerNode(World& world, std::string name, uint16_t port, peer::Options options);
  ~PeerNode();

  void set_app(std::unique_ptr<App> app) { app_ = std::move(app); }
  App& app() { return *app_; }
  World& world() { return world_; }
  const std::string& name() const { return name_; }
  uint16_t port() const { return port_; }
  PeerId id() const { return id_; }
  bool alive() const { return alive_; }
  bool paused() const { return paused_; }
  bool gone() const { return gone_; }
  bool is_member() const { return member_; }
  bool is_dismissed() const { return dismissed_; }  // by a Farewell of the master
  GroupId group() const { return group_; }
  bool unreachable = false;  // no path leads from it to another peer, or back
  bool closed = false;       // no peer can connect to it, but it can connect to others
  bool cannot_dial = false;  // it cannot connect to others, but they can connect to it
  // Port to which the first of its addresses leads; 0: its own.
  uint16_t first_address = 0;
  bool cannot_listen = false;        // no port is left for it
  uint32_t last_token = 1;           // number of the token that its file has
  bool foreign = false;              // it supports only later versions than the master
  std::unique_ptr<Insider> insider;  // it lies to the master; null: it is honest
  // Its thread hangs in sync_shared_state: it lends and checks no piece.
  bool hangs = false;

  // The addresses with which it registers.
  protocol::Register where() const;

  // A call from the application. It takes effect after the inbox's delay.
  void call(peer::Event event);
  peer::Handle new_handle() { return ++handles_; }
  // The application waits for the sync that goes on in the background: see App::on_decided. What it
  // fetched is installed now, or when it ends.
  void wait_for_sync();
  // The application asks for its rank. App::on_shown() is called if it has changed. It draws no
  // random number for its delay.
  void ask_topology();

  void kill(const std::string& why);
  void leave();
  bool has_left() const { return left_; }
  // Kills the process after it sent and received this many messages, unless it is a member by then.
  void die_while_joining(int messages) { messages_left_ = messages; }
  void stop();
  void go_on();
  // Delays every action by up to `late_max`. Zero ends the slowness.
  void be_slow(Duration late_max);
  void jump_clock(Duration ahead);
  SimLinks& links() { return links_; }
  Instant clock() const { return world_.event_loop().now() + clock_ahead_; }
  Duration late();
  void run(const std::function<void()>& what);  // now, or when the process resumes
  // Time since which it needs no links: it was killed, or learned that it is out of the run.
  std::optional<Instant> ended_at() const { return ended_at_; }

 private:
  friend class World;
  void step(const peer::Event& event);  // runs on the peer loop
  void apply(peer::ConnectMaster& effect);
  void apply(peer::CloseMaster&);
  void apply(peer::ForgetTokens&) {}
  void apply(peer::SendMaster& effect);
  void apply(peer::Listen& effect);
  void apply(peer::AcceptAs& effect);
  void apply(peer::DialPeer& effect);
  void apply(peer::AcceptWith& effect);
  void apply(peer::ForgetPeer& effect);
  void apply(peer::BeginEpoch& effect);
  void apply(peer::StartOp& effect);
  void apply(peer::OpenLanes& effect);
  void apply(peer::SampleLink& effect);
  void apply(peer::EndOp& effect);
  void apply(peer::SayDone& effect);
  void apply(peer::BeginPieces& effect);
  void apply(peer::CheckPiece& effect);
  void apply(peer::SyncProgress& effect);
  void apply(peer::ReturnPiece& effect) { shared_->take_back(effect.op); }
  void apply(peer::FinishOp& effect);
  void apply(peer::FinishJoint& effect);
  void apply(peer::Reconfigured& effect) { app_->on_reconfigured(effect.topology); }
  void apply(peer::ShowTopology& effect);
  void apply(peer::LookAtWaits&);
  void apply(peer::SampleTelemetry&);
  void apply(peer::OpJudged&) {}  // for statistics only
  void apply(peer::Gone& effect);
  void apply(peer::Log& effect);
  void arm();
  void flush_or_hold();
  void flush();
  void data(std::function<void()> what);     // to the data plane
  void control(std::function<void()> what);  // to the control plane
  void connection_closed(const std::shared_ptr<World::Connection>& which, const std::string& why);
  Duration inbox_delay();
  void count_message();

  World& world_;
  const std::string name_;
  const uint16_t port_;
  const GroupId group_;
  PeerId id_;
  bool alive_ = true, paused_ = false, gone_ = false, member_ = false, left_ = false;
  bool dismissed_ = false;
  std::optional<Instant> ended_at_;
  Duration late_max_{0};
  Duration clock_ahead_{0};
  int messages_left_ = 0;
  std::unique_ptr<App> app_;
  peer::PeerCore core_;
  ring::Engine engine_;
  SimLinks links_;
  std::unique_ptr<Device> device_;               // null: all tensors are on the CPU
  std::shared_ptr<peer::SharedEntries> shared_;  // of the last shared-state call with a plan
  peer::Handle shared_call_ = 0;                 // that call
  bool fetches_ = false;                         // the shared state, and it is not installed yet
  std::set<peer::Handle> in_flight_;             // operations that the core has not finished
  peer::Handle decided_call_ = 0;                // the last one for which all have voted
  bool background_ = false;                      // it goes on in the background
  std::optional<peer::FinishJoint> unclaimed_;   // its end, for which nobody has waited yet
  std::map<OpKey, Epoch> unposted_;              // transfers for which nothing was lent
  std::vector<PeerId> members_;                  // of the present epoch, in rank order
  Fifo to_control_, to_data_;
  std::deque<std::function<void()>> backlog_;
  std::shared_ptr<World::Connection> connection_;
  peer::Outbox outbox_;  // to the master
  peer::Handle handles_ = 0;
  uint64_t timer_ = 0;
};

}  // namespace pccl::sim
