// SimLinks: the links of one simulated process, with wires instead of sockets. Like the shell of
// the data plane, it drives a LinkCore with events and performs its effects: it connects, sends
// hellos as real frames, and hands lanes to the Engine. It makes no decisions. The PeerNode owns
// it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "csrc/link/core.h"
#include "csrc/ring/engine.h"
#include "tests/sim/wire.h"

namespace pccl::sim {

class PeerNode;

class SimLinks {
 public:
  SimLinks(PeerNode& node, ring::Engine& engine, const link::Options& options,
           std::function<void(const protocol::LinkReport&)> on_report);
  ~SimLinks();

  void listen();  // others can connect, and wait until accept_as()
  void accept_as(const link::Identity& identity);
  void step(const link::Event& event);
  // The process no longer needs its sockets. The other ends learn that they are closed.
  void close_all(const std::string& why);
  void pump();      // after the process resumes, or a path opens again
  void set_time();  // after a jump of its clock

  // ---- Network faults and queries ----
  // Breaks the link to that process, if there is one. With break_link() both ends notice, with
  // half_break_link() only this end. `refuses`: the other end notices when it sends something.
  bool break_link(PeerNode& other);
  bool half_break_link(PeerNode& other, bool refuses);
  bool linked(const PeerNode& other) const;
  // Somebody connects and sends this hello, or a first frame that is no hello. No peer would send
  // it.
  void on_pending_frame(const std::optional<protocol::LaneHello>& hello,
                        const std::optional<protocol::LaneCredential>& credential);
  // Somebody repeats what the dialler of a connection has shown. He cannot go on after the answer.
  bool on_copied_introduction(size_t which);
  // Whether somebody with this credential gets past the handshake.
  bool lets_in(const protocol::LaneCredential& credential) const;
  // The credentials that diallers have shown here, and that were good.
  const std::vector<protocol::LaneCredential>& credentials() const { return credentials_; }
  size_t opening(PeerId peer) const { return core_.opening(peer); }  // further lanes to it
  // Serial number of the connection to that process; 0: there is no link.
  uint32_t serial(const PeerNode& other) const;
  // Ports that it is trying to reach.
  std::vector<uint16_t> dials() const;

 private:
  class Sink;
  struct Connection {
    std::shared_ptr<Wire> wire;
    int side = 0;
    PeerNode* other = nullptr;
    std::unique_ptr<Sink> sink;
    PeerId peer;           // set once its lane is up
    bool pending = false;  // accepted, and its first frame is still to come
    // Set until the handshake of a secured run is complete. Side 0 has the hello that follows it.
    // Side 1 has the introduction that the other side has shown.
    std::optional<protocol::LaneHello> hello = {};
    std::optional<protocol::LaneIntroduction> shown = {};
    Epoch opened = {};  // the Open that has left before the lane was up
  };

  void perform(const link::Connect& connect);
  void perform(const link::LimitAccepted& limit) { accepted_segment_ = limit.segment; }
  void perform(const link::SmallerHelped& helped);
  void perform(const link::NarrowPathGone& gone);
  void perform(const link::SendHello& said);
  void perform(const link::SendPing& ping);
  void perform(const link::Close& close);
  void perform(const link::LaneUp& up);
  void perform(const link::LinkDown& down) { engine_.link_down(down.peer); }
  void perform(const link::ReportLink& report) { on_report_(report.what); }

  Instant now() const;
  void arm();
  void arm_tick();
  void on_tick();
  // Runs `what` at this process after `delay`, unless the process is dead by then.
  void later(Duration delay, std::function<void()> what);
  void try_to_connect(link::ConnectionId id, const link::Connect& connect, Duration left);
  link::ConnectionId accept(PeerNode& from, const std::shared_ptr<Wire>& wire);
  void connected(link::ConnectionId id, PeerNode& other, const std::shared_ptr<Wire>& wire,
                 const std::optional<protocol::LaneCredential>& credential);
  // ---- The handshake of a run that is secured ----
  void shake_hands(link::ConnectionId id, const protocol::LaneHello& hello);
  void introduced(PeerNode& from, link::ConnectionId theirs, const std::shared_ptr<Wire>& wire,
                  const protocol::LaneCredential& credential,
                  const protocol::LaneIntroduction& shown);
  void established(link::ConnectionId id);  // the other end has proven its key
  // Runs `what` at the process `to`, which learns something from this one on a wire.
  void tell(PeerNode& to, std::function<void()> what);
  // The first frame of a connection.
  link::HelloReceived received(link::ConnectionId id,
                               std::optional<protocol::LaneHello> hello) const;
  void received_hello(link::ConnectionId id, const std::optional<protocol::LaneHello>& hello);
  void attach(link::ConnectionId id, PeerNode& other, const std::shared_ptr<Wire>& wire, int side);
  void check_other_end(const Connection& connection, uint32_t serial) const;
  void hang_up(const Connection& connection, const std::string& why);
  // The other end has closed it.
  void closed(const std::shared_ptr<Wire>& wire, const std::string& why);
  void failed(link::ConnectionId id, const std::string& why, LinkFault fault = LinkFault::kOther);
  std::vector<std::shared_ptr<Wire>> wires_to(const PeerNode& other) const;
  void deactivate_lanes(PeerId peer);

  PeerNode& node_;
  ring::Engine& engine_;
  const std::function<void(const protocol::LinkReport&)> on_report_;
  link::LinkCore core_;
  std::map<link::ConnectionId, Connection> connections_;
  std::map<link::ConnectionId, uint16_t> connecting_;  // destination port
  std::set<link::ConnectionId> strangers_;
  std::map<link::ConnectionId, protocol::LaneCredential> dialled_with_;
  std::vector<protocol::LaneCredential> credentials_;
  std::vector<protocol::LaneIntroduction> introductions_;  // of credentials_, in the same order
  uint64_t run_id_ = 0;
  std::vector<std::unique_ptr<Sink>> destroyed_later_;  // may still be on the stack
  uint32_t accepted_segment_ = 0;                       // bytes; 0: the system's default
  bool listening_ = false, identified_ = false;
  bool over_ = false;
  uint64_t timer_ = 0;
};

}  // namespace pccl::sim
