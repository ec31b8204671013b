// A wire of the simulator, in virtual time.
#include "tests/cpp/transport/transport.h"
#include "tests/sim/wire.h"

namespace pccl::transport {
namespace {

class Simulated : public Transport {
 public:
  Simulated(Ends& ends, const sim::WireOptions& options)
      : wire_(std::make_shared<sim::Wire>(event_loop_, random_, options)) {
    for (const Side side : {kA, kB}) {
      End& end = ends[side];
      wire_->attach(side, {.sink = &end,
                           .on_chunk_sent = [&end] { end.sent(); },
                           .on_failed =
                               [this, side, &end](Status why) {
                                 tell(other(side), kClosed);
                                 end.failed(std::move(why));
                               },
                           .paused = [this, side] { return stopped_[side]; },
                           .cut_off = {},
                           .width = {},
                           .late = {}});
    }
  }

  void on(Side side, const std::function<void()>& what) override {
    ASSERT_FALSE(stopped_[side]);
    what();
  }
  bool until(Side side, const std::function<bool()>& condition) override {
    EXPECT_FALSE(stopped_[side]);
    const Instant end = event_loop_.now() + std::chrono::minutes(1);
    while (!condition()) {
      if (!event_loop_.run_one(end)) return condition();
    }
    return true;
  }
  void stop(Side side) override { stopped_[side] = true; }
  void resume(Side side) override {
    stopped_[side] = false;
    wire_->pump(side);
  }

  link::Port& port(Side side) override { return wire_->port(side); }
  Traffic traffic(Side side) override { return {wire_->sent(side), wire_->arrived(side)}; }
  const char* refuses_changes_with() const override { return "checksum"; }
  void inject(Side side, std::span<const std::byte> bytes) override { wire_->inject(side, bytes); }
  void close(Side side) override { hang_up(side, kClosed); }
  void reset(Side side) override { hang_up(side, "connection reset"); }

 private:
  static constexpr const char* kClosed = "the other side closed the connection";

  void hang_up(Side side, const char* why) {
    wire_->detach(side);
    tell(other(side), why);
  }
  // The wire does not tell the other end. That is up to its owner, here as in SimLinks.
  void tell(Side side, const char* why) {
    event_loop_.after(std::chrono::milliseconds(5), [wire = wire_, side, why] {
      wire->fail(side, {Code::kSystem, why, {}});
    });
  }

  sim::EventLoop event_loop_;
  sim::Random random_{1};
  std::array<bool, 2> stopped_{};
  std::shared_ptr<sim::Wire> wire_;
};

}  // namespace

std::unique_ptr<Transport> make_simulated(Ends& ends, Pieces pieces) {
  sim::WireOptions options;
  if (pieces == Pieces::kSmall) {
    options.piece_bytes_max = 7;
    options.under_way_bytes_max = 64;
  }
  return std::make_unique<Simulated>(ends, options);
}

}  // namespace pccl::transport
