#include "csrc/net/lane.h"

#include <linux/filter.h>
#include <netinet/tcp.h>

#include <cstring>

#include "tests/cpp/net/frames.h"
#include "tests/cpp/net/net_test.h"

namespace pccl::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The content of chunk `number`.
Bytes content(uint64_t number, size_t size) {
  Bytes bytes(size + 8);
  for (size_t at = 0; at < size; at += 8) {
    const uint64_t word = (number << 32 | at) * 0x9e3779b97f4a7c15;
    std::memcpy(bytes.data() + at, &word, 8);
  }
  bytes.resize(size);
  return bytes;
}

// fill() and same() work on whole ranges, because a sanitizer checks each access of a byte loop.
void fill(Bytes& bytes, int value) {
  if (!bytes.empty()) std::memset(bytes.data(), value, bytes.size());
}
bool same(const Bytes& a, const Bytes& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// One end of a lane, on a loop of its own. Members are used only on that loop, between its turns.
struct End : FrameSink {
  explicit End(const std::string& name) : loop(name) {}
  ~End() override {
    loop.post([this] { lane.reset(); });
    loop.stop();
  }
  void open(int fd, bool local = false) {
    on(loop, [=, this] {
      lane = std::make_unique<Lane>(loop, Socket(fd), *this,
                                    Lane::Callbacks{[this] { sent(); },
                                                    [this](Status status) {
                                                      ++failed_count;
                                                      failure = std::move(status);
                                                      if (on_any) on_any();
                                                    }});
      lane->set_local(local);
      return 0;
    });
  }
  void sent() {
    ++sent_count;
    if (on_sent) on_sent();
    if (on_any) on_any();
  }

  void on_frame(const FrameHeader& header) override {
    frames.push_back(header.value);
    if (on_any) on_any();
  }
  std::span<std::byte> on_chunk(const FrameHeader& header) override {
    arriving = header;
    landing.resize(header.length);
    fill(landing, 0xee);
    const bool land = !on_header || on_header();
    if (on_any) on_any();
    return land ? std::span(landing) : std::span<std::byte>{};
  }
  void on_piece(size_t, size_t) override {
    if (on_any) on_any();
  }
  void on_chunk_end(bool valid) override {
    ++ended_count;
    if (valid) valid_count += same(landing, content(arriving.value, landing.size())) ? 1 : 1000000;
    if (on_any) on_any();
  }

  Loop loop;
  std::unique_ptr<Lane> lane;
  std::vector<uint64_t> frames;
  FrameHeader arriving;
  Bytes landing, payload;
  int sent_count = 0, ended_count = 0, valid_count = 0, failed_count = 0;
  Status failure;
  std::function<void()> on_sent, on_any;
  std::function<bool()> on_header;
};

struct Link {
  // `held_bytes`: size of each socket buffer; 0: the system decides.
  explicit Link(bool local = false, int held_bytes = 0) {
    const auto [first, second] = connected_fds();
    for (const int fd : {first, second}) {
      if (held_bytes == 0) continue;
      setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &held_bytes, sizeof held_bytes);
      setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &held_bytes, sizeof held_bytes);
    }
    a.open(first, local);
    b.open(second, local);
  }
  End a{"a"}, b{"b"};
};

TEST(Lane, CarriesFramesAndChunks) {
  Link link;
  on(link.a.loop, [&] {
    link.a.payload = content(7, 3'000'000);
    link.a.lane->send(control(1));
    link.a.lane->send_chunk(chunk(7, link.a.payload.size()), link.a.payload);
    link.a.lane->send(control(2));
    EXPECT_FALSE(link.a.lane->idle());
    EXPECT_EQ(link.a.sent_count, 0);  // not from inside the call
    return 0;
  });
  EXPECT_TRUE(eventually(link.b.loop, [&] { return link.b.valid_count == 1; }));
  EXPECT_TRUE(
      eventually(link.a.loop, [&] { return link.a.sent_count == 1 && link.a.lane->idle(); }));
  EXPECT_EQ(link.b.frames, (std::vector<uint64_t>{1, 2}));
  const uint64_t bytes = 3 * 64 + 3'000'000 + 8;
  EXPECT_EQ(on(link.a.loop, [&] { return link.a.lane->counters().bytes_sent; }), bytes);
  on(link.b.loop, [&] {
    EXPECT_EQ(link.b.lane->counters().bytes_received, bytes);
    EXPECT_GT(link.b.lane->counters().receive_calls, 1u);
    EXPECT_TRUE(link.b.lane->take_received());
    EXPECT_FALSE(link.b.lane->take_received());
    return 0;
  });
}

