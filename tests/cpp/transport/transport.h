// Transport: what carries the frames of a lane between two ends. The tests of this folder hold for
// each transport. A new one implements this class and gets a row in rows.cc.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <ostream>
#include <span>

#include "csrc/link/port.h"
#include "tests/cpp/transport/end.h"

namespace pccl::transport {

enum Side : int { kA, kB };
inline Side other(Side side) { return side == kA ? kB : kA; }

// The pieces in which bytes travel. kSmall: a few bytes or little more, and little is under way.
enum class Pieces { kLarge, kSmall };

class Transport {
 public:
  // The most bytes that are under way in one direction while the other end does not read. It is
  // less than a large chunk, so a test can hold a chunk in its middle.
  static constexpr uint64_t kUnderWayBytesMax = 1u << 20;

  virtual ~Transport() = default;

  // Runs `what` where the end lives (the thread of its loop), and returns when it is over. The
  // methods in the second half, and the End itself, are used only there. REQUIRES: not stopped.
  virtual void on(Side side, const std::function<void()>& what) = 0;
  // Runs until `condition`, evaluated where the end lives, holds. False if it did not hold in a
  // generous time. REQUIRES: the end is not stopped.
  virtual bool until(Side side, const std::function<bool()>& condition) = 0;
  // The process of that end stops: it neither reads nor writes until it resumes.
  virtual void stop(Side side) = 0;
  virtual void resume(Side side) = 0;

  // Valid as long as the transport, also when the end is closed.
  virtual link::Port& port(Side side) = 0;
  struct Traffic {
    uint64_t sent = 0, received = 0;
  };
  // Bytes at this end. REQUIRES: it is open.
  virtual Traffic traffic(Side side) = 0;
  // Whether more bytes travel than those of the frames.
  virtual bool encrypted() const { return false; }
  // A part of the refusal of bytes that are no frame.
  virtual const char* refuses_noise_with() const { return "bad frame"; }
  // A part of the refusal of a payload that was changed on the way; null: it is not noticed.
  virtual const char* refuses_changes_with() const = 0;
  // Sends bytes that no FrameWriter made. REQUIRES: nothing else waits to leave.
  virtual void inject(Side side, std::span<const std::byte> bytes) = 0;
  // The owner destroys its end. Both are allowed in callbacks, and may be repeated.
  virtual void close(Side side) = 0;
  virtual void reset(Side side) = 0;  // what is under way to the other end may be lost
};

// Connects two ends, which must outlive the transport.
using Ends = std::array<End, 2>;
using Make = std::unique_ptr<Transport>(Ends& ends, Pieces pieces);
Make make_tcp, make_tcp_on_one_machine, make_tls, make_tls_on_one_machine, make_simulated;

struct Row {
  const char* name;
  Make* make;
};
inline void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

// The fixture of all cases: a connected pair of ends.
class TransportTest : public ::testing::TestWithParam<Row> {
 protected:
  TransportTest() { open(Pieces::kLarge); }

  // Begins with a new pair.
  void open(Pieces pieces) {
    transport_.reset();
    for (End& end : ends_) end = End();
    transport_ = GetParam().make(ends_, pieces);
  }
  void on_a(const std::function<void()>& what) { transport_->on(kA, what); }
  void on_b(const std::function<void()>& what) { transport_->on(kB, what); }
  bool until_a(const std::function<bool()>& condition) { return transport_->until(kA, condition); }
  bool until_b(const std::function<bool()>& condition) { return transport_->until(kB, condition); }
  // Sends `payload` as chunk `number` from A.
  void send_chunk(uint64_t number, std::span<const std::byte> payload) {
    port_a().send_chunk(net::chunk(number, payload.size()), payload);
  }
  // A sends a large chunk while B is stopped. Returns when a part of it has left; the rest waits.
  void begin_chunk(uint64_t number, const Lent& payload) {
    transport_->stop(kB);
    uint64_t before = 0;
    on_a([&] {
      before = transport_->traffic(kA).sent;
      send_chunk(number, payload.bytes());
    });
    EXPECT_TRUE(until_a([&] { return transport_->traffic(kA).sent > before + 1000; }));
  }
  // Gives the bytes of A time to leave. It shows nothing by itself: whoever expects that no more
  // leaves sees it more likely afterwards.
  void let_leave() {
    uint64_t last = 0;
    int turns = 0;
    transport_->until(kA, [&] {
      const uint64_t now = transport_->traffic(kA).sent;
      turns = now == last ? turns + 1 : 0;
      last = now;
      return turns == 50;
    });
  }

  End& a() { return ends_[kA]; }
  End& b() { return ends_[kB]; }
  link::Port& port_a() { return transport_->port(kA); }
  link::Port& port_b() { return transport_->port(kB); }

  Ends ends_;
  std::unique_ptr<Transport> transport_;  // last, because it calls the ends
};

}  // namespace pccl::transport
