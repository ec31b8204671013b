// One-shot all-reduces. First, many contributions are in flight, in any order, between engines that
// break off at any moment. Then a core alone faces a hostile neighbour.
#include <gtest/gtest.h>

#include "csrc/ring/core.h"
#include "tests/cpp/ring/parts.h"
#include "tests/cpp/ring/world.h"

namespace pccl::ring {
namespace {

constexpr uint64_t kMost = protocol::kOneShotBytesMax / 4;  // elements of four bytes

Call one_shot_call(uint32_t sequence, uint64_t count = kMost) {
  return {
      .key = {TagId{1}, sequence}, .pattern = Pattern::kOneShot, .count = count, .block_bytes = {}};
}

void expect_done(World& world, const Call& call) {
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    ASSERT_EQ(world.at(rank, call.key).transferred, 1) << "rank " << rank;
    world.end(rank, call.key, true);
  }
  for (uint32_t rank = 1; rank < world.size(); ++rank)
    EXPECT_TRUE(world.result(rank, call.key) == world.result(0, call.key));
}

// One rank has called a hundred one-shot all-reduces. The other has called only the last of them
// and waits for it. That one must complete, although far more than the window holds was called
// before it.
TEST(OneShotOfEngines, OneThatAllHaveCalledWaitsForNoOther) {
  World world(2, 1);
  for (uint32_t sequence = 0; sequence < 100; ++sequence) world.post(0, one_shot_call(sequence));
  world.settle();
  world.post(1, one_shot_call(99));
  world.settle();
  EXPECT_EQ(world.at(0, one_shot_call(99).key).transferred, 1);
  EXPECT_EQ(world.at(1, one_shot_call(99).key).transferred, 1);
  // The others follow in reverse order, one at a time, as in a program that waits for each.
  for (uint32_t sequence = 98; sequence > 0; --sequence) {
    world.post(1, one_shot_call(sequence));
    world.settle();
    ASSERT_EQ(world.at(1, one_shot_call(sequence).key).transferred, 1) << sequence;
  }
  world.post(1, one_shot_call(0));
  world.settle();
  for (uint32_t sequence = 0; sequence < 100; ++sequence)
    expect_done(world, one_shot_call(sequence));
  EXPECT_TRUE(world.failures.empty()) << world.failures.front();
}

TEST(OneShotOfEngines, CalledInAnyOrderAllComplete) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    World world(3, seed);
    std::vector<Call> calls;
    for (uint32_t sequence = 0; sequence < 90; ++sequence) {
      calls.push_back(one_shot_call(sequence, world.random() % 3 != 0 ? kMost : 17));
      if (sequence % 9 == 8) calls.back().pattern = Pattern::kAllReduce, calls.back().count = 30000;
    }
    std::vector<std::vector<Call>> orders(3, calls);
    for (auto& order : orders) std::shuffle(order.begin(), order.end(), world.random);
    for (size_t step = 0; step < calls.size(); ++step) {
      for (uint32_t rank = 0; rank < 3; ++rank) world.post(rank, orders[rank][step]);
      for (uint64_t moves = world.random() % 40; moves > 0 && world.move(); --moves) {
      }
    }
    world.settle();
    for (const Call& call : calls) expect_done(world, call);
    EXPECT_TRUE(world.failures.empty()) << world.failures.front();
  }
}

// Each rank has called operations that the other has not, more than either keeps. Operations that
// both have called complete all the same, also after others have ended.
TEST(OneShotOfEngines, AnOperationThatOnlyOneHasCalledDelaysNoOther) {
  World world(2, 7);
  for (uint32_t sequence = 0; sequence < 40; ++sequence) {
    world.post(0, one_shot_call(sequence));
    world.post(1, one_shot_call(100 + sequence));
  }
  world.settle();
  for (uint32_t sequence = 200; sequence < 260; ++sequence) {
    world.post(one_shot_call(sequence));
    world.settle();
    expect_done(world, one_shot_call(sequence));
  }
  EXPECT_TRUE(world.failures.empty()) << world.failures.front();
}

// A contribution lands for an operation that is then called as a ring all-reduce.
TEST(OneShotOfEngines, OneRankMayHaveCalledSomethingElse) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (const uint64_t count : {uint64_t{5}, uint64_t{100000}}) {
      World world(3, seed, 3000);
      world.post(0, one_shot_call(0));
      for (uint64_t moves = world.random() % 60; moves > 0 && world.move(); --moves) {
      }
      Call other = one_shot_call(0, count);
      other.pattern = Pattern::kAllReduce;
      other.digest = 8;
      for (const uint32_t rank : {1u, 2u}) world.post(rank, other);
      world.settle();
      for (const uint32_t rank : {0u, 1u, 2u}) {
        EXPECT_EQ(world.at(rank, other.key).transferred, 0);
        world.end(rank, other.key, false);
      }
      world.settle();
      EXPECT_TRUE(world.failures.empty()) << world.failures.front();
    }
  }
}

