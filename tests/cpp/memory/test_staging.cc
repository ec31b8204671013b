#include "csrc/memory/staging.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/doubles/fake_device.h"

namespace pccl::memory {
namespace {

struct Tensor : DeviceMemory {
  std::vector<std::byte> bytes = std::vector<std::byte>(16, std::byte{1});
};

void move(const DeviceCopy& copy, FakeDevice::Direction direction) {
  std::byte* const device = static_cast<Tensor&>(*copy.device).bytes.data();
  const bool out = direction == FakeDevice::Direction::kOut;
  std::memcpy(out ? copy.host.data() : device, out ? device : copy.host.data(), copy.host.size());
}

class StagingTest : public ::testing::Test {
 protected:
  void begin(bool out, bool in) {
    staging = std::make_unique<Staging>(device);
    host = staging->pin(16).value();
    if (out) staging->add_out({tensor, host});
    if (in) staging->add_in({tensor, host});
    ASSERT_TRUE(staging->begin().ok());
  }
  Staging::News poll_until_news() {
    for (int i = 0; i < 1000; ++i) {
      Staging::News news = staging->poll();
      if (news.staged || news.finished || staging->over()) return news;
    }
    ADD_FAILURE() << "nothing happens";
    return {};
  }
  void expect_tensor(int value) {
    EXPECT_EQ(tensor->bytes, std::vector<std::byte>(16, static_cast<std::byte>(value)));
  }
  void reset(FakeDevice::Options options) { device.set(options); }

  FakeDevice device{{.seed = 3, .delay_max = 5}, move};
  std::shared_ptr<Tensor> tensor = std::make_shared<Tensor>();
  std::unique_ptr<Staging> staging;
  std::span<std::byte> host;
};

TEST_F(StagingTest, ACommittedOperation) {
  begin(true, true);
  EXPECT_TRUE(staging->parked());
  EXPECT_EQ(host[0], FakeDevice::kUnwritten);
  EXPECT_TRUE(poll_until_news().staged->ok());
  EXPECT_FALSE(staging->parked());
  EXPECT_TRUE(staging->waits_for_verdict());
  EXPECT_EQ(host[0], std::byte{1});
  std::fill(host.begin(), host.end(), std::byte{2});
  EXPECT_FALSE(staging->poll().finished);
  expect_tensor(1);
  staging->end(true);
  EXPECT_TRUE(poll_until_news().finished->ok());
  EXPECT_TRUE(staging->over());
  expect_tensor(2);
}

TEST_F(StagingTest, AFailedOperationCopiesNothingIn) {
  begin(true, true);
  poll_until_news();
  std::fill(host.begin(), host.end(), std::byte{2});
  staging->end(false);
  const Staging::News news = poll_until_news();
  EXPECT_FALSE(news.staged || news.finished);
  EXPECT_TRUE(staging->over());
  expect_tensor(1);
}

TEST_F(StagingTest, AnOperationThatFailsFirstWaitsForItsCopyOut) {
  reset({.seed = 3, .delay_max = 50});
  begin(true, true);
  staging->end(false);
  staging->poll();
  EXPECT_EQ(staging->state(), Staging::State::kAbandoned);
  EXPECT_EQ(device.copies_under_way(), 1u);
  poll_until_news();
  EXPECT_TRUE(staging->over());
  EXPECT_EQ(device.copies_under_way(), 0u);
  expect_tensor(1);
}

TEST_F(StagingTest, NothingToCopyOut) {
  begin(false, true);
  EXPECT_FALSE(staging->parked());
  EXPECT_TRUE(staging->waits_for_verdict());
  std::fill(host.begin(), host.end(), std::byte{2});
  staging->end(true);
  EXPECT_TRUE(poll_until_news().finished->ok());
  expect_tensor(2);
}

TEST_F(StagingTest, NothingToCopyIn) {
  begin(true, false);
  EXPECT_TRUE(poll_until_news().staged->ok());
  staging->end(true);
  EXPECT_TRUE(poll_until_news().finished->ok());
}

TEST_F(StagingTest, ACommitThatNeedsNoDataComesFirst) {
  begin(true, false);
  staging->end(true);
  const Staging::News news = poll_until_news();
  EXPECT_FALSE(news.staged) << "the operation is over";
  EXPECT_TRUE(news.finished->ok());
}

// The device fails each copy: at its start, or later.
TEST_F(StagingTest, CopiesOutThatFail) {
  int at_start = 0, later = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    reset({.seed = seed, .fails_one_in = 1, .delay_max = 3});
    staging = std::make_unique<Staging>(device);
    staging->add_out({tensor, staging->pin(16).value()});
    if (!staging->begin().ok()) {
      ++at_start;
      continue;
    }
    ++later;
    const Staging::News news = poll_until_news();
    EXPECT_FALSE(news.staged->ok());
    staging->end(false);
    staging->poll();
    EXPECT_TRUE(staging->over());
  }
  EXPECT_TRUE(at_start > 0 && later > 0);
  staging.reset();
  EXPECT_EQ(device.pinned_bytes(), 0u);
}

TEST_F(StagingTest, CopiesInThatFail) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    reset({.seed = seed, .delay_max = 3});
    begin(false, true);
    reset({.seed = seed, .fails_one_in = 1, .delay_max = 3});
    staging->end(true);
    const Staging::News news = poll_until_news();
    EXPECT_FALSE(news.finished->ok());
    EXPECT_TRUE(staging->over());
  }
}

TEST_F(StagingTest, NoPinnedMemory) {
  reset({.pinned_max = 20});
  staging = std::make_unique<Staging>(device);
  EXPECT_TRUE(staging->pin(0).ok());
  EXPECT_TRUE(staging->pin(16).ok());
  const auto refused = staging->pin(16);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code, Code::kSystem);
  EXPECT_NE(refused.status().message.find("16 bytes"), std::string::npos);
}

}  // namespace
}  // namespace pccl::memory
