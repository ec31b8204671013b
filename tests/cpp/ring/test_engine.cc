#include "csrc/ring/engine.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "csrc/memory/kernels.h"
#include "tests/cpp/ring/expected.h"
#include "tests/cpp/ring/handlers.h"
#include "tests/cpp/ring/world.h"

namespace pccl::ring {
namespace {

OpKey key(uint64_t tag, uint32_t sequence = 0) { return {TagId{tag}, sequence}; }

// ---- Every pattern, every world size ----

class Worlds : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Engine, Worlds, ::testing::Range(1u, 9u));

TEST_P(Worlds, AllReduceOfEveryKindAndSize) {
  uint64_t seed = GetParam();
  struct Kind {
    DType dtype;
    ReduceOp reduce;
  };
  for (const auto [dtype, reduce] :
       {Kind{DType::kFloat32, ReduceOp::kSum}, Kind{DType::kFloat32, ReduceOp::kAvg},
        Kind{DType::kBfloat16, ReduceOp::kSum}, Kind{DType::kBfloat16, ReduceOp::kAvg},
        Kind{DType::kInt64, ReduceOp::kSum}, Kind{DType::kInt64, ReduceOp::kMax},
        Kind{DType::kInt64, ReduceOp::kAvg}}) {
    const uint64_t large = dtype == DType::kFloat32 ? 200003 : 30011;
    for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{7}, uint64_t{1001}, large}) {
      for (const Pattern pattern :
           {Pattern::kAllReduce, Pattern::kDirect, Pattern::kOneShot, Pattern::kPairwise}) {
        if (pattern == Pattern::kOneShot && count == large) continue;
        if (pattern == Pattern::kPairwise && GetParam() != 2) continue;
        World world(GetParam(), ++seed);
        const Call call{.key = key(1),
                        .pattern = pattern,
                        .dtype = dtype,
                        .reduce = reduce,
                        .count = count,
                        .block_bytes = {}};
        world.post(call);
        world.settle();
        commit(world, call);
        expect_quiet(world);
      }
    }
  }
}

TEST_P(Worlds, AllGatherBroadcastAndTransfer) {
  for (const uint64_t count : {0, 1, 1001, 300007}) {
    World world(GetParam(), count + 1);
    std::vector<Call> calls = {
        {.key = key(1), .pattern = Pattern::kAllGather, .count = count, .block_bytes = {}},
        {.key = key(2),
         .pattern = Pattern::kBroadcast,
         .count = count,
         .root = GetParam() - 1,
         .block_bytes = {}},
        {.key = key(3),
         .pattern = Pattern::kBroadcast,
         .dtype = DType::kBytes,
         .count = count,
         .block_bytes = {}}};
    if (GetParam() > 1) {
      calls.push_back({.key = key(4),
                       .pattern = Pattern::kTransfer,
                       .dtype = DType::kBytes,
                       .root = GetParam() - 1,
                       .block_bytes = {0, 3 * count, 0, 17, count}});
    }
    for (const Call& call : calls) world.post(call);
    world.settle();
    for (const Call& call : calls) commit(world, call);
    expect_quiet(world);
  }
}

// Inexact sums: all members hold the same bits, in whatever order the bytes arrived.
TEST_P(Worlds, AllMembersHoldTheSameBitsOfInexactSums) {
  for (const Pattern pattern :
       {Pattern::kAllReduce, Pattern::kDirect, Pattern::kOneShot, Pattern::kPairwise}) {
    if (pattern == Pattern::kPairwise && GetParam() != 2) continue;
    for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
      Bytes first;
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        World world(GetParam(), seed, 1 + 3000 * seed);
        const Call call{.key = key(1),
                        .pattern = pattern,
                        .dtype = dtype,
                        .count = pattern == Pattern::kOneShot ? 16002u : 50002u,
                        .block_bytes = {},
                        .scale = 1 / 7e6f};
        world.random.seed(5);  // the same values
        world.post(call);
        world.random.seed(seed);  // in another order of arrival
        world.settle();
        for (uint32_t rank = 0; rank < world.size(); ++rank) {
          world.end(rank, call.key, true);
          const Bytes& result = world.result(rank, call.key)[0];
          if (first.empty()) first = result;
          EXPECT_TRUE(result == first) << "rank " << rank << ", seed " << seed;
          const bool in_rank_order = pattern != Pattern::kAllReduce && world.size() > 1;
          EXPECT_TRUE(!in_rank_order || result == reduced(world, call));
        }
      }
    }
  }
}

