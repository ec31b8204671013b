// World: a simulated run in one thread. It has the shipped MasterCore with its journal, PeerCores
// and ring Engines, on virtual time, over a virtual network that carries real bytes. One App per
// peer acts as the application. The owner of the World (a Driver or a scenario) causes the faults.
// Everything is a function of the seed. Several Worlds on one clock are several runs.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/peer/core.h"
#include "csrc/peer/shell/peer.h"
#include "csrc/ring/engine.h"
#include "master/core.h"
#include "tests/sim/coverage.h"
#include "tests/sim/disk.h"
#include "tests/sim/event_loop.h"
#include "tests/sim/network.h"
#include "tests/sim/random.h"
#include "tests/sim/wire.h"

namespace pccl::sim {

class PeerNode;
class World;

// A line of a log, as the transcript shows it: with its level, unless it is information.
template <typename Log>
std::string leveled(const Log& line) {
  if (line.level == LogLevel::kInfo) return line.text;
  return (line.level == LogLevel::kError ? "error: " : "warning: ") + line.text;
}

// Bytes of a piece of shared state.
inline constexpr uint64_t kPieceBytes = 16384;
// The most that a probe of a link carries in each direction.
inline constexpr uint64_t kProbeBytes = 64 * kPieceBytes;

// The application of one peer. A callback comes when one of its calls has ended. It may call the
// peer again at once.
class App {
 public:
  virtual ~App() = default;
  virtual void on_op(const peer::FinishOp& result) = 0;
  virtual void on_joint(const peer::FinishJoint& result) = 0;
  virtual void on_reconfigured(const peer::Topology&) {}
  virtual void on_shown(const peer::Topology&) {}  // ranks in its calls are ranks of this one
  virtual void on_gone(const Status& status) = 0;
  // Memory of the operation.
  virtual ring::Memory memory(peer::Handle handle) = 0;
  // The tensors of a shared-state call.
  virtual std::vector<peer::StateSpan> state() = 0;
  // Whether that call takes entries that are not among these.
  virtual std::optional<peer::StateSpans::MayAdd> may_add() const { return {}; }
  virtual void on_added(std::vector<peer::AddedEntry> /*added*/) {}  // such entries have come
  virtual bool receives_only() const { return false; }  // the strategy of the last such call
  // Whether it goes on in the background when all have voted. Then on_decided() is called, and its
  // success is held back until PeerNode::wait_for_sync().
  virtual bool syncs_in_background() const { return false; }
  virtual void on_decided(bool /*receives*/) {}
  // The waits of its threads for calls, and of those that do not wait now.
  virtual peer::WaitsSeen waits() const { return {}; }
  virtual void on_install() {}  // the tensors are written next
  // The peer takes a call of the application. The truth value says whether it fetches the shared
  // state then.
  virtual void on_called(peer::Handle /*handle*/, bool /*fetches*/) {}
  // The operation begins, or begins again, with the members in the order of the ring indices or
  // ranks that its task uses.
  virtual void on_started(const peer::StartOp& /*start*/, std::vector<PeerId> /*members*/) {}
};

// A bug that the checker must find. There is at least one for each promise that it watches.
enum class Bug {
  kNone,
  kEarlyCommit,   // P1: the master counts the last member as done before it is
  kNoRestore,     // P2: the bytes that an operation overwrites are not saved
  kForeignSize,   // P3: one peer averages over another number of peers
  kNeverAbsent,   // P3: a peer that fetches the shared state sends its own tensors
  kLostAnswer,    // P4: some Answers do not arrive, though the connection stays up
  kToldTooEarly,  // P6: the master announces what is not durable yet
  kAnyRun,        // P5: a peer accepts the hello of another run
  kNoForget,      // P4: a peer never stops dialling a peer that is gone
  kHastyEnd,      // P1: the master says farewell without ending what is under way
  // Against a member that lies:
  kHiddenReturn,  // P1: the master is not told that a member has returned an operation
  kUnasked,       // P1: an abort is decided without the answers of the members
  kUnbound,       // P1: a member that is done answers, and then goes on
  kAnyDecision,   // P1: a restarted master believes every verdict
  // These two break a reconfigure:
  kFewFounders,   // P1: its run begins without the last process
  kNoInvitation,  // P4: its host learns of a lost process only if that has come before
};

struct WorldOptions {
  Duration control_delay_min = std::chrono::microseconds(10);
  Duration control_delay_max = std::chrono::microseconds(2000);
  Duration disk_delay_min = std::chrono::microseconds(50);
  Duration disk_delay_max = std::chrono::milliseconds(5);
  Duration data_inbox_max = std::chrono::microseconds(200);  // of the data plane
  WireOptions wire;
  uint64_t lanes_max = 1;  // most lanes of a link; it may have fewer
  Bug plant = Bug::kNone;
  bool loopback_only = true;
  uint32_t one_shot_bytes = 0;
  // Shares of the direct pattern, for epochs with as many members.
  std::vector<uint16_t> shares;
  uint32_t rtt = 0;  // RTT in microseconds, as the peers measure it on all links
  // Links show random rates, so that the master may choose the direct pattern.
  bool rates = false;
  // Sometimes the master makes both sides of a link dial, where one would be enough.
  bool both_dial = false;
  // The run is secured: a link needs a key of the master.
  bool secured = false;
  bool elsewhere = false;    // the master is on another machine than the peers
  bool fixed_world = false;  // master::Options::fixed_world
  bool devices = false;      // most tensors are on a device of their peer
  uint64_t seed = 0;         // of the devices
};

// Decides who may enter the run of a World, as the rendezvous of a hosted master does. A connection
// waits from its Hello on.
class Gate {
 public:
  virtual ~Gate() = default;
  virtual void arrive(master::ConnectionId id, const protocol::Hello& hello) = 0;
  virtual void closed(master::ConnectionId id) = 0;  // of a peer that waited or was let in
  virtual void begun() = 0;                          // all founders are members
  // A member has called a reconfigure. `rank`: its present one.
  virtual void offer(master::ConnectionId id, uint32_t rank, const protocol::Regroup& message) = 0;
  virtual void regrouped(bool begun) = 0;  // the answer to World::regroup()
};

class World {
 public:
  static constexpr uint64_t kRunId = 7;

