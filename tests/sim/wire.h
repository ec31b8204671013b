// Wire: one connection of the simulated data plane, with two writers, two readers, and real frames
// as real bytes between them. Bytes leave in pieces of random size while there is room on the path
// (as in a socket's buffers). They arrive later, in order, in pieces of another size. A cut loses
// the bytes in transit, even in the middle of a header or a chunk. On a narrow path small packets
// pass, and the first large one stops its direction. The two SimLinks at its ends share it.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/link/events.h"
#include "csrc/link/port.h"
#include "csrc/net/framing.h"
#include "tests/sim/event_loop.h"
#include "tests/sim/random.h"

namespace pccl::sim {

struct WireOptions {
  Duration delay_min = std::chrono::microseconds(10);
  Duration delay_max = std::chrono::microseconds(500);
  size_t piece_bytes_max = 16384;
  size_t under_way_bytes_max = 65536;

  // Whether a collective of a few thousand elements needs no allowance in a time limit.
  bool fast() const {
    return piece_bytes_max >= 10000 && delay_max <= std::chrono::milliseconds(1);
  }
};

class Wire : public std::enable_shared_from_this<Wire> {
 public:
  // Callbacks of one end. The notifications (`on_...`) come from the event loop, never from inside
  // the owner's own calls.
  struct End {
    net::FrameSink* sink = nullptr;
    std::function<void()> on_chunk_sent;
    // Once. The end is detached by then. kSystem: fail() was called, or the other end no longer
    // knows this connection; kProtocol: bad frame.
    std::function<void(Status)> on_failed;
    std::function<bool()> paused;    // the process is paused: it neither reads nor writes
    std::function<bool()> cut_off;   // bytes from the other end do not arrive now
    std::function<size_t()> width;   // bytes of the largest packet that arrives here
    std::function<Duration()> late;  // random delay of whatever the process does
  };
  Wire(EventLoop& event_loop, Random& random, WireOptions options);
  ~Wire();

  // The port for writing at end `side` (0 or 1). Valid as long as the wire. It drops what it is
  // given while the end is not attached.
  link::Port& port(int side);
  // The end takes part from now on.
  void attach(int side, End end);
  // The owner of the end is gone. Nothing is read or written there any more.
  void detach(int side);
  // The connection is over for this end.
  void fail(int side, Status why);
  // Bytes that no writer made leave this end.
  void inject(int side, std::span<const std::byte> bytes);
  void pump(int side);  // after the process resumes, or the path to it opens
  // Whether anything has arrived there since the last call.
  bool take_received(int side) { return std::exchange(received_[side], false); }
  // Bytes that this end has sent, and bytes that have arrived here.
  uint64_t sent(int side) const { return flows_[side].sent; }
  uint64_t arrived(int side) const { return flows_[1 - side].delivered; }
  // Progress of the large packets that this end sent (net::Lane::progress).
  std::optional<link::Progress> progress(int side) const;
  uint32_t segment = kSegment;  // bytes of the largest packet
  static constexpr uint32_t kSegment = 1460;
  bool cut = false;         // one end has closed or rejected it
  bool silent_end = false;  // the other end is not notified
  bool refuses = false;     // the other end is not notified, but its data is answered with a reset
  uint32_t serial = 0;      // serial number, counted by its dialler

 private:
  struct Direction;
  class WirePort;
  // Byte counts of one direction.
  struct Flow {
    uint64_t sent = 0, delivered = 0, acknowledged = 0;
    // Value of `sent` before the first large packet, and before the first full one.
    std::optional<uint64_t> before_large, before_full;
    // Value of `sent` before a packet that was too large for the path. The bytes behind it wait.
    std::optional<uint64_t> stuck;
    size_t stuck_bytes = 0;
  };
  void note_packet(int side, size_t bytes);
  size_t passable(int from);
  void deliver(int from);
  void send_some(int side);

  EventLoop& event_loop_;
  Random& random_;
  WireOptions options_;
  std::array<End, 2> ends_;
  std::array<bool, 2> attached_{false, false};
  std::array<std::unique_ptr<net::FrameWriter>, 2> writers_;
  std::array<std::unique_ptr<net::FrameReader>, 2> readers_;
  std::array<std::unique_ptr<WirePort>, 2> ports_;
  std::array<std::deque<std::byte>, 2> under_way_;  // [side]: bytes that `side` has sent
  std::array<bool, 2> sending_{false, false};
  std::array<bool, 2> delivering_{false, false};
  std::array<bool, 2> received_{false, false};
  std::array<Flow, 2> flows_;  // [side]: of the bytes that `side` has sent
};

}  // namespace pccl::sim
