// Engine: applies the effects of RingCore to memory and to ports (csrc/link/port.h). It uses
// neither sockets nor time.
// It is single-threaded and belongs to the thread that drives it (the peer loop). Every method may
// be called from inside a callback or a port; its consequences then follow after the current work.
// Sinks are the exception: only the reader of the lane calls a sink, and never from inside a call
// of this Engine.
// Invariants:
//  (1) After OpDrained nothing touches the memory of the operation.
//  (2) Every posted operation that is ended is drained, including one that failed here.
//  (3) end() of an operation that was never posted does nothing.
//  (4) An operation that ends with kRestart and keeps some elements must be ended once more,
//      whether it was posted again or not. OpDrained follows in both cases.
//  (5) Each operation of the core has its buffers, and there are no other buffers. Each message
//      that the core keeps has a pool buffer, and there are no other pool buffers.
//  (6) The Engine and its core have the same lanes. A chunk lands on a lane only while it lands
//      there in the core.
//  (7) An operation without memory is not in the core.
// Failure: OpFailed reports an operation that has no memory here; on_fail_link asks the caller to
// close a link.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "csrc/link/port.h"
#include "csrc/memory/pool.h"
#include "csrc/ring/data_event.h"
#include "csrc/ring/lent_memory.h"

namespace pccl::ring {

class Engine : public link::LaneUser {
 public:
  struct Callbacks {
    std::function<void(DataEvent)> on_event;  // an event of an operation
    // The other side broke a rule. The caller must close the link; link_down() follows, possibly
    // from inside this callback.
    std::function<void(PeerId, const std::string& why)> on_fail_link;
  };
  // `pool` lends the memory for scratch and saved bytes. Engines on one thread may share it.
  explicit Engine(Callbacks callbacks,
                  std::shared_ptr<memory::Pool> pool = std::make_shared<memory::Pool>());
  ~Engine() override;

  void begin_epoch(Epoch epoch, std::vector<PeerId> peers);
  // LaneUser
  std::optional<net::FrameHeader> open_frame(PeerId peer) const override;
  link::LaneSink& lane_up(PeerId peer, link::Port& port, Epoch opened = {}) override;
  void link_down(PeerId peer) override;
  void set_inactive(PeerId peer, protocol::LaneBits lanes) override;

  void post(Task task, Memory memory);
  void end(OpEnded end);
  void done(OpKey op);  // see OpDone

  // Returns LinkSample::bytes_received for the link; nothing if the link is down.
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
