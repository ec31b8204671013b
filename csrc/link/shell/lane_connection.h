// LaneConnection: one connection of a link, from its first byte to its last. It is the socket side
// of a lane of LinkCore. LinkCore decides what happens to the lane. A LaneConnection passes on the
// first frame, which should be a hello. Then it carries frames between its lane and the user of the
// lane, and answers pings. The LinkDriver owns it; it belongs to the peer loop. Failure: its lane
// fails. on_failed reports that once, unless close() was called first.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "csrc/base/status.h"
#include "csrc/link/events.h"
#include "csrc/link/path_monitor.h"
#include "csrc/link/port.h"
#include "csrc/net/lane.h"

namespace pccl::link {

class LaneConnection : public Port, public Carrier, public net::FrameSink {
 public:
  struct Callbacks {
    std::function<void(std::optional<protocol::LaneHello>)> on_hello;
    std::function<void(uint64_t number)> on_pong;
    // The lane is closed. Destroy this object on a later turn of the loop.
    std::function<void(Status, LinkFault)> on_failed;
    // See net::Lane. Not called without TLS.
    std::function<void()> on_proven = {}, on_established = {};
  };
  // `dialled`: this peer opened the connection, so an answer to its hello comes first.
  LaneConnection(net::Loop& loop, net::Channel channel, bool dialled, Callbacks callbacks);

  // Prepares the lane for its path. `congestion` names the congestion control; empty: the path
  // decides. Returns a warning if the system refuses it.
  std::string tune(net::PathClass rtt, const std::string& congestion);
  // `contended`: the ring has more than two ranks. If no network is between the ranks, they then
  // share cores, and data that waits long in a socket is out of cache when it is read. Call it
  // after tune().
  void set_contended(bool contended);
  void limit_unsent(uint64_t bytes);  // see Socket; call it after tune()
  // From now on `on_chunk_sent` runs whenever a chunk has left; the next chunk may have begun.
  void watch(std::function<void(const LaneConnection&)> on_chunk_sent);
  void send_hello(bool answer, const protocol::LaneHello& hello);
  // Sends the first frame of `user` before this becomes a lane of `user`.
  void open_early(const LaneUser& user, PeerId peer);
  // Makes this a lane of `user` until its link_down(peer). `same_machine`: the other end is on this
  // machine.
  void join(LaneUser& user, PeerId peer, bool same_machine);
  // After this returns, nothing is called back and no borrowed tensor is touched. Any callback may
  // call close(), but must not run the destructor.
  void close();
  std::optional<net::Lane::Progress> progress() const {
    return lane_ == nullptr ? std::nullopt : lane_->progress();
  }
  // The identity that was dialled or proven; empty without TLS. REQUIRES: it is not closed.
  const std::string& identity() const;
  // Both ends, as "1.2.3.4:40001 and 5.6.7.8:48201". REQUIRES: it is not closed.
  std::string ends() const;
  bool take_received() { return lane_ != nullptr && lane_->take_received(); }
  net::Lane::Counters counters() const;

  // Port
  void send(const net::FrameHeader& header) override;
  void send_copy(const net::FrameHeader& header, std::span<const std::byte> payload) override;
  void send_chunk(const net::FrameHeader& header, std::span<const std::byte> payload) override;
  void withdraw() override;
  void revoke() override;
  uint64_t window() const override { return wan_ ? path().window : 0; }
  bool same_machine() const override { return same_machine_; }

  // Carrier. Returns zeros when closed.
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
  bool same_machine_ = false;
  bool wan_ = false;
  bool tuned_ = false;
  Epoch opened_;  // by open_early()
  std::function<void(const LaneConnection&)> on_chunk_sent_;
  LaneSink* sink_ = nullptr;         // of the user, after join()
  std::unique_ptr<net::Lane> lane_;  // null: closed
};

}  // namespace pccl::link
