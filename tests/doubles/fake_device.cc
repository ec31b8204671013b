#include "tests/doubles/fake_device.h"

#include <algorithm>
#include <string>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::memory {

class FakeDevice::Pinned : public PinnedMemory {
 public:
  Pinned(FakeDevice& device, size_t bytes) : device_(device), bytes_(bytes, kUnwritten) {
    device_.pinned_bytes_ += bytes;
    device_.pinned_bytes_max_ = std::max(device_.pinned_bytes_max_, device_.pinned_bytes_);
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

class FakeDevice::Hashes : public DeviceHashes {
 public:
  Result<bool> reached() override { return event->reached(); }
  std::vector<uint64_t> values() override {
    PCCL_ASSERT(event->done);
    return *found;
  }
  std::shared_ptr<Event> event;
  const std::shared_ptr<std::vector<uint64_t>> found = std::make_shared<std::vector<uint64_t>>();
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

Result<DeviceEventPtr> FakeDevice::mark() { return copy(0, nullptr, {}, Direction::kOut); }

Result<DeviceEventPtr> FakeDevice::copy_out(const DeviceEventPtr& mark,
                                            const DeviceCopies& copies) {
  return copy(mark ? 1 : 3, mark, copies, Direction::kOut);
}

Result<DeviceEventPtr> FakeDevice::copy_in(const DeviceEventPtr& mark, const DeviceCopies& copies) {
  return copy(mark ? 2 : 3, mark, copies, Direction::kIn);
}

Result<DeviceEventPtr> FakeDevice::copy(size_t stream, const DeviceEventPtr& mark,
                                        const DeviceCopies& copies, Direction direction) {
  Result<std::shared_ptr<Event>> done =
      start(stream, {std::static_pointer_cast<Event>(mark), nullptr, copies, direction});
  if (!done.ok()) return done.status();
  return DeviceEventPtr(std::move(done.value()));
}

Result<std::unique_ptr<DeviceHashes>> FakeDevice::hash(const std::vector<DeviceBytesPtr>& what) {
  if (!options_.kernels || !hash_) return std::unique_ptr<DeviceHashes>();
  auto hashes = std::make_unique<Hashes>();
  Job job;
  job.compute = [this, what, found = hashes->found] { *found = hash_(what); };
  Result<std::shared_ptr<Event>> done = start(3, std::move(job));
  if (!done.ok()) return done.status();
  hashes->event = std::move(done.value());
  return std::unique_ptr<DeviceHashes>(std::move(hashes));
}

Result<std::shared_ptr<FakeDevice::Event>> FakeDevice::start(size_t stream, Job job) {
  const bool can_fail = !job.copies.empty() || job.compute;
  const bool fails = can_fail && options_.fails_one_in > 0 && below(options_.fails_one_in) == 0;
  if (fails && below(4) == 0) return Status{Code::kSystem, "the fake device takes no copy", {}};
  job.fails = fails;
  job.done = std::make_shared<Event>(*this);
  job.delay = below(options_.delay_max + 1);
  streams_[stream].push_back(job);
  return job.done;
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
  for (size_t i = 0; i < count; ++i) {
    move_(job.copies[i], job.direction);
    if (job.direction == Direction::kOut) bytes_out_ += job.copies[i].host.size();
  }
  if (job.direction == Direction::kIn) copied_in_ += count;
  if (job.compute && !job.fails) job.compute();
  job.done->done = !job.fails;
  job.done->failed = job.fails;
}

}  // namespace pccl::memory
