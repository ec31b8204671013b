// DeviceVector: memory of a FakeDevice that is memory of the host, for tests of shared state.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "csrc/memory/state_hash.h"
#include "tests/doubles/fake_device.h"

namespace pccl::peer {

struct DevicePart : memory::DeviceMemory {
  explicit DevicePart(std::span<std::byte> part) : bytes(part) {}
  const std::span<std::byte> bytes;
};

struct DeviceVector : memory::DeviceBytes {
  explicit DeviceVector(std::vector<std::byte> content) : bytes(std::move(content)) {}
  size_t size() const override { return bytes.size(); }
  std::shared_ptr<memory::DeviceMemory> part(size_t offset, size_t count) const override {
    return std::make_shared<DevicePart>(std::span(bytes).subspan(offset, count));
  }
  mutable std::vector<std::byte> bytes;
};

inline void move(const memory::DeviceCopy& copy, memory::FakeDevice::Direction direction) {
  const std::span<std::byte> device = static_cast<DevicePart&>(*copy.device).bytes;
  ASSERT_EQ(device.size(), copy.host.size());
  const bool out = direction == memory::FakeDevice::Direction::kOut;
  std::memcpy(out ? copy.host.data() : device.data(), out ? device.data() : copy.host.data(),
              device.size());
}

inline std::vector<uint64_t> hash_all(const std::vector<memory::DeviceBytesPtr>& what) {
  std::vector<uint64_t> hashes;
  for (const memory::DeviceBytesPtr& one : what) {
    const auto& bytes = static_cast<const DeviceVector&>(*one).bytes;
    hashes.push_back(memory::state_hash(bytes.data(), bytes.size()));
  }
  return hashes;
}

}  // namespace pccl::peer
