#include "csrc/peer/shell/peer.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <iterator>
#include <random>

#include "csrc/ring/shell/peer_thread.h"
#include "tests/cpp/peer/shell/device_memory.h"
#include "tests/cpp/peer/world.h"

namespace pccl::peer {
namespace {

using protocol::OpKind;
using protocol::SyncStrategy;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kLong = seconds(20);

// ---- Joining ----

TEST(Shell, WorldsOfAllSizes) {
  for (uint32_t size = 1; size <= 4; ++size) {
    World world(size);
    world.each([&](Peer& peer, uint32_t rank) {
      EXPECT_EQ(peer.rank(), rank);
      EXPECT_EQ(peer.world_size(), size);
      EXPECT_EQ(peer.topology()->members.size(), size);
    });
  }
}

TEST(Shell, AFileOfATokenThatIsMissingIsReportedAtOnce) {
  const TokenSource nowhere{.path = "/nonexistent/token", .token = nullptr};
  const Result<std::unique_ptr<Peer>> joined =
      Peer::join({"127.0.0.1", 1}, World::options(1), {}, {}, nowhere);
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.status().message,
            "PCCL_SECRET_FILE /nonexistent/token cannot be opened: No such file or directory");
}

TEST(Shell, NoMaster) {
  Options options = World::options(1);
  options.given.peer_timeout = milliseconds(300);
  const Instant before = monotonic_now();
  Result<std::unique_ptr<Peer>> joined = Peer::join({"127.0.0.1", 1}, options, {}, {});
  EXPECT_GE(monotonic_now() - before, milliseconds(300));
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.status().code, Code::kMasterLost);
  // The text gives the time that it really tried, which is longer on a busy machine.
  EXPECT_TRUE(joined.status().message.starts_with("no master at 127.0.0.1:1 within "))
      << joined.status().message;
}

TEST(Shell, TooFewPeersJoin) {
  World world;
  Options options = World::options(2);
  options.join_timeout = milliseconds(300);
  Result<std::unique_ptr<Peer>> joined = world.join(options);
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.status().code, Code::kTooFewPeers);
  EXPECT_NE(joined.status().message.find("not admitted to run \"test\" within 300 ms"),
            std::string::npos)
      << joined.status().message;
}

TEST(Shell, OptionsThatDiffer) {
  World world(1);
  Result<std::unique_ptr<Peer>> joined = world.join(World::options(2));
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.status().code, Code::kInvalidArgument);
}

TEST(Shell, OptionsThatMakeNoSense) {
  Options options = World::options(1);
  options.run = std::string(129, 'x');
  EXPECT_EQ(Peer::join({"127.0.0.1", 1}, options, {}, {}).status().message,
            "the name of the run has 129 bytes, allowed are 1 to 128");
  options.run = "a\nb";
  EXPECT_EQ(Peer::join({"127.0.0.1", 1}, options, {}, {}).status().message,
            "the name of the run has characters that cannot be shown: \"a\\nb\"");
  options = World::options(129);
  EXPECT_EQ(Peer::join({"127.0.0.1", 1}, options, {}, {}).status().message,
            "min_peers is 129, allowed are 1 to 128");
  options = World::options(1);
  options.given.peer_timeout = milliseconds(1);
  EXPECT_EQ(Peer::join({"127.0.0.1", 1}, options, {}, {}).status().code, Code::kInvalidArgument);
  EXPECT_EQ(Peer::join({"", 1}, World::options(1), {}, {}).status().code, Code::kInvalidArgument);
}

TEST(Shell, AJoinCanBeInterrupted) {
  World world;
  int asked = 0;
  Result<std::unique_ptr<Peer>> joined =
      world.join(World::options(2), [&] { return ++asked == 2; });
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.status().message, "joining the run was interrupted");
}

// ---- Collectives ----

TEST(Shell, AllReduce) {
  for (uint32_t size = 1; size <= 4; ++size) {
    World world(size);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{1} << 20}) {
      world.each([&](Peer& peer, uint32_t rank) {
        std::vector<float> values(count, static_cast<float>(rank + 1));
        EXPECT_EQ(all_reduce(peer, values).wait(), Status{});
        const std::vector<float> expected(count, static_cast<float>(size * (size + 1) / 2));
        EXPECT_EQ(values, expected);
      });
    }
  }
}

