#include "tests/doubles/fake_device.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace pccl::memory {
namespace {

struct Nothing : DeviceMemory {};

// The order in which a device does three copies out and three copies in, which begin together.
std::string order(uint64_t seed) {
  std::string done;
  FakeDevice device({.seed = seed, .delay_max = 4},
                    [&](const DeviceCopy& copy, FakeDevice::Direction direction) {
                      const bool out = direction == FakeDevice::Direction::kOut;
                      done += (out ? "o" : "i") + std::to_string(copy.host.size());
                    });
  const DeviceEventPtr mark = device.mark().value();
  std::vector<std::byte> bytes(4);
  std::vector<DeviceEventPtr> events;
  for (size_t size = 1; size <= 3; ++size) {
    const DeviceCopies copies{{std::make_shared<Nothing>(), std::span(bytes).first(size)}};
    events.push_back(device.copy_out(mark, copies).value());
    events.push_back(device.copy_in(mark, copies).value());
  }
  for (const DeviceEventPtr& event : events) {
    for (int i = 0; i < 100 && !event->reached().value(); ++i) {
    }
  }
  EXPECT_EQ(device.copies_under_way(), 0u);
  return done;
}

TEST(FakeDevice, ItsOrderComesFromTheSeed) {
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::string done = order(seed);
    EXPECT_EQ(done.size(), 12u);
    EXPECT_EQ(done, order(seed));
    EXPECT_LT(done.find("o1"), done.find("o2")) << "copies of one direction keep their order";
    EXPECT_LT(done.find("i2"), done.find("i3"));
    orders.insert(done);
  }
  EXPECT_GT(orders.size(), 5u);
}

}  // namespace
}  // namespace pccl::memory