// Drops packets that `fd` receives and that are larger than `bytes`, as a narrow path does.
// With `bytes` 0 it drops none.
void drop_packets_over(int fd, uint32_t bytes) {
  constexpr uint32_t kHeader = 60;  // largest TCP header
  sock_filter steps[] = {BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
                         BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, bytes + kHeader, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, UINT32_MAX)};
  const sock_fprog program{std::size(steps), steps};
  const int none = 0;
  EXPECT_EQ(bytes > 0 ? setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program)
                      : setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none),
            0);
}

// Whether a full packet arrives; false: no large packet arrives.
std::optional<bool> arrives(End& end) {
  const auto progress = on(end.loop, [&] { return end.lane->progress(); });
  if (!progress) return std::nullopt;
  EXPECT_GT(progress->segment, protocol::kSmallPacketBytes);
  return progress->arrived;
}

void send(End& end, uint64_t number, size_t bytes) {
  on(end.loop, [&] {
    end.payload = content(number, bytes);
    end.lane->send_chunk(chunk(number, bytes), end.payload);
    return 0;
  });
}

TEST(Lane, KnowsWhenLargePacketsVanish) {
  Link link;
  on(link.a.loop, [&] { return link.a.lane->send(control(1)), 0; });
  EXPECT_TRUE(eventually(link.b.loop, [&] { return link.b.frames.size() == 1; }));
  EXPECT_EQ(arrives(link.a), std::nullopt) << "small frames prove nothing";
  const int other = on(link.b.loop, [&] { return link.b.lane->socket().fd(); });
  drop_packets_over(other, 1000);
  send(link.a, 2, 2000);  // fills no packet here
  EXPECT_EQ(arrives(link.a), false);
  drop_packets_over(other, 0);
  EXPECT_TRUE(eventually(link.b.loop, [&] { return link.b.valid_count == 1; }));
  EXPECT_TRUE(eventually(link.a.loop, [&] { return !link.a.lane->progress(); }))
      << "it was not a full one";
  drop_packets_over(other, 1000);
  send(link.a, 3, 1 << 20);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(arrives(link.a), false);
  drop_packets_over(other, 0);
  EXPECT_TRUE(eventually(link.a.loop, [&] {
    const auto progress = link.a.lane->progress();
    return progress && progress->arrived;
  }));
  EXPECT_TRUE(eventually(link.b.loop, [&] { return link.b.valid_count == 2; }));
  drop_packets_over(other, 1000);
  send(link.a, 4, 1 << 20);
  EXPECT_EQ(arrives(link.a), true) << "this connection has carried full packets";
}

// Both ends send as fast as they can, and withdraw and revoke at random. Every chunk that counts as
// valid must be right.
struct Storm {
  Storm(End& mine, uint64_t seed) : end(mine), random(seed) {}

