// World: a run in one thread: the shipped MasterCore with its journal, PeerCores and ring Engines,
// on virtual time, over a virtual network with real bytes. What the application does comes from an
// App per peer; what goes wrong from whoever drives the world (a seed, or a scenario). Everything
// is a function of the seed.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/peer/core.h"
#include "csrc/ring/engine.h"
#include "master/core.h"
#include "tests/sim/clockwork.h"
#include "tests/sim/coverage.h"
#include "tests/sim/disk.h"
#include "tests/sim/network.h"
#include "tests/sim/random.h"
#include "tests/sim/wire.h"

namespace pccl::sim {

class PeerNode;
class World;

// The application of one peer. Calls come when a call of its own has ended; it may call the peer
// again at once.
class App {
 public:
  virtual ~App() = default;
  virtual void on_op(const peer::FinishOp& result) = 0;
  virtual void on_joint(const peer::FinishJoint& result) = 0;
  virtual void on_renewed(const peer::Topology&) {}
  virtual void on_gone(const Status& status) = 0;
  // Memory of an operation, and of the entries `keys` of a shared-state call: `staging` on the
  // receiving side.
  virtual ring::Memory memory(peer::Handle handle) = 0;
  virtual std::vector<std::span<std::byte>> state(peer::Handle handle,
                                                  const std::vector<uint32_t>& keys,
                                                  bool staging) = 0;
};

// A bug that the checker must find: one for each promise that it watches.
enum class Bug {
  kNone,
  kEarlyCommit,   // P1: the master takes the last member for done before it is
  kNoRestore,     // P2: what an operation has overwritten is not kept
  kForeignSize,   // P3: one peer averages over another number of peers
  kLostAnswer,    // P4: now and then an Answer does not arrive, though the connection goes on
  kToldTooEarly,  // P6: the master tells what is not durable yet
  kAnyRun,        // P5: a peer takes the hello of another run for one of its own
  kNoForget,      // P4: a peer dials one that is gone for ever
};

struct WorldOptions {
  Duration control_delay_min = std::chrono::microseconds(10);
  Duration control_delay_max = std::chrono::microseconds(2000);
  Duration disk_delay_min = std::chrono::microseconds(50);
  Duration disk_delay_max = std::chrono::milliseconds(5);
  Duration data_inbox_max = std::chrono::microseconds(200);  // of a data loop: a busy one is late
  WireOptions wire;
  uint64_t lanes_max = 1;  // of a link: it has so many, or fewer
  Bug plant = Bug::kNone;
  bool loopback_only = true;
  uint32_t exchange_bytes = 0;
  uint32_t round_trip = 0;  // microseconds, as the peers say it of all links
  // Now and then the master has both sides of a link dial, where one would do.
  bool both_dial = false;
};

class World {
 public:
  World(uint64_t seed, WorldOptions options);
  ~World();

  PeerNode& add_peer(const std::string& name, peer::Options options);
  Clockwork& clockwork() { return clockwork_; }
  Random& random() { return random_; }
  const WorldOptions& options() const { return options_; }
  void set_round_trip(uint32_t microseconds) { options_.round_trip = microseconds; }
  const std::vector<std::unique_ptr<PeerNode>>& peers() const { return peers_; }
  PeerNode* by_port(uint16_t port);

  Network& network() { return network_; }
  Duration control_delay();  // of a message on its way, by chance

  // Breaks the link between two peers though both live (a reset); they may be dialled again.
  // False: there is none.
  bool break_link(PeerNode& a, PeerNode& b);
  // Likewise, but only `a` hears of it. `refuses`: `b` does when it sends something.
  bool half_break_link(PeerNode& a, PeerNode& b, bool refuses);
  // Nothing that `from` sends arrives at `to`, or no longer so.
  void block(Network::Host from, Network::Host to);
  void lift(Network::Host from, Network::Host to);
  // Packets from `from` to `to` that are larger vanish, or no longer so.
  void narrow(Network::Host from, Network::Host to, size_t width);
  void widen(Network::Host from, Network::Host to);
  // SIGKILL of the master, with whatever its disk was doing; and its restart from what is on it.
  void kill_master();
  void start_master();
  bool master_runs() const { return master_ != nullptr; }
  // Stops the master's process for a while: what comes waits, and its time passes far too late.
  void stop_master();
  void master_goes_on();
  bool master_stopped() const { return master_stopped_; }
  // Its clock, which never goes back, has jumped ahead.
  void jump_master_clock(Duration ahead);
  // Breaks the control connection of a peer; it will resume. False: it has none.
  bool break_master_connection(PeerNode& peer);
  // Likewise, but only one side hears of it: the master, and the peer when it speaks next; or the
  // peer, and the master when the peer resumes.
  bool half_break_master_connection(PeerNode& peer, bool master_hears);

  // A line of the transcript: time, who, what.
  void note(const std::string& who, const std::string& what);
  std::function<void(const std::string&)> on_note;
  std::function<void(const std::string&)> on_violation = [](const std::string&) {};
  std::function<void(const master::Record&)> on_record;  // that the master makes durable
  // A peer has begun to send shared state to another.
  std::function<void(PeerNode&)> on_state_sent;
  PeerNode* stepping = nullptr;  // whose core is in a step; null: none, or the master's

 private:
  friend class PeerNode;
  struct Connection;  // a control connection
  void connect(PeerNode& peer);
  void try_to_connect(PeerNode& peer, Duration left);
  void connection_made(PeerNode& peer);
  void run_master(std::function<void()> what);  // now, or when it goes on
  Instant master_now() const { return clockwork_.now() + master_clock_ahead_; }
  void peer_gone(const std::shared_ptr<Connection>& connection, const std::string& why);
  void step_master(const master::Event& event);
  void persist(const master::Persist& persist);
  void cut(const std::shared_ptr<Connection>& connection, const std::string& why);
  void send_to_master(const std::shared_ptr<Connection>& connection,
                      const protocol::Message& message);
  void arrived_at_master(const std::shared_ptr<Connection>& connection,
                         const protocol::Message& message);
  void forge_last_done(const std::shared_ptr<Connection>& connection,
                       const protocol::Message& message);
  void close(std::shared_ptr<Connection> connection, bool by_master, const std::string& why);
  void arm_master();
  void send_to_peer(const std::shared_ptr<Connection>& connection,
                    const protocol::Message& message);
  void have_dialled_back(const std::shared_ptr<Connection>& dialler, const protocol::Dial& dial);

  WorldOptions options_;
  Random random_;
  Clockwork clockwork_;
  Disk disk_;
  Network network_;
  std::unique_ptr<master::MasterCore> master_;  // null: it was killed
  uint64_t master_life_ = 0;
  uint64_t master_timer_ = 0;
  bool master_stopped_ = false;
  std::deque<std::function<void()>> master_backlog_;
  Duration master_clock_ahead_{0};
  uint64_t connections_ = 0;
  std::map<master::ConnectionId, std::shared_ptr<Connection>> open_;
  std::map<std::pair<Epoch, OpKey>, std::vector<std::shared_ptr<Connection>>>
      done_;  // for Bug::kEarlyCommit
  std::vector<std::unique_ptr<PeerNode>> peers_;
};

}  // namespace pccl::sim