TEST(Shell, AverageDividesByTheWorld) {
  World world(3);
  world.each([](Peer& peer, uint32_t rank) {
    std::vector<float> values(100, static_cast<float>(rank));
    OpRequest what = request(OpKind::kAllReduce, values.size());
    what.reduce = ReduceOp::kAvg;
    Outcome outcome;
    peer.post(what, memory(values), outcome.completion());
    EXPECT_EQ(outcome.wait(), Status{});
    EXPECT_EQ(values, std::vector<float>(100, 1.0f));
  });
}

TEST(Shell, BroadcastFromEveryRank) {
  World world(4);
  for (int32_t root = 0; root < 4; ++root) {
    world.each([&](Peer& peer, uint32_t rank) {
      std::vector<int32_t> values(5000, static_cast<int32_t>(rank) * 10);
      OpRequest what = request(OpKind::kBroadcast, values.size(), root);
      what.dtype = DType::kInt32;
      Outcome outcome;
      peer.post(what, memory(values), outcome.completion());
      EXPECT_EQ(outcome.wait(), Status{});
      EXPECT_EQ(values, std::vector<int32_t>(5000, root * 10));
    });
  }
}

TEST(Shell, AllGatherIntoOneTensorAndIntoMany) {
  World world(4);
  for (const bool one : {true, false}) {
    world.each([&](Peer& peer, uint32_t rank) {
      std::vector<float> values(4 * 300, -1.0f);
      for (size_t i = 0; i < 300; ++i) values[rank * 300 + i] = static_cast<float>(rank);
      ring::Memory lent = memory(values);
      if (!one) {
        const std::span<std::byte> whole = lent.spans[0];
        lent.spans.clear();
        for (size_t i = 0; i < 4; ++i) lent.spans.push_back(whole.subspan(i * 1200, 1200));
      }
      Outcome outcome;
      peer.post(request(OpKind::kAllGather, 300), lent, outcome.completion());
      EXPECT_EQ(outcome.wait(), Status{});
      for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i / 300));
    });
  }
}

TEST(Shell, SendAndReceiveShiftNobodysNumbers) {
  World world(3);
  world.each([](Peer& peer, uint32_t rank) {
    std::vector<float> sent(1000, static_cast<float>(rank)), received(1000);
    const int32_t to = static_cast<int32_t>(rank + 1) % 3,
                  from = static_cast<int32_t>(rank + 2) % 3;
    Outcome send, receive;
    if (rank == 0) peer.post(request(OpKind::kSend, 1000, to), memory(sent), send.completion());
    peer.post(request(OpKind::kRecv, 1000, from), memory(received), receive.completion());
    if (rank != 0) peer.post(request(OpKind::kSend, 1000, to), memory(sent), send.completion());
    EXPECT_EQ(send.wait(), Status{});
    EXPECT_EQ(receive.wait(), Status{});
    EXPECT_EQ(received, std::vector<float>(1000, static_cast<float>(from)));
    std::vector<float> values(10, 1.0f);
    EXPECT_EQ(all_reduce(peer, values).wait(), Status{});
    EXPECT_EQ(values[0], 3.0f);
  });
}

TEST(Shell, ABarrierWaitsForTheLast) {
  World world(3);
  std::atomic<int> here{0};
  world.each([&](Peer& peer, uint32_t rank) {
    std::this_thread::sleep_for(milliseconds(20 * rank));
    ++here;
    Outcome outcome;
    peer.post(request(OpKind::kBarrier, 0), {}, outcome.completion());
    EXPECT_EQ(outcome.wait(), Status{});
    EXPECT_EQ(here, 3);
  });
}

TEST(Shell, EveryRankMayCallInAnOrderOfItsOwn) {
  World world(3);
  world.each([](Peer& peer, uint32_t rank) {
    std::vector<std::vector<float>> tensors;
    std::vector<size_t> order;
    for (size_t i = 0; i < 64; ++i) {
      tensors.emplace_back(100 + 1000 * (i % 5), static_cast<float>(rank + i));
      order.push_back(i);
    }
    std::shuffle(order.begin(), order.end(), std::mt19937(rank));
    std::vector<Outcome> outcomes(64);
    for (const size_t i : order)
      outcomes[i] = all_reduce(peer, tensors[i], "tensor " + std::to_string(i));
    for (size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(outcomes[i].wait(), Status{});
      EXPECT_EQ(tensors[i], std::vector<float>(tensors[i].size(), static_cast<float>(3 + 3 * i)));
    }
  });
}