// ---- Failures leave nothing behind ----

// Calls with many chunks of every kind, small enough to interrupt at every moment.
std::vector<Call> calls_to_break(const World& world) {
  std::vector<Call> calls = {
      {.key = key(1), .count = 60011, .block_bytes = {}},
      {.key = key(2),
       .dtype = DType::kBfloat16,
       .reduce = ReduceOp::kAvg,
       .count = 3001,
       .block_bytes = {}},
      {.key = key(3), .pattern = Pattern::kAllGather, .count = 17003, .block_bytes = {}},
      {.key = key(5), .pattern = Pattern::kOneShot, .count = 9001, .block_bytes = {}},
      {.key = key(4),
       .pattern = Pattern::kBroadcast,
       .count = 17003,
       .root = 1,
       .block_bytes = {}}};
  calls.push_back({.key = key(7), .pattern = Pattern::kDirect, .count = 60011, .block_bytes = {}});
  calls.back().shares = std::vector<uint16_t>(world.size());  // the first rank owns nothing
  calls.back().shares.back() = 200;
  calls.back().shares[world.size() / 2] += 56;
  calls.push_back({.key = key(8),
                   .pattern = Pattern::kDirect,
                   .count = 60011,
                   .block_bytes = {},
                   .format = {8, 32, 8}});
  if (world.size() == 2) {
    calls.push_back(
        {.key = key(6), .pattern = Pattern::kPairwise, .count = 40011, .block_bytes = {}});
    calls.push_back({.key = key(9),
                     .pattern = Pattern::kPairwise,
                     .count = 60011,
                     .block_bytes = {},
                     .format = {4, 64, 8}});
  }
  return calls;
}

// Posts the calls above and makes `moves` moves. Returns false if all was done before that.
bool start(World& world, int moves) {
  world.wan = moves % 2 != 0;
  for (const Call& call : calls_to_break(world)) world.post(call);
  for (int move = 0; move < moves; ++move) {
    if (!world.move()) return false;
  }
  return true;
}

// Tests every moment of the small worlds, and every third of the larger one, which has many similar
// moments.
int stride(uint32_t world) { return static_cast<int>(kRunsDivisor) * (world <= 3 ? 1 : 3); }

class Moments : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Engine, Moments, ::testing::Values(2u, 3u, 4u));

// World checks its promises whenever an operation is drained, and at its own end.
TEST_P(Moments, AbortedAtAnyMomentTheTensorIsAsItWas) {
  for (int moves = 0;; moves += stride(GetParam())) {
    World world(GetParam(), 77, 60000);
    const bool more = start(world, moves);
    const uint32_t first = static_cast<uint32_t>(world.random() % world.size());
    for (uint32_t turn = 0; turn < world.size(); ++turn) {
      for (const Call& call : calls_to_break(world))
        world.end((first + turn) % world.size(), call.key, false);
      for (int more_moves = 0; more_moves < 20 && world.move(); ++more_moves) {
      }
    }
    world.settle();
    expect_quiet(world);
    if (!more || HasFailure()) break;
  }
}

TEST_P(Moments, ALinkLostAtAnyMomentLeavesNoTrace) {
  for (int moves = 0;; moves += stride(GetParam())) {
    World world(GetParam(), 99, 60000);
    const bool more = start(world, moves);
    const uint32_t one = static_cast<uint32_t>(world.random() % world.size());
    const uint32_t two = (one + 1) % world.size();
    const bool at_once = world.random() % 2 != 0;
    world.cut(one, two, at_once);
    for (int more_moves = 0; more_moves < 20 && world.move(); ++more_moves) {
    }
    if (!at_once) world.lose(two, one);
    world.settle();
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      for (const Call& call : calls_to_break(world)) world.end(rank, call.key, false);
    }
    expect_quiet(world);
    if (!more || HasFailure()) break;
  }
}