  // `clock`: null for one of its own.
  World(uint64_t seed, WorldOptions options, EventLoop* clock = nullptr);
  ~World();

  // ---- If it has a gate ----
  void set_gate(Gate& gate) { gate_ = &gate; }
  void admit(master::ConnectionId id);
  void refuse(master::ConnectionId id, const protocol::Reject& why);
  void ping(master::ConnectionId id);                                       // a peer that waits
  void answer(master::ConnectionId id, const protocol::Regrouped& answer);  // a member
  void regroup(const master::RegroupAgreed& agreed);
  void end_run(const protocol::Reject& why);

  // Somebody looks at the run, and at its snapshot, as JSON. REQUIRES: the master runs.
  void watch() { step_master(master::Watched{}); }
  std::string snapshot() const;
  PeerNode& add_peer(const std::string& name, peer::Options options);
  EventLoop& event_loop() { return event_loop_; }
  const EventLoop& event_loop() const { return event_loop_; }
  Random& random() { return random_; }
  const WorldOptions& options() const { return options_; }
  void set_round_trip(uint32_t microseconds) { options_.rtt = microseconds; }
  const std::vector<std::unique_ptr<PeerNode>>& peers() const { return peers_; }
  PeerNode* by_port(uint16_t port);

  Network& network() { return network_; }
  Duration control_delay();  // random delay of one message

  // Breaks the link between two peers though both are alive (a reset). They may be dialled again.
  // False: there is no link.
  bool break_link(PeerNode& a, PeerNode& b);
  // Like break_link(), but only `a` notices. `refuses`: `b` notices when it sends something.
  bool half_break_link(PeerNode& a, PeerNode& b, bool refuses);
  // block(): nothing that `from` sends arrives at `to`. lift() ends one block.
  void block(Network::Host from, Network::Host to);
  void lift(Network::Host from, Network::Host to);
  // narrow(): packets from `from` to `to` that are larger than `width` vanish. widen() ends this.
  void narrow(Network::Host from, Network::Host to, size_t width);
  void widen(Network::Host from, Network::Host to);
  // SIGKILL of the master, with the pending writes of its disk; and its restart from that disk.
  void kill_master();
  // All tokens of this peer are no longer good. REQUIRES: the run is secured, as for the next ones.
  void revoke(PeerNode& peer);
  void revoke(PeerNode& peer, uint32_t token);  // only this one of them
  // The file of this peer's token has another one now: the master knows it; does not know it; or
  // knows it under another name.
  enum class Renewal { kKnown, kUnknown, kOfAnother };
  void renew(PeerNode& peer, Renewal how);
  void learn(const PeerNode& peer);  // the master knows all tokens of this peer
  // A credential for a link that the master has not asked for; none if the run is not secured.
  std::optional<protocol::LaneCredential> credential(PeerId dialler, PeerId acceptor);
  void start_master();
  // The process that hosts the master ends well. The master is gone when it has drained.
  void end_master();
  bool master_runs() const { return master_ != nullptr; }
  const master::MasterCore* master() const { return master_.get(); }  // null: it was killed
  // Pauses the master's process. Arriving data waits, and its timers run far too late.
  void stop_master();
  void master_goes_on();
  bool master_paused() const { return master_paused_; }
  // Its clock, which never goes back, jumps ahead.
  void jump_master_clock(Duration ahead);
  // Breaks the control connection of a peer, which will resume. False: it has none.
  bool break_master_connection(PeerNode& peer);
  // Likewise, but only one side notices. If that is the master, the peer notices when it sends
  // next. If that is the peer, the master notices when the peer resumes.
  bool half_break_master_connection(PeerNode& peer, bool master_hears);

