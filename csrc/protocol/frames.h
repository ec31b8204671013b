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
// id makes the odd numbers, and the other peer the even ones. So no two connections have the same
// number, and the number identifies the peer that made the connection.
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
  uint64_t machine = 0;  // of the sender; if it is equal at both ends, they share it; 0: unknown
  VersionRange versions = kSpoken;
  uint32_t serial = 0;   // of the link: next_serial()
  bool further = false;  // a further lane of the link with this serial number
  bool operator==(const LaneHello&) const = default;
};

enum class FrameType : uint8_t {
  // The first frame of the side that dials. Fields:
  //   epoch               run id
  //   op.tag              PeerId of the sender
  //   digest              PeerId of the receiver
  //   value               machine of the sender
  //   slice, op.sequence  lowest and highest protocol version; in these fields in all versions
  //   block               serial number of the link
  //   round               1 for a further lane, else 0
  kHello = 1,
  // The answer of the side that accepted, with the same fields from its view.
  kHelloOk = 2,
  // The sender knows `epoch`. Frames of older epochs are void from here on.
  kOpen = 3,
  // op, digest; `value` is the number of steps that the sender has room for, counted from the
  // start; 0: the operation has ended there, and its eager data is gone. `round` kPullRound: the
  // sender asks for a transfer, and `block` selects the data.
  kCredit = 4,
  // op, digest, round, block, slice, length, and the payload. `value` names the absent ranks
  // (absent_ranks.h).
  kChunk = 5,
  kPing = 6,
  kPong = 7,
  // op, digest; the operation is done at the sender, which has reported this to the master.
  kDone = 9,
  // For `pccl probe` alone (section 9), and out of place on a lane of a run. The client asks for a
  // trial, and the server repeats the frame when it is ready. Fields:
  //   block          number of connections that carry data
  //   slice          milliseconds
  //   round          direction; 4 is added on a wan path
  //   op.tag, digest name of the congestion control, padded with zeros
  kTrial = 10,
  // The server's count of a trial: `value` is the number of bytes that arrived, `block` the number
  // of lost connections, and `slice` the thousandths of a core that its thread took. If `round` is
  // not 0, it is the reason why the server ends the session, and there is no count.
  kTrialResult = 11,
};

inline constexpr uint16_t kPullRound = 1;  // of a kCredit

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