TEST(Engine, OneIsAbortedWhileTheOthersGoOnOnTheSameLinks) {
  for (uint64_t seed = 0; seed < runs(60); ++seed) {
    World world(3, seed, 20000);
    std::vector<Call> calls;
    for (uint32_t n = 0; n < 4; ++n)
      calls.push_back({.key = key(n), .count = 50000 + n, .block_bytes = {}});
    for (const Call& call : calls) world.post(call);
    for (uint64_t moves = world.random() % 150; moves > 0 && world.move(); --moves) {
    }
    for (uint32_t rank = 0; rank < 3; ++rank) {
      world.end(rank, calls[1].key, false);
      for (uint64_t moves = world.random() % 30; moves > 0 && world.move(); --moves) {
      }
    }
    world.settle();
    for (uint32_t n : {0u, 2u, 3u}) commit(world, calls[n]);
    expect_quiet(world);
  }
}

// ---- Unexpected endings ----

TEST(Engine, AnOperationThatEndsBeforeItIsCalledHere) {
  World world(3, 5);
  const Call call{.key = key(1), .count = 1000, .block_bytes = {}};
  world.post(0, call);
  world.post(1, call);
  world.settle();
  for (uint32_t rank = 0; rank < 3; ++rank) world.end(rank, call.key, false);
  world.settle();
  expect_quiet(world);
}

TEST(Engine, FramesOfAnEndedEpochAreVoid) {
  for (uint64_t seed = 0; seed < runs(40); ++seed) {
    World world(3, seed, 20000);
    const Call call{.key = key(1), .count = 60000, .block_bytes = {}};
    world.post(call);
    for (uint64_t moves = world.random() % 200; moves > 0 && world.move(); --moves) {
    }
    // One rank after another, while bytes are in flight.
    for (uint32_t rank = 0; rank < 3; ++rank) {
      world.end(rank, call.key, false);
      world.begin_epoch(rank, Epoch{2});
      world.post(rank, call);
      for (uint64_t moves = world.random() % 60; moves > 0 && world.move(); --moves) {
      }
    }
    world.settle();
    commit(world, call);
    expect_quiet(world);
  }
}

// The call is cut short twice at random and each time keeps what all ranks have finished. Then it
// ends for good, committed or aborted, whether or not it was posted again.
TEST(Engine, FinishedOperationsAreKeptAndTheRestReducedAgain) {
  uint64_t kept = 0, kept_late = 0;
  for (uint64_t seed = 0; seed < 45; ++seed) {
    constexpr Pattern kPatterns[] = {Pattern::kAllReduce, Pattern::kPairwise, Pattern::kDirect,
                                     Pattern::kPairwise, Pattern::kDirect};
    const Pattern pattern = kPatterns[seed / 3 % 5];
    World world(pattern == Pattern::kPairwise ? 2 : 3, seed, 60000);
    Call call{.key = key(1), .pattern = pattern, .count = 300000, .block_bytes = {}, .keep = true};
    if (seed / 3 % 5 >= 3) {  // whole blocks are kept: the bits are those of the whole tensor
      call.format = {8, 128, 8};
      call.count = 1'500'000;
    }
    world.post(call);
    const bool commits = seed % 3 == 0, idle = seed % 3 == 1;
    for (uint64_t epoch = 2; epoch < 4; ++epoch) {
      for (uint64_t moves = world.random() % 500; moves > 0 && world.move(); --moves) {
      }
      uint64_t finished = call.count;
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        finished = std::min(finished, world.at(rank, call.key).finished);
      }
      (epoch == 2 ? kept : kept_late) += finished;
      for (uint32_t rank = 0; rank < world.size(); ++rank) world.again(rank, call.key, finished);
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        world.renew(rank, Epoch{epoch});
        if (!idle || epoch < 3) world.post_again(rank, call.key);
      }
    }
    if (commits) {
      world.settle();
      for (uint32_t rank = 0; rank < world.size(); ++rank) world.at(rank, call.key).transferred = 1;
      commit(world, call);
    } else {
      for (uint64_t moves = world.random() % 300; moves > 0 && world.move(); --moves) {
      }
      for (uint32_t rank = 0; rank < world.size(); ++rank) {
        const bool nothing = idle && world.at(rank, call.key).kept == 0;
        world.end(rank, call.key, false);
        EXPECT_EQ(world.at(rank, call.key).drained, nothing ? 0 : 1);
      }
    }
    expect_quiet(world);
  }
  EXPECT_GT(kept, 0u);
  EXPECT_GT(kept_late, 0u);
}

