#include "csrc/ring/shell/shell.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>

#include "csrc/link/lane_controller.h"
#include "csrc/net/descriptors.h"
#include "csrc/net/keys.h"
#include "csrc/net/tls.h"
#include "tests/cpp/net/net_test.h"
#include "tests/cpp/ring/allocations.h"
#include "tests/cpp/ring/raw_peer.h"

namespace pccl::ring {
namespace {

using net::FrameType;
using protocol::LinkReport;
using protocol::LinkState;

PeerId id(uint32_t rank) { return {rank + 1}; }

// One Shell and a record of its callbacks.
class Member {
 public:
  explicit Member(uint32_t rank, Shell::Options options = {},
                  std::optional<protocol::AcceptingKey> accepting = {})
      : shell_(std::make_unique<Shell>(
            std::move(options),
            Shell::Callbacks{
                .on_listening =
                    [this](Result<uint16_t> port) { note([&] { port_ = std::move(port); }); },
                .on_link = [this](LinkReport report) { note([&] { reports_.push_back(report); }); },
                .on_transferred = [this](
                                      Epoch, OpKey op,
                                      protocol::AbsentRanks) { note([&] { ++transferred_[op]; }); },
                .on_drained = [this](Epoch, OpKey op) { note([&] { ++drained_[op]; }); },
                .on_failed = [this](Epoch, OpKey, const Status&) { note([&] { ++failed_; }); },
                .on_sampled =
                    [this](const LinkSample& sample) {
                      note([&] { samples_.push_back(sample); });
                    }})) {
    shell_->accept_as(id(rank), kRun, protocol::kSpoken.highest, accepting);
    shell_->listen("127.0.0.1");
    EXPECT_TRUE(wait([&] { return port_.has_value(); }));
  }

  Shell& shell() { return *shell_; }
  void destroy() { shell_.reset(); }
  uint16_t port() { return port_->value(); }
  const Result<uint16_t>& listening() { return *port_; }

  bool wait(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), condition);
  }
  // Waits for a report that `peer` is unreachable; returns its fault.
  LinkFault fault(PeerId peer) {
    std::optional<LinkFault> found;
    wait([&] {
      for (const LinkReport& report : reports_) {
        if (report.peer == peer && report.state == LinkState::kUnreachable) found = report.fault;
      }
      return found.has_value();
    });
    EXPECT_TRUE(found.has_value());
    return found.value_or(LinkFault::kOther);
  }
  // Waits for `count` reports of `state` about `peer`; returns the text of the last one, or "none".
  std::string reported(PeerId peer, LinkState state, size_t count = 1) {
    std::string text = "none";
    wait([&] {
      size_t seen = 0;
      for (const LinkReport& report : reports_) {
        if (report.peer != peer || report.state != state) continue;
        text = report.text;
        ++seen;
      }
      return seen >= count;
    });
    return text;
  }
  size_t report_count() {
    const std::lock_guard lock(mutex_);
    return reports_.size();
  }
  bool transferred(OpKey op) {
    return wait([&] { return transferred_[op] > 0; });
  }
  bool drained(OpKey op) {
    return wait([&] { return drained_[op] > 0; });
  }
  LinkSample sampled() {  // the answer to the last sample()
    EXPECT_TRUE(wait([&] { return !samples_.empty(); }));
    const std::lock_guard lock(mutex_);
    const LinkSample last = samples_.back();
    samples_.clear();
    return last;
  }

