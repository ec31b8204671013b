#include "csrc/ring/core.h"

#include "tests/cpp/ring/core_test.h"

namespace pccl::ring {
namespace {

TEST_F(Core, AWholeOperation) {
  begin();
  EXPECT_EQ(post(0), "credit 0 of 4 to 1");
  EXPECT_EQ(credit(kDown, 0, 4), "chunk 0 r0b1s0 to 3");
  EXPECT_EQ(sent(), "");
  EXPECT_EQ(arriving(0, 0), "land from 1");
  EXPECT_EQ(arrived(), "chunk 0 r1b0s0 to 3");
  EXPECT_EQ(arriving(0, 1), "land from 1");
  EXPECT_EQ(arrived(), "") << "one chunk at a time on a link";
  EXPECT_EQ(sent(), "chunk 0 r2b2s0 to 3");
  EXPECT_EQ(sent(), "");
  EXPECT_EQ(arriving(0, 2), "land from 1");
  EXPECT_EQ(arrived(), "chunk 0 r3b1s0 to 3");
  EXPECT_EQ(arriving(0, 3), "land from 1");
  EXPECT_EQ(arrived(), "") << "its last chunk has not left yet";
  EXPECT_EQ(sent(), "transferred 0");
  EXPECT_EQ(step(OpEnded{{TagId{}, 0}, Ending::kCommitted}), "release 100; drained 0");
  EXPECT_EQ(core_.operations_open(), 0u);
}

TEST_F(Core, AnOperationThatAllMembersHaveDoneIsAgreedOn) {
  begin();
  post(0);
  const auto done = [&](PeerId peer, uint64_t digest = kDigest) {
    FrameHeader frame = header(FrameType::kDone);
    frame.digest = digest;
    return step(FrameArrived{{peer}, frame});
  };
  EXPECT_EQ(done(kUp), "");
  EXPECT_EQ(done(kUp), "") << "it counts once";
  EXPECT_EQ(done(kDown, kDigest + 1), "") << "with another operation";
  EXPECT_EQ(step(OpDone{{TagId{}, 0}}), "done 0 to 1; done 0 to 3");
  EXPECT_EQ(done(kDown), "agreed 0");
  step(OpEnded{{TagId{}, 0}, Ending::kCommitted});
  EXPECT_EQ(done(kDown), "") << "it is over";
  EXPECT_EQ(step(OpDone{{TagId{}, 0}}), "");
}

TEST_F(Core, DoneSkipsPeersWithoutALane) {
  begin();
  post(0);
  step(LinkDown{kUp});
  EXPECT_EQ(step(OpDone{{TagId{}, 0}}), "done 0 to 3");
  FrameHeader frame = header(FrameType::kDone);
  EXPECT_EQ(step(FrameArrived{{kDown}, frame}), "");
  frame.epoch = Epoch{kEpoch.value - 1};
  EXPECT_EQ(step(FrameArrived{{kDown}, frame}), "") << "of an older epoch";
  frame.epoch = Epoch{kEpoch.value + 1};
  EXPECT_EQ(step(FrameArrived{{kDown}, frame}),
            "fail 3: kDone in epoch 0.6 before both sides had opened it");
}

TEST_F(Core, WorldOfOneAndEmptyTensorsAreTransferredAtOnce) {
  step(EpochBegun{kEpoch, {}});
  EXPECT_EQ(step(OpPosted{
                {.epoch = kEpoch, .op = {}, .shape = {.world = 1, .count = 5, .block_bytes = {}}}}),
            "transferred 0");
  Task empty = task(1);
  empty.shape.count = 0;
  EXPECT_EQ(step(OpPosted{empty}), "transferred 1");
}

// ---- Epochs ----

TEST_F(Core, OpensToMembersOnlyAndOnLinksThatComeUpLater) {
  EXPECT_EQ(step(LaneUp{{kUp}}), "");
  EXPECT_EQ(step(LaneUp{{kStranger}}), "");
  EXPECT_EQ(step(EpochBegun{kEpoch, {kUp, kDown}}), "open 5 to 1");
  EXPECT_EQ(step(LaneUp{{kDown}}), "open 5 to 3");
}

TEST_F(Core, AnOpenThatHasLeftIsNotRepeated) {
  EXPECT_EQ(core_.open_frame(kUp), std::nullopt) << "no epoch yet";
  step(EpochBegun{kEpoch, {kUp, kDown}});
  EXPECT_EQ(core_.open_frame(kStranger), std::nullopt);
  ASSERT_TRUE(core_.open_frame(kUp).has_value());
  EXPECT_EQ(core_.open_frame(kUp)->epoch, kEpoch);
  EXPECT_EQ(step(LaneUp{{kUp}, false, kEpoch}), "");
  post(0);
  EXPECT_EQ(open(kUp), "credit 0 of 4 to 1") << "the lane is ready";
  EXPECT_EQ(step(LaneUp{{kDown}, false, Epoch{kEpoch.value - 1}}), "open 5 to 3") << "an old one";
}

TEST_F(Core, NothingLeavesBeforeBothHaveOpened) {
  step(LaneUp{{kUp}});
  step(LaneUp{{kDown}});
  step(EpochBegun{kEpoch, {kUp, kDown}});
  EXPECT_EQ(post(0), "");
  EXPECT_EQ(open(kUp), "credit 0 of 4 to 1");
  EXPECT_EQ(open(kDown), "");
  EXPECT_EQ(credit(kDown, 0, 4), "chunk 0 r0b1s0 to 3");
}

TEST_F(Core, RemembersAnOpenThatCameBeforeItsEpoch) {
  step(LaneUp{{kUp}});
  EXPECT_EQ(open(kUp), "");
  EXPECT_EQ(step(EpochBegun{kEpoch, {kUp, kDown}}), "open 5 to 1");
  EXPECT_EQ(post(0), "credit 0 of 4 to 1");
}

TEST_F(Core, ANewEpochDrainsWhatIsLeftOfTheOldOne) {
  begin();
  post(0);
  post(1);
  credit(kDown, 0, 4);
  credit(kDown, 1, 4);
  credit(kDown, 2, 4);
  arriving(0, 0);
  EXPECT_EQ(step(EpochBegun{Epoch{6}, {kUp, kDown}}),
            "revoke 1; withdraw 3; restore 100; release 100; drained 0; restore 101; release 101; "
            "drained 1; "
            "open 6 to 1; open 6 to 3");
  EXPECT_EQ(credit(kDown, 2, 4), "") << "a frame of the old epoch";
  EXPECT_EQ(arriving(0, 0), "discard from 1");
  open(kUp, Epoch{6});
  open(kDown, Epoch{6});
  Task again = task(2);
  again.epoch = Epoch{6};
  EXPECT_EQ(step(OpPosted{again}), "credit 2 of 4 to 1")
      << "its credit of the old epoch is forgotten";
}

// ---- Credit ----

TEST_F(Core, CreditThatComesBeforeTheCallIsKept) {
  begin();
  EXPECT_EQ(credit(kDown, 0, 3), "");
  EXPECT_EQ(credit(kDown, 0, 4), "");
  EXPECT_EQ(post(0), "credit 0 of 4 to 1; chunk 0 r0b1s0 to 3");
}

TEST_F(Core, CreditWithAnotherDigestIsNotUsed) {
  begin();
  credit(kDown, 0, 4, kDigest + 1);
  EXPECT_EQ(post(0), "credit 0 of 4 to 1");
  EXPECT_EQ(post(1), "credit 1 of 4 to 1");
  EXPECT_EQ(credit(kDown, 1, 4, kDigest + 1), "");
}

TEST_F(Core, EarlyCreditsAreBounded) {
  begin();
  for (uint32_t sequence = 0; sequence < protocol::kOpsOpenMax; ++sequence)
    ASSERT_EQ(credit(kDown, sequence, 4), "");
  EXPECT_EQ(credit(kDown, 5, 4), "");
  expect_failed(credit(kDown, protocol::kOpsOpenMax, 4), "65536");
}

TEST_F(Core, AnEndedOperationsEarlyCreditIsForgotten) {
  begin();
  for (uint32_t sequence = 0; sequence < protocol::kOpsOpenMax; ++sequence)
    credit(kDown, sequence, 4);
  EXPECT_EQ(step(OpEnded{{TagId{}, 3}}), "");
  EXPECT_EQ(credit(kDown, protocol::kOpsOpenMax, 4), "");
}

// ---- Pulled transfers ----

class PulledTransfer : public Core {
 protected:
  static Task transfer(uint32_t sequence, bool receives, uint32_t what = 0) {
    Task pulled = task(sequence);
    pulled.shape = {.pattern = Pattern::kTransfer,
                    .rank = receives ? 1u : 0u,
                    .world = 2,
                    .count = 100,
                    .block_bytes = {100}};
    pulled.upstream = receives ? kUp : PeerId{};
    pulled.downstream = receives ? PeerId{} : kDown;
    pulled.pulled = true;
    pulled.what = what;
    return pulled;
  }
  std::string asks(uint32_t sequence, uint32_t what) {
    FrameHeader frame = header(FrameType::kCredit, sequence, 1);
    frame.round = protocol::kPullRound;
    frame.block = what;
    return step(FrameArrived{{kDown}, frame});
  }
};

TEST_F(PulledTransfer, TheCreditSaysWhatIsAskedFor) {
  begin();
  Effects effects;
  core_.step(OpPosted{transfer(0, true, 17)}, effects);
  ASSERT_EQ(effects.size(), 1u);
  const FrameHeader& frame = std::get<SendFrame>(effects[0]).header;
  EXPECT_EQ(frame.round, protocol::kPullRound);
  EXPECT_EQ(frame.block, 17u);
}

TEST_F(PulledTransfer, ARequestIsKeptUntilItsTransferIsPosted) {
  begin();
  EXPECT_EQ(asks(0, 17), "3 asks for 17 as 0");
  EXPECT_EQ(step(OpPosted{transfer(0, false)}), "chunk 0 r0b0s0 to 3");
  EXPECT_EQ(asks(0, 17), "") << "it is posted";
}

TEST_F(PulledTransfer, ARequestThatWasRefusedIsNotReported) {
  begin();
  asks(0, 17);
  EXPECT_EQ(step(OpEnded{{TagId{}, 0}}), "");
  EXPECT_EQ(asks(0, 17), "");
}

TEST_F(Core, CreditAndChunksOnlyFromNeighbours) {
  begin();
  post(0);
  expect_failed(credit(kUp, 0, 4), "not downstream");
  step(LaneUp{{kStranger}});
  expect_failed(credit(kStranger, 0, 4), "before both sides had opened");
  expect_failed(step(ChunkArriving{{kDown}, chunk(0, 0)}), "not upstream");
}

TEST_F(Core, TheOldestThatCanSendDoes) {
  begin();
  for (uint32_t sequence = 0; sequence < 3; ++sequence) post(sequence);
  EXPECT_EQ(credit(kDown, 1, 4), "chunk 1 r0b1s0 to 3");
  EXPECT_EQ(credit(kDown, 2, 4), "");
  EXPECT_EQ(credit(kDown, 0, 4), "");
  EXPECT_EQ(sent(), "chunk 0 r0b1s0 to 3");
  EXPECT_EQ(sent(), "chunk 2 r0b1s0 to 3") << "operation 0 waits for data, and holds up nobody";
}

// ---- Lanes ----

TEST_F(Core, ALinkSendsOnAsManyLanesAsItHas) {
  begin();
  EXPECT_EQ(step(LaneUp{{kDown, 1}}), "open 5 to 3.1");
  Task large = task(0);
  large.shape.count = 3 * 16384 * 3;  // three slices
  step(OpPosted{large});
  EXPECT_EQ(credit(kDown, 0, 4), "chunk 0 r0b1s0 to 3") << "the other lane is not open yet";
  EXPECT_EQ(open(kDown, kEpoch, 1), "chunk 0 r0b1s1 to 3.1");
  EXPECT_EQ(sent(1), "chunk 0 r0b1s2 to 3.1") << "whichever is free takes the next";
  EXPECT_EQ(sent(1), "");
}

TEST_F(Core, ToAPeerOnThisMachineItSendsInStepWithWhatComes) {
  step(LaneUp{{kUp}});
  step(LaneUp{{kDown}, true});
  step(LaneUp{{kDown, 1}, true});
  step(EpochBegun{kEpoch, {kUp, kDown}});
  open(kUp);
  open(kDown);
  open(kDown, kEpoch, 1);
  Task large = task(0);
  large.shape.count = 3 * 16384 * 3;  // three slices
  step(OpPosted{large});
  EXPECT_EQ(credit(kDown, 0, 4), "chunk 0 r0b1s0 to 3") << "lane 1 is free, and stays so";
  FrameHeader first = chunk(0, 0);
  first.length = Schedule(large.shape).chunk_bytes();
  step(ChunkArriving{{kUp}, first});
  EXPECT_EQ(arrived(), "chunk 0 r0b1s1 to 3.1") << "the next slice";
  EXPECT_EQ(sent(), "chunk 0 r1b0s0 to 3") << "and what has come";
  sent();
  sent(1);
  Task wan = task(1);
  wan.shape.count = large.shape.count;
  wan.shape.wan = true;  // on a wan path much data has to be in flight
  const std::string ahead = step(OpPosted{wan});
  EXPECT_NE(ahead.find("chunk 1 r0b1s0 to 3"), std::string::npos) << ahead;
  EXPECT_NE(ahead.find("chunk 1 r0b1s1 to 3"), std::string::npos) << ahead;
}

// A link within one machine, and a tensor of three slices.
class InStep : public PulledTransfer {
 protected:
  void begin_here() {
    step(LaneUp{{kUp}});
    step(LaneUp{{kDown}, true});
    step(EpochBegun{kEpoch, {kUp, kDown}});
    open(kUp);
    open(kDown);
  }
  std::string post_large(uint32_t sequence) {
    Task large = task(sequence);
    large.shape.count = 3 * 16384 * 3;
    step(OpPosted{large});
    return credit(kDown, sequence, 4);
  }
};

TEST_F(InStep, APieceDoesNotLeaveInItsPlace) {
  begin_here();
  EXPECT_EQ(post_large(0), "chunk 0 r0b1s0 to 3");
  EXPECT_EQ(sent(), "") << "it goes in step with what comes";
  asks(1, 17);
  EXPECT_EQ(step(OpPosted{transfer(1, false, 17)}), "chunk 0 r0b1s1 to 3");
  EXPECT_EQ(sent(), "chunk 0 r0b1s2 to 3");
  EXPECT_EQ(sent(), "chunk 1 r0b0s0 to 3") << "nothing else can leave";
  core_.check();
}

TEST_F(InStep, AReceiverOfPiecesRunsAheadUntilAllAreHere) {
  begin_here();
  step(OpPosted{transfer(0, true, 17)});
  EXPECT_EQ(post_large(1), "chunk 1 r0b1s0 to 3");
  EXPECT_EQ(sent(), "chunk 1 r0b1s1 to 3");
  EXPECT_EQ(sent(), "chunk 1 r0b1s2 to 3");
  EXPECT_EQ(sent(), "");
  core_.check();
  step(OpEnded{{TagId{}, 0}, Ending::kCommitted});
  EXPECT_EQ(post_large(2), "chunk 2 r0b1s0 to 3");
  EXPECT_EQ(sent(), "") << "this one goes in step again";
}

TEST_F(Core, ALaneThatIsToRestTakesNoFurtherChunk) {
  begin_on_two_lanes();
  EXPECT_EQ(credit(kDown, 0, 5), "chunk 0 r0b1s0 to 3; chunk 0 r0b1s1 to 3.1");
  EXPECT_EQ(step(LanesInactive{kDown, 1}), "") << "what is on its way is not disturbed";
  EXPECT_EQ(sent(), "");
  EXPECT_EQ(sent(1), "chunk 0 r0b1s2 to 3.1");
  EXPECT_EQ(step(LanesInactive{kDown, 0}), "chunk 0 r0b1s3 to 3") << "it may again";
  EXPECT_EQ(step(LanesInactive{PeerId{77}, 1}), "") << "a link that is not there";
}

TEST_F(Core, TheLastChunksLeaveOnLanesThatNeedNoFurtherRoundTrip) {
  begin_on_two_lanes();
  step(LaneWindow{{kDown, 0}, 100'000});
  step(LaneWindow{{kDown, 1}, 20'000});
  EXPECT_EQ(credit(kDown, 0, 9), "chunk 0 r0b1s0 to 3; chunk 0 r0b1s1 to 3.1") << "much is left";
  step(LaneWindow{{kDown, 1}, 1'000});
  EXPECT_EQ(sent(1), "") << "lane 0 will be done before";
  EXPECT_EQ(sent(0), "chunk 0 r0b1s2 to 3");
  EXPECT_EQ(step(LanesInactive{kDown, 1}), "chunk 0 r0b1s3 to 3.1") << "nobody else would";
  EXPECT_EQ(step(LaneWindow{{PeerId{77}, 0}, 1}) + step(LaneWindow{{kDown, 2}, 1}), "")
      << "of lanes that are gone";
}

TEST_F(Core, ChunksOfOneOperationOvertakeEachOther) {
  begin();
  step(LaneUp{{kUp, 1}});
  open(kUp, kEpoch, 1);
  Task large = task(0);
  large.shape.count = 3 * 16384 * 2;
  step(OpPosted{large});
  credit(kDown, 0, 5);
  EXPECT_EQ(sent(), "chunk 0 r0b1s1 to 3");
  EXPECT_EQ(sent(), "");
  const auto second = [&](uint32_t lane, uint32_t slice) {
    FrameHeader frame = chunk(0, 0);
    frame.slice = slice;
    frame.length = 65536;
    return step(ChunkArriving{{kUp, lane}, frame});
  };
  EXPECT_EQ(second(0, 0), "land from 1");
  EXPECT_EQ(second(1, 1), "land from 1.1");
  EXPECT_EQ(arrived(true, 1), "chunk 0 r1b0s1 to 3") << "it does not wait for the first slice";
  EXPECT_EQ(arrived(), "");
  EXPECT_EQ(sent(), "chunk 0 r1b0s0 to 3");
}

TEST_F(Core, AChunkThatIsLandingOnOneLaneIsNotTakenFromAnother) {
  begin();
  step(LaneUp{{kUp, 1}});
  open(kUp, kEpoch, 1);
  post(0);
  EXPECT_EQ(arriving(0, 0), "land from 1");
  expect_failed(arriving(0, 0, 1), "came twice");
}

TEST_F(Core, AnEndedOperationIsDrainedFromAllLanes) {
  begin();
  for (const PeerId peer : {kUp, kDown}) {
    step(LaneUp{{peer, 1}});
    open(peer, kEpoch, 1);
  }
  Task large = task(0);
  large.shape.count = 3 * 16384 * 2;
  step(OpPosted{large});
  EXPECT_EQ(credit(kDown, 0, 5), "chunk 0 r0b1s0 to 3; chunk 0 r0b1s1 to 3.1");
  FrameHeader frame = chunk(0, 0);
  frame.length = 65536;
  step(ChunkArriving{{kUp, 1}, frame});
  EXPECT_EQ(step(OpEnded{{TagId{}, 0}}),
            "revoke 1.1; withdraw 3; withdraw 3.1; restore 100; release 100; drained 0");
  EXPECT_EQ(step(LinkDown{kDown}), "");
}

TEST_F(Core, CreditsOfOneOperationKeepTheirOrder) {
  begin();
  step(LaneUp{{kUp, 1}});
  Task large = task(0);
  large.shape.count = 3 * 16384 * 20;
  step(OpPosted{large});
  EXPECT_EQ(open(kUp, kEpoch, 1), "");
  Task back = task(1);  // sent on the lane that the first credit took
  back.shape = {.pattern = Pattern::kTransfer, .world = 2, .block_bytes = {10}};
  back.upstream = {};
  back.downstream = kUp;
  step(OpPosted{back});
  EXPECT_EQ(credit(kUp, 1, 1), "chunk 1 r0b0s0 to 1");
  credit(kDown, 0, 9);
  std::string said;
  for (int chunks = 0; chunks < 3; ++chunks) said += sent();
  FrameHeader frame = chunk(0, 0);
  frame.length = Schedule(large.shape).chunk_received(0).bytes;
  EXPECT_EQ(step(ChunkArriving{{kUp, 1}, frame}), "land from 1.1");
  said += arrived(true, 1);
  said += sent() + sent();
  EXPECT_NE(said.find("credit 0 of 5 to 1;"), std::string::npos) << said;
}

TEST_F(Core, CreditTravelsBesideChunks) {
  begin();
  Task both = task(0);
  both.shape = {.rank = 1, .world = 2, .element_bytes = 4, .count = 10, .block_bytes = {}};
  both.upstream = kDown;
  step(LaneUp{{kDown, 1}});
  open(kDown, kEpoch, 1);
  EXPECT_EQ(step(OpPosted{both}), "credit 0 of 2 to 3");
  EXPECT_EQ(credit(kDown, 0, 2), "chunk 0 r0b1s0 to 3");
  both.op.sequence = 1;
  both.handle = 101;
  EXPECT_EQ(step(OpPosted{both}), "credit 1 of 2 to 3.1");
}

// ---- Endings ----

TEST_F(Core, AnAbortedOperationIsDrainedInOneStepAndTheNextOneSends) {
  begin();
  post(0);
  post(1);
  credit(kDown, 0, 4);
  credit(kDown, 1, 4);
  arriving(0, 0);
  EXPECT_EQ(step(OpEnded{{TagId{}, 0}}),
            "revoke 1; withdraw 3; restore 100; release 100; drained 0; chunk 1 r0b1s0 to 3");
  EXPECT_EQ(arriving(0, 1), "discard from 1") << "it has ended here";
  EXPECT_EQ(arriving(1, 0), "land from 1");
}

TEST_F(Core, AnOperationThatWaitsForItsTurnCanEnd) {
  begin();
  post(0);
  post(1);
  credit(kDown, 0, 4);
  credit(kDown, 1, 4);
  EXPECT_EQ(step(OpEnded{{TagId{}, 1}}), "restore 101; release 101; drained 1");
  EXPECT_EQ(sent(), "");
}

TEST_F(Core, AfterAVoidChunkTheRestMeansNothing) {
  begin();
  post(0);
  arriving(0, 0);
  EXPECT_EQ(arrived(false), "");
  EXPECT_EQ(arriving(0, 1), "discard from 1") << "it left before, on another lane";
}

TEST_F(Core, ALostLinkTakesWhatWasOnItAndOperationsStay) {
  begin();
  post(0);
  credit(kDown, 0, 4);
  arriving(0, 0);
  EXPECT_EQ(step(LinkDown{kUp}), "revoke 1");
  EXPECT_EQ(step(LinkDown{kDown}), "withdraw 3");
  EXPECT_EQ(core_.operations_open(), 1u);
  EXPECT_EQ(step(LaneUp{{kUp}}), "open 5 to 1");
  EXPECT_EQ(open(kUp), "") << "no credit: what was on the old link is gone";
  EXPECT_EQ(arriving(0, 0), "discard from 1");
  EXPECT_EQ(step(LaneUp{{kDown}}), "open 5 to 3");
  open(kDown);
  EXPECT_EQ(credit(kDown, 0, 4), "");
  EXPECT_EQ(step(OpEnded{{TagId{}, 0}}), "restore 100; release 100; drained 0");
}

// ---- Frames that break a rule fail the link ----

TEST_F(Core, UnexpectedChunksFailTheLinkOnce) {
  struct Broken {
    void (*change)(FrameHeader&);
    std::string why;
  };
  for (const auto& [change, why] :
       {Broken{[](FrameHeader& h) { ++h.round; }, "is none of it"},
        Broken{[](FrameHeader& h) { h.round = 4; }, "is none of it"},
        Broken{[](FrameHeader& h) { ++h.block; }, "is none of it"},
        Broken{[](FrameHeader& h) { ++h.slice; }, "is none of it"},
        Broken{[](FrameHeader& h) { ++h.length; }, "41 bytes, has 40 bytes"},
        Broken{[](FrameHeader& h) { h.value = 1u << 3; }, "tells of absent ranks"}}) {
    FrameHeader frame = chunk(0, 0);
    change(frame);
    core_ = RingCore();
    begin();
    post(0);
    const std::string said = step(ChunkArriving{{kUp}, frame});
    expect_failed(said, why);
    EXPECT_TRUE(said.ends_with("; discard from 1"));
    EXPECT_EQ(arriving(0, 0), "discard from 1") << "a failed link is not listened to";
    EXPECT_EQ(step(LinkDown{kUp}), "");
  }
}

TEST_F(Core, UnexpectedChunksOfAMutualAllReduceFailTheLink) {
  struct Broken {
    uint16_t round;
    uint32_t block, slice, length;
    std::string answer;
  };
  for (const auto& [round, block, slice, length, answer] :
       {Broken{0, 0, 0, 40, ""}, Broken{1, 0, 0, 40, "is none of it"},
        Broken{0, 1, 0, 40, "is none of it"}, Broken{0, 0, 1, 40, "is none of it"},
        Broken{0, 0, 0, 44, "44 bytes, has 40 bytes"}}) {
    core_ = RingCore();
    begin();
    step(OpPosted{pairwise(0, 10)});
    FrameHeader frame = header(FrameType::kChunk, 0);
    frame.round = round;
    frame.block = block;
    frame.slice = slice;
    frame.length = length;
    const std::string said = step(ChunkArriving{{kUp}, frame});
    if (answer.empty())
      EXPECT_EQ(said, "land from 1");
    else
      expect_failed(said, answer);
  }
}

TEST_F(Core, AChunkBeyondTheCreditFailsTheLink) {
  begin();
  Task large = task(0);
  large.shape.count = 3 * 16384 * 20;  // many more steps than the scratch buffer has room for
  step(OpPosted{large});
  const Schedule schedule(large.shape);
  auto cursor = schedule.first();
  std::string said;
  for (int index = 0; index < 40; ++index) {
    const Chunk chunk = schedule.chunk_received(schedule.id(cursor));
    FrameHeader frame = header(FrameType::kChunk, 0);
    frame.round = chunk.round;
    frame.block = chunk.block;
    frame.slice = chunk.slice;
    frame.length = chunk.bytes;
    said = step(ChunkArriving{{kUp}, frame});
    if (chunk.step >= Schedule::kDepth) break;
    ASSERT_EQ(said, "land from 1");
    arrived();
    schedule.advance(cursor);
  }
  expect_failed(said, "without credit");
}

TEST_F(Core, AChunkThatComesTwiceFailsTheLink) {
  begin();
  post(0);
  for (int index = 0; index < 4; ++index) {
    EXPECT_EQ(arriving(0, index), "land from 1");
    arrived();
  }
  expect_failed(arriving(0, 3), "came twice");
}

TEST_F(Core, FramesOfANewerEpochThanOursFailTheLink) {
  begin();
  open(kUp, Epoch{6});
  FrameHeader newer = chunk(0, 0);
  newer.epoch = Epoch{6};
  expect_failed(step(ChunkArriving{{kUp}, newer}), "before both sides had opened");
  FrameHeader unexpected = header(FrameType::kCredit, 0, 4);
  unexpected.epoch = Epoch{6};
  expect_failed(step(FrameArrived{{kDown}, unexpected}), "before both sides had opened");
}

TEST_F(Core, AnOpenThatGoesBackAndFramesOutOfPlaceFailTheLink) {
  begin();
  expect_failed(open(kUp, Epoch{5}), "opened after");
  expect_failed(step(FrameArrived{{kDown}, header(FrameType::kHello)}), "out of place");
}

TEST_F(Core, AFrameOfAProbeFailsTheLink) {
  begin();
  expect_failed(step(FrameArrived{{kDown}, header(FrameType::kTrial)}), "out of place");
}

TEST_F(Core, AChunkOfAnotherDigestIsAMismatchNotAnEnemy) {
  begin();
  post(0);
  FrameHeader frame = chunk(0, 0);
  ++frame.digest;
  EXPECT_EQ(step(ChunkArriving{{kUp}, frame}), "discard from 1");
  EXPECT_EQ(arriving(0, 0), "land from 1");
}

}  // namespace
}  // namespace pccl::ring
