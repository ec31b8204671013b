#include "csrc/net/socket.h"

#include <uv.h>

#include <array>

#include "tests/cpp/net/net_test.h"

namespace pccl::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Makes one attempt and waits for it. `fault`: filled in for an attempt that fails.
Result<Socket> attempt(Loop& loop, const Endpoint& to, Duration timeout,
                       LinkFault* fault = nullptr) {
  std::promise<Result<Socket>> done;
  std::unique_ptr<Connector> connector;
  loop.post([&] {
    connector = std::make_unique<Connector>(loop, to, timeout, [&](Result<Socket> result) {
      if (fault != nullptr) *fault = connector->fault();
      connector.reset();  // destroyed in its own callback
      done.set_value(std::move(result));
    });
    EXPECT_NE(connector, nullptr);  // the constructor never calls back
  });
  return done.get_future().get();
}

std::string refusal(Loop& loop, const Endpoint& to, Duration timeout = seconds(5)) {
  Result<Socket> result = attempt(loop, to, timeout);
  if (result.ok()) return "connected";
  EXPECT_EQ(result.status().code, Code::kSystem);
  return result.status().message;
}

// A name may resolve to ::1 first, where nobody listens.
void reaches(const char* host) {
  Loop loop("test");
  RawListener listener;
  Result<Socket> result = attempt(loop, {host, listener.port()}, seconds(5));
  ASSERT_TRUE(result.ok()) << result.status().message;
  EXPECT_EQ(result.value().peer_host(), "127.0.0.1");
}

TEST(Connector, ReachesLiteralsAndThisMachine) {
  reaches("127.0.0.1");
  reaches("localhost");
}

TEST(Connector, ReachesANameThatIsLookedUp) {
  if (!has_names()) GTEST_SKIP() << "this machine finds no address of " << kLookedUp;
  reaches(kLookedUp);
}

TEST(Connector, LimitsTheSegmentsOfBothEnds) {
  Loop loop("test");
  RawListener listener;
  std::promise<Socket> done;
  std::unique_ptr<Connector> connector;
  loop.post([&] {
    const auto connected = [&](Result<Socket> result) {
      done.set_value(std::move(result.value()));
    };
    connector = std::make_unique<Connector>(loop, Endpoint{"127.0.0.1", listener.port()},
                                            seconds(5), connected, 1200);
  });
  const Socket mine = done.get_future().get();
  const Socket other(accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC));
  for (const Socket* socket : {&mine, &other}) {
    EXPECT_LE(socket->segment(), 1200u);
    EXPECT_GE(socket->segment(), 1100u);
  }
  EXPECT_EQ(Socket().segment(), 0u);
  on(loop, [&] { return connector.reset(), 0; });
}

TEST(Connector, SaysOfWhatKindAFaultIs) {
  Loop loop("test");
  LinkFault fault = LinkFault::kOther;
  EXPECT_FALSE(attempt(loop, {"127.0.0.1", free_port()}, seconds(5), &fault).ok());
  EXPECT_EQ(fault, LinkFault::kRefused);
  EXPECT_FALSE(attempt(loop, {std::string(70, 'x'), 1}, seconds(5), &fault).ok());
  EXPECT_EQ(fault, LinkFault::kUnknownName);
  EXPECT_FALSE(attempt(loop, {"", 1}, seconds(5), &fault).ok());
  EXPECT_EQ(fault, LinkFault::kOther);
}

TEST(Connector, SaysWhoRefused) {
  Loop loop("test");
  const uint16_t port = free_port();
  const std::string number = std::to_string(port);
  EXPECT_EQ(refusal(loop, {"127.0.0.1", port}),
            "connect to 127.0.0.1:" + number + ": connection refused");
  const std::string text = refusal(loop, {"localhost", port});
  EXPECT_TRUE(text.starts_with("connect to localhost:" + number + " (")) << text;
  EXPECT_TRUE(text.ends_with("): connection refused")) << text;
  EXPECT_EQ(refusal(loop, {"", port}), "connect to :" + number + ": no host is given");
  const std::string name(70, 'x');  // refused without a query
  EXPECT_EQ(refusal(loop, {name, 1}), "connect to " + name + ":1: unknown host name");
  const std::string longer(300, 'x');
  EXPECT_TRUE(refusal(loop, {longer, 1}).starts_with("connect to xxx"));
}

