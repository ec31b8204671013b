// Shell of the data plane: the data loop, the listener others dial, the links and their lanes,
// around one Engine. Methods may be called from any thread: they post to the data loop, in order.
// Callbacks come on the data loop.
// The happy path: listen, dial what the master says, introduce (kHello, kHelloOk), report the link
// up, open the epoch, dial further lanes to neighbours in the ring that are far away, move chunks,
// count what they carry and let those lanes rest that bring nothing.
// What can go wrong: a dial fails (reported, tried again soon, until forget(); of a further lane:
// tried again in the next epoch), a stranger connects (closed), a lane fails or falls silent (its
// link is reported down; never dialled again by itself: the master decides). A second link of a
// peer is refused while its first one lives; if that does not answer a ping, it is given up.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "csrc/net/socket.h"
#include "csrc/protocol/messages.h"
#include "csrc/ring/engine.h"

namespace pccl::ring {

class Shell {
 public:
  struct Callbacks {
    std::function<void(Result<uint16_t> port)> on_listening;
    std::function<void(protocol::LinkReport)> on_link;
    std::function<void(Epoch, OpKey)> on_transferred;
    // Needed where tasks are kept.
    std::function<void(Epoch, OpKey, uint64_t finished)> on_progressed = {};
    std::function<void(Epoch, OpKey)> on_agreed = {};  // needed where done() is said
    std::function<void(Epoch, OpKey)> on_drained;
    std::function<void(Epoch, OpKey, Status why)> on_failed;  // see Engine
  };
  struct Options {
    uint16_t port_first = 0, port_last = 0;  // PCCL_PORT_RANGE; 0: any free port
    Duration peer_timeout = protocol::kPeerTimeoutDefault;
    Duration long_way = protocol::kLongWay;  // tests have no other network than this machine's
    uint32_t lanes = 0;  // PCCL_LANES, of a link between neighbours in the ring; 0: as many as pay
    std::string congestion = {};  // PCCL_TCP_CONGESTION; empty: as it suits the way
  };
  Shell(Options options, Callbacks callbacks);
  ~Shell();  // ends the data loop: no callback comes after it returns, no lent byte is touched

  // Opens the listener and fixes who we are: links carry `run_id` and `self`, and refuse others.
  // `version`: of the protocol, that the run speaks.
  // Once; first of all. If not even the data loop could start, on_listening says so from inside
  // this call.
  void listen(PeerId self, uint64_t run_id, uint16_t version, const std::string& host);
  // Keeps trying until the link is up or forget(peer). A connection up to `dead_serial` is dropped.
  // `at`: the likeliest address first.
  void dial(PeerId peer, std::vector<Endpoint> at, uint32_t dead_serial = 0);
  void forget(PeerId peer);
  // `neighbours`: those of `peers` that are next to us in the ring.
  void begin_epoch(Epoch epoch, std::vector<PeerId> peers, std::vector<PeerId> neighbours);
  void post(Task task, Memory memory);
  void end(OpEnded end);
  void done(OpKey op);

  struct Counters {
    Engine::Counters engine;
    struct Link {
      PeerId peer;
      uint32_t serial = 0;                 // how often it was made, and was tried to be
      uint32_t lanes = 0, lanes_used = 0;  // those used do not rest
      Duration round_trip{0};
      uint64_t bytes_sent = 0, bytes_received = 0, send_calls = 0, receive_calls = 0;
    };
    std::vector<Link> links;
  };
  // Blocks the calling thread until the data loop has answered.
  Counters counters();

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace pccl::ring
