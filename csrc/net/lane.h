// Lane: one TCP connection of a link, carrying chunks of any operation in flight. Owned by the data
// loop; call it there only. It is a socket between a FrameReader and a FrameWriter, and nothing
// more. Invariants: (1) a span passed to send_chunk() is back when on_sent fires, or when
// withdraw() returns;
//             (2) a landing given by the sink is back at on_chunk_end, or when revoke() returns;
//             (3) both are back when on_failed fires, and when the lane is destroyed;
//             (4) it reads and writes at most kTurnBytes before it lets the loop's other handles
//             run; (5) on_sent and on_failed come from the bottom of the loop's stack, never from
//             inside a call. They and
//                 the sink's methods may destroy the lane.
// A failed lane calls on_failed once and is dead: what it is given is dropped. It never reconnects:
// the shell decides.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "csrc/net/framing.h"
#include "csrc/net/socket.h"

namespace pccl::net {

class Lane {
 public:
  static constexpr size_t kTurnBytes = 4u << 20;
  // Queued frames that the other side has not taken: credits, pings and the copies of a few epochs
  // stay below, unless it is stuck.
  static constexpr size_t kQueueBytesMax = 16u << 20;
  struct Callbacks {
    // The chunk has left entirely: the next may be given (also from here).
    std::function<void()> on_sent;
    // kSystem: reset, end of file, queue overrun; kProtocol: bad frame.
    std::function<void(Status)> on_failed;
  };
  // Reading starts at once.
  Lane(Loop& loop, Socket socket, FrameSink& sink, Callbacks callbacks);
  ~Lane();

  // From the next chunk on; false at first. Both ends are on this machine and know it: payloads
  // carry no checksums, and the loop's thread stays awake for the next piece of a large chunk. To
  // be woken takes longer than the way, and the system puts a thread where the one is that wakes
  // it: two that could have run beside each other take turns on one core.
  void set_local(bool local);
  // A local one: whether no other lane keeps this thread as busy. Of the threads at its two ends
  // one leaves a core on which both have come to run.
  void set_alone(bool alone);
  // From here on its congestion window outlives silences, where the system lets it
  // (Socket::send_after_silence), and the first chunks after one are paced. Not for one whose
  // congestion control paces itself.
  void keep_window();
  void send(const FrameHeader& header);
  void send_copy(const FrameHeader& header, std::span<const std::byte> payload);
  // REQUIRES: no chunk pending.
  void send_chunk(const FrameHeader& header, std::span<const std::byte> payload);
  // See FrameWriter. on_sent does not fire for the chunk; the next may be given at once.
  void withdraw();
  void revoke();      // see FrameReader
  bool idle() const;  // no chunk pending
  // Bytes and calls since it opened, for run_info.
  struct Counters {
    uint64_t bytes_sent = 0, bytes_received = 0, send_calls = 0, receive_calls = 0;
  };
  const Counters& counters() const;
  // Whether a full packet of what was sent has arrived at the other end, or none of the large ones
  // has; nothing: none was sent, or it is not known. Asks the system until one has arrived.
  struct Progress {
    uint32_t segment = 0;  // bytes of a full one
    bool arrived = false;
  };
  std::optional<Progress> progress() const;
  // True if anything arrived since the last call (for silence detection).
  bool take_heard();
  // REQUIRES: on_failed has not fired.
  const Socket& socket() const;

 private:
  struct Inside;
  std::shared_ptr<Inside> inside_;
};

}  // namespace pccl::net
