// ShellLink: one connection of a link, from its first byte to its last: the socket's side of a lane
// of LinkCore, which decides what becomes of it. It passes on the first frame, which should be a
// hello; then it carries frames between its lane and the Engine, and answers pings. Belongs to the
// data loop. What can go wrong: its lane fails, which on_failed says once, unless close() was
// first.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "csrc/link/core.h"
#include "csrc/link/link_traffic.h"
#include "csrc/net/lane.h"
#include "csrc/ring/engine.h"

namespace pccl::ring {

class ShellLink : public Port, public link::Carrier, public net::FrameSink {
 public:
  struct Callbacks {
    std::function<void(std::optional<protocol::LaneHello>)> on_hello;
    std::function<void(uint64_t number)> on_pong;
    // The lane is closed. Destroy this on a later turn of the loop.
    std::function<void(Status, LinkFault)> on_failed;
  };
  // `dialled`: by us, so that an answer is what comes first.
  ShellLink(net::Loop& loop, net::Socket socket, bool dialled, Callbacks callbacks);

  // `congestion`: its control; empty: as it suits the way.
  void suit(net::Way way, const std::string& congestion);
  // Whether the ring has more ranks than two. Where no way is between them they share cores then,
  // and what lies long in a socket is out of the cache when it is read. After suit().
  void crowd(bool crowded);
  // From here on: a chunk has left, and perhaps another one has begun.
  void watch(std::function<void(const ShellLink&)> on_chunk_sent);
  void send_hello(bool answer, const protocol::LaneHello& hello);
  // A lane of `engine` from here on, until its link_down(peer). `local`: the other end is on this
  // machine.
  void join(Engine& engine, PeerId peer, bool local);
  // Nothing is called back any more, no lent byte touched. May be called from any callback, not the
  // destructor.
  void close();
  std::optional<net::Lane::Progress> progress() const {
    return lane_ == nullptr ? std::nullopt : lane_->progress();
  }
  // "1.2.3.4:40001 and 5.6.7.8:48201", its two ends. REQUIRES: it is not closed.
  std::string ends() const;
  bool take_heard() { return lane_ != nullptr && lane_->take_heard(); }
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
  const bool dialled_;
  const Callbacks callbacks_;
  const std::string address_;  // "10.0.0.7:48201"
  bool local_ = false;
  bool far_ = false;
  std::function<void(const ShellLink&)> on_chunk_sent_;
  Engine::Lane* sink_ = nullptr;     // the engine's, once it has joined
  std::unique_ptr<net::Lane> lane_;  // null: closed
};

}  // namespace pccl::ring
