#include "csrc/net/byte_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

namespace pccl::net {
namespace {

TEST(ByteQueue, GivesBytesInOrder) {
  std::mt19937_64 random{1};
  ByteQueue queue;
  std::deque<std::byte> expected;
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::byte> more(random() % 100);
    for (std::byte& byte : more) byte = static_cast<std::byte>(random());
    queue.append(more);
    expected.insert(expected.end(), more.begin(), more.end());
    if (random() % 50 == 0) queue.reserve(random() % 100000);
    const size_t gone = random() % 10 == 0 ? queue.size() : random() % (1 + queue.size());
    queue.drop(gone);
    expected.erase(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(gone));
    EXPECT_EQ(queue.size(), expected.size());
    EXPECT_TRUE(std::ranges::equal(queue.bytes(), expected));
  }
  queue.clear();
  EXPECT_TRUE(queue.bytes().empty());
}

TEST(ByteQueue, KeepsTheMemoryOfABurstWhileItIsUsed) {
  ByteQueue queue;
  const std::vector<std::byte> large(4 * ByteQueue::kKeptBytes), small(100);
  const auto pass = [&queue](const std::vector<std::byte>& bytes) {
    queue.append(bytes);
    queue.drop(queue.size());
  };
  pass(large);
  EXPECT_GE(queue.capacity(), large.size());
  pass(small);
  EXPECT_EQ(queue.capacity(), 0u);
  pass(small);
  const size_t capacity = queue.capacity();
  EXPECT_GT(capacity, 0u);
  pass({});
  EXPECT_EQ(queue.capacity(), capacity);  // not large
}

TEST(ByteQueue, GrowsInFewSteps) {
  ByteQueue queue;
  const std::vector<std::byte> bytes(100);
  size_t steps = 0;
  for (int i = 0; i < 1000; ++i) {
    const size_t before = queue.capacity();
    queue.reserve(bytes.size());
    steps += queue.capacity() != before;
    const size_t reserved = queue.capacity();
    queue.append(bytes);
    EXPECT_EQ(queue.capacity(), reserved);
  }
  EXPECT_LE(steps, 12u);
}

// A burst that leaves in parts has used all of its memory.
TEST(ByteQueue, KeepsItsMemoryAfterABurstThatLeavesInParts) {
  ByteQueue queue;
  const std::vector<std::byte> burst(1u << 20), ping(10);
  queue.append(burst);
  const size_t room = queue.capacity();
  for (int part = 0; part < 8; ++part) queue.drop(burst.size() / 8);
  EXPECT_EQ(queue.capacity(), room);
  queue.append(ping);
  queue.drop(ping.size());
  EXPECT_EQ(queue.capacity(), 0u);
}

// A queue that never runs empty does not keep all bytes that it ever had.
TEST(ByteQueue, ForgetsDroppedBytes) {
  ByteQueue queue;
  const std::vector<std::byte> bytes(1000);
  queue.reserve(5000);
  queue.append(bytes);
  const std::byte* const begin = queue.bytes().data();
  for (int i = 0; i < 1000; ++i) {
    queue.append(bytes);
    queue.drop(bytes.size());
    EXPECT_LE(queue.bytes().data() - begin, 5000);
  }
  EXPECT_EQ(queue.size(), bytes.size());
}

}  // namespace
}  // namespace pccl::net