// Arriving data overwrites data that has not been sent yet or is being sent. The data sent must be
// the data from before. Without saving, only as much is kept as the other rank may be ahead.
TEST(Engine, BothWaysSendTheOriginalData) {
  for (const bool save : {true, false}) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      World world(2, seed, 100000);
      // Steps of 64 KiB; without saving the other rank may be 512 ahead.
      const uint64_t count = 560 * 16384;
      const Call call{.key = key(1),
                      .pattern = Pattern::kPairwise,
                      .count = count,
                      .block_bytes = {},
                      .save = save};
      const auto late = static_cast<uint32_t>(seed % 2);
      world.post(1 - late, call);
      for (int moves = 0; moves < 50 && world.move(); ++moves) {
      }
      Call other = call;
      other.save = save == (seed % 3 != 0);  // each rank chooses for itself
      world.post(late, other);
      world.settle();
      commit(world, call);
      expect_quiet(world);
    }
  }
}

// On wan paths the first steps leave as eager data. Data that arrives before its operation is
// posted is kept until then. Nothing remains of an operation that is never posted.
TEST(Engine, EarlyDataIsAsGoodAsTimelyData) {
  for (uint64_t seed = 0; seed < runs(30); ++seed) {
    World world(2 + static_cast<uint32_t>(seed % 3), seed, 60000);
    world.wan = true;
    const std::vector<Call> calls = calls_to_break(world);
    const auto late = static_cast<uint32_t>(world.random() % world.size());
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      for (const Call& call : calls) {
        if (rank != late) world.post(rank, call);
      }
    }
    world.settle();
    const uint64_t exchanged = (world.size() - 1) * 9001 * 4;
    EXPECT_GT(world.engine(late).counters().bytes_received, exchanged);
    for (const Call& call : calls) {
      const bool never = world.random() % 4 == 0;
      for (uint32_t rank = 0; never && rank < world.size(); ++rank)
        world.end(rank, call.key, false);
      if (never) continue;
      world.post(late, call);
      for (uint64_t moves = world.random() % 40; moves > 0 && world.move(); --moves) {
      }
    }
    world.settle();
    for (const Call& call : calls) {
      if (world.at(late == 0 ? 1 : 0, call.key).drained == 0) commit(world, call);
    }
    expect_quiet(world);
  }
}

// MIN of two zeros with different signs keeps the first. Both ranks must agree on which one that
// is.
TEST(Engine, BothReduceInTheSameOrder) {
  World world(2, 3);
  Call call{.key = key(1),
            .pattern = Pattern::kPairwise,
            .reduce = ReduceOp::kMin,
            .count = 5000,
            .block_bytes = {},
            .scale = 0.0f};
  world.post(0, call);
  call.scale = -0.0f;
  world.post(1, call);
  world.settle();
  commit(world, call);
  EXPECT_TRUE(world.result(0, call.key) == world.result(1, call.key));
  expect_quiet(world);
}

TEST(Engine, MismatchedDigestsMoveNothingAndFailNoLink) {
  World world(2, 6);
  Call call{.key = key(1), .count = 1000, .block_bytes = {}};
  world.post(0, call);
  call.digest = 8;
  call.count = 2000;
  world.post(1, call);
  world.settle();
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(world.at(rank, call.key).transferred, 0);
    world.end(rank, call.key, false);
  }
  expect_quiet(world);
}

// ---- Calls from inside callbacks and ports ----