 private:
  template <typename F>
  void note(F what) {
    const std::lock_guard lock(mutex_);
    what();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Result<uint16_t>> port_;
  std::vector<LinkReport> reports_;
  std::map<OpKey, int> transferred_, drained_;
  std::vector<LinkSample> samples_;
  int failed_ = 0;
  std::unique_ptr<Shell> shell_;
};

// A group in epoch 1, with a link between any two members.
class Group {
 public:
  explicit Group(uint32_t size, const Shell::Options& options = {}) {
    for (uint32_t rank = 0; rank < size; ++rank) {
      members_.push_back(std::make_unique<Member>(rank, options));
    }
    for (uint32_t low = 0; low < size; ++low) {
      for (uint32_t high = low + 1; high < size; ++high) {
        at(low).shell().dial(id(high), {{"127.0.0.1", at(high).port()}});
        EXPECT_EQ(at(low).reported(id(high), LinkState::kUp), "");
      }
    }
    for (uint32_t rank = 0; rank < size; ++rank) {
      std::vector<PeerId> others;
      for (uint32_t other = 0; other < size; ++other) {
        if (other != rank) others.push_back(id(other));
      }
      at(rank).shell().begin_epoch(Epoch{1}, others, others);
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
    at(rank).shell().post(std::move(task), {.spans = {std::as_writable_bytes(std::span(tensor))}});
  }

 private:
  std::vector<std::unique_ptr<Member>> members_;
};

class Sizes : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Shell, Sizes, ::testing::Values(2u, 4u));

TEST_P(Sizes, AllReduceOverLoopback) {
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
    group.at(rank).shell().end({{}, Ending::kCommitted});
    ASSERT_TRUE(group.at(rank).drained({}));
    EXPECT_TRUE(tensors[rank] == sum) << "rank " << rank;
  }
  const Shell::Counters counters = group.at(0).shell().counters();
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
TEST(Shell, AChunkAllocatesNothing) {
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
      group.at(rank).shell().end({op, Ending::kCommitted});
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
    const Shell::Counters counters = member.shell().counters();
    return std::all_of(counters.links.begin(), counters.links.end(),
                       [&](const auto& link) { return link.lanes == lanes; });
  };
  while (!all()) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
}

TEST(Shell, AnOperationTravelsOnAllLanesOfALink) {
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
    group.at(rank).shell().end({{}, Ending::kCommitted});
    ASSERT_TRUE(group.at(rank).drained({}));
    EXPECT_EQ(std::count(tensors[rank].begin(), tensors[rank].end(), 6.0f), kCount);
  }
}

// The application needs descriptors too.
TEST(Shell, LanesTakeASixteenthOfTheDescriptorsAtMost) {
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

TEST(Shell, AFarLinkHasAllLanesAndUsesSome) {
  Group group(2, {.wan_rtt_min = Duration{0}});
  for (uint32_t rank = 0; rank < 2; ++rank) {
    expect_lanes(group.at(rank), protocol::kLanesMax);
    const uint32_t used = group.at(rank).shell().counters().links.at(0).lanes_used;
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
      group.at(rank).shell().end({op, Ending::kCommitted});
      ASSERT_TRUE(group.at(rank).drained(op));
      const auto sum = static_cast<float>(2 * number + 1);
      EXPECT_EQ(std::count(tensors[rank].begin(), tensors[rank].end(), sum), kCount);
    }
  }
}

// Members that are no neighbours have one lane, until they are about to exchange much.
TEST(Shell, ALinkThatIsToCarryMuchGetsMoreLanes) {
  const Shell::Options options{.wan_rtt_min = Duration{0}};
  Member one(0, options), other(1, options);
  one.shell().dial(id(1), {{"127.0.0.1", other.port()}});
  EXPECT_EQ(one.reported(id(1), LinkState::kUp), "");
  one.shell().begin_epoch(Epoch{1}, {id(1)}, {});
  other.shell().begin_epoch(Epoch{1}, {id(0)}, {});
  expect_lanes(one, 1);
  one.shell().open_lanes(id(1), false);
  one.shell().sample(id(1));
  const uint32_t first = link::LaneController::first(Duration{0});
  EXPECT_EQ(one.sampled().opening, first - 1);
  expect_lanes(one, first);
  expect_lanes(other, first);
  one.shell().sample(id(1));
  EXPECT_EQ(one.sampled().opening, 0u);
}