TEST(Shell, ACompletionMayPost) {
  World world(2);
  world.each([](Peer& peer, uint32_t) {
    std::vector<float> first(10, 1.0f), second(10, 1.0f);
    Outcome outcome;
    peer.post(request(OpKind::kAllReduce, 10), memory(first), [&](const OpResult& result) {
      EXPECT_TRUE(result.status.ok());
      EXPECT_EQ(peer.update_topology(kLong, {}).status().message,
                "update_topology from inside a completion would wait for itself");
      EXPECT_EQ(peer.info().run, "test");
      peer.leave(kLong);  // not allowed from here
      peer.post(request(OpKind::kAllReduce, 10), memory(second), outcome.completion());
    });
    EXPECT_EQ(outcome.wait(), Status{});
    EXPECT_EQ(second[0], 2.0f);
  });
}

// ---- Failures ----

TEST(Shell, AMismatchFailsOnAllRanks) {
  World world(3);
  world.each([](Peer& peer, uint32_t rank) {
    std::vector<float> values(rank == 1 ? 11 : 10, 7.0f);
    const Status status = all_reduce(peer, values).wait();
    EXPECT_EQ(status.code, Code::kMismatch);
    EXPECT_NE(status.message.find("11 elements"), std::string::npos) << status.message;
    EXPECT_EQ(values, std::vector<float>(values.size(), 7.0f));
    std::vector<float> next(10, 1.0f);
    EXPECT_EQ(all_reduce(peer, next).wait(), Status{});
  });
}

TEST(Shell, ATimeoutNamesWhoIsMissing) {
  World world(3);
  world.each([](Peer& peer, uint32_t rank) {
    if (rank == 2) return;
    std::vector<float> values(1000, 7.0f);
    const Status status = all_reduce(peer, values, "", milliseconds(200)).wait();
    EXPECT_EQ(status.code, Code::kOperationTimeout);
    EXPECT_NE(status.message.find("it waited for rank 2, which has not called anything since"),
              std::string::npos)
        << status.message;
    EXPECT_EQ(values, std::vector<float>(1000, 7.0f));
  });
  std::vector<float> late(1000, 7.0f);
  EXPECT_EQ(all_reduce(world.peer(2), late).wait().code, Code::kOperationTimeout);
}

TEST(Shell, MemoryThatDoesNotFitFailsOnAllRanks) {
  World world(2);
  world.each([](Peer& peer, uint32_t rank) {
    std::vector<float> values(rank == 0 ? 5 : 10, 7.0f);
    Outcome outcome;
    peer.post(request(OpKind::kAllReduce, 10), memory(values), outcome.completion());
    const Status status = outcome.wait();
    EXPECT_EQ(status.code, Code::kInvalidArgument);
    EXPECT_NE(status.message.find("a tensor of 40 bytes, given as 20 bytes of memory"),
              std::string::npos)
        << status.message;
  });
}

TEST(Shell, ALossFailsEverythingUntilUpdateTopology) {
  World world(3);
  world.each([&](Peer& peer, uint32_t rank) {
    if (rank == 2) return peer.leave(kLong);
    std::vector<float> values(100000, 7.0f);
    Status status = all_reduce(peer, values).wait();
    EXPECT_EQ(status.code, Code::kPeerLost);
    EXPECT_TRUE(status.message.ends_with("; call pccl.update_topology() and repeat"))
        << status.message;
    EXPECT_EQ(values, std::vector<float>(100000, 7.0f));
    EXPECT_EQ(all_reduce(peer, values).wait().code, Code::kPeerLost);
    EXPECT_EQ(peer.are_peers_pending(kLong, {}).status().code, Code::kPeerLost);
    EXPECT_TRUE(peer.info().broken);
    EXPECT_EQ(peer.world_size(), 3u);
  });
  // The min_peers of this run is three, so a third peer has to come.
  std::unique_ptr<Peer> third;
  std::thread joining([&] { third = std::move(world.join(World::options(3)).value()); });
  world.each([&](Peer& peer, uint32_t rank) {
    if (rank == 2) return;
    Result<JointResult> updated = peer.update_topology(kLong, {});
    ASSERT_TRUE(updated.ok()) << updated.status().message;
    EXPECT_EQ(updated.value().topology->joined.size(), 1u);
    EXPECT_EQ(updated.value().topology->left.size(), 1u);
  });
  joining.join();
  world.add(std::move(third));
  world.owner(2).reset();
  world.each([&](Peer& peer, uint32_t) {
    EXPECT_EQ(peer.world_size(), 3u);
    EXPECT_FALSE(peer.info().broken);
    std::vector<float> values(1000, 1.0f);
    EXPECT_EQ(all_reduce(peer, values).wait(), Status{});
    EXPECT_EQ(values[999], 3.0f);
  });
}

