// PeerNode: one simulated process: a PeerCore and an Engine, joined by two inboxes as the real
// shell's two loops are, and its links, which count silence as the shell's do. It can be killed
// (connections close, nothing runs any more), stopped for a while, be slow, and have its clock
// jump.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "csrc/peer/core.h"
#include "csrc/protocol/silence.h"
#include "csrc/ring/engine.h"
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
  bool stopped() const { return stopped_; }
  bool gone() const { return gone_; }
  bool is_member() const { return member_; }
  GroupId group() const { return group_; }
  Duration peer_timeout() const { return peer_timeout_; }
  Duration tick() const { return peer_timeout_ / protocol::kTicksPerTimeout; }
  bool unreachable = false;    // its port is blackholed
  bool cannot_listen = false;  // there is no port left for it

  // From the application: takes effect after the inbox's delay.
  void call(peer::Event event);
  peer::Handle new_handle() { return ++handles_; }

  void kill(const std::string& why);
  void leave();
  bool has_left() const { return left_; }
  // When it has said and heard so many messages, unless it is a member by then.
  void die_while_joining(int messages) { messages_left_ = messages; }
  void stop();
  void go_on();
  // Whatever it does comes late, by up to `late_max`; zero: no longer so.
  void be_slow(Duration late_max);
  void jump_clock(Duration ahead);
  void pump_links();

 private:
  friend class World;
  struct Lane {
    std::shared_ptr<Wire> wire;
    std::unique_ptr<net::FrameSink> sink;
    protocol::Silence silence{protocol::kTicksPerLinkSilence};
  };
  struct Link {
    std::shared_ptr<Wire> wire;  // its first lane's
    int side = 0;
    PeerNode* other = nullptr;
    std::vector<Lane> lanes;
  };
  void step(const peer::Event& event);  // on the control loop
  void perform(peer::Effect& effect);
  void arm();
  void data(std::function<void()> what);        // to the data loop
  void control(std::function<void()> what);     // to the control loop
  void run(const std::function<void()>& what);  // now, or when the process goes on
  void connection_closed(const std::shared_ptr<World::Connection>& which, const std::string& why);
  void start_op(peer::StartOp& start);
  void verify(const peer::VerifyState& verify);
  void dial(const protocol::Dial& dial);
  void dial_again(PeerId peer);
  void connect_to(PeerId peer, uint32_t attempt, Duration left);
  void introduce(PeerNode& other, uint32_t attempt);
  void dialled_by(PeerNode& dialler, const std::shared_ptr<Wire>& wire);
  void dial_answered(PeerNode& other, const std::shared_ptr<Wire>& wire);
  void dial_failed(PeerId peer, uint32_t attempt, const std::string& why, LinkFault fault);
  void link_opened(PeerNode& other, const std::shared_ptr<Wire>& wire, int side, bool dialled);
  Link* link_on(PeerNode& other, const std::shared_ptr<Wire>& wire);
  void add_lane(Link& link, const std::shared_ptr<Wire>& wire);
  void let_lanes_rest(PeerId peer);
  void open_lanes(PeerNode& other, const std::shared_ptr<Wire>& first);
  void link_closed(PeerNode& other, const std::shared_ptr<Wire>& wire, const std::string& why);
  void link_lost(PeerId peer, const std::string& why);
  void drop_link(PeerId peer, bool by_us);
  void tell_up(PeerId peer);
  void report(const protocol::LinkReport& report);
  void arm_tick();
  void on_tick();
  static void ping(const Link& link, Lane& lane, uint64_t number = 0);
  void probe(PeerId peer);
  void look_later(PeerId peer, uint64_t number);
  Duration late();
  Duration inbox_delay();
  void count_message();

  World& world_;
  const std::string name_;
  const uint16_t port_;
  const GroupId group_;
  const Duration peer_timeout_;
  PeerId id_;
  bool alive_ = true, stopped_ = false, gone_ = false, member_ = false, left_ = false;
  Duration late_max_{0};
  Duration clock_ahead_{0};
  int messages_left_ = 0;
  std::unique_ptr<App> app_;
  peer::PeerCore core_;
  ring::Engine engine_;
  Fifo to_control_, to_data_;
  std::deque<std::function<void()>> backlog_;
  std::shared_ptr<World::Connection> connection_;
  std::map<PeerId, Link> links_;
  std::map<PeerId, protocol::Dial> dialling_;
  std::map<PeerId, protocol::Probe> probes_;
  std::map<PeerId, uint64_t> last_pong_;
  uint64_t probe_numbers_ = 0;
  peer::Handle handles_ = 0;
  uint32_t serials_ = 0;                 // of connections to others
  std::map<PeerId, uint32_t> attempts_;  // the one under way to each; 0: none
  uint64_t timer_ = 0;
};

}  // namespace pccl::sim