TEST(Shell, ASampleSaysWhatHasComeOnALink) {
  Group group(2);
  group.at(0).shell().sample(id(1));
  LinkSample sample = group.at(0).sampled();
  EXPECT_TRUE(sample.up);
  EXPECT_EQ(sample.peer, id(1));
  EXPECT_EQ(sample.bytes_received, 0u);
  std::vector<std::vector<float>> tensors(2, std::vector<float>(1000));
  for (uint32_t rank = 0; rank < 2; ++rank) group.post_sum(rank, {}, tensors[rank]);
  for (uint32_t rank = 0; rank < 2; ++rank) ASSERT_TRUE(group.at(rank).transferred({}));
  group.at(0).shell().sample(id(1));
  EXPECT_EQ(group.at(0).sampled().bytes_received, 4000u);
  group.at(0).shell().sample(id(7));
  EXPECT_FALSE(group.at(0).sampled().up);
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

TEST(Shell, SocketsHoldLittleWhereMoreThanTwoShareAMachineAndNoWayIsBetween) {
  const auto held = [](uint32_t size, const Shell::Options& options) {
    Group group(size, options);
    // When counters() returns, the member has begun the epoch.
    for (uint32_t rank = 0; rank < size; ++rank) group.at(rank).shell().counters();
    return held_back();
  };
  EXPECT_EQ(held(2, {}), 0);
  EXPECT_EQ(held(3, {}), 6);
  EXPECT_EQ(held(3, {.wan_rtt_min = Duration{0}}), 0);
}

TEST(Shell, ALinkGoesWithAllItsLanesAndComesBackWithThem) {
  Group group(2, {.lanes = 3});
  expect_lanes(group.at(1), 3);
  group.at(1).shell().forget(id(0));
  EXPECT_NE(group.at(0).reported(id(1), LinkState::kDown), "none");
  EXPECT_TRUE(group.at(0).shell().counters().links.empty());
  EXPECT_TRUE(group.at(1).shell().counters().links.empty());
  group.at(0).shell().dial(id(1), {{"127.0.0.1", group.at(1).port()}});
  EXPECT_EQ(group.at(0).reported(id(1), LinkState::kUp, 2), "");
  expect_lanes(group.at(0), 3);
  expect_lanes(group.at(1), 3);
}

TEST(Shell, AFurtherLaneOfAnotherLinkIsHungUpOn) {
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
  EXPECT_EQ(one.shell().counters().links.at(0).lanes, 2u);
  hello.block = 2;
  RawPeer other = RawPeer::dial(one.port());
  other.say(hello);
  EXPECT_TRUE(other.hung_up()) << "it belongs to a link that is no more";
}

TEST(Shell, AMemberThatGoesLeavesTheOthersTensorsAsTheyWere) {
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
    group.at(rank).shell().end({op});
    ASSERT_TRUE(group.at(rank).drained(op));
    const float before = static_cast<float>(rank) + 0.5f;
    EXPECT_EQ(static_cast<size_t>(std::count(tensors[rank].begin(), tensors[rank].end(), before)),
              tensors[rank].size());
  }
}

TEST(Shell, ADestroyedShellTouchesNothingAnyMore) {
  std::vector<std::vector<float>> tensors(2, std::vector<float>(16u << 20, 1.0f));
  Group group(2);
  for (uint32_t rank = 0; rank < 2; ++rank) group.post_sum(rank, {}, tensors[rank]);
  for (uint32_t rank = 0; rank < 2; ++rank) group.at(rank).destroy();
  // The address sanitizer sees a late use.
  for (auto& tensor : tensors) std::vector<float>().swap(tensor);
}

// ---- Listening and dialling ----

TEST(Shell, ListensInItsRangeOrSaysWhyNot) {
  const uint16_t free = net::free_port();
  const Member first(0, {.port_first = free, .port_last = free});
  Member second(1, {.port_first = free, .port_last = free});
  ASSERT_FALSE(second.listening().ok());
  EXPECT_EQ(second.listening().status().code, Code::kSystem);
  EXPECT_NE(second.listening().status().message.find(std::to_string(free)), std::string::npos);
}