TEST(Shell, TheMasterIsGone) {
  Options options = World::options(1);
  options.given.peer_timeout = milliseconds(200);
  options.master_timeout = milliseconds(500);
  World world;
  world.add(std::move(world.join(options).value()));
  std::vector<float> values(10, 7.0f);
  EXPECT_EQ(all_reduce(world.peer(0), values).wait(), Status{});
  world.end_master();
  const Status status = all_reduce(world.peer(0), values).wait();
  EXPECT_EQ(status.code, Code::kMasterLost);
  EXPECT_EQ(values, std::vector<float>(10, 7.0f));
  EXPECT_EQ(all_reduce(world.peer(0), values).wait().code, Code::kMasterLost);
  EXPECT_EQ(world.peer(0).update_topology(kLong, {}).status().code, Code::kMasterLost);
}

TEST(Shell, LeavingFailsWhatIsOpen) {
  World world(2);
  std::vector<float> values(100000, 7.0f);
  const Outcome open = all_reduce(world.peer(0), values);
  world.peer(0).leave(kLong);
  EXPECT_TRUE(open.ready());
  EXPECT_EQ(open.wait().code, Code::kInvalidState);
  EXPECT_EQ(values, std::vector<float>(100000, 7.0f));
  EXPECT_EQ(all_reduce(world.peer(0), values).wait().message, "this process has left the run");
  EXPECT_EQ(world.peer(0).update_topology(kLong, {}).status().code, Code::kInvalidState);
  EXPECT_EQ(world.peer(0).info().topology.members.size(), 2u);
  world.peer(0).leave(kLong);
}

size_t thread_count() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

// A process is a member of several groups: one loop serves all, and a peer that leaves
// takes only its own part with it.
TEST(Shell, PeersShareTheirLoop) {
  const World master;
  const auto join = [&](const std::string& run, int32_t rank, const auto& thread) {
    Options options = World::options(2);
    options.run = run;
    options.rank = rank;
    return std::move(Peer::join(master.endpoint(), options, {}, {}, {}, thread).value());
  };
  std::vector<std::unique_ptr<Peer>> peers;  // of two processes, as it were
  const size_t before = thread_count();
  {
    const auto one = std::make_shared<ring::PeerThread>();
    const auto other = std::make_shared<ring::PeerThread>();
    for (const std::string run : {"a", "b", "c"}) {
      auto joins = std::async(std::launch::async, [&] { return join(run, 1, other); });
      peers.push_back(join(run, 0, one));
      peers.push_back(joins.get());
    }
  }
  EXPECT_EQ(thread_count(), before + 2);
  std::vector<std::vector<float>> tensors(peers.size(), std::vector<float>(100, 1));
  const Outcome alone = all_reduce(*peers[0], tensors[0], "alone");
  peers[0]->leave(kLong);
  EXPECT_EQ(alone.wait().code, Code::kInvalidState);
  peers[0].reset();
  peers[1].reset();
  std::vector<Outcome> outcomes;
  for (size_t i = 2; i < peers.size(); ++i) {
    outcomes.push_back(all_reduce(*peers[i], tensors[i]));
  }
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.wait().ok());
  EXPECT_EQ(tensors[5], std::vector<float>(100, 2));
  EXPECT_EQ(thread_count(), before + 2);
  peers.clear();
  EXPECT_EQ(thread_count(), before);
}

