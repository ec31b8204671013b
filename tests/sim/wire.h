// Wire: a connection of the simulated data plane: two writers, two readers, and the real frames as
// real bytes between them. Bytes leave in pieces of random size as long as there is room on the way
// (a socket's buffers), arrive later, in order, in pieces of another size. Cutting it loses what is
// under way, wherever that ends: in a header, in a chunk. On a narrow way small packets pass, and
// the first large one stops its direction.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "csrc/link/core.h"
#include "csrc/net/framing.h"
#include "csrc/ring/engine.h"
#include "tests/sim/clockwork.h"
#include "tests/sim/random.h"

namespace pccl::sim {

struct WireOptions {
  Duration delay_min = std::chrono::microseconds(10);
  Duration delay_max = std::chrono::microseconds(500);
  size_t piece_bytes_max = 16384;
  size_t under_way_bytes_max = 65536;

  // A collective of a few thousand elements takes no time that a limit would have to allow for.
  bool fast() const {
    return piece_bytes_max >= 10000 && delay_max <= std::chrono::milliseconds(1);
  }
};

class Wire : public std::enable_shared_from_this<Wire> {
 public:
  // What an end tells its owner. Calls come from the clockwork, never from inside the owner's own
  // calls.
  struct End {
    net::FrameSink* sink = nullptr;
    std::function<void()> on_chunk_sent;
    std::function<void(Status)> on_bad_frame;
    std::function<bool()> stopped;     // the process is stopped: it neither reads nor writes
    std::function<bool()> cut_off;     // what the other end sends does not arrive for now
    std::function<size_t()> width;     // larger packets that it sends vanish
    std::function<Duration()> late;    // by how much the process is late with whatever it does
    std::function<void()> on_refused;  // the other end does not know this connection any more
  };
  Wire(Clockwork& clockwork, Random& random, WireOptions options);
  ~Wire();

  // The port that end `side` (0 or 1) writes to. Valid as long as the wire.
  ring::Port& port(int side);
  // An end takes part from here on.
  void attach(int side, End end);
  // The end's owner is gone: nothing is read or written there any more.
  void detach(int side);
  void pump(int side);  // after a stopped process goes on, or the way to it is open again
  // Whether anything has arrived there since this was asked last.
  bool take_heard(int side) { return std::exchange(heard_[side], false); }
  // Of the large packets that end has sent (net::Lane::progress).
  std::optional<link::Progress> progress(int side) const;
  uint32_t segment = kSegment;  // a packet has no more bytes
  static constexpr uint32_t kSegment = 1460;
  bool cut = false;         // one end has closed it, or turned it down
  bool silent_end = false;  // the other is not told
  bool refuses = false;     // not told, but what it sends is answered with a reset
  uint32_t serial = 0;      // among the connections that its dialler has made

 private:
  struct Direction;
  class WirePort;
  // What of one direction is where.
  struct Flow {
    uint64_t sent = 0, delivered = 0, acknowledged = 0;
    std::optional<uint64_t> before_large, before_full;  // sent before the first such packet
    // Sent before a packet that was too large for the way. What comes behind it waits for it.
    std::optional<uint64_t> stuck;
    size_t stuck_bytes = 0;
  };
  void note_packet(int side, size_t bytes);
  size_t passable(int from);
  void deliver(int from);
  void send_some(int side);

  Clockwork& clockwork_;
  Random& random_;
  WireOptions options_;
  std::array<End, 2> ends_;
  std::array<bool, 2> attached_{false, false};
  std::array<std::unique_ptr<net::FrameWriter>, 2> writers_;
  std::array<std::unique_ptr<net::FrameReader>, 2> readers_;
  std::array<std::unique_ptr<WirePort>, 2> ports_;
  std::array<std::deque<std::byte>, 2> under_way_;  // [side]: what `side` has sent
  std::array<bool, 2> sending_{false, false};
  std::array<bool, 2> delivering_{false, false};
  std::array<bool, 2> heard_{false, false};
  std::array<Flow, 2> flows_;  // [side]: of what `side` has sent
};

}  // namespace pccl::sim
