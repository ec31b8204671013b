#include "csrc/ring/shell/data_plane.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

#include "csrc/link/lane_controller.h"
#include "tests/cpp/ring/allocations.h"
#include "tests/cpp/ring/member.h"

namespace pccl::ring {
namespace {

using net::FrameType;
using protocol::LinkState;

// A group in epoch 1, with a link between any two members.
class Group {
 public:
  explicit Group(uint32_t size, const link::DriverOptions& options = {}) {
    for (uint32_t rank = 0; rank < size; ++rank) {
      members_.push_back(std::make_unique<Member>(rank, options));
    }
    for (uint32_t low = 0; low < size; ++low) {
      for (uint32_t high = low + 1; high < size; ++high) {
        at(low).dial(id(high), {{"127.0.0.1", at(high).port()}});
        EXPECT_EQ(at(low).reported(id(high), LinkState::kUp), "");
      }
    }
    for (uint32_t rank = 0; rank < size; ++rank) {
      std::vector<PeerId> others;
      for (uint32_t other = 0; other < size; ++other) {
        if (other != rank) others.push_back(id(other));
      }
      at(rank).begin_epoch(others, others);
    }
  }
  Member& at(uint32_t rank) { return *members_[rank]; }
  uint32_t size() const { return static_cast<uint32_t>(members_.size()); }

  void post_sum(uint32_t rank, OpKey op, std::vector<float>& tensor,
                Pattern pattern = Pattern::kAllReduce) {
    Task task{.epoch = Epoch{1},
              .op = op,
              .digest = 5,
              .shape = {.pattern = pattern,
                        .rank = rank,
                        .world = size(),
                        .element_bytes = 4,
                        .count = tensor.size(),
                        .block_bytes = {},
                        .wan = pattern == Pattern::kPairwise},
              .upstream = id((rank + size() - 1) % size()),
              .downstream = id((rank + 1) % size())};
    at(rank).post(std::move(task), {.spans = {std::as_writable_bytes(std::span(tensor))}});
  }

 private:
  std::vector<std::unique_ptr<Member>> members_;
};

class GroupSizes : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(DataPlane, GroupSizes, ::testing::Values(2u, 4u));

TEST_P(GroupSizes, AllReduceOverLoopback) {
  Group group(GetParam());
  constexpr size_t kCount = (64u << 20) / 4;
  std::vector<std::vector<float>> tensors(GetParam(), std::vector<float>(kCount));
  std::vector<float> before(kCount);
  for (size_t at = 0; at < kCount; ++at) before[at] = static_cast<float>(at % 4096);
  for (uint32_t rank = 0; rank < GetParam(); ++rank) {
    std::rotate_copy(before.begin(), before.begin() + rank, before.end(), tensors[rank].begin());
    group.post_sum(rank, {}, tensors[rank]);
  }
  std::vector<float> sum(kCount);
  for (uint32_t rank = 0; rank < GetParam(); ++rank) {
    for (size_t at = 0; at < kCount; ++at) sum[at] += before[(at + rank) % kCount];
  }
  for (uint32_t rank = 0; rank < GetParam(); ++rank) {
    ASSERT_TRUE(group.at(rank).transferred({}));
    group.at(rank).end({{}, Ending::kCommitted});
    ASSERT_TRUE(group.at(rank).drained({}));
    EXPECT_TRUE(tensors[rank] == sum) << "rank " << rank;
  }
  const DataCounters counters = group.at(0).counters();
  EXPECT_EQ(counters.links.size(), GetParam() - 1);
  EXPECT_EQ(counters.engine.operations_open, 0u);
  const uint64_t bytes = 2 * (GetParam() - 1) * (kCount * 4 / GetParam());
  EXPECT_EQ(counters.engine.bytes_sent, bytes);
  EXPECT_EQ(counters.engine.bytes_received, bytes);
  uint64_t on_links = 0;
  for (const auto& link : counters.links) on_links += link.bytes_sent;
  EXPECT_GT(on_links, bytes);
  EXPECT_LT(on_links, bytes + bytes / 100);
}

// An operation allocates memory, but its chunks do not: one that is eight times as large costs the
// same.
TEST(DataPlane, AChunkAllocatesNothing) {
  if (allocations() == 0) GTEST_SKIP() << "allocations are not counted in this build";
  Group group(2);
  std::vector<std::vector<float>> small(2, std::vector<float>((8u << 20) / 4));
  std::vector<std::vector<float>> large(2, std::vector<float>((64u << 20) / 4));
  uint32_t number = 0;
  const auto cost = [&](std::vector<std::vector<float>>& tensors) {
    const OpKey op{.tag = {}, .sequence = number++};
    const uint64_t before = allocations();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      group.post_sum(rank, op, tensors[rank]);
    }
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(group.at(rank).transferred(op));
      group.at(rank).end({op, Ending::kCommitted});
      EXPECT_TRUE(group.at(rank).drained(op));
    }
    return allocations() - before;
  };
  cost(large);  // from now on, memory for further operations is kept
  // 64 chunks each way on each rank, before 16. Pings and timers allocate too, and a large
  // operation takes longer. But one allocation for each chunk in one direction on one rank would
  // be 48 more.
  const uint64_t before = cost(small);
  EXPECT_LT(cost(large), before + 48);
}