TEST(Shell, KeepsDiallingUntilThePeerIsThere) {
  const uint16_t later = net::free_port();
  Member one(0);
  one.shell().dial(id(1), {{"127.0.0.1", later}});
  const std::string why = one.reported(id(1), LinkState::kUnreachable);
  EXPECT_NE(why.find("127.0.0.1:" + std::to_string(later)), std::string::npos) << why;
  Member two(1, {.port_first = later, .port_last = later});
  EXPECT_EQ(one.reported(id(1), LinkState::kUp), "");
  EXPECT_EQ(two.reported(id(0), LinkState::kUp), "") << "both sides know";
  one.shell().dial(id(1), {{"127.0.0.1", later}});
  EXPECT_EQ(one.reported(id(1), LinkState::kUp, 2), "") << "it is up already";
  EXPECT_EQ(two.shell().counters().links.size(), 1u);
}

TEST(Shell, SaysInFewWordsWhyAPeerCannotBeReached) {
  Member one(0);
  one.shell().dial(id(1), {{"127.0.0.1", net::free_port()}});
  EXPECT_EQ(one.fault(id(1)), LinkFault::kRefused);
  one.shell().dial(id(2), {{std::string(70, 'x'), 1}});
  EXPECT_EQ(one.fault(id(2)), LinkFault::kUnknownName);
  Member five(5);
  one.shell().dial(id(3), {{"127.0.0.1", five.port()}});
  EXPECT_EQ(one.fault(id(3)), LinkFault::kOther) << "it hangs up on whoever looks for another";
}

TEST(Shell, ForgetStopsDiallingAndHangsUp) {
  Member one(0);
  one.shell().dial(id(7), {{"127.0.0.1", net::free_port()}});
  one.reported(id(7), LinkState::kUnreachable);
  one.shell().forget(id(7));
  Member two(1);
  one.shell().dial(id(1), {{"127.0.0.1", two.port()}});
  one.reported(id(1), LinkState::kUp);
  one.shell().forget(id(1));
  EXPECT_NE(two.reported(id(0), LinkState::kDown), "none");
  EXPECT_EQ(one.shell().counters().links.size(), 0u);
  EXPECT_NE(one.reported(id(1), LinkState::kDown), "none");
}

TEST(Shell, ALinkThatBreaksIsReportedByBothAndMayBeDialledAgain) {
  Member one(0);
  auto two = std::make_unique<Member>(1);
  one.shell().dial(id(1), {{"127.0.0.1", two->port()}});
  one.reported(id(1), LinkState::kUp);
  two->shell().forget(id(0));
  EXPECT_NE(one.reported(id(1), LinkState::kDown).find("closed the connection"), std::string::npos);
  one.shell().dial(id(1), {{"127.0.0.1", two->port()}});
  one.reported(id(1), LinkState::kUp, 2);
  two->destroy();
  one.reported(id(1), LinkState::kDown, 2);
}

// A new attempt would take down the connection that the other end has accepted. The other end would
// report that and be dialled again, without end if nobody is fast enough.
TEST(Shell, AnAttemptUnderWayGoesOnUnlessItIsTheOneThatIsDead) {
  net::RawListener slow;
  Member one(0);
  const net::Endpoint at{"127.0.0.1", slow.port()};
  one.shell().dial(id(1), {at});
  one.shell().dial(id(1), {at});
  RawPeer first(accept(slow.fd, nullptr, nullptr));
  const auto hello = first.hear();
  ASSERT_TRUE(hello.has_value());
  one.shell().dial(id(1), {at}, hello->block - 1);
  EXPECT_FALSE(first.hung_up(100));
  one.shell().dial(id(1), {at}, hello->block);
  EXPECT_TRUE(first.hung_up());
  RawPeer second(accept(slow.fd, nullptr, nullptr));
  const auto again = second.hear();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->block, hello->block + 2) << "id(0), the lower one, has the even numbers";
  net::FrameHeader answer = RawPeer::hello(FrameType::kHelloOk, id(1), id(0), kRun);
  answer.block = again->block;
  second.say(answer);
  EXPECT_EQ(one.reported(id(1), LinkState::kUp), "");
}

