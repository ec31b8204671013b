#include "csrc/net/socket.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <uv.h>

#include "tests/cpp/net/net_test.h"

namespace pccl::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A listener and the sockets that it has accepted.
struct Host {
  explicit Host(const Endpoint& at) {
    failure = on(loop, [&] {
      Result<std::unique_ptr<Listener>> result = Listener::open(
          loop, at, [this](Socket socket) { accepted.push_back(std::move(socket)); },
          [this](const std::string& text) { warnings.push_back(text); });
      if (!result.ok()) return result.status();
      listener = std::move(result.value());
      port = listener->port();
      return Status{};
    });
  }
  ~Host() {
    on(loop, [&] {
      listener.reset();
      accepted.clear();
      return 0;
    });
  }

  Loop loop{"test"};
  Status failure;
  uint16_t port = 0;
  std::unique_ptr<Listener> listener;
  std::vector<Socket> accepted;
  std::vector<std::string> warnings;
};

std::string connect_to(Loop& loop, const Endpoint& to) {
  std::promise<std::string> done;
  std::unique_ptr<Connector> connector;
  loop.post([&] {
    connector = std::make_unique<Connector>(loop, to, seconds(5), [&](Result<Socket> result) {
      done.set_value(result.ok() ? result.value().peer_host() : result.status().message);
    });
  });
  std::string outcome = done.get_future().get();
  on(loop, [&] {
    connector.reset();
    return 0;
  });
  return outcome;
}

TEST(Listener, WithoutAHostItAcceptsIpv6) {
  if (!has_ipv6_loopback()) GTEST_SKIP() << "this machine has no address ::1";
  Host host({"", 0});
  ASSERT_TRUE(host.failure.ok()) << host.failure.message;
  EXPECT_EQ(connect_to(host.loop, {"::1", host.port}), "::1");
}

TEST(Listener, WithoutAHostItAcceptsIpv4) {
  Host host({"", 0});
  ASSERT_TRUE(host.failure.ok()) << host.failure.message;
  EXPECT_GT(host.port, 0);
  EXPECT_EQ(connect_to(host.loop, {"127.0.0.1", host.port}), "127.0.0.1");
  EXPECT_TRUE(eventually(host.loop, [&] { return host.accepted.size() >= 1; }));
  on(host.loop, [&] {
    const Socket& socket = host.accepted[0];
    int no_delay = 0;
    socklen_t length = sizeof no_delay;
    getsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &no_delay, &length);
    EXPECT_EQ(no_delay, 1);
    EXPECT_TRUE(fcntl(socket.fd(), F_GETFL) & O_NONBLOCK);
    EXPECT_EQ(socket.peer_host(), "127.0.0.1");  // not ::ffff:127.0.0.1
    EXPECT_TRUE(socket.is_loopback());
    return 0;
  });
}

TEST(Listener, LimitsTheSegmentsOfWhatItAccepts) {
  Host host({"", 0});
  const auto segment_of_next = [&] {
    const size_t before = on(host.loop, [&] { return host.accepted.size(); });
    EXPECT_EQ(connect_to(host.loop, {"127.0.0.1", host.port}), "127.0.0.1");
    EXPECT_TRUE(eventually(host.loop, [&] { return host.accepted.size() > before; }));
    return on(host.loop, [&] { return host.accepted.back().segment(); });
  };
  EXPECT_GT(segment_of_next(), 1200u);
  on(host.loop, [&] { return host.listener->limit_segment(1200), 0; });
  EXPECT_LE(segment_of_next(), 1200u);
  on(host.loop, [&] { return host.listener->limit_segment(0), 0; });
  EXPECT_GT(segment_of_next(), 1200u);
}

TEST(Listener, WithANameItListensOnEveryAddressOfIt) {
  if (!has_names()) GTEST_SKIP() << "this machine finds no address of " << kLookedUp;
  Host host({kLookedUp, 0});
  ASSERT_TRUE(host.failure.ok()) << host.failure.message;
  EXPECT_EQ(connect_to(host.loop, {"127.0.0.1", host.port}), "127.0.0.1");
  EXPECT_EQ(connect_to(host.loop, {kLookedUp, host.port}).find("connect to"), std::string::npos);
}

TEST(Listener, OnLoopbackItAcceptsBothFamilies) {
  if (!has_ipv6_loopback()) GTEST_SKIP() << "this machine has no address ::1";
  Host host({kLoopback, 0});
  ASSERT_TRUE(host.failure.ok()) << host.failure.message;
  for (const char* from : {"127.0.0.1", "::1"})
    EXPECT_EQ(connect_to(host.loop, {from, host.port}), from);
}

