// FakeDevice: a device for tests on machines without one. Its memory is memory of the host. From a
// seed it delays its copies, lets them run in another order than they were started in (never two
// of one direction), and makes some fail. It runs in the calls of reached(): time is the
// number of these calls. One thread at a time may use it.
// Pinned memory begins with a pattern, so that an operation that does not wait for its data, or
// returns bytes that it never received, shows it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "csrc/memory/device.h"

namespace pccl::memory {

class FakeDevice : public Device {
 public:
  struct Options {
    uint64_t seed = 1;
    uint32_t fails_one_in = 0;     // one copy of this many fails; 0: none
    uint32_t delay_max = 20;       // calls of reached() until a piece of work is done, at most
    size_t pinned_max = SIZE_MAX;  // bytes of pinned memory at a time
    bool capturing = false;
    bool kernels = true;  // it can hash, if it was given a function for that
    bool stuck = false;   // nothing is done, as behind work without an end
  };
  enum class Direction { kOut, kIn };
  // Copies between the memory of the device and the host.
  using Move = std::function<void(const DeviceCopy&, Direction)>;
  using Hash = std::function<std::vector<uint64_t>(const std::vector<DeviceBytesPtr>&)>;
  static constexpr std::byte kUnwritten{0xa5};

  FakeDevice(Options options, Move move, Hash hash = {})
      : options_(options), move_(std::move(move)), hash_(std::move(hash)) {}

  Result<std::unique_ptr<PinnedMemory>> pinned(size_t bytes) override;
  bool capturing() override { return options_.capturing; }
  Result<DeviceEventPtr> mark() override;
  Result<DeviceEventPtr> copy_out(const DeviceEventPtr& mark, const DeviceCopies& copies) override;
  Result<DeviceEventPtr> copy_in(const DeviceEventPtr& mark, const DeviceCopies& copies) override;
  Result<std::unique_ptr<DeviceHashes>> hash(const std::vector<DeviceBytesPtr>& what) override;

  void set(Options options) { options_ = options; }
  size_t pinned_bytes() const { return pinned_bytes_; }          // lent at present
  size_t pinned_bytes_max() const { return pinned_bytes_max_; }  // so far
  size_t copies_under_way() const {
    return streams_[1].size() + streams_[2].size() + streams_[3].size();
  }
  uint64_t copied_in() const { return copied_in_; }  // copies to the device that have run
  uint64_t bytes_out() const { return bytes_out_; }  // to the host, of copies that have run

 private:
  class Pinned;
  class Event;
  class Hashes;
  struct Job {
    std::shared_ptr<Event> after, done;
    DeviceCopies copies;
    Direction direction = Direction::kOut;
    std::function<void()> compute = {};
    uint64_t delay = 0;
    bool fails = false;
  };
  uint64_t below(uint64_t bound);
  Result<std::shared_ptr<Event>> start(size_t stream, Job job);
  Result<DeviceEventPtr> copy(size_t stream, const DeviceEventPtr& mark, const DeviceCopies& copies,
                              Direction direction);
  void tick();
  void run(Job& job);

  Options options_;
  const Move move_;
  const Hash hash_;
  uint64_t state_ = 0;
  uint64_t copied_in_ = 0, bytes_out_ = 0;
  size_t pinned_bytes_ = 0, pinned_bytes_max_ = 0;
  std::deque<Job> streams_[4];  // the caller's work, copies out, copies in, work without a mark
};

}  // namespace pccl::memory
