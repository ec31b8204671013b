// Engine: applies the effects of RingCore to memory and to ports. A port sends on a lane of the
// data plane or on a simulated one. The Engine uses neither sockets nor time.
// It is single-threaded and belongs to the thread that drives it (the peer loop). Every method may
// be called from inside a callback or a port; its consequences then follow after the current work.
// Sinks are the exception: only the reader of the lane calls a sink, and never from inside a call
// of this Engine.
// Invariants:
//  (1) After on_drained nothing touches the memory of the operation.
//  (2) Every posted operation that is ended is drained, including one that failed here.
//  (3) end() of an operation that was never posted does nothing.
//  (4) An operation that ends with kRestart and keeps some elements must be ended once more,
//      whether it was posted again or not. on_drained follows in both cases.
//  (5) Each operation of the core has its buffers, and there are no other buffers. Each message
//      that the core keeps has a pool buffer, and there are no other pool buffers.
//  (6) The Engine and its core have the same lanes. A chunk lands on a lane only while it lands
//      there in the core.
//  (7) An operation without memory is not in the core.
// Failure: on_failed reports an operation that has no memory here; on_fail_link asks the caller to
// close a link.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "csrc/base/status.h"
#include "csrc/memory/pool.h"
#include "csrc/net/framing.h"
#include "csrc/ring/counters.h"
#include "csrc/ring/events.h"
#include "csrc/ring/lent_memory.h"

namespace pccl::ring {

// The sending half of a lane. Once its connection has ended it drops all data.
class Port {
 public:
  virtual ~Port() = default;
  virtual void send(const net::FrameHeader& header) = 0;
  // Sends a chunk ahead of other chunks. Its payload is not touched after this returns.
  virtual void send_copy(const net::FrameHeader& header, std::span<const std::byte> payload) = 0;
  virtual void send_chunk(const net::FrameHeader& header, std::span<const std::byte> payload) = 0;
  // Withdraws the chunk being sent. Its payload is not touched after this returns, and chunk_sent()
  // is not called for it. The next send_chunk() may follow at once.
  virtual void withdraw() = 0;
  // Revokes the landing of the reader on this lane. It is not touched after this returns.
  virtual void revoke() = 0;
  // Bytes that congestion control allows in flight on this lane; 0: unknown, treated as no limit.
  virtual uint64_t window() const { return 0; }
  virtual bool same_machine() const { return false; }  // the other end is on this machine
};

class Engine {
 public:
  struct Callbacks {
    // `absent`: as in the effects of these names.
    std::function<void(Epoch, OpKey, protocol::AbsentRanks absent)> on_transferred;
    // Required if a task has `keep` set.
    std::function<void(Epoch, OpKey, uint64_t finished, protocol::AbsentRanks absent)>
        on_progressed = {};
    // Required if done() is called.
    std::function<void(Epoch, OpKey)> on_agreed = {};
    std::function<void(Epoch, OpKey)> on_drained;
    // The other side broke a rule. The caller must close the link; link_down() follows, possibly
    // from inside this callback.
    std::function<void(PeerId, const std::string& why)> on_fail_link;
    // kSystem: there is no memory for the operation here. It must be ended like any other.
    std::function<void(Epoch, OpKey, Status why)> on_failed;
    // Another member asks for a transfer that was not posted here. Required if a task is pulled.
    std::function<void(const Requested&)> on_requested = {};
  };
  // `pool`: for scratch and saved bytes. Engines on one thread may share it.
  explicit Engine(Callbacks callbacks,
                  std::shared_ptr<memory::Pool> pool = std::make_shared<memory::Pool>());
  ~Engine();

  void begin_epoch(Epoch epoch, std::vector<PeerId> peers);
  // Adds a lane to a peer; the first lane brings the link up. The lane's FrameReader feeds the
  // returned sink, and its port calls chunk_sent() on it. The sink is valid until link_down(peer)
  // returns; the port must be valid as long. Pings do not go to the sink: the owner of the lane
  // answers them.
  class Lane : public net::FrameSink {
   public:
    virtual void chunk_sent() = 0;  // the port has sent its chunk entirely
  };
  Lane& lane_up(PeerId peer, Port& port, Epoch opened = {});
  // The first frame of a lane to this peer, if it is to leave before lane_up(), which then gets its
  // epoch as `opened`.
  std::optional<net::FrameHeader> open_frame(PeerId peer) const;
  void link_down(PeerId peer);  // removes all its lanes
  // See LanesInactive.
  void rest(PeerId peer, protocol::LaneBits lanes);
  // With `task.parked` the memory is not read before staged(op).
  void post(Task task, Memory memory);
  void staged(OpKey op);  // see OpStaged
  void end(OpEnded end);
  void done(OpKey op);  // see OpDone

  // LinkSample::bytes_received; nothing if the link is down.
  std::optional<uint64_t> received_from(PeerId peer) const;
  // For run_info.
  using Counters = EngineCounters;
  Counters counters() const;
  // Asserts the invariants, also of the core. REQUIRES: not inside a callback or a port.
  void check() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pccl::ring