  void begin() {
    end.on_header = [this] { return random() % 8 != 0; };
    end.on_sent = [this] { next(); };
    end.on_any = [this] {
      if (random() % 64 != 0 || !end.lane) return;
      end.lane->revoke();
      fill(end.landing, 0xaa);
    };
    timer = std::make_unique<Timer>(end.loop, [this] {
      end.lane->withdraw();
      fill(end.payload, 0xdd);
      end.lane->send(control(++withdrawn));
      next();
      timer->arm(monotonic_now() + milliseconds(1 + random() % 16));
    });
    timer->arm(monotonic_now());
  }
  void next() {
    if (!end.lane->idle()) return;
    end.payload =
        content(++number, random() % 2 == 0 ? 1 + random() % 300 : random() % 200'000 + 1);
    end.lane->send_chunk(chunk(number, end.payload.size()), end.payload);
  }

  End& end;
  std::mt19937_64 random;
  uint64_t number = 0;
  uint64_t withdrawn = 0;
  std::unique_ptr<Timer> timer;
};

void run_storm(bool local) {
  Link link(local, 1 << 16);
  Storm first(link.a, 1), second(link.b, 2);
  for (Storm* storm : {&first, &second}) {
    on(storm->end.loop, [&] {
      storm->begin();
      return 0;
    });
  }
  std::this_thread::sleep_for(milliseconds(300));
  for (const Storm* storm : {&first, &second}) {
    const End& end = storm->end;
    EXPECT_TRUE(eventually(storm->end.loop, [&] {
      return end.valid_count > 5 && end.ended_count > end.valid_count && storm->withdrawn > 20;
    }));
  }
  for (Storm* storm : {&first, &second}) {
    on(storm->end.loop, [&] {
      storm->timer.reset();
      storm->end.on_sent = nullptr;
      storm->end.lane->withdraw();
      return 0;
    });
  }
  for (Storm* storm : {&first, &second}) {
    Storm& other = storm == &first ? second : first;
    EXPECT_TRUE(
        eventually(other.end.loop, [&] { return other.end.frames.size() == storm->withdrawn; }));
    on(other.end.loop, [&] {
      EXPECT_EQ(other.end.failed_count, 0) << other.end.failure.message;
      EXPECT_LT(other.end.valid_count, 1000000);  // a wrong chunk would add 1000000
      EXPECT_TRUE(std::is_sorted(other.end.frames.begin(), other.end.frames.end()));
      other.end.on_any = nullptr;
      return 0;
    });
  }
  // The ends outlive the storms that they call.
  for (End* end : {&link.a, &link.b}) {
    on(end->loop, [&] {
      end->lane.reset();
      return 0;
    });
  }
}

TEST(Lane, SurvivesAStormOfDrains) { run_storm(false); }
TEST(Lane, SurvivesAStormOfDrainsOnOneMachine) { run_storm(true); }

// The part of the time in which the loop's thread uses the CPU while nothing arrives.
double share_busy(End& end, milliseconds length) {
  const auto used = [&] {
    return on(end.loop, [] {
      timespec time{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    });
  };
  const double before = used();
  std::this_thread::sleep_for(length);
  return (used() - before) / std::chrono::duration<double>(length).count();
}

TEST(Lane, StaysAwakeForALargeChunkFromThisMachineButNotForLong) {
  Link link(true);
  on(link.a.loop, [&] {
    link.a.payload = content(7, 1'000'000);
    link.a.lane->send_chunk(chunk(7, link.a.payload.size()), link.a.payload);
    return 0;
  });
  EXPECT_TRUE(eventually(link.b.loop, [&] { return link.b.valid_count == 1; }));
  EXPECT_LT(share_busy(link.b, milliseconds(200)), 0.1);
}

struct PacedLink : Link {
  PacedLink() {
    on(a.loop, [&] {
      EXPECT_TRUE(a.lane->socket().set_congestion("reno"));
      a.lane->keep_window();
      return 0;
    });
  }
  uint64_t pace() {
    return on(a.loop, [&] {
      uint64_t rate = 0;
      socklen_t length = sizeof rate;
      getsockopt(a.lane->socket().fd(), SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &length);
      return rate;
    });
  }
  // Time until the window would restart (Socket::would_begin_anew).
  milliseconds time_left() {
    return on(a.loop, [&] {
      tcp_info info{};
      socklen_t length = sizeof info;
      getsockopt(a.lane->socket().fd(), IPPROTO_TCP, TCP_INFO, &info, &length);
      return milliseconds(static_cast<int>(info.tcpi_rto / 1000) - 20 -
                          static_cast<int>(info.tcpi_last_data_sent));
    });
  }
  // True if the window would have restarted.
  bool ping() {
    const bool anew = on(a.loop, [&] {
      const bool would = a.lane->socket().would_begin_anew();
      a.lane->send(control(++pings));
      return would;
    });
    EXPECT_TRUE(eventually(b.loop, [&] { return b.frames.size() == pings; }));
    return anew;
  }
  bool send(size_t bytes) {
    const bool anew = on(a.loop, [&] {
      const bool would = a.lane->socket().would_begin_anew();
      a.payload = content(7, bytes);
      a.lane->send_chunk(chunk(7, bytes), a.payload);
      return would;
    });
    const int now = ++chunks;
    EXPECT_TRUE(eventually(b.loop, [&] { return b.valid_count == now; }));
    return anew;
  }
  size_t pings = 0;
  int chunks = 0;
};

TEST(Lane, AfterASilenceItSendsLittleFasterThanBeforeForAWhile) {
  PacedLink link;
  link.send(3'000'000);
  EXPECT_GE(link.pace(), Socket::kPaceAny);
  std::this_thread::sleep_for(milliseconds(400));
  if (!link.send(10'000)) GTEST_SKIP() << "windows do not begin anew on this machine";
  EXPECT_LT(link.pace(), Socket::kPaceAny);
  EXPECT_GT(link.pace(), 3'000'000u);
  std::this_thread::sleep_for(milliseconds(20));  // more than four round trips
  link.send(10'000);
  EXPECT_EQ(link.pace(), Socket::kPaceAny);
}

TEST(Lane, NeitherAPauseNorAPingIsASilenceThatIsOver) {
  PacedLink link;
  link.send(3'000'000);
  std::this_thread::sleep_for(milliseconds(155));  // shorter than a retransmission timeout
  const Instant begun = monotonic_now();
  const milliseconds left = link.time_left();
  const bool anew = link.send(10'000);
  // On a busy machine the rest of that time may have passed before the send.
  const bool known = anew || monotonic_now() - begun + milliseconds(10) < left;
  EXPECT_TRUE(!known || (link.pace() < Socket::kPaceAny) == anew);
  std::this_thread::sleep_for(milliseconds(400));
  const uint64_t before = link.pace();
  if (!link.ping()) GTEST_SKIP() << "windows do not begin anew on this machine";
  EXPECT_EQ(link.pace(), before);
  link.send(10'000);
  EXPECT_LT(link.pace(), Socket::kPaceAny);
}

// A lane that carried small chunks with pauses between them is not limited to that low rate.
TEST(Lane, AfterASilenceItSendsHalfAWindowInARoundTripAtLeast) {
  PacedLink link;
  for (int i = 0; i < 10; ++i) {
    link.send(70'000);
    std::this_thread::sleep_for(milliseconds(20));
  }
  std::this_thread::sleep_for(milliseconds(400));
  const auto [window, way] = on(link.a.loop, [&] {
    const PathInfo path = link.a.lane->socket().path();
    return std::pair(static_cast<double>(path.window), to_seconds(path.least));
  });
  if (!link.send(10'000)) GTEST_SKIP() << "windows do not begin anew on this machine";
  ASSERT_LT(link.pace(), Socket::kPaceAny);
  EXPECT_GE(static_cast<double>(link.pace()), 0.4 * std::max(window, 64e3) / way);
}

TEST(Lane, TakesTheNextChunkRightAfterAWithdrawal) {
  Link link;
  on(link.a.loop, [&] {
    Bytes first = content(1, 4'000'000);
    link.a.lane->send_chunk(chunk(1, first.size()), first);
    link.a.lane->withdraw();
    EXPECT_TRUE(link.a.lane->idle());
    fill(first, 0);
    link.a.payload = content(2, 1000);
    link.a.lane->send_chunk(chunk(2, 1000), link.a.payload);
    return 0;
  });
  EXPECT_TRUE(eventually(link.b.loop, [&] { return link.b.valid_count == 1; }));
  EXPECT_EQ(link.b.arriving.value, 2u);
  EXPECT_EQ(on(link.a.loop, [&] { return link.a.sent_count; }), 1);  // none for the withdrawn chunk
}

TEST(Lane, OnSentMayGiveTheNextChunk) {
  Link link;
  constexpr int kChunks = 500;
  link.a.on_sent = [&] {
    if (link.a.sent_count == kChunks) return;
    link.a.payload = content(static_cast<uint64_t>(link.a.sent_count), 10000);
    link.a.lane->send_chunk(chunk(static_cast<uint64_t>(link.a.sent_count), 10000), link.a.payload);
  };
  on(link.a.loop, [&] {
    link.a.on_sent();
    return 0;
  });
  EXPECT_TRUE(eventually(link.b.loop, [&] { return link.b.valid_count == kChunks; }));
}

TEST(Lane, LetsOtherHandlesRunWhileItIsBusy) {
  bool stop = false;
  Link link;
  link.a.on_sent = [&] {
    if (!stop) link.a.lane->send_chunk(chunk(1, link.a.payload.size()), link.a.payload);
  };
  link.b.on_header = [] { return false; };
  on(link.a.loop, [&] {
    link.a.payload = content(1, 4u << 20);
    link.a.on_sent();
    return 0;
  });
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    on(link.a.loop, [] { return 0; });
    on(link.b.loop, [] { return 0; });
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  }
  on(link.a.loop, [&] {
    stop = true;
    link.a.lane->withdraw();
    return 0;
  });
}

TEST(Lane, FailsOnceWhenTheOtherEndCloses) {
  Link link;
  on(link.a.loop, [&] {
    link.a.payload = content(1, 1000);
    link.a.lane->send_chunk(chunk(1, 1000), link.a.payload);
    return 0;
  });
  EXPECT_TRUE(eventually(link.a.loop, [&] { return link.a.sent_count == 1; }));
  on(link.a.loop, [&] {
    link.a.lane.reset();
    return 0;
  });
  EXPECT_TRUE(eventually(link.b.loop, [&] { return link.b.failed_count == 1; }));
  EXPECT_EQ(link.b.valid_count, 1);  // chunks sent before the end arrive
  EXPECT_EQ(link.b.failure.code, Code::kSystem);
  EXPECT_TRUE(link.b.failure.message.ends_with(": the other side closed the connection"));
  on(link.b.loop, [&] {  // the lane is dead and drops what it is given
    link.b.lane->send(control(1));
    link.b.lane->send_chunk(chunk(1, 3), std::span(link.b.landing).first(3));
    link.b.lane->withdraw();
    link.b.lane->revoke();
    EXPECT_TRUE(link.b.lane->idle());
    return 0;
  });
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(on(link.b.loop, [&] { return link.b.failed_count; }), 1);
}

TEST(Lane, AfterAResetNoLentByteIsTouched) {
  End end("end");
  const auto [mine, other] = connected_fds();
  end.open(mine);
  on(end.loop, [&] {
    end.payload = content(1, 4u << 20);  // more than the system's buffers take
    end.lane->send_chunk(chunk(1, end.payload.size()), end.payload);
    return 0;
  });
  const linger at_once{1, 0};
  setsockopt(other, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  ::close(other);
  EXPECT_TRUE(eventually(end.loop, [&] { return end.failed_count == 1; }));
  EXPECT_TRUE(end.failure.message.ends_with(": connection reset by peer")) << end.failure.message;
  on(end.loop, [&] {
    end.payload = {};  // a sanitizer would see a late use
    EXPECT_TRUE(end.lane->idle());
    return 0;
  });
}

TEST(Lane, RefusesABadFrame) {
  End end("end");
  const auto [mine, other] = connected_fds();
  end.open(mine);
  const std::string request =
      "GET / HTTP/1.1\r\nHost: somewhere\r\nAccept: everything there is\r\n\r\n";
  ASSERT_EQ(write(other, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  EXPECT_TRUE(eventually(end.loop, [&] { return end.failed_count == 1; }));
  EXPECT_EQ(end.failure.code, Code::kProtocol);
  EXPECT_TRUE(end.failure.message.ends_with(": bad frame: no pccl lane speaks like this"))
      << end.failure.message;
  char byte;
  EXPECT_LE(recv(other, &byte, 1, 0), 0);
  ::close(other);
}

TEST(Lane, CutsOffWhoTakesNoCredits) {
  End end("end");
  const auto [mine, other] = connected_fds();
  end.open(mine);
  on(end.loop, [&] {
    for (size_t bytes = 0; bytes <= Lane::kQueueBytesMax; bytes += 64) end.lane->send(control(1));
    return 0;
  });
  EXPECT_TRUE(eventually(end.loop, [&] { return end.failed_count == 1; }));
  EXPECT_NE(end.failure.message.find("it does not read"), std::string::npos);
  ::close(other);
}

TEST(Lane, MayBeDestroyedInEveryCallback) {
  for (int when = 1; when <= 12; ++when) {
    int calls = 0;
    Link link;
    link.b.on_any = [&] {
      if (++calls == when) link.b.lane.reset();
    };
    on(link.b.loop, [&] {
      link.b.payload = content(9, 100);
      link.b.lane->send_chunk(chunk(9, 100), link.b.payload);
      return 0;
    });
    on(link.a.loop, [&] {
      link.a.payload = content(1, 1'500'000);
      link.a.lane->send(control(1));
      link.a.lane->send_chunk(chunk(1, link.a.payload.size()), link.a.payload);
      return 0;
    });
    EXPECT_TRUE(eventually(link.b.loop, [&] { return calls >= std::min(when, 5); }));
    on(link.a.loop, [&] {
      link.a.lane.reset();
      return 0;
    });
    EXPECT_LE(on(link.b.loop, [&] { return calls; }), when);  // no calls after the destruction
  }
}

TEST(Lane, StopsWithItsLoop) {
  Link link;
  link.a.on_sent = [&] {
    link.a.lane->send_chunk(chunk(1, link.a.payload.size()), link.a.payload);
  };
  on(link.a.loop, [&] {
    link.a.payload = content(1, 1'000'000);
    link.a.on_sent();
    return 0;
  });
  link.a.loop.stop();
  link.a.payload = {};
  link.a.lane.reset();
  EXPECT_TRUE(eventually(link.b.loop, [&] { return link.b.failed_count == 1; }));
}

}  // namespace
}  // namespace pccl::net
