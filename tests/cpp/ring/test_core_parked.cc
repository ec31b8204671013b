// Parked operations of RingCore: posted, and waiting for their data.

#include "csrc/ring/core.h"
#include "tests/cpp/ring/core_test.h"
#include "tests/cpp/ring/parts.h"

namespace pccl::ring {
namespace {

class Parked : public Core {
 protected:
  static Task parked(uint32_t sequence) {
    Task parked = task(sequence);
    parked.parked = true;
    return parked;
  }
  std::string staged(uint32_t sequence) { return step(OpStaged{{TagId{}, sequence}}); }
};

TEST_F(Parked, NothingMovesBeforeTheDataIsStaged) {
  begin();
  EXPECT_EQ(step(OpPosted{parked(0)}), "");
  EXPECT_EQ(core_.operations_open(), 1u);
  EXPECT_EQ(core_.posted({TagId{}, 0}), kEpoch);
  EXPECT_EQ(credit(kDown, 0, 4), "") << "kept, as before a call";
  EXPECT_EQ(step(OpDone{{TagId{}, 0}}), "");
  EXPECT_EQ(staged(0), "unpark 100; credit 0 of 4 to 1; chunk 0 r0b1s0 to 3");
  EXPECT_EQ(core_.operations_open(), 1u);
  EXPECT_EQ(staged(0), "") << "it is no longer parked";
  EXPECT_EQ(arriving(0, 0), "land from 1");
}

TEST_F(Parked, AnotherOperationIsNotHeldUp) {
  begin();
  step(OpPosted{parked(0)});
  EXPECT_EQ(post(1), "credit 1 of 4 to 1");
  EXPECT_EQ(credit(kDown, 1, 4), "chunk 1 r0b1s0 to 3");
}

TEST_F(Parked, EndsLikeAnyOther) {
  begin();
  step(OpPosted{parked(0)});
  credit(kDown, 0, 4);
  EXPECT_EQ(step(OpEnded{{TagId{}, 0}, Ending::kAborted}), "release 100; drained 0");
  EXPECT_EQ(core_.operations_open(), 0u);
  EXPECT_EQ(core_.posted({TagId{}, 0}), std::nullopt);
  EXPECT_EQ(staged(0), "") << "its data comes too late";
  EXPECT_EQ(credit(kDown, 0, 4), "") << "it has ended here";
  EXPECT_EQ(arriving(0, 0), "discard from 1");
}

TEST_F(Parked, StartsAgainWithItsData) {
  begin();
  step(OpPosted{parked(0)});
  EXPECT_EQ(step(OpEnded{{TagId{}, 0}, Ending::kRestart}), "release 100; drained 0");
  step(EpochBegun{Epoch{6}, {kUp, kDown}});
  open(kUp, Epoch{6});
  open(kDown, Epoch{6});
  Task again = task(0);
  again.epoch = Epoch{6};
  EXPECT_EQ(step(OpPosted{again}), "credit 0 of 4 to 1");
  EXPECT_EQ(staged(0), "") << "nothing is parked";
}

TEST_F(Parked, TheEndOfAnEpochDrainsIt) {
  begin();
  step(OpPosted{parked(0)});
  EXPECT_EQ(step(EpochBegun{Epoch{6}, {kUp, kDown}}),
            "release 100; drained 0; open 6 to 1; open 6 to 3");
}

TEST_F(Parked, AnEagerChunkWaitsForTheData) {
  begin();
  Task pair = pairwise(0, 1 << 20);
  pair.parked = true;
  EXPECT_EQ(step(OpPosted{pair}), "");
  EXPECT_EQ(step(ChunkArriving{{kUp}, pairwise_chunk(0, 0)}), "land early 0.0 from 1");
  EXPECT_EQ(arrived(), "");
  const std::string said = staged(0);
  EXPECT_NE(said.find("unpark 100"), std::string::npos) << said;
  EXPECT_NE(said.find("take 0.0 of 1"), std::string::npos) << said;
}

TEST_F(Parked, AContributionWaitsForTheData) {
  begin();
  Task one_shot = task(0);
  one_shot.shape.pattern = Pattern::kOneShot;
  one_shot.parts = parts_among({kUp, PeerId{2}, kDown}, 40, one_shot.digest);
  one_shot.upstream = one_shot.downstream = {};
  one_shot.parked = true;
  EXPECT_EQ(step(OpPosted{one_shot}), "");
  FrameHeader frame = header(FrameType::kChunk, 0);
  frame.round = kOneShotRound;
  frame.length = 40;
  step(ChunkArriving{{kUp}, frame});
  EXPECT_EQ(arrived(), "") << "kept";
  const std::string said = staged(0);
  EXPECT_EQ(said.find("unpark 100; copy 0 to 1"), 0u) << said;
  EXPECT_NE(said.find("take 0"), std::string::npos) << said;
}

}  // namespace
}  // namespace pccl::ring