TEST(Shell, AChildOfTheProcessIsTurnedAway) {
  World world(1);
  Peer& peer = world.peer(0);
  const std::string expected = "this process group belongs to process " + std::to_string(getpid()) +
                               "; a forked process cannot use it";
  const pid_t child = fork();
  if (child == 0) {
    bool fine = true;
    peer.post(request(OpKind::kBarrier, 0), {},
              [&](const OpResult& result) { fine = result.status.message == expected; });
    fine = fine && peer.update_topology(kLong, {}).status().message == expected;
    fine = fine &&
           peer.sync_shared_state(0, SyncStrategy::kSendOnly, std::vector<StateSpan>{}, kLong, {})
                   .status()
                   .message == expected;
    fine = fine && peer.world_size() == 1;
    fine = fine && peer.info().history.empty() && peer.topology()->members.empty();
    peer.leave(kLong);
    world.owner(0).reset();
    _exit(fine ? 0 : 1);
  }
  int ended = 0;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0) << ended;
  std::vector<float> values(10, 7.0f);
  EXPECT_EQ(all_reduce(peer, values).wait(), Status{});  // the parent's peer is unaffected
}

// ---- Joint calls ----

TEST(Shell, UpdateTopologyWithNothingPending) {
  World world(3);
  world.each([](Peer& peer, uint32_t) {
    std::vector<float> values(1 << 18, 1.0f);
    const Outcome running = all_reduce(peer, values);
    EXPECT_FALSE(peer.are_peers_pending(kLong, {}).value().pending);
    Result<JointResult> updated = peer.update_topology(kLong, {});
    ASSERT_TRUE(updated.ok()) << updated.status().message;
    EXPECT_EQ(updated.value().topology->members.size(), 3u);
    EXPECT_EQ(running.wait(), Status{});
  });
}

TEST(Shell, ANewcomerIsAdmitted) {
  World world(2);
  std::unique_ptr<Peer> newcomer;
  std::thread joining([&] { newcomer = std::move(world.join(World::options(2)).value()); });
  world.each([](Peer& peer, uint32_t rank) {
    if (rank == 2) return;
    while (!peer.are_peers_pending(kLong, {}).value().pending)
      std::this_thread::sleep_for(milliseconds(5));
    Result<JointResult> updated = peer.update_topology(kLong, {});
    ASSERT_TRUE(updated.ok()) << updated.status().message;
    EXPECT_EQ(updated.value().topology->joined.size(), 1u);
    EXPECT_EQ(peer.world_size(), 3u);
    EXPECT_EQ(peer.rank(), rank);
  });
  joining.join();
  world.add(std::move(newcomer));
  EXPECT_EQ(world.peer(2).rank(), 2u);
  world.each([](Peer& peer, uint32_t) {
    std::vector<float> values(1000, 1.0f);
    EXPECT_EQ(all_reduce(peer, values).wait(), Status{});
    EXPECT_EQ(values[0], 3.0f);
  });
}

// Rank 0 leaves while rank 1 waits for rank 2 in an all-reduce.
TEST(Shell, UnderPolicyRetryARankChangesOnceItsOperationsHaveEnded) {
  World world;
  std::vector<std::unique_ptr<Peer>> peers(3);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Options wanted = World::options(2);
      wanted.founders = 3;
      wanted.rank = rank;
      wanted.given.on_peer_loss = protocol::LossPolicy::kRetry;
      peers[static_cast<size_t>(rank)] = std::move(world.join(wanted).value());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<float> ones(1000, 1.0f), twos(1000, 2.0f);
  const Outcome first = all_reduce(*peers[1], ones);
  peers[0].reset();
  const Instant until = monotonic_now() + kLong;
  while (peers[2]->world_size() != 2 && monotonic_now() < until) std::this_thread::yield();
  EXPECT_EQ(peers[2]->rank(), 1u) << "it has no operation in flight";
  EXPECT_EQ(peers[1]->rank(), 1u);
  EXPECT_EQ(peers[1]->world_size(), 3u);
  const Outcome second = all_reduce(*peers[2], twos);
  EXPECT_EQ(first.wait(), Status{});
  EXPECT_EQ(second.wait(), Status{});
  EXPECT_EQ(peers[1]->rank(), 0u);
  EXPECT_EQ(peers[1]->world_size(), 2u);
  EXPECT_EQ(ones, std::vector<float>(1000, 3.0f));
}

TEST(Shell, AJointCallTimesOutForAll) {
  World world(2);
  const Status status = world.peer(0).update_topology(milliseconds(100), {}).status();
  EXPECT_EQ(status.code, Code::kOperationTimeout);
  EXPECT_NE(status.message.find("rank 1"), std::string::npos) << status.message;
}

