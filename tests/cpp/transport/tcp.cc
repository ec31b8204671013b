// TCP lanes on loopback, encrypted or not. Each end has a loop, that is a thread, of its own.
#include <future>
#include <optional>
#include <utility>

#include "csrc/net/lane.h"
#include "tests/cpp/net/net_test.h"
#include "tests/cpp/net/tls_test.h"
#include "tests/cpp/transport/transport.h"

namespace pccl::transport {
namespace {

class TcpEnd : public link::Port {
 public:
  TcpEnd(int fd, std::optional<net::Tls> tls, End& end, bool local) : established_(!tls) {
    net::on(loop_, [&] {
      net::Socket socket(fd);
      net::Channel channel =
          tls ? net::Channel(std::move(socket), std::move(*tls), monotonic_now() + kHandshakeMax)
              : net::Channel(std::move(socket));
      lane_ = std::make_unique<net::Lane>(
          loop_, std::move(channel), end,
          net::Lane::Callbacks{.on_sent = [&end] { end.sent(); },
                               .on_failed = [&end](Status why) { end.failed(std::move(why)); },
                               .on_established = [this] { established_ = true; }});
      lane_->set_local(local);
    });
  }
  ~TcpEnd() override {
    resume();
    loop_.post([this] { lane_.reset(); });
    loop_.stop();
  }

  void send(const FrameHeader& header) override {
    if (lane_) lane_->send(header);
  }
  void send_copy(const FrameHeader& header, std::span<const std::byte> payload) override {
    if (lane_) lane_->send_copy(header, payload);
  }
  void send_chunk(const FrameHeader& header, std::span<const std::byte> payload) override {
    if (lane_) lane_->send_chunk(header, payload);
  }
  void withdraw() override {
    if (lane_) lane_->withdraw();
  }
  void revoke() override {
    if (lane_) lane_->revoke();
  }

  // The thread waits in a task, so the loop does nothing else.
  void stop() {
    gate_.emplace();
    std::promise<void> inside;
    loop_.post([&inside, open = gate_->get_future().share()] {
      inside.set_value();
      open.wait();
    });
    inside.get_future().wait();
  }
  void resume() {
    if (gate_) std::exchange(gate_, std::nullopt)->set_value();
  }
  bool stopped() const { return gate_.has_value(); }

  void close() { lane_.reset(); }
  void reset() {
    if (!lane_ || !lane_->socket()) return;
    const linger at_once{1, 0};
    setsockopt(lane_->socket().fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close();
  }
  void inject(std::span<const std::byte> bytes) {
    const int fd = lane_->socket().fd();
    EXPECT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  }
  const net::Lane::Counters& counters() const { return lane_->counters(); }
  bool established() const { return established_; }
  net::Loop& loop() { return loop_; }

 private:
  static constexpr Duration kHandshakeMax = std::chrono::seconds(30);
  bool established_;
  net::Loop loop_{"end"};
  std::unique_ptr<net::Lane> lane_;
  std::optional<std::promise<void>> gate_;  // set while stopped
};

class Tcp : public Transport {
 public:
  Tcp(Ends& ends, Pieces pieces, bool encrypted, bool local)
      : encrypted_(encrypted), local_(local) {
    const auto [first, second] = net::connected_fds();
    // The system makes of 1 the least that it permits, about 2 KiB.
    const int held = pieces == Pieces::kSmall ? 1 : 64 << 10;
    for (const int fd : {first, second}) {
      setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &held, sizeof held);
      setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &held, sizeof held);
    }
    std::optional<net::Tls> dialler, acceptor;
    if (encrypted) {
      dialler = net::a_dialler();
      acceptor = net::an_acceptor();
    }
    ends_[kA] = std::make_unique<TcpEnd>(first, std::move(dialler), ends[kA], local);
    ends_[kB] = std::make_unique<TcpEnd>(second, std::move(acceptor), ends[kB], local);
    for (const Side side : {kA, kB})
      EXPECT_TRUE(until(side, [&] { return ends_[side]->established(); }));
  }

  void on(Side side, const std::function<void()>& what) override {
    ASSERT_FALSE(ends_[side]->stopped());
    net::on(ends_[side]->loop(), what);
  }
  bool until(Side side, const std::function<bool()>& condition) override {
    EXPECT_FALSE(ends_[side]->stopped());
    return net::eventually(ends_[side]->loop(), condition, std::chrono::seconds(10));
  }
  void stop(Side side) override { ends_[side]->stop(); }
  void resume(Side side) override { ends_[side]->resume(); }

  link::Port& port(Side side) override { return *ends_[side]; }
  Traffic traffic(Side side) override {
    const net::Lane::Counters& counters = ends_[side]->counters();
    return {counters.bytes_sent, counters.bytes_received};
  }
  bool encrypted() const override { return encrypted_; }
  const char* refuses_noise_with() const override {
    return encrypted_ ? "a record is damaged" : "bad frame";
  }
  const char* refuses_changes_with() const override {
    if (encrypted_) return "a record is damaged";
    return local_ ? nullptr : "checksum";
  }
  void inject(Side side, std::span<const std::byte> bytes) override { ends_[side]->inject(bytes); }
  void close(Side side) override { ends_[side]->close(); }
  void reset(Side side) override { ends_[side]->reset(); }

 private:
  const bool encrypted_, local_;
  std::array<std::unique_ptr<TcpEnd>, 2> ends_;
};

}  // namespace

std::unique_ptr<Transport> make_tcp(Ends& ends, Pieces pieces) {
  return std::make_unique<Tcp>(ends, pieces, false, false);
}
std::unique_ptr<Transport> make_tcp_on_one_machine(Ends& ends, Pieces pieces) {
  return std::make_unique<Tcp>(ends, pieces, false, true);
}
std::unique_ptr<Transport> make_tls(Ends& ends, Pieces pieces) {
  return std::make_unique<Tcp>(ends, pieces, true, false);
}
std::unique_ptr<Transport> make_tls_on_one_machine(Ends& ends, Pieces pieces) {
  return std::make_unique<Tcp>(ends, pieces, true, true);
}

}  // namespace pccl::transport
