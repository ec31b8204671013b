// World: a run in one thread: the shipped MasterCore with its journal, PeerCores and ring Engines,
// on virtual time, over a virtual network with real bytes. What the application does comes from an
// App per peer; what goes wrong from whoever drives the world (a seed, or a scenario). Everything
// is a function of the seed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/peer/core.h"
#include "csrc/ring/engine.h"
#include "master/core.h"
#include "tests/sim/clockwork.h"
#include "tests/sim/disk.h"
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
};

struct WorldOptions {
  Duration control_delay_min = std::chrono::microseconds(10);
  Duration control_delay_max = std::chrono::microseconds(2000);
  Duration disk_delay_min = std::chrono::microseconds(50);
  Duration disk_delay_max = std::chrono::milliseconds(5);
  WireOptions wire;
  Bug plant = Bug::kNone;
  bool loopback_only = true;
};

class World {
 public:
  World(uint64_t seed, WorldOptions options);
  ~World();

  PeerNode& add_peer(const std::string& name, peer::Options options);
  Clockwork& clockwork() { return clockwork_; }
  Random& random() { return random_; }
  const WorldOptions& options() const { return options_; }
  const std::vector<std::unique_ptr<PeerNode>>& peers() const { return peers_; }
  PeerNode* by_port(uint16_t port);

  // Breaks the link between two peers though both live (a reset); they may be dialled again.
  void break_link(PeerNode& a, PeerNode& b);
  // SIGKILL of the master, with whatever its disk was doing; and its restart from what is on it.
  void kill_master();
  void start_master();
  bool master_runs() const { return master_ != nullptr; }
  // Breaks the control connection of a peer; it will resume.
  void break_master_connection(PeerNode& peer);

  // A line of the transcript: time, who, what.
  void note(const std::string& who, const std::string& what);
  std::function<void(const std::string&)> on_note;

 private:
  friend class PeerNode;
  struct Connection;  // a control connection
  void connect(PeerNode& peer);
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
  Duration control_delay();

  WorldOptions options_;
  Random random_;
  Clockwork clockwork_;
  Disk disk_;
  std::unique_ptr<master::MasterCore> master_;  // null: it was killed
  uint64_t master_life_ = 0;
  uint64_t master_timer_ = 0;
  uint64_t connections_ = 0;
  std::map<master::ConnectionId, std::shared_ptr<Connection>> open_;
  std::map<std::pair<Epoch, OpKey>, std::vector<std::shared_ptr<Connection>>>
      done_;  // for Bug::kEarlyCommit
  std::vector<std::unique_ptr<PeerNode>> peers_;
};

}  // namespace pccl::sim
