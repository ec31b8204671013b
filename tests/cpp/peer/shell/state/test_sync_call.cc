#include "csrc/peer/shell/state/sync_call.h"

#include <atomic>
#include <future>
#include <new>
#include <thread>

#include "csrc/peer/shell/state/state_spans.h"
#include "tests/cpp/peer/shell/device_memory.h"
#include "tests/cpp/peer/world.h"

namespace pccl::peer {
namespace {

using protocol::SyncStrategy;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kPatience = seconds(20);

using Background = std::shared_ptr<SyncCall>;

std::vector<StateSpan> entries_of(std::vector<float>& weights) {
  return {{"weights", DType::kFloat32, {static_cast<int64_t>(weights.size())}, bytes_of(weights)}};
}

Result<Background> begin(Peer& peer, std::vector<StateSpan> entries, InBackground how = {},
                         const Interrupted& interrupted = {}) {
  return peer.begin_sync(
      {0, SyncStrategy::kEnforcePopular, StateSpans::make(std::move(entries)).value(), kPatience},
      std::move(how), interrupted);
}

Result<JointResult> wait(const Background& sync) {
  const auto outcome = sync->wait(monotonic_now() + kPatience, {});
  return outcome ? *outcome : Result<JointResult>(Status{Code::kSystem, "no outcome", {}});
}

TEST(SyncCall, CollectivesGoOnAndTheStateIsWrittenByWait) {
  World world(3);
  world.each([](Peer& peer, uint32_t rank) {
    std::vector<float> weights(2'000'000, rank == 2 ? 7.0f : 5.0f);
    const Result<Background> sync = begin(peer, entries_of(weights));
    ASSERT_TRUE(sync.ok()) << sync.status().message;
    EXPECT_EQ(sync.value()->receives(), rank == 2);
    const auto elected = sync.value()->elected();
    std::vector<float> ones(1000, 1.0f);
    EXPECT_EQ(all_reduce(peer, ones).wait(), Status{});
    const Status joint = peer.are_peers_pending(kPatience, {}).status();
    EXPECT_EQ(joint.code, Code::kInvalidState);
    EXPECT_NE(joint.message.find("first wait() for what it returned"), std::string::npos);
    EXPECT_EQ(begin(peer, entries_of(weights)).status().code, Code::kInvalidState);
    EXPECT_TRUE(sync.value()->wait_for_end(monotonic_now() + kPatience, {}));
    EXPECT_EQ(weights[0], rank == 2 ? 7.0f : 5.0f) << "nobody has waited yet";
    const Result<JointResult> outcome = wait(sync.value());
    ASSERT_TRUE(outcome.ok()) << outcome.status().message;
    EXPECT_EQ(weights, std::vector<float>(2'000'000, 5.0f));
    EXPECT_EQ(outcome.value().bytes_received, rank == 2 ? 8'000'000u : 0u);
    EXPECT_EQ(elected, std::pair(outcome.value().revision, outcome.value().state_hash));
    EXPECT_EQ(wait(sync.value()).value().state_hash, outcome.value().state_hash)
        << "a second wait gives the same";
    EXPECT_TRUE(peer.are_peers_pending(kPatience, {}).ok());
  });
}

TEST(SyncCall, APeerThatMayNotWriteKeepsItsState) {
  World world(2);
  world.each([](Peer& peer, uint32_t rank) {
    std::vector<float> weights(1000, static_cast<float>(rank));
    const Status written{Code::kSharedState, "it was written", {}};
    InBackground how;
    how.may_install = [&] { return rank == 1 ? written : Status{}; };
    how.installed = [] { ADD_FAILURE() << "nothing was written"; };
    const Result<Background> sync = begin(peer, entries_of(weights), how);
    ASSERT_TRUE(sync.ok());
    const Result<JointResult> outcome = wait(sync.value());
    EXPECT_EQ(outcome.ok() ? Status{} : outcome.status(), how.may_install());
    EXPECT_EQ(weights[0], static_cast<float>(rank));
    const auto again = peer.sync_shared_state(0, SyncStrategy::kEnforcePopular, entries_of(weights),
                                              kPatience, {});
    EXPECT_TRUE(again.ok());
    EXPECT_EQ(weights[0], 0.0f);
  });
}

// The source has to wait for its device, which the test holds up.
TEST(SyncCall, AWaitMayEndBeforeTheTransfers) {
  World world(2);
  std::promise<void> go_on;
  const auto slow = [&, first = true](const memory::DeviceCopy& copy,
                                      memory::FakeDevice::Direction direction) mutable {
    if (std::exchange(first, false)) {
      EXPECT_EQ(go_on.get_future().wait_for(kPatience), std::future_status::ready);
    }
    move(copy, direction);
  };
  world.each([&](Peer& peer, uint32_t rank) {
    memory::FakeDevice device({.seed = 3}, rank == 0 ? memory::FakeDevice::Move(slow) : move,
                              hash_all);
    const auto weights = std::make_shared<DeviceVector>(
        std::vector<std::byte>(100000, static_cast<std::byte>(rank + 1)));
    const std::vector<StateSpan> entries{
        {"weights", DType::kUint8, {100000}, {}, &device, weights}};
    const Result<Background> sync = begin(peer, entries);
    ASSERT_TRUE(sync.ok());
    if (rank == 1) {
      EXPECT_FALSE(sync.value()->ended());
      EXPECT_FALSE(sync.value()->wait(monotonic_now(), {}).has_value());
      EXPECT_FALSE(
          sync.value()->wait(monotonic_now() + kPatience, [] { return true; }).has_value());
      go_on.set_value();
    }
    EXPECT_TRUE(wait(sync.value()).ok());
    EXPECT_EQ(weights->bytes[99999], std::byte{1});
  });
}

// Rank 0 drops it after its end.
TEST(SyncCall, AnAbandonedSyncEndsByItselfAndKeepsNothing) {
  World world(2);
  world.each([](Peer& peer, uint32_t rank) {
    std::vector<float> weights(1000, static_cast<float>(rank));
    auto memory = std::make_shared<int>();
    const std::weak_ptr<int> kept = memory;
    const Result<Background> sync = begin(peer, entries_of(weights), {std::move(memory)});
    ASSERT_TRUE(sync.ok());
    if (rank == 0) {
      EXPECT_TRUE(sync.value()->wait_for_end(monotonic_now() + kPatience, {}));
    }
    EXPECT_FALSE(kept.expired());
    sync.value()->abandon();
    EXPECT_TRUE(sync.value()->wait_for_end(monotonic_now() + kPatience, {}));
    const Instant until = monotonic_now() + kPatience;
    while (!kept.expired() && monotonic_now() < until) std::this_thread::yield();
    EXPECT_TRUE(kept.expired()) << "before any other call";
    EXPECT_TRUE(peer.are_peers_pending(kPatience, {}).ok());
    EXPECT_EQ(weights[0], static_cast<float>(rank)) << "nobody has waited";
  });
}

TEST(SyncCall, SeveralThreadsThatWaitGetOneOutcome) {
  World world(2);
  world.each([](Peer& peer, uint32_t rank) {
    std::vector<float> weights(1000, static_cast<float>(rank));
    std::atomic<int> asked{0}, installed{0};
    InBackground how;
    how.may_install = [&] {
      ++asked;
      return Status{};
    };
    how.installed = [&] { ++installed; };
    const Result<Background> sync = begin(peer, entries_of(weights), how);
    ASSERT_TRUE(sync.ok());
    const auto waits = [&] { EXPECT_TRUE(wait(sync.value()).ok()); };
    std::thread other(waits);
    waits();
    other.join();
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(installed, rank == 1 ? 1 : 0) << "only data that was fetched is written";
  });
}

TEST(SyncCall, ASourceWithoutMemoryFailsTheCallForAll) {
  World world(2);
  const auto no_memory = [first = true](const memory::DeviceCopy& copy,
                                        memory::FakeDevice::Direction direction) mutable {
    if (std::exchange(first, false)) throw std::bad_alloc();
    move(copy, direction);
  };
  world.each([&](Peer& peer, uint32_t rank) {
    memory::FakeDevice device({.seed = 3}, rank == 0 ? memory::FakeDevice::Move(no_memory) : move,
                              hash_all);
    const auto weights = std::make_shared<DeviceVector>(
        std::vector<std::byte>(100000, static_cast<std::byte>(rank + 1)));
    const std::vector<StateSpan> entries{
        {"weights", DType::kUint8, {100000}, {}, &device, weights}};
    const Result<Background> sync = begin(peer, entries);
    const Result<JointResult> outcome = sync.ok() ? wait(sync.value()) : sync.status();
    ASSERT_FALSE(outcome.ok());
    EXPECT_NE(outcome.status().message.find("no memory left"), std::string::npos)
        << outcome.status().message;
    EXPECT_EQ(weights->bytes[0], static_cast<std::byte>(rank + 1));
  });
}

TEST(SyncCall, AThreadThatThrowsGivesTheCallUp) {
  World world(2);
  world.each([](Peer& peer, uint32_t rank) {
    std::vector<float> weights(1000, static_cast<float>(rank));
    InBackground how;
    if (rank == 0) how.around = [](const auto&) { throw std::bad_alloc(); };
    const Result<Background> sync = begin(peer, entries_of(weights), how);
    const Result<JointResult> outcome = sync.ok() ? wait(sync.value()) : sync.status();
    ASSERT_FALSE(outcome.ok());
    const Code code = outcome.status().code;  // of the others: its plan may have come before
    EXPECT_TRUE(rank == 0 ? code == Code::kSystem
                          : code == Code::kOperationTimeout || code == Code::kSharedState)
        << outcome.status().message;
    EXPECT_TRUE(peer.are_peers_pending(kPatience, {}).ok());
  });
}

TEST(SyncCall, ALeavingPeerEndsItsThread) {
  World world(2);
  std::vector<std::vector<float>> weights(2, std::vector<float>(1000, 1.0f));
  std::vector<Background> syncs(2);
  world.each([&](Peer& peer, uint32_t rank) {
    const Result<Background> sync = begin(peer, entries_of(weights[rank]));
    ASSERT_TRUE(sync.ok());
    syncs[rank] = sync.value();
  });
  world.peer(1).leave(seconds(2));
  EXPECT_TRUE(syncs[1]->ended());
  const Result<JointResult> own = wait(syncs[1]);
  EXPECT_TRUE(own.ok() || own.status().code == Code::kInvalidState) << "either may come first";
  EXPECT_TRUE(wait(syncs[0]).ok()) << "all had voted, and nobody was stale";
}

TEST(SyncCall, ErrorsOfTheVoteComeFromTheCall) {
  World world(2);
  world.each([](Peer& peer, uint32_t rank) {
    std::vector<float> weights(1000 + rank);
    EXPECT_EQ(begin(peer, entries_of(weights)).status().code, Code::kSharedState);
    EXPECT_TRUE(peer.are_peers_pending(kPatience, {}).ok()) << "nothing is under way";
  });
}

TEST(SyncCall, ItCanBeInterruptedBeforeAllHaveVoted) {
  World world(2);
  std::vector<float> weights(1000);
  const Status status = begin(world.peer(0), entries_of(weights), {}, [] { return true; }).status();
  EXPECT_EQ(status.message, "sync_shared_state was interrupted");
  EXPECT_EQ(begin(world.peer(1), entries_of(weights)).status().code, Code::kOperationTimeout);
}

}  // namespace
}  // namespace pccl::peer