  // Writes a line of the transcript: time, who, what.
  void note(const std::string& who, const std::string& what);
  std::function<void(const std::string&)> on_note;
  std::function<void(const std::string&)> on_violation = [](const std::string&) {};
  // Called with each record that the master makes durable
  std::function<void(const master::Record&)> on_record;
  // A peer has begun to send shared state to another.
  std::function<void(PeerNode&)> on_state_sent;
  PeerNode* stepping = nullptr;  // peer whose core is in a step; null: none, or the master's

 private:
  friend class PeerNode;
  struct Connection;  // a control connection
  void connect(PeerNode& peer, uint32_t token, Duration at_most);
  void try_to_connect(PeerNode& peer, uint32_t token, Duration left);
  void connection_made(PeerNode& peer, uint32_t token);
  void forget_token(const PeerNode& peer, uint32_t token);
  void run_master(std::function<void()> what);  // now, or when the master resumes
  Instant master_now() const { return event_loop_.now() + master_clock_ahead_; }
  void peer_gone(const std::shared_ptr<Connection>& connection, const std::string& why);
  void step_master(const master::Event& event);
  void drop_master();
  void say_hasty_farewell();
  void apply(master::Send& effect);
  void apply(master::Close& effect);
  void apply(master::Persist& persist);
  void apply(master::PlanRing& effect);
  void apply(master::RegroupOver& effect) { gate_->regrouped(effect.begun); }
  void apply(master::Log& effect) {
    if (effect.level != LogLevel::kDebug) note("master", leveled(effect));
  }
  void cut(const std::shared_ptr<Connection>& connection, const std::string& why);
  void send_to_master(const std::shared_ptr<Connection>& connection,
                      const protocol::Message& message);
  void arrived_at_master(const std::shared_ptr<Connection>& connection,
                         const protocol::Message& message);
  void offered(const std::shared_ptr<Connection>& connection, const protocol::Regroup& message);
  void introduce(const std::shared_ptr<Connection>& connection);
  bool waits_at_gate(const std::shared_ptr<Connection>& connection,
                     const protocol::Message& message);
  void take_turn(const std::function<void()>& what);
  void plant_against_liars(const std::shared_ptr<Connection>& connection,
                           protocol::Message& message);
  bool answered_without_peer(const std::shared_ptr<Connection>& connection,
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
  EventLoop own_event_loop_;
  EventLoop& event_loop_;
  Gate* gate_ = nullptr;                      // null: everybody may enter
  bool begun_ = false;                        // the gate knows that all founders are members
  std::vector<master::ConnectionId> closed_;  // in this turn
  int turns_ = 0;                             // that are under way, one in another
  Disk disk_;
  Network network_;
  std::optional<protocol::Key> seed_of(uint32_t incarnation) const;
  master::Holder holder(const PeerNode& peer, uint32_t token) const;

  uint32_t incarnation_ = 0;  // of the latest master
  uint64_t credentials_ = 0;  // that credential() has made
  // Tokens, by the port of their peer and their number.
  std::set<std::pair<uint16_t, uint32_t>> unknown_tokens_, tokens_of_another_;
  std::unique_ptr<master::MasterCore> master_;  // null: it was killed
  uint64_t master_life_ = 0;
  uint64_t master_timer_ = 0;
  bool master_paused_ = false, master_ends_ = false;
  std::deque<std::function<void()>> master_backlog_;
  Duration master_clock_ahead_{0};
  uint64_t connections_ = 0;
  std::map<master::ConnectionId, std::shared_ptr<Connection>> open_;
  std::map<std::pair<Epoch, OpKey>, std::vector<std::shared_ptr<Connection>>>
      done_;  // for Bug::kEarlyCommit
  // For Bug::kUnbound: who has sent Done.
  std::set<std::tuple<uint16_t, Epoch, OpKey>> done_by_;
  std::vector<std::unique_ptr<PeerNode>> peers_;
};

}  // namespace pccl::sim