// An operation that ends here without a call frees the room of the contributions to it.
TEST(OneShotOfEngines, EndedUncalledTheyLeaveNothing) {
  World world(2, 3);
  for (uint32_t sequence = 0; sequence < 300; ++sequence) {
    world.post(0, one_shot_call(sequence));
    for (uint64_t moves = world.random() % 20; moves > 0 && world.move(); --moves) {
    }
    world.engine(1).end({one_shot_call(sequence).key, Ending::kAborted});
    world.end(0, one_shot_call(sequence).key, false);
  }
  world.settle();
  const Call last = one_shot_call(300);
  world.post(last);
  world.settle();
  expect_done(world, last);
  EXPECT_TRUE(world.failures.empty()) << world.failures.front();
}

TEST(OneShotOfEngines, ANewEpochBeginsWithAnEmptyWindow) {
  World world(2, 4);
  for (uint32_t sequence = 0; sequence < 50; ++sequence) world.post(0, one_shot_call(sequence));
  world.settle();
  for (uint32_t sequence = 0; sequence < 50; ++sequence)
    world.end(0, one_shot_call(sequence).key, false);
  world.begin_epoch(0, Epoch{2});
  for (uint32_t sequence = 0; sequence < 30; ++sequence) world.post(0, one_shot_call(sequence));
  world.settle();
  world.begin_epoch(1, Epoch{2});
  for (uint32_t sequence = 0; sequence < 30; ++sequence) world.post(1, one_shot_call(sequence));
  world.settle();
  for (uint32_t sequence = 0; sequence < 30; ++sequence)
    expect_done(world, one_shot_call(sequence));
  EXPECT_TRUE(world.failures.empty()) << world.failures.front();
}

TEST(OneShotOfEngines, ThoseWhoCallDifferentThingsDoNotMix) {
  World world(2, 5);
  for (const uint32_t first : {0u, 1u}) {
    Call call = one_shot_call(first, 100);
    world.post(first, call);
    world.settle();
    call.digest = 8;
    call.count = 200;
    world.post(1 - first, call);
    world.settle();
    for (const uint32_t rank : {0u, 1u}) {
      EXPECT_EQ(world.at(rank, call.key).transferred, 0);
      world.end(rank, call.key, false);
    }
  }
  EXPECT_TRUE(world.failures.empty()) << world.failures.front();
}

// ---- A hostile neighbour: peer 2, on one lane ----

struct Neighbour {
  Neighbour() {
    step(LaneUp{kLane});
    step(EpochBegun{kEpoch, {PeerId{2}}});
    step(FrameArrived{kLane, frame(protocol::FrameType::kOpen)});
    effects.clear();
  }
  static protocol::FrameHeader frame(protocol::FrameType type) {
    protocol::FrameHeader header;
    header.type = type;
    header.epoch = kEpoch;
    return header;
  }
  static protocol::FrameHeader contribution(uint32_t sequence, uint32_t bytes = 64) {
    protocol::FrameHeader header = frame(protocol::FrameType::kChunk);
    header.round = kOneShotRound;
    header.op = {TagId{1}, sequence};
    header.digest = 7;
    header.block = 1;
    header.length = bytes;
    return header;
  }
  void post(uint32_t sequence, Pattern pattern = Pattern::kOneShot) {
    Task task{.epoch = kEpoch, .op = {TagId{1}, sequence}, .digest = 7, .shape = {}};
    task.shape = {
        .pattern = pattern, .world = 2, .element_bytes = 4, .count = 16, .block_bytes = {}};
    task.parts = parts_among({PeerId{1}, PeerId{2}}, 64, 7);
    step(OpPosted{task});
  }
  void step(const Event& event) { core.step(event, effects); }
  std::string refusal(const protocol::FrameHeader& header) {
    effects.clear();
    step(ChunkArriving{kLane, header});
    for (const Effect& effect : effects) {
      if (const auto* fail = std::get_if<FailLink>(&effect)) return fail->why;
    }
    return {};
  }
  static constexpr Epoch kEpoch{3};
  static constexpr LaneId kLane{{2}, 0};
  RingCore core;
  Effects effects;
};
struct HostileCopies : testing::Test, Neighbour {};

TEST_F(HostileCopies, HaveASizeAndSayWhetherTheyWereAskedFor) {
  for (const uint32_t bytes : {0u, protocol::kOneShotBytesMax + 1}) {
    SCOPED_TRACE(bytes);
    Neighbour other;
    EXPECT_TRUE(other.refusal(contribution(0, bytes)).ends_with("is none"));
  }
  protocol::FrameHeader odd = contribution(0);
  odd.value = 4;
  EXPECT_TRUE(refusal(odd).ends_with("is none"));
}

