// Port, LaneSink and LaneUser: the seam between a lane and the data plane that uses it. A lane is a
// connection of the data plane, or a simulated connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "csrc/base/ids.h"
#include "csrc/net/framing.h"
#include "csrc/protocol/limits.h"

namespace pccl::link {

// The sending half of a lane. Once its connection has ended it drops all data.
class Port {
 public:
  virtual ~Port() = default;
  virtual void send(const net::FrameHeader& header) = 0;
  // Sends a chunk ahead of other chunks. Its payload is not touched after this returns.
  virtual void send_copy(const net::FrameHeader& header, std::span<const std::byte> payload) = 0;
  virtual void send_chunk(const net::FrameHeader& header, std::span<const std::byte> payload) = 0;
  // Withdraws the chunk being sent. Its payload is not touched after this returns, and chunk_sent()
  // is not called for it. The next send_chunk() may follow at once.
  virtual void withdraw() = 0;
  // Revokes the landing on this lane. The memory of the landing is not touched after this returns.
  virtual void revoke() = 0;
  // Bytes that congestion control allows in flight on this lane; 0: unknown, treated as no limit.
  virtual uint64_t window() const { return 0; }
  virtual bool same_machine() const { return false; }  // the other end is on this machine
};

// The receiving half of a lane. It gets the frames and chunks that arrive on the lane. It gets no
// hellos, pings or pongs: the owner of the lane handles these.
class LaneSink : public net::FrameSink {
 public:
  virtual void chunk_sent() = 0;  // the port has sent its chunk entirely
};

// The user of the lanes: the Engine of the data plane.
class LaneUser {
 public:
  virtual ~LaneUser() = default;
  // Returns the first frame for a lane to this peer; nothing if there is none. The caller may send
  // the frame before lane_up(). It then passes the epoch of the frame to lane_up() as `opened`.
  virtual std::optional<net::FrameHeader> open_frame(PeerId peer) const = 0;
  // Adds a lane to a peer; the first lane brings the link up. The sink is valid until
  // link_down(peer) returns. The port must also be valid until then.
  virtual LaneSink& lane_up(PeerId peer, Port& port, Epoch opened = {}) = 0;
  virtual void link_down(PeerId peer) = 0;  // removes all its lanes
  // These lanes get no further chunk from us; all others are active.
  virtual void set_inactive(PeerId peer, protocol::LaneBits lanes) = 0;
};

}  // namespace pccl::link
