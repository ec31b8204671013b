// Stream: a control connection: bytes in, bytes out, in order. Belongs to the loop that made it.
// Invariants: (1) on_closed fires exactly once, unless the stream is destroyed first; nothing fires
// after it;
//             (2) what send() took leaves before close_after_flush() closes;
//             (3) callbacks come from the bottom of the loop's stack, never from inside a call, and
//             may destroy the
//                 stream.
// A peer that does not read is cut off when the queue exceeds kQueueBytesMax. It never reconnects:
// the shell decides.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "csrc/net/socket.h"

namespace pccl::net {

class Stream {
 public:
  static constexpr size_t kQueueBytesMax = 64u << 20;
  struct Callbacks {
    std::function<void(std::span<const std::byte>)> on_bytes;
    // kSystem: reset, end of file, queue overrun; kOk: after close_after_flush().
    std::function<void(Status)> on_closed;
  };
  Stream(Loop& loop, Socket socket, Callbacks callbacks);
  ~Stream();  // closes at once

  // Of a closed or closing stream: dropped.
  void send(std::span<const std::byte> bytes);
  // Input is thrown away from here on. on_closed fires when the other side has taken all and closed
  // too, or when `at_most` has passed.
  static constexpr Duration kCloseTimeout = std::chrono::seconds(1);
  void close_after_flush(Duration at_most = kCloseTimeout);
  size_t unsent() const;  // bytes that wait to be written
  // REQUIRES: on_closed has not fired.
  const Socket& socket() const;

 private:
  struct Inside;
  std::shared_ptr<Inside> inside_;
};

}  // namespace pccl::net
