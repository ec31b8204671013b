// core_test: the shared part of the RingCore tests: a core with ring index 1 of three, and its
// effects as text.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "csrc/ring/core.h"

namespace pccl::ring {

using protocol::FrameHeader;
using protocol::FrameType;

inline constexpr PeerId kUp{1}, kDown{3}, kStranger{9};
inline constexpr Epoch kEpoch{5};
inline constexpr uint64_t kDigest = 77;

// "3", or "3.1" for its second lane.
inline std::string text(LaneId lane) {
  return std::to_string(lane.peer.value) + (lane.index > 0 ? "." + std::to_string(lane.index) : "");
}

// "0.2" for the third eager chunk of operation 0.
inline std::string text(UnexpectedId unexpected) {
  return std::to_string(unexpected.op.sequence) + "." + std::to_string(unexpected.index);
}

inline std::string text(const Effect& effect) {
  struct Writer {
    std::string operator()(const SendFrame& e) {
      const std::string to = ring::text(e.lane);
      if (e.header.type == FrameType::kOpen)
        return "open " + std::to_string(e.header.epoch.value) + " to " + to;
      if (e.header.type == FrameType::kDone)
        return "done " + std::to_string(e.header.op.sequence) + " to " + to;
      return "credit " + std::to_string(e.header.op.sequence) + " of " +
             std::to_string(e.header.value) + " to " + to;
    }
    std::string operator()(const SendChunk& e) {
      const std::string sequence = std::to_string(e.header.op.sequence);
      if (e.copied) return "copy " + sequence + " to " + ring::text(e.lane);
      return "chunk " + sequence + " r" + std::to_string(e.header.round) + "b" +
             std::to_string(e.header.block) + "s" + std::to_string(e.header.slice) + " to " +
             ring::text(e.lane);
    }
    std::string operator()(const LandUnexpected& e) {
      return "land early " + ring::text(e.unexpected) + " from " + ring::text(e.lane);
    }
    std::string operator()(const TakeUnexpected& e) {
      return "take " + ring::text(e.unexpected) + " of " + std::to_string(e.peer.value);
    }
    std::string operator()(const DropUnexpected& e) {
      return "drop " + ring::text(e.unexpected) + " of " + std::to_string(e.peer.value);
    }
    std::string operator()(const Combine& e) { return "combine " + std::to_string(e.handle); }
    std::string operator()(const Land& e) { return "land from " + ring::text(e.lane); }
    std::string operator()(const Discard& e) { return "discard from " + ring::text(e.lane); }
    std::string operator()(const Revoke& e) { return "revoke " + ring::text(e.lane); }
    std::string operator()(const Withdraw& e) { return "withdraw " + ring::text(e.lane); }
    std::string operator()(const Restore& e) {
      return "restore " + std::to_string(e.handle) +
             (e.from > 0 ? " from " + std::to_string(e.from) : "");
    }
    std::string operator()(const Release& e) { return "release " + std::to_string(e.handle); }
    std::string operator()(const Retain& e) { return "retain " + std::to_string(e.handle); }
    std::string operator()(const OpProgressed& e) {
      return "progressed " + std::to_string(e.op.sequence) + " " + std::to_string(e.finished);
    }
    std::string operator()(const OpTransferred& e) {
      return "transferred " + std::to_string(e.op.sequence);
    }
    std::string operator()(const Requested& e) {
      return std::to_string(e.peer.value) + " asks for " + std::to_string(e.what) + " as " +
             std::to_string(e.op.sequence);
    }
    std::string operator()(const OpAgreed& e) { return "agreed " + std::to_string(e.op.sequence); }
    std::string operator()(const OpDrained& e) {
      return "drained " + std::to_string(e.op.sequence);
    }
    std::string operator()(const FailLink& e) {
      return "fail " + std::to_string(e.peer.value) + ": " + e.why;
    }
  };
  return std::visit(Writer{}, effect);
}

// Ring index 1 of three: upstream is peer 1, downstream is peer 3.
class Core : public ::testing::Test {
 protected:
  // The effects of one event, in order: "a; b; c".
  std::string step(const Event& event) {
    effects_.clear();
    core_.step(event, effects_);
    std::string all;
    for (const Effect& effect : effects_) all += (all.empty() ? "" : "; ") + text(effect);
    return all;
  }

