// Engine: RingCore with hands. Applies its effects to memory and to ports; a port is a lane's, or
// the simulator's. Neither sockets nor time here. Single-threaded: belongs to whoever drives it
// (the data loop).
// Every method may be called from inside a callback or a port: what it causes then happens after
// what is under way. Sinks are different: only the link's reader feeds them, and never from inside
// a call of this Engine.
// Invariants: (1) after on_drained nothing touches the operation's memory;
//             (2) every posted operation that is ended is drained, one that failed here included.
// end() of an operation that was never posted does nothing. One that ends with kAgain and keeps
// some of its elements has to be ended once more, whether it was posted again or not: on_drained
// follows in either case.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "csrc/base/status.h"
#include "csrc/net/framing.h"
#include "csrc/ring/buffers.h"
#include "csrc/ring/core.h"

namespace pccl::ring {

// The sending half of a lane.
class Port {
 public:
  virtual ~Port() = default;
  virtual void send(const net::FrameHeader& header) = 0;
  // A chunk that goes before others: its payload is not touched after this returns.
  virtual void send_copy(const net::FrameHeader& header, std::span<const std::byte> payload) = 0;
  virtual void send_chunk(const net::FrameHeader& header, std::span<const std::byte> payload) = 0;
  // The chunk being sent: its payload is not touched after this returns, chunk_sent() is not called
  // for it. The next send_chunk() may follow at once.
  virtual void withdraw() = 0;
  // The landing of the reader on this lane: not touched after this returns.
  virtual void revoke() = 0;
  // Bytes that may be under way on this lane; 0: not known, which is as much as anybody likes.
  virtual uint64_t window() const { return 0; }
  virtual bool local() const { return false; }  // the other end is on this machine
};

class Engine {
 public:
  struct Callbacks {
    std::function<void(Epoch, OpKey)> on_transferred;
    // Needed where tasks are kept.
    std::function<void(Epoch, OpKey, uint64_t finished)> on_progressed = {};
    // Needed where done() is said.
    std::function<void(Epoch, OpKey)> on_agreed = {};
    std::function<void(Epoch, OpKey)> on_drained;
    // The other side broke a rule: close the link; link_down() follows, or comes from inside this.
    std::function<void(PeerId, const std::string& why)> on_fail_link;
    // kSystem: no memory for it here. It must be ended as any other.
    std::function<void(Epoch, OpKey, Status why)> on_failed;
  };
  explicit Engine(Callbacks callbacks);
  ~Engine();

  void begin_epoch(Epoch epoch, std::vector<PeerId> peers);
  // A connection to a peer: its link is up with the first one. The returned sink is what the lane's
  // FrameReader feeds, and whom its port tells; it is valid until link_down(peer) returns, and so
  // must the port be. Pings are not for it: whoever owns the lane answers them.
  class Lane : public net::FrameSink {
   public:
    virtual void chunk_sent() = 0;  // the port's chunk has left
  };
  Lane& lane_up(PeerId peer, Port& port);
  void link_down(PeerId peer);  // with all its lanes
  // See LanesRest.
  void rest(PeerId peer, protocol::LaneBits lanes);
  void post(Task task, Memory memory);
  void end(OpEnded end);
  void done(OpKey op);  // see OpDone

  // For run_info: bytes of tensors received, sent; operations open; scratch and saved bytes held.
  struct Counters {
    uint64_t bytes_received = 0, bytes_sent = 0, operations_open = 0, bytes_held = 0;
  };
  Counters counters() const;

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace pccl::ring
