// frames: the contents of the frames of a lane (PROTOCOL.md, section 6), as plain values: the
// header of every frame, and the hello that each end of a connection sends first.
// csrc/net/framing.h turns them into bytes. Any thread may use them.
#pragma once

#include <cstdint>

#include "csrc/base/assert.h"
#include "csrc/base/ids.h"
#include "csrc/protocol/version.h"

namespace pccl::protocol {

inline bool made_by_higher(uint32_t serial) { return serial % 2 == 1; }

// Returns the serial number of a new connection between two peers. It is above `last`, which is at
// least the serial number of the last connection that is known to be dead. The peer with the higher
// id makes the odd numbers, and the other peer makes the even numbers. So no two connections have
// the same number, and the number identifies the peer that made the connection.
inline uint32_t next_serial(uint32_t last, bool by_higher) {
  const uint32_t next = last + (made_by_higher(last) == by_higher ? 2 : 1);
  PCCL_ASSERT(made_by_higher(next) == by_higher);
  return next;
}

// The content of kHello and kHelloOk, as the sender sees it.
struct LaneHello {
  uint64_t run_id = 0;
  PeerId self = {};
  PeerId other = {};
  // The number of the sender's machine; 0: unknown. If both ends send the same number, they are on
  // one machine.
  uint64_t machine = 0;
  VersionRange versions = kSpoken;
  uint32_t serial = 0;   // serial number of the link: next_serial()
  bool further = false;  // whether this is a further lane of the link with this serial number
  bool operator==(const LaneHello&) const = default;
};

enum class FrameType : uint8_t {
  // The first frame of the side that dials. Fields:
  //   epoch               run id
  //   op.tag              PeerId of the sender
  //   digest              PeerId of the receiver
  //   value               machine of the sender
  //   slice, op.sequence  lowest and highest protocol version; the same fields in all versions
  //   block               serial number of the link
  //   round               1 for a further lane, else 0
  kHello = 1,
  // The answer of the acceptor. It has the same fields, with the acceptor as the sender.
  kHelloOk = 2,
  // The sender is in `epoch`. Frames of older epochs are void from here on.
  kOpen = 3,
  // op, digest; `value` is the number of steps, counted from the start, that the sender has room
  // for. If `value` is 0, the operation has ended at the sender, which keeps none of the eager data
  // of the operation. If `round` is kPullRound, the sender asks for a transfer, and `block` selects
  // the data.
  kCredit = 4,
  // op, digest, round, block, slice, length, and the payload. `value` names the absent ranks
  // (absent_ranks.h).
  kChunk = 5,
  kPing = 6,
  kPong = 7,
  // op, digest; the operation is done at the sender, and the sender has reported this to the
  // master.
  kDone = 9,
  // Only `pccl probe` uses this frame (section 9); a lane of a run must not have it. The client
  // asks for a trial, and the server repeats the frame when it is ready. Fields:
  //   block          number of connections that carry data
  //   slice          milliseconds
  //   round          direction; 4 is added on a wan path
  //   op.tag, digest name of the congestion control, padded with zeros
  kTrial = 10,
  // The server's count of a trial: `value` is the number of bytes that arrived, `block` is the
  // number of lost connections, and `slice` is the share of a core that its thread took, in
  // thousandths. If `round` is not 0, it is the reason why the server ends the session, and the
  // frame has no count.
  kTrialResult = 11,
};

inline constexpr uint16_t kPullRound = 1;  // `round` of a kCredit that asks for a transfer

struct FrameHeader {
  FrameType type = FrameType::kPing;
  uint16_t round = 0;
  uint32_t block = 0;
  Epoch epoch;
  OpKey op;
  uint64_t digest = 0;
  uint32_t slice = 0;
  uint32_t length = 0;  // bytes of payload; 0 unless kChunk
  uint64_t value = 0;
  bool operator==(const FrameHeader&) const = default;
};

}  // namespace pccl::protocol
