// One-shot operations. First, many contributions are in flight, in any order, between engines that
// break off at any moment. Then a core alone, and its neighbours, which may be hostile.
#include <gtest/gtest.h>

#include "csrc/ring/core.h"
#include "tests/cpp/ring/core_test.h"
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

// One rank has called many one-shot all-reduces. The other has called only the last of them
// and waits for it. That one must complete, although far more than the budget of eager data was
// called before it.
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
  for (uint64_t seed = 0; seed < runs(40); ++seed) {
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

TEST(OneShotOfEngines, ANewEpochBeginsWithAFullBudget) {
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

// ---- One core: rank 1 of three ----

class OneShotCore : public Core {
 protected:
  static Task one_shot(uint32_t sequence, uint64_t bytes = 40,
                       Pattern pattern = Pattern::kOneShot) {
    Task task = Core::task(sequence);
    task.shape.pattern = pattern;
    task.shape.count = bytes / 4;
    task.parts = parts_among({kUp, PeerId{2}, kDown}, bytes, kDigest);
    task.upstream = task.downstream = {};
    return task;
  }
  static FrameHeader contribution(uint32_t sequence, uint32_t bytes = 40) {
    FrameHeader frame = header(FrameType::kChunk, sequence);
    frame.block = 1;
    frame.length = bytes;
    return frame;
  }
  // From upstream.
  std::string comes(const FrameHeader& frame) { return step(ChunkArriving{{kUp}, frame}); }
  // Posts operations until neither the budget nor a lane has room for the copy of another
  // contribution. Returns their number.
  uint32_t use_up_the_budget() {
    const uint64_t bytes = protocol::kOneShotBytesMax;
    const auto most = static_cast<uint32_t>(protocol::kEagerBytes / bytes);
    for (uint32_t sequence = 0; sequence < most; ++sequence) {
      const std::string number = std::to_string(sequence);
      EXPECT_EQ(step(OpPosted{one_shot(sequence, bytes)}),
                "copy " + number + " to 3; copy " + number + " to 1");
    }
    return most;
  }
};

TEST_F(OneShotCore, OneFrameGoesToEachOtherMember) {
  begin();
  EXPECT_EQ(step(OpPosted{one_shot(0)}), "copy 0 to 3; copy 0 to 1");
  EXPECT_EQ(comes(contribution(0)), "land from 1");
  EXPECT_EQ(arrived(), "");
  EXPECT_EQ(step(ChunkArriving{{kDown}, contribution(0)}), "land from 3");
  EXPECT_EQ(step(ChunkArrived{{kDown}}), "combine 100; transferred 0");
}

TEST_F(OneShotCore, AMemberWithoutAContributionSendsCredit) {
  begin();
  Task gather = one_shot(0, 40, Pattern::kOneShotExchange);
  for (Part& part : gather.parts) part.to = 0;
  EXPECT_EQ(step(OpPosted{gather}), "credit 0 of 1 to 3; credit 0 of 1 to 1");
  Task scatter = one_shot(1, 40, Pattern::kOneShotExchange);
  for (Part& part : scatter.parts) part.from = 0;
  EXPECT_EQ(step(OpPosted{scatter}), "copy 1 to 3; copy 1 to 1; transferred 1");
}

TEST_F(OneShotCore, AContributionWithoutRoomWaitsForASignOfThePost) {
  begin();
  const uint32_t first = use_up_the_budget();
  EXPECT_EQ(step(OpPosted{one_shot(first)}), "credit " + std::to_string(first) +
                                                 " of 1 to 3; credit " + std::to_string(first) +
                                                 " of 1 to 1");
  const std::string leaves = "chunk " + std::to_string(first);
  EXPECT_EQ(credit(kDown, first, 1), leaves + " r0b2s0 to 3");
  EXPECT_EQ(comes(contribution(first)), "land from 1; " + leaves + " r0b0s0 to 1");
}

TEST_F(OneShotCore, AnEarlyContributionCostsNoFrameAtTheEnd) {
  begin();
  comes(contribution(0));
  arrived();
  EXPECT_EQ(step(OpPosted{one_shot(0)}), "copy 0 to 3; copy 0 to 1; take 0.0 of 1");
  EXPECT_EQ(step(OpEnded{{TagId{}, 0}}), "restore 100; release 100; drained 0");
}

TEST_F(OneShotCore, AContributionThatIsHereNeedsNoRoomForTheOther) {
  begin();
  const uint32_t first = use_up_the_budget();
  comes(contribution(first));
  arrived();
  EXPECT_EQ(step(OpPosted{one_shot(first)}),
            "credit " + std::to_string(first) + " of 1 to 3; chunk " + std::to_string(first) +
                " r0b0s0 to 1; take " + std::to_string(first) + ".0 of 1");
}

TEST_F(OneShotCore, AContributionOrCreditGivesTheBudgetBack) {
  begin();
  const uint32_t first = use_up_the_budget();
  comes(contribution(0, protocol::kOneShotBytesMax));
  credit(kDown, 1, 0);  // it has ended there
  EXPECT_EQ(step(OpPosted{one_shot(first, protocol::kOneShotBytesMax)}),
            "chunk " + std::to_string(first) + " r0b2s0 to 3; chunk " + std::to_string(first) +
                " r0b0s0 to 1");
}

TEST_F(OneShotCore, ContributionsGoBeforeOtherChunks) {
  begin_on_two_lanes();
  credit(kDown, 0, 4);
  EXPECT_EQ(step(OpPosted{one_shot(1)}).find("copy 1 to 3"), 0u) << "though all lanes are busy";
}

// Credit of all is here before their calls, so the budget for eager data does not limit them.
TEST_F(OneShotCore, MoreThanALaneMayKeepLeavesAsOtherChunksDo) {
  begin();
  const uint32_t bytes = protocol::kOneShotBytesMax, most = protocol::kEagerBytes / bytes;
  const auto post = [&](uint32_t sequence) {
    credit(kUp, sequence, 1);
    credit(kDown, sequence, 1);
    return step(OpPosted{one_shot(sequence, bytes)});
  };
  const auto both = [](uint32_t sequence) {
    const std::string copy = "copy " + std::to_string(sequence);
    return copy + " to 3; " + copy + " to 1";
  };
  for (uint32_t sequence = 0; sequence < most; ++sequence)
    ASSERT_EQ(post(sequence), both(sequence));
  const std::string next = "chunk " + std::to_string(most);
  EXPECT_EQ(post(most), next + " r0b2s0 to 3; " + next + " r0b0s0 to 1");
  EXPECT_EQ(post(most + 1), "") << "one chunk at a time";
  EXPECT_EQ(sent(), "copy " + std::to_string(most + 1) + " to 3") << "the lane has room again";
}

TEST_F(OneShotCore, ALostLinkTakesTheContributionsOnIt) {
  begin();
  step(OpPosted{one_shot(0)});
  comes(contribution(0));
  EXPECT_EQ(step(LinkDown{kUp}), "revoke 1");
  comes(contribution(1));
  EXPECT_EQ(step(OpEnded{{TagId{}, 0}}), "restore 100; release 100; drained 0");
}

TEST_F(OneShotCore, ContributionsOfAbsentMembersAreForReductions) {
  begin();
  FrameHeader absent = contribution(0);
  absent.value = protocol::AbsentRanks::of(0, 3).bits;
  step(OpPosted{one_shot(0)});
  EXPECT_EQ(comes(absent), "land from 1");
  for (const bool early : {true, false}) {
    core_ = RingCore();
    begin();
    std::string said;
    if (early) {
      comes(absent);
      arrived();
    }
    said = step(OpPosted{one_shot(0, 40, Pattern::kOneShotExchange)});
    if (!early) said = comes(absent);
    expect_failed(said, "tells of absent ranks");
  }
}

// ---- A hostile neighbour ----

TEST_F(OneShotCore, AContributionComesOnce) {
  begin();
  step(OpPosted{one_shot(0)});
  EXPECT_EQ(comes(contribution(0)), "land from 1");
  arrived();
  expect_failed(comes(contribution(0)), "came twice");
}

TEST_F(OneShotCore, AContributionHasItsOwnPlaceAndSize) {
  FrameHeader elsewhere = contribution(0);
  elsewhere.block = 0;
  const std::pair<FrameHeader, std::string> wrong[] = {{elsewhere, "is none of it"},
                                                       {contribution(0, 36), "has 40 bytes"}};
  for (const auto& [frame, why] : wrong) {
    for (const bool early : {true, false}) {
      core_ = RingCore();
      begin();
      std::string said;
      if (early) {
        comes(frame);
        arrived();
      }
      said = step(OpPosted{one_shot(0)});
      if (!early) said = comes(frame);
      expect_failed(said, why);
    }
  }
}

TEST_F(OneShotCore, EarlyContributionsKeepTheirBudget) {
  begin();
  uint32_t sequence = 0;
  for (uint64_t sum = 0; sum < protocol::kEagerBytes; sum += protocol::kOneShotBytesMax) {
    ASSERT_TRUE(comes(contribution(sequence++, protocol::kOneShotBytesMax)).starts_with("land"));
    arrived();
  }
  expect_failed(comes(contribution(sequence)), "there is room for");
}

TEST_F(OneShotCore, AVoidContributionMeansNothing) {
  begin();
  step(OpPosted{one_shot(0)});
  comes(contribution(0));
  EXPECT_EQ(arrived(false), "");
  EXPECT_EQ(comes(contribution(0)), "discard from 1");
}

TEST_F(OneShotCore, OnlyAMemberHasCreditForIt) {
  for (const PeerId peer : {kUp, kDown, kStranger}) step(LaneUp{{peer}});
  step(EpochBegun{kEpoch, {kUp, kDown, kStranger}});
  open(kStranger);
  step(OpPosted{one_shot(0)});
  expect_failed(credit(kStranger, 0, 1), "not downstream of it");
}

}  // namespace
}  // namespace pccl::ring