  static FrameHeader header(FrameType type, uint32_t sequence = 0, uint64_t value = 0) {
    FrameHeader header;
    header.type = type;
    header.epoch = kEpoch;
    header.op = {TagId{}, sequence};
    header.digest = kDigest;
    header.value = value;
    return header;
  }
  std::string open(PeerId peer, Epoch epoch = kEpoch, uint32_t lane = 0) {
    FrameHeader frame = header(FrameType::kOpen);
    frame.epoch = epoch;
    return step(FrameArrived{{peer, lane}, frame});
  }
  std::string credit(PeerId peer, uint32_t sequence, uint64_t value, uint64_t digest = kDigest) {
    FrameHeader frame = header(FrameType::kCredit, sequence, value);
    frame.digest = digest;
    return step(FrameArrived{{peer}, frame});
  }

  // A small all-reduce with one slice and four rounds. One block has 40 bytes, the other two are
  // empty.
  static Task task(uint32_t sequence) {
    return {.epoch = kEpoch,
            .op = {TagId{}, sequence},
            .digest = kDigest,
            .handle = 100 + sequence,
            .shape = {.rank = 1, .world = 3, .element_bytes = 4, .count = 10, .block_bytes = {}},
            .upstream = kUp,
            .downstream = kDown};
  }
  std::string post(uint32_t sequence) { return step(OpPosted{task(sequence)}); }
  // A pairwise exchange with upstream, on a wan path.
  static Task pairwise(uint32_t sequence, uint64_t count) {
    Task task = Core::task(sequence);
    task.shape = {.pattern = Pattern::kPairwise,
                  .rank = 1,
                  .world = 2,
                  .element_bytes = 4,
                  .count = count,
                  .block_bytes = {},
                  .wan = true};
    task.downstream = kUp;
    return task;
  }
  // Its chunk in slice `slice`, of 64 KiB.
  static FrameHeader pairwise_chunk(uint32_t sequence, uint32_t slice) {
    FrameHeader frame = header(FrameType::kChunk, sequence);
    frame.slice = slice;
    frame.length = 64 << 10;
    return frame;
  }

  // The `index`-th chunk that upstream sends for a task.
  static FrameHeader chunk(uint32_t sequence, int index) {
    const Schedule schedule(task(sequence).shape);
    auto cursor = schedule.first();
    while (index-- > 0) schedule.advance(cursor);
    const Chunk chunk = schedule.chunk_received(schedule.id(cursor));
    FrameHeader frame = header(FrameType::kChunk, sequence);
    frame.round = chunk.round;
    frame.block = chunk.block;
    frame.slice = chunk.slice;
    frame.length = chunk.bytes;
    return frame;
  }
  std::string arriving(uint32_t sequence, int index, uint32_t lane = 0) {
    return step(ChunkArriving{{kUp, lane}, chunk(sequence, index)});
  }
  std::string arrived(bool valid = true, uint32_t lane = 0) {
    return step(ChunkArrived{{kUp, lane}, valid});
  }
  std::string sent(uint32_t lane = 0) { return step(ChunkSent{{kDown, lane}}); }

  void begin() {
    step(LaneUp{{kUp}});
    step(LaneUp{{kDown}});
    EXPECT_EQ(step(EpochBegun{kEpoch, {kUp, kDown}}), "open 5 to 1; open 5 to 3");
    EXPECT_EQ(open(kUp), "");
    EXPECT_EQ(open(kDown), "");
  }
  // Adds a second lane to downstream and posts operation 0 with four slices.
  void begin_on_two_lanes() {
    begin();
    step(LaneUp{{kDown, 1}});
    open(kDown, kEpoch, 1);
    Task large = task(0);
    large.shape.count = 3 * 16384 * 4;
    step(OpPosted{large});
  }
  void expect_failed(const std::string& said, const std::string& why) {
    EXPECT_NE(said.find("fail"), std::string::npos) << said;
    EXPECT_NE(said.find(why), std::string::npos) << said;
  }

  RingCore core_;
  Effects effects_;
};

}  // namespace pccl::ring
