// Device: the device tensors of one simulated peer. An operation on them is staged as in a real
// process (csrc/memory/staging.h), by a fake device on virtual time. PeerNode owns it and stands
// between the application, whose buffers are copied to the device at the call, and the PeerCore.
// It reports a violation of P2 if the device's memory of a failed operation has changed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/memory/staging.h"
#include "csrc/peer/events.h"
#include "csrc/ring/lent_memory.h"
#include "tests/doubles/fake_device.h"
#include "tests/sim/event_loop.h"
#include "tests/sim/random.h"

namespace pccl::sim {

class Device {
 public:
  struct Callbacks {
    std::function<void(peer::OpStaged)> on_staged;
    std::function<void(const peer::FinishOp&)> on_finished;
    std::function<void(const std::string&)> on_violation;
  };
  Device(EventLoop& event_loop, uint64_t seed, Callbacks callbacks);
  ~Device();

  // Decides whether the tensors of this call are on the device. If so, it begins to stage them, and
  // sets `request.parked`.
  void called(peer::OpRequest& request, const ring::Memory& memory);
  // Puts the staged memory in the place of the application's.
  void replace(peer::Handle handle, ring::Memory& memory) const;
  // False if the operation is not on the device. Otherwise on_finished follows: at once if it has
  // failed, after the copies in if not.
  bool finish(const peer::FinishOp& result);
  // Makes the device do all that it has begun: no callback follows for operations that have ended.
  void end();
  size_t operations() const { return operations_.size(); }
  size_t pinned_bytes() const { return device_.pinned_bytes(); }

 private:
  struct Memory : memory::DeviceMemory {
    std::vector<std::byte> bytes, before;
  };
  struct Staged {
    explicit Staged(memory::Device& on) : staging(on) {}
    memory::Staging staging;
    std::vector<std::shared_ptr<Memory>> device;
    std::vector<std::span<std::byte>> application, pinned;
    size_t written = 0;  // the first of these; the others are only read
    std::optional<peer::FinishOp> result;
  };
  using Operations = std::map<peer::Handle, std::unique_ptr<Staged>>;
  static void move(const memory::DeviceCopy& copy, memory::FakeDevice::Direction direction);
  void poll_soon(peer::Handle handle);
  void poll(peer::Handle handle);

  EventLoop& event_loop_;
  Random random_;
  const Callbacks callbacks_;
  memory::FakeDevice device_;
  Operations operations_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace pccl::sim