TEST_F(HostileCopies, AnAbsentMembersCopyIsForReductions) {
  protocol::FrameHeader absent = contribution(0);
  absent.value = kAbsent;
  post(0);
  EXPECT_EQ(refusal(absent), "");
  for (const bool early : {true, false}) {
    Neighbour other;
    if (early) {
      EXPECT_EQ(other.refusal(absent), "");
      other.step(ChunkArrived{kLane, true});
      other.effects.clear();
    }
    other.post(0, Pattern::kOneShotExchange);
    if (!early) {
      EXPECT_TRUE(other.refusal(absent).ends_with("tells of absent ranks"));
    }
    EXPECT_TRUE(std::any_of(other.effects.begin(), other.effects.end(), [](const Effect& effect) {
      return std::holds_alternative<FailLink>(effect);
    }));
  }
}

TEST_F(HostileCopies, ACopyOfAnEpochThatIsNotOpenYet) {
  protocol::FrameHeader unexpected = contribution(0);
  unexpected.epoch = Epoch{9};
  EXPECT_NE(refusal(unexpected).find("before both sides had opened it"), std::string::npos);
}

TEST_F(HostileCopies, NobodyHasAskedFor) {
  protocol::FrameHeader requested = contribution(0);
  requested.value = 1;
  EXPECT_NE(refusal(requested).find("nobody has asked"), std::string::npos);
}

TEST_F(HostileCopies, ComeOnce) {
  EXPECT_EQ(refusal(contribution(0)), "");
  step(ChunkArrived{kLane, true});
  EXPECT_TRUE(refusal(contribution(0)).ends_with("came twice"));
}

TEST_F(HostileCopies, ComeOnceOfWhatIsInFlight) {
  post(0);
  EXPECT_EQ(refusal(contribution(0)), "");
  step(ChunkArrived{kLane, true});
  EXPECT_TRUE(refusal(contribution(0)).ends_with("came twice"));
}

TEST_F(HostileCopies, AreOfTheirOwnPlaceAndSize) {
  post(0);
  protocol::FrameHeader elsewhere = contribution(0);
  elsewhere.block = 0;
  EXPECT_TRUE(refusal(elsewhere).ends_with("is none of it"));
  Neighbour other;
  other.post(0);
  EXPECT_TRUE(other.refusal(contribution(0, 60)).ends_with("is none of it"));
}

TEST_F(HostileCopies, AreOfTheirOwnSizeWhenTheyCameTooEarly) {
  EXPECT_EQ(refusal(contribution(0, 60)), "");
  step(ChunkArrived{kLane, true});
  effects.clear();
  post(0);
  EXPECT_TRUE(std::any_of(effects.begin(), effects.end(), [](const Effect& effect) {
    return std::holds_alternative<FailLink>(effect);
  }));
}

TEST_F(HostileCopies, DoNotExceedTheWindow) {
  constexpr uint32_t kBytes = protocol::kOneShotBytesMax;
  uint32_t sequence = 0;
  for (uint64_t sum = 0; sum + kBytes <= Window::kUnrequestedBytes; sum += kBytes) {
    ASSERT_EQ(refusal(contribution(sequence++, kBytes)), "");
    step(ChunkArrived{kLane, true});
  }
  EXPECT_NE(refusal(contribution(sequence, kBytes)).find("no room"), std::string::npos);
}

TEST_F(HostileCopies, HaveNotTakenMoreThanWasSent) {
  post(0);
  effects.clear();
  protocol::FrameHeader window = frame(protocol::FrameType::kWindow);
  window.value = 4097;
  step(FrameArrived{kLane, window});
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<FailLink>(effects[0]));
}

TEST_F(HostileCopies, AreNeverVoid) {
  post(0);
  EXPECT_EQ(refusal(contribution(0)), "");
  effects.clear();
  step(ChunkArrived{kLane, false});
  EXPECT_TRUE(std::holds_alternative<FailLink>(effects.at(0)));
}

TEST_F(HostileCopies, AreAskedForOnlyByThoseWhoTakePart) {
  post(0);
  step(LaneUp{{{5}, 0}});
  protocol::FrameHeader open = frame(protocol::FrameType::kOpen);
  step(FrameArrived{{{5}, 0}, open});
  protocol::FrameHeader request = frame(protocol::FrameType::kCredit);
  request.op = {TagId{1}, 0};
  request.digest = 7;
  request.value = 1;
  request.round = kOneShotRound;
  effects.clear();
  step(FrameArrived{{{5}, 0}, request});
  ASSERT_FALSE(effects.empty());
  EXPECT_TRUE(std::holds_alternative<FailLink>(effects[0]));
}

}  // namespace
}  // namespace pccl::ring
