// Channel: a connected socket and, if the connection is encrypted, TLS between the socket and the
// owner. It moves bytes only when it is called, and never waits. The owner, a Lane or a Stream,
// watches the socket. Bytes that are not encrypted are received directly into the owner's memory,
// and sent from where they lie. One thread at a time may use it.
// Invariants:
//   1. Unless holds_input() is true, the owner has got all bytes that were received, except a part
//      of a record. So the socket becomes readable whenever there is more to read.
//   2. No data is received before established() is true, and no data of the owner is sent before
//      proven() is true.
//   3. Nothing is received after the other end has closed its direction (Tls::close).
// Failure: receive() returns it, with the code of Tls or kSystem. If TLS fails, an alert was sent
// to the other end, as far as the socket accepted it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/clock.h"
#include "csrc/base/result.h"
#include "csrc/net/socket.h"
#include "csrc/net/tls.h"

namespace pccl::net {

class Channel {
 public:
  using Bytes = std::span<const std::byte>;

  Channel(Socket socket) : socket_(std::move(socket)) {}
  // `by`: the deadline of the handshake. The owner ends a connection that misses it.
  Channel(Socket socket, Tls tls, Instant by);

  // The result of receive().
  struct Received {
    Bytes bytes = {};  // valid until the next call of a method
    size_t wire = 0;   // number of bytes that the socket gave in this call
    bool dry = false;  // a further call now would return no bytes
    Status end = {};   // not kOk: no more bytes will come
  };
  // Receives into `space`, by at most one system call. Without encryption, the received bytes are
  // the result, so that `space` can be their final place. Otherwise they are decrypted in place,
  // and the result lies in `space` or inside of TLS.
  // REQUIRES: `space` is not empty. While holds_input() is true, each call gets the same `space`,
  // and no other code writes to it.
  Received receive(std::span<std::byte> space);
  bool holds_input() const { return holds_input_; }

  // Returns the bytes to send next. Without encryption, they are `plaintext`. With encryption, they
  // are one span of ciphertext or none: the unsent rest of earlier ciphertext or, if there is no
  // rest, the ciphertext of the first bytes of `plaintext`. The result is valid until the next call
  // of another method. After the send, pass the number of bytes to sent().
  Result<std::span<const Bytes>> prepare(std::span<const Bytes> plaintext);
  // Call it when `bytes` bytes from prepare() were sent. Returns the number of bytes at the front
  // of `plaintext` that are not needed any more.
  size_t sent(size_t bytes);
  // Whether prepare() would return bytes even without plaintext.
  bool owes() const { return unsent() > 0; }
  size_t unsent() const { return tls_ ? tls_->outgoing().size() : 0; }  // bytes of ciphertext
  // Marks the end of our data (Tls::close). Only prepare({}) may follow.
  void close();

  // Sets the bytes that are sent last if the other end does not use TLS. They are plain text in the
  // protocol of that end.
  void answer_plain_text_with(std::vector<std::byte> bytes) { plain_answer_ = std::move(bytes); }

  // Long data is encrypted and decrypted with these threads, which must outlive this object.
  void share_work(HelperThreads& helpers) {
    if (tls_) tls_->share_work(helpers);
  }

  bool encrypted() const { return tls_.has_value(); }
  // REQUIRES: encrypted().
  Tls::Refusal refusal() const {
    PCCL_ASSERT(encrypted());
    return tls_->refusal();
  }
  // The handshake is complete. True at once without encryption.
  bool established() const { return !tls_ || tls_->established(); }
  // The other end has proven its key (Tls::proven). True at once without encryption.
  bool proven() const { return !tls_ || tls_->proven(); }
  Instant handshake_by() const {  // REQUIRES: encrypted()
    PCCL_ASSERT(encrypted());
    return by_;
  }
  // The identity that was dialled or proven; empty without encryption (Tls::identity).
  const std::string& identity() const;

  // The numbers of bytes on the wire and of system calls.
  struct Counters {
    uint64_t bytes_sent = 0, bytes_received = 0, send_calls = 0, receive_calls = 0;
  };
  const Counters& counters() const { return counters_; }
  const Socket& socket() const { return socket_; }
  void drop_socket() { socket_ = Socket(); }

 private:
  Received receive_once(std::span<std::byte> space);
  Received failed(Status why);

  Socket socket_;
  std::optional<Tls> tls_;
  Instant by_{};
  std::span<std::byte> input_;  // ciphertext that was received and not decrypted
  bool holds_input_ = false;    // TLS may return more data before the socket is read again
  bool dry_ = false;            // the socket had no more bytes
  Bytes outgoing_;              // the result of prepare()
  size_t taken_ = 0;            // bytes of plaintext that are encrypted, and not reported by sent()
  std::vector<std::byte> plain_answer_;
  Counters counters_;
};

}  // namespace pccl::net
