// ShellLink: one connection of a link, from its first byte to its last. It introduces itself
// (PROTOCOL.md, section 6), then carries frames between its lane and the Engine, and answers pings.
// Belongs to the data loop.
// The happy path: the dialler says kHello, the acceptor checks it and answers kHelloOk; on both
// sides on_introduced, in which the Shell calls join(). What can go wrong: the other end is of
// another run, is not who it should be, says something else first, or nothing for
// protocol::kHelloTimeout; later, its lane fails. Each ends the link: on_ended, once, unless
// close() was first. It never connects again: the Shell decides.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "csrc/base/link_fault.h"
#include "csrc/net/lane.h"
#include "csrc/protocol/silence.h"
#include "csrc/ring/engine.h"
#include "csrc/ring/link_traffic.h"

namespace pccl::ring {

// Who this process is to others.
struct Identity {
  PeerId self;
  uint64_t run_id = 0;
  uint64_t machine = 0;  // equal on both ends: they are on one. 0: unknown
};

class ShellLink : public Port, public Carrier, public net::FrameSink {
 public:
  struct Callbacks {
    // peer() is who it said: close() or join() it at once.
    std::function<void(ShellLink&)> on_introduced;
    // The lane is closed. Destroy the link on a later turn of the loop.
    std::function<void(ShellLink&, Status)> on_ended;
  };
  // What one connects to is what one has dialled; who is dialled learns it.
  struct Target {
    PeerId peer;           // nobody: we were dialled, and the other end introduces itself first
    uint32_t serial = 0;   // of the link, among those that we have dialled
    bool further = false;  // one more lane of the link with this serial
  };
  // `address`: the other end's, for messages.
  ShellLink(net::Loop& loop, net::Socket socket, const Identity& identity, Target target,
            std::string address, Callbacks callbacks);

  PeerId peer() const { return target_.peer; }
  uint32_t serial() const { return target_.serial; }
  bool further() const { return target_.further; }
  LinkFault fault() const { return fault_; }  // why it ended before it was introduced
  // `congestion`: its control; empty: as it suits the way.
  void suit(net::Way way, const std::string& congestion);
  // Whether the ring has more ranks than two. Where no way is between them they share cores then,
  // and what lies long in a socket is out of the cache when it is read. After suit().
  void crowd(bool crowded);
  // From here on: a chunk has left, and perhaps another one has begun.
  void watch(std::function<void(const ShellLink&)> on_chunk_sent);
  // Completes the introduction: a lane of `engine` from here on, until its link_down().
  void join(Engine& engine);
  // Nothing is called back any more, no lent byte touched. May be called from any callback, not the
  // destructor.
  void close();
  void ping(uint64_t number = 0);                    // asks for a sign of life
  uint64_t last_pong() const { return last_pong_; }  // its number
  // A tick has passed. False: nothing was heard for too long.
  bool tick();
  net::Lane::Counters counters() const;

  // Port
  void send(const net::FrameHeader& header) override;
  void send_copy(const net::FrameHeader& header, std::span<const std::byte> payload) override;
  void send_chunk(const net::FrameHeader& header, std::span<const std::byte> payload) override;
  void withdraw() override;
  void revoke() override;
  uint64_t window() const override { return far_ ? path().window : 0; }
  bool local() const override { return local_; }

  // Carrier. Zeros if it is closed.
  bool idle() const override { return lane_ == nullptr || lane_->idle(); }
  PathInfo path() const override;
  uint64_t buffers() const override;

  // FrameSink
  void on_frame(const net::FrameHeader& header) override;
  std::span<std::byte> on_chunk(const net::FrameHeader& header) override;
  void on_piece(size_t at, size_t bytes) override;
  void on_chunk_end(bool valid) override;

 private:
  void introduced_by(const net::FrameHeader& header);
  std::string refusal(const net::FrameHeader& header) const;
  net::FrameHeader hello(net::FrameType type) const;
  void end(Status why, LinkFault fault);

  const Identity identity_;
  const bool dialled_;
  const Callbacks callbacks_;
  const std::string address_;  // "10.0.0.7:48201"
  Target target_;
  bool local_ = false;
  bool joined_ = false;
  bool far_ = false;
  LinkFault fault_ = LinkFault::kOther;
  uint64_t last_pong_ = 0;
  std::function<void(const ShellLink&)> on_chunk_sent_;
  Engine::Lane* sink_ = nullptr;  // the engine's, once introduced
  net::Timer hello_timer_;
  protocol::Silence silence_{protocol::kTicksPerLinkSilence};
  std::unique_ptr<net::Lane> lane_;  // null: closed
};

}  // namespace pccl::ring
