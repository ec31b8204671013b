// RingCore with eager data, both sent and received: EagerQueue.
#include "tests/cpp/ring/core_test.h"
#include "tests/cpp/ring/parts.h"

namespace pccl::ring {
namespace {

constexpr uint64_t kMebi = 1 << 18;  // elements of four bytes

TEST_F(Core, FarAwayTheFirstStepsLeaveUnasked) {
  begin();
  EXPECT_EQ(step(OpPosted{pairwise(0, 16 * kMebi)}), "credit 0 of 256 to 1; chunk 0 r0b0s0 to 1");
  for (int chunk = 1; chunk < 128; ++chunk) {  // 8 MiB in all
    EXPECT_EQ(step(ChunkSent{{kUp}}), "chunk 0 r0b0s" + std::to_string(chunk) + " to 1");
  }
  EXPECT_EQ(step(ChunkSent{{kUp}}), "");
  EXPECT_EQ(step(OpPosted{pairwise(1, 4 * kMebi)}), "credit 1 of 64 to 1") << "no room is left";
  EXPECT_EQ(credit(kUp, 0, 256), "chunk 0 r0b0s128 to 1");
  EXPECT_EQ(step(OpPosted{pairwise(2, 4 * kMebi)}), "credit 2 of 64 to 1");
  EXPECT_EQ(step(OpEnded{{TagId{}, 0}}),
            "withdraw 1; restore 100; release 100; drained 0; chunk 2 r0b0s0 to 1")
      << "there is room again, and the other is taken at its next credit";
}

TEST_F(Core, APeerThatHasAskedBeforeNeedsNoHeadStart) {
  begin();
  EXPECT_EQ(credit(kUp, 0, 32), "");
  step(OpPosted{pairwise(0, 16 * kMebi)});
  EXPECT_EQ(step(OpPosted{pairwise(1, 16 * kMebi)}), "credit 1 of 256 to 1");
  for (int chunk = 1; chunk < 32; ++chunk) step(ChunkSent{{kUp}});
  EXPECT_EQ(step(ChunkSent{{kUp}}), "chunk 1 r0b0s0 to 1") << "all of the room was there";
}

TEST_F(Core, CreditThatComesAfterTheEndMakesRoomAndIsNotKept) {
  begin();
  for (uint32_t sequence = 0; sequence <= protocol::kOpsOpenMax; ++sequence) {
    const std::string posted = step(OpPosted{pairwise(sequence, 8 * kMebi)});
    ASSERT_TRUE(posted.ends_with("; chunk " + std::to_string(sequence) + " r0b0s0 to 1")) << posted;
    step(OpEnded{{TagId{}, sequence}});
    ASSERT_EQ(credit(kUp, sequence, 128), "");
  }
}

TEST_F(Core, APeerThatHasAskedForSomethingElseNeedsNoHeadStartEither) {
  begin();
  EXPECT_EQ(credit(kUp, 0, 32, kDigest + 1), "");
  EXPECT_EQ(step(OpPosted{pairwise(0, 8 * kMebi)}), "credit 0 of 128 to 1");
}

TEST_F(Core, EarlyDataIsKept) {
  begin();
  step(LaneUp{{kUp, 1}});
  open(kUp, kEpoch, 1);
  EXPECT_EQ(step(ChunkArriving{{kUp, 0}, pairwise_chunk(0, 0)}), "land early 0.0 from 1");
  EXPECT_EQ(step(ChunkArriving{{kUp, 1}, pairwise_chunk(0, 1)}), "land early 0.1 from 1.1");
  EXPECT_EQ(step(ChunkArrived{{kUp, 0}}), "");
  EXPECT_EQ(step(OpPosted{pairwise(0, 4 * kMebi)}),
            "credit 0 of 64 to 1; chunk 0 r0b0s0 to 1; chunk 0 r0b0s1 to 1.1; take 0.0 of 1");
  EXPECT_EQ(step(ChunkArrived{{kUp, 1}}), "take 0.1 of 1");
  for (uint32_t slice = 2; slice < 64; ++slice) {
    EXPECT_EQ(step(ChunkArriving{{kUp}, pairwise_chunk(0, slice)}), "land from 1");
    arrived();
    step(ChunkSent{{kUp, slice % 2}});
  }
  EXPECT_EQ(step(ChunkSent{{kUp, 0}}), "");
  EXPECT_EQ(step(ChunkSent{{kUp, 1}}), "transferred 0");
}

// The first credit gives the sender all of its eager budget back, even while a chunk is stuck.
TEST_F(Core, ArrivingDataOfAPostedOperationTakesNoRoom) {
  begin();
  step(LaneUp{{kUp, 1}});
  open(kUp, kEpoch, 1);
  step(ChunkArriving{{kUp, 1}, pairwise_chunk(0, 0)});
  step(OpPosted{pairwise(0, 8 * kMebi)});
  for (uint32_t slice = 0; slice < 160; ++slice) {
    ASSERT_EQ(step(ChunkArriving{{kUp}, pairwise_chunk(1, slice)}),
              "land early 1." + std::to_string(slice) + " from 1");
    step(ChunkArrived{{kUp}});
  }
  EXPECT_EQ(step(ChunkArrived{{kUp, 1}}), "take 0.0 of 1");
  expect_failed(step(ChunkArriving{{kUp}, pairwise_chunk(1, 160)}), "there is room for");
}

TEST_F(Core, EarlyDataGoesWithItsOperationItsLinkOrItsEpoch) {
  begin();
  const auto two_come = [&] {
    step(ChunkArriving{{kUp}, pairwise_chunk(0, 0)});
    step(ChunkArrived{{kUp}});
    EXPECT_EQ(step(ChunkArriving{{kUp}, pairwise_chunk(0, 1)}), "land early 0.1 from 1");
  };
  two_come();
  EXPECT_EQ(step(OpEnded{{TagId{}, 0}}),
            "revoke 1; drop 0.0 of 1; drop 0.1 of 1; credit 0 of 0 to 1")
      << "the sender has its budget back";
  EXPECT_EQ(step(ChunkArriving{{kUp}, pairwise_chunk(0, 2)}), "discard from 1") << "it has ended";
  core_ = RingCore();
  begin();
  two_come();
  EXPECT_EQ(step(LinkDown{kUp}), "revoke 1; drop 0.0 of 1; drop 0.1 of 1");
  core_ = RingCore();
  begin();
  two_come();
  EXPECT_EQ(step(EpochBegun{Epoch{6}, {kUp, kDown}}),
            "revoke 1; drop 0.0 of 1; drop 0.1 of 1; open 6 to 1; open 6 to 3");
}

TEST_F(Core, EarlyDataOfAnotherCallIsDropped) {
  begin();
  step(ChunkArriving{{kUp}, pairwise_chunk(0, 0)});
  Task other = pairwise(0, 4 * kMebi);
  ++other.digest;
  EXPECT_EQ(step(OpPosted{other}),
            "credit 0 of 64 to 1; chunk 0 r0b0s0 to 1; revoke 1; drop 0.0 of 1");
  EXPECT_EQ(step(ChunkArriving{{kUp}, pairwise_chunk(0, 1)}), "discard from 1");
  Task small = pairwise(1, 10);
  small.shape.pattern = Pattern::kOneShot;
  small.parts = parts_among({kUp, PeerId{2}}, 40, small.digest + 1);
  small.upstream = small.downstream = {};
  step(ChunkArriving{{kUp}, pairwise_chunk(1, 0)});
  EXPECT_EQ(step(OpPosted{small}), "copy 1 to 1; revoke 1; drop 1.0 of 1");
}

TEST_F(Core, EarlyDataFromAnotherPeerIsDropped) {
  begin();
  step(ChunkArriving{{kDown}, pairwise_chunk(0, 0)});
  EXPECT_TRUE(step(OpPosted{pairwise(0, kMebi)}).ends_with("revoke 3; drop 0.0 of 3"));
}

TEST_F(Core, EarlyVoidDataIsEmpty) {
  begin();
  step(ChunkArriving{{kUp}, pairwise_chunk(0, 0)});
  step(ChunkArrived{{kUp}});
  step(ChunkArriving{{kUp}, pairwise_chunk(0, 1)});
  EXPECT_EQ(step(ChunkArrived{{kUp}, false}), "drop 0.1 of 1");
  EXPECT_EQ(step(ChunkArriving{{kUp}, pairwise_chunk(0, 2)}), "discard from 1");
  EXPECT_EQ(step(OpPosted{pairwise(0, 4 * kMebi)}),
            "credit 0 of 64 to 1; chunk 0 r0b0s0 to 1; drop 0.0 of 1");
}

TEST_F(Core, MoreThanAHeadStartCostsTheLink) {
  begin();
  for (uint32_t slice = 0; slice < 160; ++slice) {
    ASSERT_TRUE(step(ChunkArriving{{kUp}, pairwise_chunk(slice % 3, slice)}).starts_with("land"));
    step(ChunkArrived{{kUp}});
  }
  expect_failed(step(ChunkArriving{{kUp}, pairwise_chunk(0, 160)}), "there is room for");
}

TEST_F(Core, EarlyChunksOfTwoDigestsCostTheLink) {
  begin();
  step(ChunkArriving{{kUp}, pairwise_chunk(0, 0)});
  step(ChunkArrived{{kUp}});
  FrameHeader frame = pairwise_chunk(0, 1);
  ++frame.digest;
  expect_failed(step(ChunkArriving{{kUp}, frame}), "two digests");
}

TEST_F(Core, EarlyChunksThatAreNoneOfTheirOperationCostTheLink) {
  begin();
  step(ChunkArriving{{kUp}, pairwise_chunk(0, 0)});
  step(ChunkArrived{{kUp}});
  step(ChunkArriving{{kUp}, pairwise_chunk(0, 0)});
  step(ChunkArrived{{kUp}});
  expect_failed(step(OpPosted{pairwise(0, 4 * kMebi)}), "came twice");
  core_ = RingCore();
  begin();
  step(ChunkArriving{{kUp}, pairwise_chunk(0, 64)});
  step(ChunkArrived{{kUp}});
  expect_failed(step(OpPosted{pairwise(0, 4 * kMebi)}), "is none of it");
}

// The rounds go one after another. A chunk that arrives late may come before the next chunk in
// schedule order, and yet belong to a later step.
TEST_F(Core, NothingLeavesUnaskedBeyondTheFirstSteps) {
  begin();
  constexpr uint64_t kChunkElements = (14 << 10) / 4;
  const auto post_one = [&](uint32_t sequence, uint64_t count) {
    Task one = task(sequence);
    one.shape.world = 4;
    one.shape.wan = true;
    one.shape.count = count;
    step(OpPosted{one});
    return one.shape;
  };
  const Shape large = post_one(0, 16 * kMebi);  // it leaves room for 22 of the other's chunks
  const Shape small = post_one(1, uint64_t{4} * 6 * kChunkElements);
  const Schedule schedule(small);
  constexpr uint64_t kAll = protocol::kEagerBytesLarge;
  ASSERT_EQ(schedule.head(kAll - Schedule(large).head(kAll).cost).steps, 6u);
  std::string last;
  while (last != "chunk 1 r0b1s5 to 3") {
    last = sent();
    ASSERT_NE(last, "");
  }
  const auto receive = [&](uint16_t round, uint32_t block, uint32_t slice) {
    FrameHeader frame = header(FrameType::kChunk, 1);
    frame.round = round;
    frame.block = block;
    frame.slice = slice;
    frame.length = 14 << 10;
    EXPECT_EQ(step(ChunkArriving{{kUp}, frame}), "land from 1");
    EXPECT_EQ(arrived(), "");
    core_.check();
  };
  receive(1, 3, 0);  // may leave in round 2, in step 2
  receive(0, 0, 5);  // may leave in round 1, but only in step 6
  EXPECT_EQ(sent(), "");
  EXPECT_EQ(credit(kDown, 1, 7), "chunk 1 r1b0s5 to 3");
  EXPECT_EQ(sent(), "chunk 1 r2b3s0 to 3");
}

}  // namespace
}  // namespace pccl::ring