TEST(Shell, OneJointCallAtATime) {
  World world(2);
  std::atomic<bool> tried{false};
  const auto try_another = [&] {  // called while the first call waits
    const Status status = world.peer(0).are_peers_pending(kLong, {}).status();
    EXPECT_EQ(status.code, Code::kInvalidState);
    EXPECT_NE(
        status.message.find("another joint call of this process, update_topology, is under way"),
        std::string::npos);
    tried = true;
    return false;
  };
  std::thread first([&] { EXPECT_TRUE(world.peer(0).update_topology(kLong, try_another).ok()); });
  while (!tried) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_TRUE(world.peer(1).update_topology(kLong, {}).ok());
  first.join();
}

TEST(Shell, AJointCallCanBeInterrupted) {
  World world(2);
  EXPECT_EQ(world.peer(0).update_topology(kLong, [] { return true; }).status().message,
            "update_topology was interrupted");
  EXPECT_EQ(world.peer(1).update_topology(kLong, {}).status().code, Code::kOperationTimeout);
  world.each([](Peer& peer, uint32_t) { EXPECT_TRUE(peer.update_topology(kLong, {}).ok()); });
}

// ---- Shared state ----

struct State {
  explicit State(float value) : weights(50000, value), steps(1, static_cast<int64_t>(value)) {}
  std::vector<StateSpan> entries() {
    return {{"weights", DType::kFloat32, {500, 100}, bytes_of(weights)},
            {"steps", DType::kInt64, {}, bytes_of(steps)}};
  }
  std::vector<float> weights;
  std::vector<int64_t> steps;
};

TEST(Shell, SharedStateInStepStaysAsItIs) {
  World world(3);
  world.each([](Peer& peer, uint32_t) {
    State state(1);
    Result<JointResult> synced =
        peer.sync_shared_state(0, SyncStrategy::kEnforcePopular, state.entries(), kLong, {});
    ASSERT_TRUE(synced.ok()) << synced.status().message;
    EXPECT_EQ(synced.value().bytes_received + synced.value().bytes_sent, 0u);
    EXPECT_EQ(synced.value().revision, 0u);
    EXPECT_NE(synced.value().state_hash, 0u);
  });
}

TEST(Shell, TheStaleFetchThePopularState) {
  World world(4);
  std::atomic<uint64_t> sent{0}, received{0};
  world.each([&](Peer& peer, uint32_t rank) {
    State state(rank == 1 || rank == 3 ? 5 : static_cast<float>(rank + 10));
    Result<JointResult> synced =
        peer.sync_shared_state(4, SyncStrategy::kEnforcePopular, state.entries(), kLong, {});
    ASSERT_TRUE(synced.ok()) << synced.status().message;
    EXPECT_EQ(state.weights, std::vector<float>(50000, 5.0f));
    EXPECT_EQ(state.steps[0], 5);
    sent += synced.value().bytes_sent;
    received += synced.value().bytes_received;
  });
  EXPECT_EQ(sent, 2u * (200000 + 8));
  EXPECT_EQ(received, sent);
}

TEST(Shell, AStateThatIsSentOnlyIsNeverOverwritten) {
  World world(3);
  world.each([](Peer& peer, uint32_t rank) {
    State state(static_cast<float>(rank));
    const SyncStrategy strategy = rank == 2 ? SyncStrategy::kSendOnly : SyncStrategy::kReceiveOnly;
    Result<JointResult> synced = peer.sync_shared_state(1, strategy, state.entries(), kLong, {});
    ASSERT_TRUE(synced.ok()) << synced.status().message;
    EXPECT_EQ(state.weights[49999], 2.0f);
  });
}

TEST(Shell, StatesOfDifferentShapesAreRefused) {
  World world(2);
  world.each([](Peer& peer, uint32_t rank) {
    State state(1);
    std::vector<StateSpan> entries = state.entries();
    if (rank == 1) entries[0].shape = {50000};
    EXPECT_EQ(
        peer.sync_shared_state(0, SyncStrategy::kEnforcePopular, entries, kLong, {}).status().code,
        Code::kSharedState);
    EXPECT_EQ(state.weights[0], 1.0f);
  });
}

TEST(Shell, AnInterruptedSyncReturnsOnlyWhenNothingIsLent) {
  World world(2);
  State state(1);
  const Status status = world.peer(0)
                            .sync_shared_state(0, SyncStrategy::kEnforcePopular, state.entries(),
                                               kLong, [] { return true; })
                            .status();
  EXPECT_EQ(status.message, "sync_shared_state was interrupted");
}

