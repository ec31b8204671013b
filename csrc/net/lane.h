// Lane: one connection of a link, which carries the chunks of any operation in progress. It is a
// Channel between a FrameReader and a FrameWriter, and nothing more.
// The peer loop owns it; call it on that loop's thread only.
// Invariants:
//   1. A span passed to send_chunk() is not used any more when on_sent fires or withdraw() returns.
//   2. A landing from the sink is not used any more at on_chunk_end() or when revoke() returns.
//   3. No span and no landing is used any more when on_failed fires or when the lane is destroyed.
//   4. The lane reads and writes at most kTurnBytes, and one buffer of ciphertext more, before the
//      loop's other handles run.
//   5. on_sent and on_failed come from the bottom of the loop's stack, never from inside a call.
//      These two callbacks and the sink's methods may destroy the lane.
// Failure: on_failed fires once, and the lane is dead: it drops everything that it is given.
// A lane never reconnects: the shell decides about that.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "csrc/base/status.h"
#include "csrc/net/channel.h"
#include "csrc/net/framing.h"
#include "csrc/net/socket.h"

namespace pccl::net {

class Lane {
 public:
  static constexpr size_t kTurnBytes = 4u << 20;
  // The largest number of bytes of queued frames that wait for the other side. Credits, pings and
  // the copies of contributions (ring/peer_link.h) stay below this.
  static constexpr size_t kQueueBytesMax = 16u << 20;
  struct Callbacks {
    // The whole chunk was written or encrypted. The next chunk may be given, also from inside this
    // callback.
    std::function<void()> on_sent;
    // kSystem: reset, end of file, queue overrun, or a handshake that took too long; kProtocol: bad
    // frame or damaged record; kAuthentication: the handshake failed.
    std::function<void(Status)> on_failed;
    // The TLS handshake is complete; comes before the first frame. Not called without TLS.
    std::function<void()> on_established = {};
    // Comes before on_established: the other end has shown a proof that it knows the key. Until the
    // handshake is complete, the proof may be a copy (Tls::proven).
    std::function<void()> on_proven = {};
  };
  // Reading starts at once.
  Lane(Loop& loop, Channel channel, FrameSink& sink, Callbacks callbacks);
  ~Lane();

  // Applies from the next chunk on; false at first. Pass true if both ends are on this machine and
  // both have learned this. Then payloads carry no checksums (an encrypted lane needs none anyway),
  // and the loop's thread uses busy polling for the next piece of a large chunk. To wake the thread
  // would take longer than the bytes need to arrive. Also, the system places a thread on the core
  // of the thread that wakes it, so that two threads that could run in parallel take turns on one
  // core.
  void set_local(bool local);
  // For a local lane. `alone`: no other lane keeps this thread as busy. Then, if the threads at
  // both ends share a core, the thread at the end with the higher port migrates.
  void set_alone(bool alone);
  // Adapts the socket to its path (Socket::tune). `congestion` names the congestion control. If it
  // is empty, the path decides, and the lane of a wan path also calls keep_window(). If the system
  // refuses `congestion`, the socket keeps its congestion control, and the result is false.
  bool tune(PathClass path, const std::string& congestion);
  // From here on the congestion window survives idle periods, if the system permits it
  // (Socket::send_after_silence), and the first chunks after an idle period are paced. No effect if
  // the congestion control paces by itself.
  void keep_window();
  void send(const FrameHeader& header);
  void send_copy(const FrameHeader& header, std::span<const std::byte> payload);
  // REQUIRES: no chunk pending.
  void send_chunk(const FrameHeader& header, std::span<const std::byte> payload);
  // See FrameWriter. on_sent does not fire for the chunk; the next chunk may be given at once.
  void withdraw();
  void revoke();      // see FrameReader
  bool idle() const;  // no chunk pending
  using Counters = Channel::Counters;
  const Counters& counters() const;  // since the lane opened, for run_info
  // Whether large packets arrive at the other end. `arrived` is true if a full packet was
  // acknowledged. It is false if nothing of the first full packet was acknowledged. While no full
  // packet was sent, the first large packet decides in its place. Returns nullopt if no large
  // packet was sent, or if the answer is not known. Queries the system until a full packet has
  // arrived.
  struct Progress {
    uint32_t segment = 0;  // bytes of a full packet
    bool arrived = false;
  };
  std::optional<Progress> progress() const;
  // True if any byte was received since the last call (for the keepalive timer).
  bool take_received();
  // REQUIRES: on_failed has not fired.
  const Socket& socket() const;
  // The identity that was dialled or proven; empty without TLS.
  const std::string& identity() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace pccl::net
