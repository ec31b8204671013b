// The events that RingCore takes and the effects that it asks for, all plain data. The Engine
// carries out the effects in the order that step() appends them.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/base/status.h"
#include "csrc/protocol/frames.h"
#include "csrc/protocol/limits.h"
#include "csrc/ring/chunk.h"
#include "csrc/ring/task.h"

namespace pccl::ring {

// ---- Events ----

// Drops the rest of older epochs. Operations that are still in flight are drained, as after
// kAborted.
struct EpochBegun {
  Epoch epoch;
  std::vector<PeerId> peers;  // the other members
};
// One connection of a link. The index counts the lanes from 0, in the order in which they came up
// here. Each end counts by itself, so the two ends may number a lane differently.
struct LaneId {
  PeerId peer;
  uint32_t index = 0;
  friend auto operator<=>(const LaneId&, const LaneId&) = default;
};
struct LaneUp {  // the first lane brings the link up
  LaneId lane;
  bool same_machine = false;  // the peer is on this machine
  Epoch opened = {};          // epoch of the Open that has left on it already; unset: none
};
struct LaneWindow {  // the present congestion window of a lane
  LaneId lane;
  uint64_t bytes = 0;  // bytes that congestion control allows in flight on the lane; 0: unknown
};
struct LinkDown {  // the link and all its lanes are down
  PeerId peer;
};
struct LanesInactive {  // these lanes get no further chunk from us; all others are active
  PeerId peer;
  protocol::LaneBits lanes = 0;  // never all lanes that are up
};
struct OpPosted {
  Task task;
};
// kRestart: the operation will be posted again (a continuation) without its first `keep` elements.
// These elements stay as they are until the continuation ends. The other elements are restored, as
// after kAborted.
enum class Ending { kCommitted, kAborted, kRestart };
struct OpEnded {  // ignored if the operation was never posted here
  OpKey op;
  Ending ending = Ending::kAborted;
  uint64_t keep = 0;
};
// This peer has reported to the master that the operation is done here. The core then announces it
// to the other members.
struct OpDone {
  OpKey op;
};
struct FrameArrived {  // kOpen, kCredit, kDone
  LaneId lane;
  protocol::FrameHeader header;
};
struct ChunkArriving {
  LaneId lane;
  protocol::FrameHeader header;
};
struct ChunkArrived {  // the chunk of the last landing given for this lane has ended
  LaneId lane;
  bool valid = true;  // false: the sender marked the chunk void
};
struct ChunkSent {
  LaneId lane;
};
using Event = std::variant<EpochBegun, LaneUp, LaneWindow, LinkDown, LanesInactive, OpPosted,
                           OpEnded, OpDone, FrameArrived, ChunkArriving, ChunkArrived, ChunkSent>;

// ---- Effects: carry them out in the order that step() appends them ----

struct SendFrame {
  LaneId lane;
  protocol::FrameHeader header;
};
struct SendChunk {
  LaneId lane;
  protocol::FrameHeader header;
  uint64_t handle;
  Chunk chunk;
  bool copied = false;  // it is copied, and leaves ahead of other chunks; no ChunkSent follows
};
struct Land {  // first possible answer to ChunkArriving
  LaneId lane;
  uint64_t handle;
  Chunk chunk;
  Action action;
  uint32_t absent = 0;  // number of known absent members; final if this is the last contribution
};
// Key of a stored chunk of an operation that is not posted here yet.
struct UnexpectedId {
  OpKey op;
  uint32_t index = 0;  // by order of arrival
  friend auto operator<=>(const UnexpectedId&, const UnexpectedId&) = default;
};
// Second possible answer to ChunkArriving: the payload is kept until TakeUnexpected or
// DropUnexpected.
struct LandUnexpected {
  LaneId lane;
  UnexpectedId unexpected;
  uint32_t bytes;
};
struct Discard {  // third possible answer
  LaneId lane;
};
struct TakeUnexpected {  // uses the kept message from this peer as the chunk `chunk`
  PeerId peer;
  UnexpectedId unexpected;
  uint64_t handle;
  Chunk chunk;
  Action action;
  uint32_t absent = 0;  // as in Land
};
struct DropUnexpected {
  PeerId peer;
  UnexpectedId unexpected;
};
// All contributions are here: compute the results of the one-shot operation, or this chunk of a
// direct all-reduce.
struct Combine {
  uint64_t handle;
  Chunk chunk = {};
  uint32_t absent = 0;  // number of absent members
};
struct Revoke {
  LaneId lane;
};
struct Withdraw {
  LaneId lane;
};
struct Restore {
  uint64_t handle;
  uint64_t from = 0;  // bytes before this offset stay as they are
};
struct Release {
  uint64_t handle;
};
struct Retain {  // instead of Release: the first `bytes` bytes may have to be restored later
  uint64_t handle;
  uint64_t bytes;
  Epoch epoch;
  OpKey op;
};
// For an operation with Task::keep.
struct OpProgressed {
  Epoch epoch;
  OpKey op;
  uint64_t finished = 0;  // number of elements, from the start of the tensor, that are final here
  protocol::AbsentRanks absent = {};  // all absent ranks; incomplete if `finished` is 0
};
struct OpTransferred {  // all chunks are received and sent
  Epoch epoch;
  OpKey op;
  protocol::AbsentRanks absent = {};  // all absent ranks, if the result of a reduction is here
};
struct OpAgreed {  // the operation is done here and at all other members
  Epoch epoch;
  OpKey op;
};
struct OpDrained {  // no thread touches the tensor any more
  Epoch epoch;
  OpKey op;
};
// The Engine emits it, not the core. The operation failed only here: there is no memory for it
// (kSystem). The operation must still be ended with OpEnded, and OpDrained follows.
struct OpFailed {
  Epoch epoch;
  OpKey op;
  Status why;
};

// A peer asks for a pulled transfer that was not posted here (Task::pulled). The credit of the peer
// is kept.
struct Requested {
  Epoch epoch;
  PeerId peer;
  OpKey op;
  uint64_t digest = 0;
  uint32_t what = 0;
};
struct FailLink {
  PeerId peer;
  std::string why;
};
using Effect = std::variant<SendFrame, SendChunk, Land, LandUnexpected, Discard, TakeUnexpected,
                            DropUnexpected, Combine, Revoke, Withdraw, Restore, Release, Retain,
                            OpProgressed, OpTransferred, OpAgreed, OpDrained, Requested, FailLink>;
// Owned and reused by the caller, so that a step allocates nothing in the steady state.
using Effects = std::vector<Effect>;

}  // namespace pccl::ring
