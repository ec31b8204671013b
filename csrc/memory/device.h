// Device: an accelerator with memory of its own. It copies between its memory and pinned memory of
// the host, hashes its memory, and reports when a copy or a hash is done. It works in the
// background, on streams that nothing else uses: one for each direction, and one for work that
// waits for no mark. Any thread may call it; for Staging, the caller's thread calls pinned() and
// mark(), and the thread that watches the copies calls the other methods.
// Failure: a Status with the error text of the device. After a failed copy the content of its
// target is undefined.
// It knows no dtype, no operation and no verdict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "csrc/base/result.h"

namespace pccl::memory {

// Memory on a device, in the form that its Device knows: for torch a tensor, contiguous or not.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
};

// Memory on a device without gaps. Parts of it can be copied.
class DeviceBytes : public DeviceMemory {
 public:
  virtual size_t size() const = 0;
  // Returns a part of this memory. The part keeps the whole memory alive. REQUIRES: offset + bytes
  // <= size().
  virtual std::shared_ptr<DeviceMemory> part(size_t offset, size_t bytes) const = 0;
};
using DeviceBytesPtr = std::shared_ptr<DeviceBytes>;

// Memory of the host that a device reads and writes in the background.
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;
  virtual std::span<std::byte> bytes() = 0;
};

// A point in the work that was given to a device.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // True once the device has done all work before this point. It never blocks.
  virtual Result<bool> reached() = 0;
};

// The state hashes (csrc/memory/state_hash.h) that a device computes.
class DeviceHashes : public DeviceEvent {
 public:
  // The hashes, in the order of the list given to Device::hash(). REQUIRES: reached() has returned
  // true.
  virtual std::vector<uint64_t> values() = 0;
};

// One part of a copy, in either direction. Both sides have the same number of bytes, in the same
// order.
struct DeviceCopy {
  std::shared_ptr<DeviceMemory> device;
  std::span<std::byte> host;
};
using DeviceCopies = std::vector<DeviceCopy>;
using DeviceEventPtr = std::shared_ptr<DeviceEvent>;

class Device {
 public:
  virtual ~Device() = default;
  // Returns pinned memory; kSystem if no memory is left. The message shows the requested size.
  virtual Result<std::unique_ptr<PinnedMemory>> pinned(size_t bytes) = 0;
  // Whether the work that this thread gives to the device is recorded into a graph, and not run.
  virtual bool capturing() = 0;
  // Returns the point after all work that this thread has given to the device so far.
  virtual Result<DeviceEventPtr> mark() = 0;
  // Begin to copy after `mark` is reached; without a mark, at once. The caller keeps all memory
  // valid until the returned event is reached. If they return a failure, no copy runs any more.
  virtual Result<DeviceEventPtr> copy_out(const DeviceEventPtr& mark,
                                          const DeviceCopies& copies) = 0;
  virtual Result<DeviceEventPtr> copy_in(const DeviceEventPtr& mark,
                                         const DeviceCopies& copies) = 0;
  // Begins at once to hash each of `what`. The caller keeps all memory, and the returned object,
  // until the hashes are done. Returns null if this device cannot hash. If it returns a failure, no
  // hash is computed any more.
  virtual Result<std::unique_ptr<DeviceHashes>> hash(const std::vector<DeviceBytesPtr>& what) = 0;
};

}  // namespace pccl::memory
