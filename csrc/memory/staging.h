// Staging: the copies of one operation whose tensors are on a device. The operation works in pinned
// memory of the host; the tensors are copied there before it, and back after it.
// The caller's thread fills it and calls begin(). From then on it belongs to one thread, which
// calls end() with the verdict, and poll() until over().
// Invariants:
// 1. The device's memory is written only after the verdict "committed". A failed operation has only
//    read it (P2).
// 2. Once over(), and not before, nothing touches the pinned memory or the device's memory.
// 3. A verdict "failed" starts no copy: the operation may be reported before over().
// Failure: a copy that fails is reported once, by poll().
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/memory/device.h"

namespace pccl::memory {

class Staging {
 public:
  enum class State {
    kCopyingOut,
    kStaged,  // the operation may use the pinned memory; its verdict is not known
    kCopyingIn,
    kAbandoned,  // the operation has failed, and the copies out still run
    kOver,
  };

  explicit Staging(Device& device) : device_(device) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  // ---- Before begin() ----
  // Returns pinned memory for the operation; it is valid until this object is destroyed.
  Result<std::span<std::byte>> pin(size_t bytes);
  // add_out(): a copy that is made before the operation. add_in(): a copy that is made after it.
  void add_out(DeviceCopy copy) { out_.push_back(std::move(copy)); }
  void add_in(DeviceCopy copy) { in_.push_back(std::move(copy)); }
  // Starts the copies out. On an error nothing was started.
  Status begin();

  // ---- After begin() ----
  // Whether the operation has to wait for the first news of poll().
  bool parked() const { return state_ == State::kCopyingOut; }
  // Gives the verdict to this object. REQUIRES: called once.
  void end(bool committed);
  struct News {
    // The copies out are done, or have failed. Set only if there is no verdict yet.
    std::optional<Status> staged;
    // The operation has committed, and the copies in are done, or have failed.
    std::optional<Status> finished;
  };
  // Checks the progress of the device, and starts the next work.
  News poll();
  // True if poll() has no news until end() is called.
  bool waits_for_verdict() const { return state_ == State::kStaged && !verdict_; }
  bool over() const { return state_ == State::kOver; }
  State state() const { return state_; }

 private:
  void enter(State next);
  void copies_out_done(const Status& status, News& news);
  void act_on_verdict(News& news);

  Device& device_;
  State state_ = State::kCopyingOut;
  bool begun_ = false;
  std::vector<std::unique_ptr<PinnedMemory>> pinned_;
  DeviceCopies out_, in_;
  DeviceEventPtr mark_;          // the end of the caller's work before the operation
  DeviceEventPtr event_;         // the end of the copies that run
  std::optional<bool> verdict_;  // true: committed; false: failed
  Status failure_;               // the result of the copies out
};

}  // namespace pccl::memory