TEST(Shell, TwoThatDialEachOtherEndUpWithOneLink) {
  for (int round = 0; round < 20; ++round) {
    Member one(0), two(1);
    one.shell().dial(id(1), {{"127.0.0.1", two.port()}});
    two.shell().dial(id(0), {{"127.0.0.1", one.port()}});
    EXPECT_EQ(one.reported(id(1), LinkState::kUp), "");
    EXPECT_EQ(two.reported(id(0), LinkState::kUp), "");
    EXPECT_EQ(one.shell().counters().links.size(), 1u);
    EXPECT_EQ(two.shell().counters().links.size(), 1u);
  }
}

// ---- Pending connections ----

TEST(Shell, AStrangerWithoutTheRunIsHungUpOn) {
  Member one(0);
  RawPeer stranger = RawPeer::dial(one.port());
  stranger.say(RawPeer::hello(FrameType::kHello, id(1), id(0), kRun + 1));
  EXPECT_TRUE(stranger.hung_up());
  EXPECT_EQ(one.report_count(), 0u);
  EXPECT_EQ(one.shell().counters().links.size(), 0u);
}

// The answer travels with the proof of the acceptor, and whoever sent a copy cannot read it.
TEST(Shell, AProofIsAnsweredBeforeItIsCompleteAndNothingElseHappens) {
  const protocol::AcceptingKey accepting{1, {{1, 2, 3, 4}}};
  Member one(0, {}, accepting);
  one.shell().begin_epoch(Epoch{1}, {id(1)}, {id(1)});
  const protocol::LaneIdentity identity{id(1), id(0), 1, 7};
  const std::string introduction = net::encode(protocol::LaneIntroduction{identity, 1});
  Result<net::Tls> tls =
      net::Tls::dial(introduction, net::Key(net::lane_key(accepting.key, kRun, identity)));
  ASSERT_TRUE(tls.ok());
  RawPeer dialler = RawPeer::dial(one.port());
  dialler.say(tls.value().outgoing());
  std::vector<std::byte> answer;
  while (answer.size() < 2 * sizeof(net::HeaderBytes)) {
    std::vector<std::byte> bytes = dialler.receive();
    ASSERT_FALSE(bytes.empty());
    std::span<std::byte> ciphertext = bytes;
    for (;;) {
      Result<std::span<const std::byte>> read = tls.value().read(ciphertext);
      ASSERT_TRUE(read.ok()) << read.status().message;
      if (read.value().empty()) break;
      answer.insert(answer.end(), read.value().begin(), read.value().end());
    }
  }
  net::HeaderBytes first, second;
  std::copy_n(answer.begin(), first.size(), first.begin());
  std::copy_n(answer.begin() + first.size(), second.size(), second.begin());
  EXPECT_EQ(net::decode_header(first).value().type, FrameType::kHelloOk);
  EXPECT_EQ(net::decode_header(second).value().type, FrameType::kOpen);
  EXPECT_EQ(one.shell().counters().links.size(), 0u);
  EXPECT_EQ(one.report_count(), 0u);
}

TEST(Shell, ManyWhoSayNothingDoNotKeepOthersOut) {
  Member one(0);
  std::vector<RawPeer> silent;
  for (int count = 0; count < 350; ++count) silent.push_back(RawPeer::dial(one.port()));
  RawPeer honest = RawPeer::dial(one.port());
  honest.say(RawPeer::hello(FrameType::kHello, id(1), id(0), kRun));
  const auto answer = honest.hear();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->type, FrameType::kHelloOk);
  EXPECT_TRUE(silent.front().hung_up(1000)) << "the oldest makes room";
  EXPECT_FALSE(silent.back().hung_up(0));
}