// ---- Shared state on devices ----

// A state on a device of its own.
struct DeviceState {
  explicit DeviceState(int value, memory::FakeDevice::Move mover = move)
      : device({.seed = 3, .delay_max = 3}, std::move(mover), hash_all),
        weights(std::make_shared<DeviceVector>(
            std::vector<std::byte>(100000, static_cast<std::byte>(value)))) {}
  std::vector<StateSpan> entries() {
    return {{"weights", DType::kUint8, {100, 1000}, {}, &device, weights}};
  }
  bool holds(int value) const {
    return weights->bytes == std::vector<std::byte>(100000, static_cast<std::byte>(value));
  }
  memory::FakeDevice device;
  std::shared_ptr<DeviceVector> weights;
};

TEST(Shell, StatesOnDevicesAndOnTheHostAreOne) {
  World world(3);
  world.each([](Peer& peer, uint32_t rank) {
    DeviceState state(5 + static_cast<int>(rank % 2));
    std::vector<StateSpan> entries = state.entries();
    if (rank == 2) entries[0] = {"weights", DType::kUint8, {100, 1000}, state.weights->bytes};
    const auto synced =
        peer.sync_shared_state(1, SyncStrategy::kEnforcePopular, entries, kLong, {});
    ASSERT_TRUE(synced.ok()) << synced.status().message;
    EXPECT_TRUE(state.holds(5));
    EXPECT_EQ(state.device.copied_in(), rank == 1 ? 1u : 0u);
  });
}

// The copy out takes longer than the call: nothing of it may reach the ring afterwards.
TEST(Shell, ATransferCanEndBeforeItsMemoryIsLent) {
  World world(2);
  std::promise<void> timed_out;
  const auto slow = [&, first = true](const memory::DeviceCopy& copy,
                                      memory::FakeDevice::Direction direction) mutable {
    if (std::exchange(first, false)) {
      EXPECT_EQ(timed_out.get_future().wait_for(kLong), std::future_status::ready);
    }
    move(copy, direction);
  };
  world.each([&](Peer& peer, uint32_t rank) {
    DeviceState state(static_cast<int>(rank), rank == 0 ? memory::FakeDevice::Move(slow) : move);
    const SyncStrategy strategy = rank == 0 ? SyncStrategy::kSendOnly : SyncStrategy::kReceiveOnly;
    const Duration timeout = rank == 0 ? kLong : Duration(std::chrono::milliseconds(300));
    EXPECT_EQ(peer.sync_shared_state(1, strategy, state.entries(), timeout, {}).status().code,
              Code::kOperationTimeout);
    EXPECT_TRUE(state.holds(static_cast<int>(rank)));
    if (rank == 1) timed_out.set_value();
    const auto synced = peer.sync_shared_state(1, strategy, state.entries(), kLong, {});
    ASSERT_TRUE(synced.ok()) << synced.status().message;
    EXPECT_TRUE(state.holds(0));
  });
}

// ---- Info and history ----

TEST(Shell, InfoTellsWhatHappened) {
  World world(2);
  world.each([](Peer& peer, uint32_t rank) {
    std::vector<float> values(1 << 16, 1.0f);
    EXPECT_EQ(all_reduce(peer, values, "grads").wait(), Status{});
    std::vector<float> wrong(rank + 1, 1.0f);
    EXPECT_EQ(all_reduce(peer, wrong).wait().code, Code::kMismatch);
    const Info info = peer.info();
    ASSERT_EQ(info.history.size(), 2u);
    EXPECT_EQ(info.history[0].text,
              "all_reduce(sum, float32, 65536 elements, world size 2) (grads, #0)");
    EXPECT_EQ(info.history[0].outcome, "ok");
    EXPECT_GT(info.history[0].commit_seconds, 0.0);
    EXPECT_GT(info.history[0].seconds, info.history[0].commit_seconds);
    EXPECT_EQ(info.history[1].outcome, "collective mismatch");
    EXPECT_EQ(info.self, info.topology.members[rank].peer);
    EXPECT_EQ(info.run, "test");
    EXPECT_FALSE(info.broken);
    EXPECT_EQ(info.data.links.size(), 1u);
    EXPECT_GT(info.data.engine.bytes_sent, 0u);
  });
}

}  // namespace
}  // namespace pccl::peer
