// Shell: the driver of a peer's data plane. It has the listener that other peers dial, and the
// links with their lanes, around one Engine and one LinkCore. All Shells of a process may share the
// peer loop.
// The control shell owns it (csrc/peer/shell/control.h). Its methods may be called from any thread:
// they are posted to the peer loop in order. Callbacks run on the peer loop.
// Normal sequence: listen; dial the peers that the master names; exchange hellos (kHello,
// kHelloOk); report the link up; open the epoch; dial further lanes to ring neighbours on a wan
// path; move chunks; measure the rate of the lanes; deactivate lanes that bring nothing.
// Failures:
//  - A dial fails: it is reported and soon tried again, until forget(). A further lane is tried
//    again in the next epoch.
//  - A pending connection sends no valid hello: it is closed.
//  - A lane fails, or nothing is received on it for too long: its link is reported down. The Shell
//    does not dial it again by itself; the master decides.
//  - A peer opens a second link while its first one lives: it is refused. If the first link does
//    not answer a ping, the first link is given up.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "csrc/base/log.h"
#include "csrc/base/result.h"
#include "csrc/net/socket.h"
#include "csrc/protocol/messages.h"
#include "csrc/ring/counters.h"
#include "csrc/ring/events.h"
#include "csrc/ring/lent_memory.h"

namespace pccl::ring {

struct PeerThread;

class Shell {
 public:
  struct Callbacks {
    std::function<void(Result<uint16_t> port)> on_listening;
    std::function<void(protocol::LinkReport)> on_link;
    // The bytes of the link while only the network limited it.
    std::function<void(protocol::LinkRate)> on_rate = [](const protocol::LinkRate&) {};
    std::function<void(Epoch, OpKey, protocol::AbsentRanks)> on_transferred;  // see Engine
    // Required if a task has `keep` set.
    std::function<void(Epoch, OpKey, uint64_t finished, protocol::AbsentRanks)> on_progressed = {};
    std::function<void(Epoch, OpKey)> on_agreed = {};  // required if done() is called
    std::function<void(Epoch, OpKey)> on_drained;
    std::function<void(Epoch, OpKey, Status why)> on_failed;  // see Engine
    std::function<void(const Requested&)> on_requested = {};  // see Engine
    std::function<void(const LinkSample&)> on_sampled = {};   // required if sample() is called
    // Writes a warning to the log.
    std::function<void(const std::string&)> on_warning = log_warning;
  };
  struct Options {
    uint16_t port_first = 0, port_last = 0;  // PCCL_PORT_RANGE; 0: any free port
    Duration peer_timeout = protocol::kPeerTimeoutDefault;
    Duration wan_rtt_min = protocol::kWanRttMin;  // RTT of a wan path; tests lower it
    uint32_t lanes = 0;           // PCCL_LANES, for a link between ring neighbours; 0: automatic
    std::string congestion = {};  // PCCL_TCP_CONGESTION; empty: chosen by the path
  };
  // Without a `thread` it has one of its own.
  Shell(Options options, Callbacks callbacks, std::shared_ptr<PeerThread> thread = {});
  // Ends its part of the peer loop. After it returns no callback runs and no borrowed tensor is
  // touched. REQUIRES: not on the peer loop.
  ~Shell();

  // Opens the listener. Call it and accept_as() once, in any order, before any other method. If the
  // peer loop could not start, on_listening reports that from inside this call.
  void listen(const std::string& host);
  // Sets this peer's identity: links carry `run_id` and `self`, and refuse others. `version` is the
  // protocol version that the run speaks. Connections that come before wait. `accepting`: see
  // link::Identity.
  void accept_as(PeerId self, uint64_t run_id, uint16_t version,
                 std::optional<protocol::AcceptingKey> accepting = {});
  void accept_with(const protocol::AcceptingKey& key);  // of a restarted master
  // Keeps trying until the link is up or forget(peer) is called. Drops an existing connection with
  // a serial number up to `dead_serial`. `at` lists the likeliest address first.
  void dial(PeerId peer, std::vector<Endpoint> at, uint32_t dead_serial = 0,
            std::optional<protocol::LaneCredential> credential = {});
  void forget(PeerId peer);
  // `neighbours`: the members of `peers` next to this peer in the ring.
  void begin_epoch(Epoch epoch, std::vector<PeerId> peers, std::vector<PeerId> neighbours);
  // Large transfers follow on this link: see link::LanesWanted.
  void open_lanes(PeerId peer, bool measured);
  void sample(PeerId peer);  // on_sampled follows
  void post(Task task, Memory memory);
  void staged(OpKey op);
  void end(OpEnded end);
  void done(OpKey op);

  struct Counters {
    EngineCounters engine;
    struct OfLink {
      PeerId peer;
      uint32_t serial = 0;                 // counts the attempts to connect
      uint32_t lanes = 0, lanes_used = 0;  // lanes_used: active lanes
      Duration rtt{0};
      uint64_t rate = 0;  // bytes per second, see link::PathMonitor; 0: not known yet
      uint64_t bytes_sent = 0, bytes_received = 0, send_calls = 0, receive_calls = 0;
    };
    std::vector<OfLink> links;
  };
  // Blocks the calling thread until the peer loop has answered.
  Counters counters();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pccl::ring