// ---- Lanes ----

// Waits until each link of `member` has `lanes` lanes.
void expect_lanes(Member& member, uint32_t lanes) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto all = [&] {
    const DataCounters counters = member.counters();
    return std::all_of(counters.links.begin(), counters.links.end(),
                       [&](const auto& link) { return link.lanes == lanes; });
  };
  while (!all()) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
}

TEST(DataPlane, AnOperationTravelsOnAllLanesOfALink) {
  Group group(3, {.lanes = 5});
  for (uint32_t rank = 0; rank < 3; ++rank) expect_lanes(group.at(rank), 5);
  constexpr size_t kCount = (16u << 20) / 4 + 7;
  std::vector<std::vector<float>> tensors;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    tensors.emplace_back(kCount, static_cast<float>(rank + 1));
    group.post_sum(rank, {}, tensors[rank]);
  }
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(group.at(rank).transferred({}));
    group.at(rank).end({{}, Ending::kCommitted});
    ASSERT_TRUE(group.at(rank).drained({}));
    EXPECT_EQ(std::count(tensors[rank].begin(), tensors[rank].end(), 6.0f), kCount);
  }
}

// The application needs descriptors too.
TEST(DataPlane, LanesTakeASixteenthOfTheDescriptorsAtMost) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{16 * 7, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  {
    Group requested(2, {.lanes = 64});
    Group wan(2, {.wan_rtt_min = Duration{0}});
    for (uint32_t rank = 0; rank < 2; ++rank) {
      expect_lanes(requested.at(rank), 7);
      expect_lanes(wan.at(rank), 7);
    }
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(DataPlane, AFarLinkHasAllLanesAndUsesSome) {
  Group group(2, {.wan_rtt_min = Duration{0}});
  for (uint32_t rank = 0; rank < 2; ++rank) {
    expect_lanes(group.at(rank), protocol::kLanesMax);
    const uint32_t used = group.at(rank).counters().links.at(0).lanes_used;
    EXPECT_EQ(used, link::LaneController::first(Duration{0}));
  }
  constexpr size_t kCount = (16u << 20) / 4;
  for (uint32_t number = 0; number < 30; ++number) {
    const OpKey op{.tag = {}, .sequence = number};
    std::vector<std::vector<float>> tensors;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      tensors.emplace_back(kCount, static_cast<float>(rank + number));
      const Pattern pattern = number % 2 == 0 ? Pattern::kAllReduce : Pattern::kPairwise;
      group.post_sum(rank, op, tensors[rank], pattern);
    }
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(group.at(rank).transferred(op));
      group.at(rank).end({op, Ending::kCommitted});
      ASSERT_TRUE(group.at(rank).drained(op));
      const auto sum = static_cast<float>(2 * number + 1);
      EXPECT_EQ(std::count(tensors[rank].begin(), tensors[rank].end(), sum), kCount);
    }
  }
}

// Members that are no neighbours have one lane, until they are about to exchange much.
TEST(DataPlane, ALinkThatIsToCarryMuchGetsMoreLanes) {
  const link::DriverOptions options{.wan_rtt_min = Duration{0}};
  Member one(0, options), other(1, options);
  one.dial(id(1), {{"127.0.0.1", other.port()}});
  EXPECT_EQ(one.reported(id(1), LinkState::kUp), "");
  one.begin_epoch({id(1)}, {});
  other.begin_epoch({id(0)}, {});
  expect_lanes(one, 1);
  one.open_lanes(id(1));
  const uint32_t first = link::LaneController::first(Duration{0});
  EXPECT_LE(one.sample(id(1)).opening, first - 1) << "some may be open already";
  expect_lanes(one, first);
  expect_lanes(other, first);
  EXPECT_EQ(one.sample(id(1)).opening, 0u);
}