// A listener whose queue is full: the system drops what is sent to it.
struct BlackHole : RawListener {
  BlackHole() : RawListener(0) {
    for (int i = 0; i < 4; ++i) {
      fillers.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      ::connect(fillers.back(), raw(), sizeof address);
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
  ~BlackHole() {
    for (const int filler : fillers) ::close(filler);
  }
  std::vector<int> fillers;
};

TEST(Connector, GivesUpWhenNobodyAnswers) {
  Loop loop("test");
  BlackHole hole;
  const auto start = std::chrono::steady_clock::now();
  const std::string text = refusal(loop, {"127.0.0.1", hole.port()}, milliseconds(300));
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(300));
  LinkFault fault = LinkFault::kOther;
  EXPECT_FALSE(attempt(loop, {"127.0.0.1", hole.port()}, milliseconds(50), &fault).ok());
  EXPECT_EQ(fault, LinkFault::kNoAnswer);
  EXPECT_EQ(text,
            "connect to 127.0.0.1:" + std::to_string(hole.port()) + ": no answer within 0.3 s");
}

// Each address gets its share of the time, so an address that swallows everything does not spoil
// the next.
TEST(Connector, GoesOnToTheNextAddress) {
  if (!has_ipv6_loopback()) GTEST_SKIP() << "this machine has no address ::1";
  RawListener listener;
  sockaddr_in6 swallowing{};
  swallowing.sin6_family = AF_INET6;
  swallowing.sin6_addr = in6addr_loopback;
  swallowing.sin6_port = htons(listener.port());
  std::vector<int> fds;
  const auto make = [&] {
    return fds.emplace_back(::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  };
  auto* address = reinterpret_cast<sockaddr*>(&swallowing);
  if (bind(make(), address, sizeof swallowing) == 0 && listen(fds[0], 0) == 0) {
    for (int i = 0; i < 4; ++i) ::connect(make(), address, sizeof swallowing);
  }
  Loop loop("test");
  Result<Socket> result = attempt(loop, {"localhost", listener.port()}, seconds(2));
  EXPECT_TRUE(result.ok()) << result.status().message;
  for (const int fd : fds) ::close(fd);
}

TEST(Connector, DestroyedItSaysNothing) {
  Loop loop("test");
  BlackHole hole;
  RawListener listener;
  bool called = false;
  const auto say = [&called](Result<Socket>) { called = true; };
  on(loop, [&] {
    // Destroyed before the attempt begins, while a name is resolved, while an answer is awaited,
    // and just before success.
    Connector(loop, {"127.0.0.1", listener.port()}, seconds(5), say);
    auto named =
        std::make_shared<Connector>(loop, Endpoint{kLookedUp, listener.port()}, seconds(5), say);
    auto waiting =
        std::make_shared<Connector>(loop, Endpoint{"127.0.0.1", hole.port()}, seconds(5), say);
    auto sure =
        std::make_shared<Connector>(loop, Endpoint{"127.0.0.1", listener.port()}, seconds(5), say);
    loop.post([named, waiting, sure] {});  // the task holds the last references
    return 0;
  });
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(on(loop, [&] { return called; }));
}

TEST(Connector, MayOutliveItsLoop) {
  BlackHole hole;
  std::vector<std::unique_ptr<Connector>> connectors;
  bool called = false;
  {
    Loop loop("test");
    on(loop, [&] {
      for (const char* host : {"127.0.0.1", kLookedUp}) {
        connectors.push_back(std::make_unique<Connector>(
            loop, Endpoint{host, hole.port()}, seconds(5), [&](Result<Socket>) { called = true; }));
      }
      return 0;
    });
  }
  EXPECT_FALSE(called);
}

// The loop sees in one turn that it has to end, and then that the lookup is done. The lookup must
// open no connection any more, because nothing would close it. The pauses only let both happen
// before the turn; if one is too short, the test shows nothing.
TEST(Connector, ALookupThatEndsAfterItsLoopOpensNothing) {
  BlackHole hole;
  std::promise<void> release, about_to_stop;
  const std::shared_future<void> released = release.get_future().share();
  std::array<uv_work_t, 4> busy;  // all threads that look up names
  std::unique_ptr<Connector> connector;
  std::unique_ptr<Timer> next_turn;
  bool called = false;
  Loop loop("test");
  on(loop, [&] {
    for (uv_work_t& work : busy) {
      work.data = const_cast<std::shared_future<void>*>(&released);
      const auto wait = [](uv_work_t* raw) {
        static_cast<std::shared_future<void>*>(raw->data)->wait();
      };
      EXPECT_EQ(uv_queue_work(loop.raw(), &work, wait, [](uv_work_t*, int) {}), 0);
    }
    connector = std::make_unique<Connector>(loop, Endpoint{kLookedUp, hole.port()}, seconds(5),
                                            [&](Result<Socket>) { called = true; });
    next_turn = std::make_unique<Timer>(loop, [&] {
      about_to_stop.get_future().wait();
      std::this_thread::sleep_for(milliseconds(50));  // stop() wakes the loop meanwhile
      release.set_value();
      std::this_thread::sleep_for(milliseconds(50));  // the lookup ends meanwhile
    });
    next_turn->arm(monotonic_now());
    return 0;
  });
  about_to_stop.set_value();
  loop.stop();
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace pccl::net