// A process with at most 256 descriptors listens for links, and opens as many files at once as a
// training script does. Its exit code is the number of rounds in which that failed, up to 100.
[[noreturn]] void train_with_few_descriptors(int port_to, int go_from) {
  const rlimit few{256, 256};
  setrlimit(RLIMIT_NOFILE, &few);
  Member one(0);
  const uint16_t port = one.port();
  char go = 0;
  if (::write(port_to, &port, sizeof port) != sizeof port || ::read(go_from, &go, 1) != 1)
    _exit(101);
  int failed = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<int> files;
    for (size_t i = 0; i < net::kLeftToApplication; ++i)
      files.push_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    failed += std::count(files.begin(), files.end(), -1) > 0 ? 1 : 0;
    for (const int file : files) ::close(file);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  _exit(std::min(failed, 100));
}

TEST(Shell, ManyWhoSayNothingLeaveTheApplicationItsDescriptors) {
  int port_ends[2] = {-1, -1}, go_ends[2] = {-1, -1};
  ASSERT_EQ(pipe2(port_ends, O_CLOEXEC) | pipe2(go_ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) train_with_few_descriptors(port_ends[1], go_ends[0]);
  uint16_t port = 0;
  ASSERT_EQ(::read(port_ends[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  std::vector<RawPeer> silent;
  for (int count = 0; count < 350; ++count) silent.push_back(RawPeer::dial(port));
  ASSERT_EQ(::write(go_ends[1], "g", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "times of 200";
  for (const int end : {port_ends[0], port_ends[1], go_ends[0], go_ends[1]}) ::close(end);
}

TEST(Shell, ASecondLinkIsRefusedWhileTheFirstAnswers) {
  Member one(0), two(1);
  one.shell().dial(id(1), {{"127.0.0.1", two.port()}});
  one.reported(id(1), LinkState::kUp);
  RawPeer again = RawPeer::dial(two.port());
  again.say(RawPeer::hello(FrameType::kHello, id(0), id(1), kRun));
  EXPECT_TRUE(again.hung_up());
  std::this_thread::sleep_for(
      // Longer than the first link is given to answer.
      std::chrono::milliseconds(1500));
  EXPECT_EQ(two.report_count(), 1u) << "that it is up";
  EXPECT_EQ(two.shell().counters().links.size(), 1u);
}

TEST(Shell, ASecondLinkTakesThePlaceOfOneThatIsDead) {
  Member one(0);
  RawPeer mute = RawPeer::dial(one.port());
  mute.say(RawPeer::hello(FrameType::kHello, id(1), id(0), kRun));
  ASSERT_TRUE(mute.hear().has_value());
  {
    RawPeer refused = RawPeer::dial(one.port());
    refused.say(RawPeer::hello(FrameType::kHello, id(1), id(0), kRun));
    EXPECT_TRUE(refused.hung_up());
  }
  EXPECT_NE(one.reported(id(1), LinkState::kDown).find("does not answer"), std::string::npos);
  RawPeer again = RawPeer::dial(one.port());
  again.say(RawPeer::hello(FrameType::kHello, id(1), id(0), kRun));
  EXPECT_EQ(again.hear()->type, FrameType::kHelloOk);
}

TEST(Shell, AMemberThatBreaksARuleLosesItsLink) {
  Member one(0);
  RawPeer hostile = RawPeer::dial(one.port());
  hostile.say(RawPeer::hello(FrameType::kHello, id(1), id(0), kRun));
  hostile.hear();
  net::FrameHeader chunk;
  chunk.type = FrameType::kChunk;
  chunk.epoch = Epoch{3};
  chunk.length = 1000;
  hostile.say(chunk);
  EXPECT_TRUE(hostile.hung_up());
  EXPECT_NE(one.reported(id(1), LinkState::kDown).find("before both sides had opened"),
            std::string::npos);
}

}  // namespace
}  // namespace pccl::ring
