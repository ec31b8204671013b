#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cpp/ring/core_test.h"

namespace pccl::ring {
namespace {

class DirectCore : public Core {
 protected:
  // Rank 1 of three.
  static Task direct(std::vector<uint16_t> shares, uint64_t count = 1000, bool wan = false) {
    return {.epoch = kEpoch,
            .op = {TagId{}, 0},
            .digest = kDigest,
            .handle = 100,
            .shape = {.pattern = Pattern::kDirect,
                      .rank = 1,
                      .world = 3,
                      .element_bytes = 4,
                      .count = count,
                      .block_bytes = {},
                      .wan = wan,
                      .shares = std::move(shares)},
            .parts = {{.peer = kUp}, {.peer = PeerId{2}}, {.peer = kDown}}};
  }
  // A chunk of the task, as it comes from `peer`.
  static FrameHeader chunk_of(const Task& task, PeerId peer, uint16_t round, uint32_t slice = 0) {
    const uint32_t other = peer == kUp ? 0 : 2;
    const Schedule leg(shape_of_leg(task.shape, other, 1));
    FrameHeader frame = header(FrameType::kChunk);
    frame.round = round;
    frame.block = round == 0 ? 1 : other;
    frame.slice = slice;
    frame.length = leg.written(slice * 3 + frame.block).bytes;
    return frame;
  }
  std::string comes(const FrameHeader& frame, PeerId peer) {
    const std::string said = step(ChunkArriving{{peer}, frame});
    if (said.find("land") == std::string::npos) return said;
    const std::string then = step(ChunkArrived{{peer}});
    return said + (then.empty() ? "" : "; " + then);
  }
};

TEST_F(DirectCore, ContributesComputesAndReturns) {
  begin();
  const Task task = direct({64, 128, 64});
  EXPECT_EQ(step(OpPosted{task}), "credit 0 of 2 to 3; credit 0 of 2 to 1")
      << "the next rank first";
  EXPECT_EQ(credit(kDown, 0, 2), "chunk 0 r0b2s0 to 3");
  EXPECT_EQ(credit(kUp, 0, 2), "chunk 0 r0b0s0 to 1");
  EXPECT_EQ(step(ChunkSent{{kUp}}), "");
  EXPECT_EQ(comes(chunk_of(task, kUp, 0), kUp), "land from 1");
  EXPECT_EQ(comes(chunk_of(task, kDown, 0), kDown),
            "land from 3; combine 100; chunk 0 r1b1s0 to 1");
  EXPECT_EQ(step(ChunkSent{{kUp}}), "");
  EXPECT_EQ(step(ChunkSent{{kDown}}), "chunk 0 r1b1s0 to 3");
  EXPECT_EQ(comes(chunk_of(task, kUp, 1), kUp), "land from 1");
  EXPECT_EQ(comes(chunk_of(task, kDown, 1), kDown), "land from 3");
  EXPECT_EQ(step(ChunkSent{{kDown}}), "transferred 0");
  EXPECT_EQ(step(OpEnded{{TagId{}, 0}, Ending::kCommitted}), "release 100; drained 0");
}

TEST_F(DirectCore, AMemberThatOwnsNothingOnlyContributesAndReceives) {
  begin();
  const Task task = direct({0, 0, 256});
  EXPECT_EQ(step(OpPosted{task}), "credit 0 of 1 to 3") << "nothing passes to or from rank 0";
  EXPECT_EQ(credit(kDown, 0, 1), "chunk 0 r0b2s0 to 3");
  EXPECT_EQ(step(ChunkSent{{kDown}}), "");
  EXPECT_EQ(comes(chunk_of(task, kDown, 1), kDown), "land from 3; transferred 0");
  EXPECT_EQ(step(OpEnded{{TagId{}, 0}, Ending::kCommitted}), "release 100; drained 0");
}

// Credit follows the sums: a sender may be ahead of the slowest by the depth.
TEST_F(DirectCore, CreditComesWithTheSums) {
  begin();
  const Task task = direct({86, 85, 85}, 10'000'000);
  const std::string granted = std::to_string(Schedule::kDepth);
  EXPECT_EQ(step(OpPosted{task}),
            "credit 0 of " + granted + " to 3; credit 0 of " + granted + " to 1");
  EXPECT_EQ(comes(chunk_of(task, kUp, 0, 0), kUp), "land from 1");
  EXPECT_EQ(comes(chunk_of(task, kUp, 0, 1), kUp), "land from 1");
  EXPECT_EQ(comes(chunk_of(task, kDown, 0, 1), kDown), "land from 3; combine 100")
      << "the first slice still waits";
  EXPECT_EQ(comes(chunk_of(task, kDown, 0, 0), kDown),
            "land from 3; combine 100; credit 0 of 6 to 3; credit 0 of 6 to 1");
  expect_failed(comes(chunk_of(task, kUp, 0, 6), kUp), "came without credit");
}

TEST_F(DirectCore, AnAbortStopsEveryLegBeforeItRestores) {
  begin();
  const Task task = direct({64, 128, 64});
  step(OpPosted{task});
  credit(kUp, 0, 2);
  credit(kDown, 0, 2);
  step(ChunkArriving{{kUp}, chunk_of(task, kUp, 0)});
  EXPECT_EQ(step(OpEnded{{TagId{}, 0}}),
            "withdraw 3; withdraw 1; revoke 1; restore 100; release 100; drained 0");
}

TEST_F(DirectCore, AChunkOfAnotherLegIsRefused) {
  begin();
  const Task task = direct({64, 128, 64});
  step(OpPosted{task});
  FrameHeader wrong = chunk_of(task, kUp, 0);
  wrong.block = 2;
  expect_failed(comes(wrong, kUp), "is none of it");
}

// On wan paths contributions leave before credit has come, and are kept where they come too early.
TEST_F(DirectCore, ContributionsAreEagerDataOnWanPaths) {
  begin();
  const Task task = direct({64, 128, 64}, 1000, true);
  EXPECT_EQ(comes(chunk_of(task, kUp, 0), kUp), "land early 0.0 from 1");
  EXPECT_EQ(step(OpPosted{task}),
            "chunk 0 r0b2s0 to 3; credit 0 of 2 to 3; chunk 0 r0b0s0 to 1; credit 0 of 2 to 1; "
            "take 0.0 of 1");
  EXPECT_EQ(comes(chunk_of(task, kDown, 0), kDown), "land from 3; combine 100");
}

// All legs together use as many lanes as 52 or fewer, here 26 of the 30 to each of two peers.
TEST_F(DirectCore, LegsDoNotUseAllLanesAtOnce) {
  begin();
  for (const PeerId peer : {kUp, kDown}) {
    for (uint32_t lane = 1; lane < 30; ++lane) {
      step(LaneUp{{peer, lane}});
      open(peer, kEpoch, lane);
    }
  }
  const Task task = direct({86, 85, 85}, 100'000'000, true);
  std::string story = step(OpPosted{task});
  story += credit(kDown, 0, 100);
  size_t chunks = 0;
  for (size_t at = 0; (at = story.find(" to 3", at)) != std::string::npos; ++at) {
    const size_t word = story.rfind("chunk 0", at);
    chunks += word != std::string::npos && story.find(';', word) > at ? 1 : 0;
  }
  EXPECT_EQ(chunks, 26u) << story;
}

TEST_F(DirectCore, TheFirstElementsAreReportedOnceAllOwnersHaveSentThem) {
  begin();
  Task task = direct({86, 85, 85}, 1'000'000);
  task.keep = true;
  step(OpPosted{task});
  for (const uint32_t slice : {0u, 1u}) {  // steps 0 and 1, with the results of slice 0
    for (const PeerId peer : {kUp, kDown}) comes(chunk_of(task, peer, 0, slice), peer);
  }
  EXPECT_EQ(comes(chunk_of(task, kUp, 1), kUp), "land from 1");
  const std::string said = comes(chunk_of(task, kDown, 1), kDown);
  const uint64_t elements = Schedule(task.shape).elements_in(1);
  EXPECT_EQ(said, "land from 3; progressed 0 " + std::to_string(elements));
}

}  // namespace
}  // namespace pccl::ring
