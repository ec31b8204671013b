#include "csrc/memory/fake_device.h"

#include <algorithm>
#include <string>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::memory {

class FakeDevice::Pinned : public PinnedMemory {
 public:
  Pinned(FakeDevice& device, size_t bytes) : device_(device), bytes_(bytes, kUnwritten) {
    device_.pinned_bytes_ += bytes;
  }
  ~Pinned() override { device_.pinned_bytes_ -= bytes_.size(); }
  std::span<std::byte> bytes() override { return bytes_; }

 private:
  FakeDevice& device_;
  std::vector<std::byte> bytes_;
};

class FakeDevice::Event : public DeviceEvent {
 public:
  explicit Event(FakeDevice& device) : device_(device) {}
  Result<bool> reached() override {
    device_.tick();
    if (failed) return Status{Code::kSystem, "the fake device failed", {}};
    return done;
  }
  bool done = false, failed = false;

 private:
  FakeDevice& device_;
};

// SplitMix64 (public domain, Sebastiano Vigna).
uint64_t FakeDevice::below(uint64_t bound) {
  uint64_t z = options_.seed ^ (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return (z ^ (z >> 31)) % bound;
}

Result<std::unique_ptr<PinnedMemory>> FakeDevice::pinned(size_t bytes) {
  if (bytes > options_.pinned_max - std::min(options_.pinned_max, pinned_bytes_)) {
    return Status{
        Code::kSystem, "no pinned memory of " + std::to_string(bytes) + " bytes is left", {}};
  }
  return std::unique_ptr<PinnedMemory>(std::make_unique<Pinned>(*this, bytes));
}

Result<DeviceEventPtr> FakeDevice::mark() { return start(0, {}); }

Result<DeviceEventPtr> FakeDevice::copy_out(const DeviceEventPtr& mark,
                                            const DeviceCopies& copies) {
  return start(1, {std::static_pointer_cast<Event>(mark), nullptr, copies, Direction::kOut});
}

Result<DeviceEventPtr> FakeDevice::copy_in(const DeviceEventPtr& mark, const DeviceCopies& copies) {
  return start(2, {std::static_pointer_cast<Event>(mark), nullptr, copies, Direction::kIn});
}

Result<DeviceEventPtr> FakeDevice::start(size_t stream, Job job) {
  const bool copies = !job.copies.empty();
  const bool fails = copies && options_.fails_one_in > 0 && below(options_.fails_one_in) == 0;
  if (fails && below(4) == 0) return Status{Code::kSystem, "the fake device takes no copy", {}};
  job.fails = fails;
  job.done = std::make_shared<Event>(*this);
  job.delay = below(options_.delay_max + 1);
  streams_[stream].push_back(job);
  return DeviceEventPtr(job.done);
}

void FakeDevice::tick() {
  if (options_.stuck) return;
  for (auto& stream : streams_) {
    while (!stream.empty()) {
      Job& job = stream.front();
      if (job.after != nullptr && !job.after->done) break;
      if (job.delay > 0) {
        --job.delay;
        break;
      }
      run(job);
      stream.pop_front();
    }
  }
}

// A copy that fails has copied a part.
void FakeDevice::run(Job& job) {
  const size_t count = job.fails ? job.copies.size() / 2 : job.copies.size();
  for (size_t i = 0; i < count; ++i) move_(job.copies[i], job.direction);
  if (job.direction == Direction::kIn) copied_in_ += count;
  job.done->done = !job.fails;
  job.done->failed = job.fails;
}

}  // namespace pccl::memory