// A port whose chunks have left before send_chunk() returns.
struct InstantPort : link::Port {
  void send(const net::FrameHeader& header) override { out.push_back({header, {}}); }
  void send_copy(const net::FrameHeader& header, std::span<const std::byte> payload) override {
    out.push_back({header, {payload.begin(), payload.end()}});
  }
  void send_chunk(const net::FrameHeader& header, std::span<const std::byte> payload) override {
    out.push_back({header, {payload.begin(), payload.end()}});
    lane->chunk_sent();
  }
  void withdraw() override { ++withdrawn; }
  void revoke() override {}

  // Gives the oldest frame to the other end. False if there is none.
  bool deliver(net::FrameSink& sink) {
    if (out.empty()) return false;
    const auto [header, payload] = std::move(out.front());
    out.erase(out.begin());
    if (header.type != net::FrameType::kChunk) {
      sink.on_frame(header);
      return true;
    }
    const auto landing = sink.on_chunk(header);
    if (landing.empty()) return true;
    std::copy(payload.begin(), payload.end(), landing.begin());
    sink.on_piece(0, payload.size());
    sink.on_chunk_end(true);
    return true;
  }

  link::LaneSink* lane = nullptr;
  std::vector<std::pair<net::FrameHeader, Bytes>> out;
  int withdrawn = 0;
};

// Two ranks that end each operation inside OpTransferred and post the next inside OpDrained.
TEST(Engine, CallbacksAndPortsMayCallBack) {
  constexpr uint32_t kLast = 20;
  std::unique_ptr<Engine> engines[2];
  std::vector<float> tensors[2];
  const auto post = [&](uint32_t rank, uint32_t sequence) {
    std::fill(tensors[rank].begin(), tensors[rank].end(), 1.0f);
    const PeerId other{2 - rank};
    engines[rank]->post({.epoch = Epoch{1},
                         .op = key(1, sequence),
                         .shape = {.rank = rank,
                                   .world = 2,
                                   .element_bytes = 4,
                                   .count = tensors[rank].size(),
                                   .block_bytes = {}},
                         .upstream = other,
                         .downstream = other},
                        {.spans = {std::as_writable_bytes(std::span(tensors[rank]))}});
  };
  uint32_t done[2] = {0, 0};
  for (uint32_t rank = 0; rank < 2; ++rank) {
    tensors[rank].resize(1000);
    engines[rank] = std::make_unique<Engine>(Engine::Callbacks{
        .on_event = handlers(
            [&, rank](const OpTransferred& event) {
              engines[rank]->end({event.op, Ending::kCommitted});
            },
            [&, rank](const OpDrained& event) {
              EXPECT_EQ(std::count(tensors[rank].begin(), tensors[rank].end(), 2.0f), 1000);
              if (++done[rank] < kLast) post(rank, event.op.sequence + 1);
            },
            [](const OpFailed& event) { FAIL() << event.why.message; }),
        .on_fail_link = [](PeerId, const std::string& why) { FAIL() << why; }});
  }
  InstantPort ports[2];
  for (uint32_t rank = 0; rank < 2; ++rank) {
    engines[rank]->begin_epoch(Epoch{1}, {PeerId{2 - rank}});
    ports[rank].lane = &engines[rank]->lane_up(PeerId{2 - rank}, ports[rank]);
    post(rank, 0);
  }
  while (ports[0].deliver(*ports[1].lane) || ports[1].deliver(*ports[0].lane)) {
  }
  EXPECT_EQ(done[0], kLast);
  EXPECT_EQ(done[1], kLast);
}