TEST(Listener, SaysWhyItCannotListen) {
  const std::string in_use =
      "address already in use, another process listens there: end it, or take another port";
  RawListener taken;
  const std::string port = std::to_string(taken.port());
  EXPECT_EQ(Host({"127.0.0.1", taken.port()}).failure,
            (Status{Code::kSystem, "cannot listen on 127.0.0.1:" + port + ": " + in_use, {}}));
  EXPECT_EQ(Host({"", taken.port()}).failure.message, "cannot listen on *:" + port + ": " + in_use);
  EXPECT_EQ(Host({std::string(70, 'x'), 1}).failure.message,
            "cannot listen on " + std::string(70, 'x') + ":1: unknown host name");
  EXPECT_EQ(
      Host({"2001:db8::7", 5000}).failure.message.find("cannot listen on [2001:db8::7]:5000: "),
      0u);
}

TEST(Listener, ReusesAPortThatWasJustClosed) {
  uint16_t port = 0;
  {
    Host host({"127.0.0.1", 0});
    port = host.port;
    connect_to(host.loop, {"127.0.0.1", port});
    eventually(host.loop, [&] { return host.accepted.size() == 1; });
    on(host.loop, [&] {
      host.accepted.clear();
      return 0;
    });  // the listener's side waits in TIME_WAIT
  }
  EXPECT_TRUE(Host({"127.0.0.1", port}).failure.ok());
}

TEST(Listener, MayBeDestroyedInItsCallback) {
  Loop loop("test");
  RawListener client_side;
  std::unique_ptr<Listener> listener;
  int count = 0;
  const uint16_t port = on(loop, [&] {
    listener = std::move(Listener::open(loop, {"127.0.0.1", 0}, [&](Socket) {
                           ++count;
                           listener.reset();
                         }).value());
    return listener->port();
  });
  client_side.address.sin_port = htons(port);
  on(loop, [&] {  // both are in the queue when the loop polls
    ::close(client_side.connect_one());
    ::close(client_side.connect_one());
    return 0;
  });
  EXPECT_TRUE(eventually(loop, [&] { return listener == nullptr; }));
  EXPECT_EQ(on(loop, [&] { return count; }), 1);
}

TEST(Listener, WithoutDescriptorsItWaitsAndDoesNotSpin) {
  Host host({"127.0.0.1", 0});
  RawListener client_side;
  client_side.address.sin_port = htons(host.port);
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{static_cast<rlim_t>(client) + 1, before.rlim_max};
  std::vector<int> taken;  // every number below the limit
  int turns = 0;           // of the loop
  uv_check_t counter;
  counter.data = &turns;
  on(host.loop, [&] {
    uv_check_init(host.loop.raw(), &counter);
    uv_check_start(&counter, [](uv_check_t* check) { ++*static_cast<int*>(check->data); });
    setrlimit(RLIMIT_NOFILE, &none);
    for (int fd = dup(client); fd >= 0; fd = dup(client)) taken.push_back(fd);
    return 0;
  });
  EXPECT_EQ(::connect(client, client_side.raw(), sizeof client_side.address), 0);
  std::this_thread::sleep_for(milliseconds(300));
  setrlimit(RLIMIT_NOFILE, &before);
  for (const int fd : taken) ::close(fd);
  on(host.loop, [&] {
    EXPECT_LT(turns, 50);
    uv_close(reinterpret_cast<uv_handle_t*>(&counter), nullptr);
    return 0;
  });
  EXPECT_TRUE(eventually(host.loop, [&] { return host.accepted.size() == 1; }));
  const std::string where = "port " + std::to_string(host.port);
  EXPECT_EQ(on(host.loop, [&] { return host.warnings; }),
            (std::vector<std::string>{"cannot accept a connection on " + where +
                                          ": too many open files; it waits until there is room",
                                      "accepts connections on " + where + " again"}));
  ::close(client);
}

TEST(Listener, TakesOverAUnixSocket) {
  sockaddr_un address{};  // family only: bind() picks a name outside of the file system
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof address.sun_family;
  Loop loop("test");
  Socket listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(listening.fd(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listening.fd(), 4), 0);
  length = sizeof address;
  ASSERT_EQ(getsockname(listening.fd(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  std::unique_ptr<Listener> listener;
  std::vector<Socket> accepted;
  on(loop, [&] {
    listener = std::make_unique<Listener>(
        loop, std::move(listening), [&](Socket socket) { accepted.push_back(std::move(socket)); });
    EXPECT_EQ(listener->port(), 0);
    return 0;
  });
  const Socket client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(client.fd(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_TRUE(eventually(loop, [&] { return accepted.size() == 1; }));
  on(loop, [&] {
    EXPECT_TRUE(fcntl(accepted[0].fd(), F_GETFL) & O_NONBLOCK);
    listener.reset();
    accepted.clear();
    return 0;
  });
}

TEST(Listener, MayOutliveItsLoop) {
  std::unique_ptr<Listener> listener;
  Loop loop("test");
  on(loop, [&] {
    listener = std::move(Listener::open(loop, {"127.0.0.1", 0}, [](Socket) {}).value());
    return 0;
  });
  loop.stop();
  listener.reset();
}

}  // namespace
}  // namespace pccl::net
