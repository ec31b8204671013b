// Stream: a control connection, which carries bytes in order in both directions, encrypted or not.
// It belongs to the loop that created it; call it on that loop's thread only.
// Invariants:
//   1. on_closed fires exactly once, unless the stream is destroyed first. Nothing fires after it.
//   2. The bytes that send() took leave before close_after_flush() closes the connection.
//   3. Callbacks come from the bottom of the loop's stack, never from inside a call. They may
//      destroy the stream.
// Failure: on_closed fires with the reason. A peer that does not read is cut off when the queue
// exceeds kQueueBytesMax.
// A stream never reconnects: the shell decides about that.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "csrc/base/status.h"
#include "csrc/net/channel.h"

namespace pccl::net {

class Stream {
 public:
  static constexpr size_t kQueueBytesMax = 64u << 20;
  struct Callbacks {
    std::function<void(std::span<const std::byte>)> on_bytes;
    // kSystem: reset, end of file, queue overrun, or a handshake or a flush that took too long;
    // kAuthentication and kProtocol: see Tls; kOk: after close_after_flush().
    std::function<void(Status)> on_closed;
    // The TLS handshake is complete; comes before the first on_bytes. Not called without TLS.
    std::function<void()> on_established = {};
    // Comes before on_established: the other end has shown a proof that it knows the key. Until the
    // handshake is complete, the proof may be a copy (Tls::proven).
    std::function<void()> on_proven = {};
  };
  Stream(Loop& loop, Channel channel, Callbacks callbacks);
  ~Stream();  // closes at once

  // A closed or closing stream drops the bytes.
  void send(std::span<const std::byte> bytes);
  // Discards all input from here on. on_closed fires when the other side has taken all bytes and
  // closed too, or when `at_most` has passed.
  static constexpr Duration kCloseTimeout = std::chrono::seconds(1);
  void close_after_flush(Duration at_most = kCloseTimeout);
  size_t unsent() const;  // bytes that wait to be written
  // REQUIRES: on_closed has not fired.
  const Socket& socket() const;
  // The identity that the dialler has proven; empty without TLS.
  const std::string& identity() const;
  // Why the TLS handshake has failed; kOther without TLS. May also be called after on_closed.
  Tls::Refusal refusal() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace pccl::net