TEST(Engine, AFailedLinkMayBeTakenDownAndReplacedInsideTheCallback) {
  for (const bool by_chunk : {false, true}) {
    std::unique_ptr<Engine> engine;
    std::unique_ptr<InstantPort> port, next;
    net::FrameSink* fresh = nullptr;
    int drained = 0;
    engine = std::make_unique<Engine>(Engine::Callbacks{
        .on_event = handlers([](const OpTransferred&) { FAIL(); },
                             [&](const OpDrained&) { ++drained; }, [](const OpFailed&) { FAIL(); }),
        .on_fail_link = [&](PeerId peer, const std::string&) {
          engine->link_down(peer);
          port.reset();
          fresh = &engine->lane_up(peer, *next);
          engine->end({key(1)});
        }});
    port = std::make_unique<InstantPort>();
    next = std::make_unique<InstantPort>();
    engine->begin_epoch(Epoch{1}, {PeerId{2}});
    net::FrameSink& sink = engine->lane_up(PeerId{2}, *port);
    std::vector<std::byte> memory(640);
    engine->post({.epoch = Epoch{1},
                  .op = key(1),
                  .shape = {.world = 2, .count = 640, .block_bytes = {}},
                  .upstream = PeerId{2},
                  .downstream = PeerId{2}},
                 {.spans = {memory}, .dtype = DType::kUint8});
    net::FrameHeader bad;
    bad.epoch = Epoch{9};
    bad.type = by_chunk ? net::FrameType::kChunk : net::FrameType::kCredit;
    bad.length = by_chunk ? 100 : 0;
    if (by_chunk) {
      EXPECT_TRUE(sink.on_chunk(bad).empty());
    } else {
      sink.on_frame(bad);
    }
    EXPECT_EQ(drained, 1);
    ASSERT_EQ(next->out.size(), 1u);
    EXPECT_EQ(next->out[0].first.type, net::FrameType::kOpen);
    net::FrameHeader open;
    open.type = net::FrameType::kOpen;
    open.epoch = Epoch{1};
    fresh->on_frame(open);
    engine->link_down(PeerId{2});
  }
}

TEST(Engine, AnOperationThatFailsInsideACallbackIsDrainedAfterIt) {
  std::vector<std::string> story;
  std::optional<Engine> engine;
  std::byte nothing{};
  const auto post = [&](uint32_t sequence, uint64_t bytes) {
    engine->post({.epoch = Epoch{1},
                  .op = key(sequence),
                  .shape = {.world = 2, .count = bytes, .block_bytes = {}},
                  .upstream = PeerId{2},
                  .downstream = PeerId{2}},
                 {.spans = {{&nothing, bytes}}, .dtype = DType::kUint8});
  };
  engine.emplace(Engine::Callbacks{
      .on_event = handlers([](const OpTransferred&) { FAIL(); },
                           [&](const OpDrained& event) {
                             story.push_back("drained " + std::to_string(event.op.tag.value));
                             if (event.op != key(1)) return;
                             post(2, uint64_t{1} << 60);  // never touched
                             engine->end({key(2)});
                             story.push_back("back");
                           },
                           [&](const OpFailed& event) {
                             story.push_back("failed " + std::to_string(event.op.tag.value));
                           }),
      .on_fail_link = [](PeerId, const std::string&) { FAIL(); }});
  engine->begin_epoch(Epoch{1}, {PeerId{2}});
  post(1, 1);
  engine->end({key(1)});
  EXPECT_EQ(story, (std::vector<std::string>{"drained 1", "failed 2", "back", "drained 2"}));
}

TEST(Engine, WithoutMemoryAnOperationFailsHereAndIsDrainedAllTheSame) {
  int failed = 0;
  int drained = 0;
  Engine engine({.on_event = handlers(
                     [](const OpTransferred&) { FAIL(); }, [&](const OpDrained&) { ++drained; },
                     [&](const OpFailed& event) {
                       ++failed;
                       EXPECT_EQ(event.why.code, Code::kSystem);
                       EXPECT_NE(event.why.message.find("PCCL_RESTORE=off"), std::string::npos)
                           << event.why.message;
                     }),
                 .on_fail_link = [](PeerId, const std::string&) { FAIL(); }});
  engine.begin_epoch(Epoch{1}, {PeerId{2}});
  std::byte nothing{};
  const uint64_t bytes = uint64_t{1} << 60;  // never touched
  engine.post({.epoch = Epoch{1},
               .op = key(1),
               .shape = {.world = 2, .count = bytes, .block_bytes = {}},
               .upstream = PeerId{2},
               .downstream = PeerId{2}},
              {.spans = {{&nothing, bytes}}, .dtype = DType::kUint8});
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(drained, 0);
  engine.end({key(1)});
  EXPECT_EQ(drained, 1);
  engine.end({key(1)});
  EXPECT_EQ(drained, 1);
}

}  // namespace
}  // namespace pccl::ring