TEST(DataPlane, ASampleSaysWhatHasComeOnALink) {
  Group group(2);
  LinkSample sample = group.at(0).sample(id(1));
  EXPECT_TRUE(sample.up);
  EXPECT_EQ(sample.peer, id(1));
  EXPECT_EQ(sample.bytes_received, 0u);
  std::vector<std::vector<float>> tensors(2, std::vector<float>(1000));
  for (uint32_t rank = 0; rank < 2; ++rank) group.post_sum(rank, {}, tensors[rank]);
  for (uint32_t rank = 0; rank < 2; ++rank) ASSERT_TRUE(group.at(rank).transferred({}));
  EXPECT_EQ(group.at(0).sample(id(1)).bytes_received, 4000u);
  EXPECT_FALSE(group.at(0).sample(id(7)).up);
}

int send_buffer(int fd) {
  int bytes = 0;
  socklen_t length = sizeof bytes;
  return getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &length) == 0 ? bytes : 0;
}

// The number of connections of this process with the buffer limit of a crowded machine, as far as
// the system grants it.
int held_back() {
  const net::Socket sample(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sample.hold_at_most(512 << 10);
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    count += send_buffer(fd) == send_buffer(sample.fd()) ? 1 : 0;
  }
  return count;
}

TEST(DataPlane, SocketsHoldLittleWhereMoreThanTwoShareAMachineAndNoWayIsBetween) {
  const auto held = [](uint32_t size, const link::DriverOptions& options) {
    const Group group(size, options);
    return held_back();
  };
  EXPECT_EQ(held(2, {}), 0);
  EXPECT_EQ(held(3, {}), 6);
  EXPECT_EQ(held(3, {.wan_rtt_min = Duration{0}}), 0);
}

TEST(DataPlane, ALinkGoesWithAllItsLanesAndComesBackWithThem) {
  Group group(2, {.lanes = 3});
  expect_lanes(group.at(1), 3);
  group.at(1).forget(id(0));
  EXPECT_NE(group.at(0).reported(id(1), LinkState::kDown), "none");
  EXPECT_TRUE(group.at(0).counters().links.empty());
  EXPECT_TRUE(group.at(1).counters().links.empty());
  group.at(0).dial(id(1), {{"127.0.0.1", group.at(1).port()}});
  EXPECT_EQ(group.at(0).reported(id(1), LinkState::kUp, 2), "");
  expect_lanes(group.at(0), 3);
  expect_lanes(group.at(1), 3);
}

TEST(DataPlane, AFurtherLaneOfAnotherLinkIsHungUpOn) {
  Member one(0);
  net::FrameHeader hello = RawPeer::hello(FrameType::kHello, id(1), id(0), kRun);
  hello.round = 1;
  RawPeer without = RawPeer::dial(one.port());
  without.say(hello);
  EXPECT_TRUE(without.hung_up()) << "there is no link";
  RawPeer first = RawPeer::dial(one.port());
  first.say(RawPeer::hello(FrameType::kHello, id(1), id(0), kRun));
  EXPECT_EQ(first.hear()->type, FrameType::kHelloOk);
  RawPeer further = RawPeer::dial(one.port());
  further.say(hello);
  EXPECT_EQ(further.hear()->round, 1);
  EXPECT_EQ(one.counters().links.at(0).lanes, 2u);
  hello.block = 2;
  RawPeer other = RawPeer::dial(one.port());
  other.say(hello);
  EXPECT_TRUE(other.hung_up()) << "it belongs to a link that is no more";
}

TEST(DataPlane, AMemberThatGoesLeavesTheOthersTensorsAsTheyWere) {
  Group group(3);
  std::vector<std::vector<float>> tensors(3);
  const OpKey op{};
  for (uint32_t rank = 0; rank < 3; ++rank) {
    tensors[rank].assign(16u << 20, static_cast<float>(rank) + 0.5f);
    group.post_sum(rank, op, tensors[rank]);
  }
  group.at(2).destroy();
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_NE(group.at(rank).reported(id(2), LinkState::kDown), "none");
    group.at(rank).end({op});
    ASSERT_TRUE(group.at(rank).drained(op));
    const float before = static_cast<float>(rank) + 0.5f;
    EXPECT_EQ(static_cast<size_t>(std::count(tensors[rank].begin(), tensors[rank].end(), before)),
              tensors[rank].size());
  }
}

TEST(DataPlane, ADestroyedShellTouchesNothingAnyMore) {
  std::vector<std::vector<float>> tensors(2, std::vector<float>(16u << 20, 1.0f));
  Group group(2);
  for (uint32_t rank = 0; rank < 2; ++rank) group.post_sum(rank, {}, tensors[rank]);
  for (uint32_t rank = 0; rank < 2; ++rank) group.at(rank).destroy();
  // The address sanitizer sees a late use.
  for (auto& tensor : tensors) std::vector<float>().swap(tensor);
}

}  // namespace
}  // namespace pccl::ring
