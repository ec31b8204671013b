#include "csrc/net/lane.h"

#include <linux/filter.h>
#include <netinet/tcp.h>

#include <cstring>

#include "csrc/net/record_cipher.h"
#include "tests/cpp/net/frames.h"
#include "tests/cpp/net/net_test.h"
#include "tests/cpp/net/tls_test.h"

namespace pccl::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// One end of a lane, on a loop of its own. Members are used only on that loop, between its turns.
struct End : FrameSink {
  explicit End(const std::string& name) : loop(name) {}
  ~End() override {
    loop.post([this] { lane.reset(); });
    loop.stop();
  }
  void open(int fd, bool local = false) { open(Channel(Socket(fd)), local); }
  void open(Channel channel, bool local = false) {
    on(loop, [&] {
      lane = std::make_unique<Lane>(loop, std::move(channel), *this,
                                    Lane::Callbacks{[this] {
                                                      if (on_sent) on_sent();
                                                    },
                                                    [this](Status status) {
                                                      ++failed_count;
                                                      failure = std::move(status);
                                                    },
                                                    [this] {
                                                      EXPECT_EQ(proven_count, 1);
                                                      ++established_count;
                                                    },
                                                    [this] { ++proven_count; }});
      lane->set_local(local);
    });
  }
  void on_frame(const FrameHeader& header) override { frames.push_back(header.value); }
  std::span<std::byte> on_chunk(const FrameHeader& header) override {
    arriving = header;
    landing.assign(discards ? 0 : header.length, std::byte{0xee});
    return landing;
  }
  void on_piece(size_t, size_t) override {}
  void on_chunk_end(bool valid) override {
    if (valid) valid_count += same(landing, content(arriving.value, landing.size())) ? 1 : 1000000;
  }

  Loop loop;
  std::unique_ptr<Lane> lane;
  std::vector<uint64_t> frames;
  FrameHeader arriving;
  Bytes landing, payload;
  int valid_count = 0, failed_count = 0, established_count = 0, proven_count = 0;
  Status failure;
  std::function<void()> on_sent;
  bool discards = false;
};

struct Link {
  explicit Link(bool local = false) {
    const auto [first, second] = connected_fds();
    a.open(first, local);
    b.open(second, local);
  }
  End a{"a"}, b{"b"};
};

TEST(Lane, KnowsWhetherAnythingCameAndCountsItsCalls) {
  Link link;
  on(link.b.loop, [&] { EXPECT_FALSE(link.b.lane->take_received()); });
  on(link.a.loop, [&] {
    link.a.payload = content(7, 3'000'000);
    link.a.lane->send_chunk(chunk(7, link.a.payload.size()), link.a.payload);
    EXPECT_FALSE(link.a.lane->idle());
  });
  EXPECT_TRUE(eventually(link.b.loop, [&] { return link.b.valid_count == 1; }));
  EXPECT_TRUE(eventually(link.a.loop, [&] { return link.a.lane->idle(); }));
  on(link.a.loop, [&] { EXPECT_GE(link.a.lane->counters().send_calls, 1u); });
  on(link.b.loop, [&] {
    EXPECT_GT(link.b.lane->counters().receive_calls, 1u);
    EXPECT_TRUE(link.b.lane->take_received());
    EXPECT_FALSE(link.b.lane->take_received());
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

TEST(Lane, IsTunedForItsPath) {
  Link link;
  const auto tune = [&](const std::string& congestion) {
    return on(link.a.loop, [&] { return link.a.lane->tune(PathClass::kWan, congestion); });
  };
  const std::string before = on(link.a.loop, [&] { return link.a.lane->socket().congestion(); });
  EXPECT_FALSE(tune("none-such"));
  EXPECT_EQ(on(link.a.loop, [&] { return link.a.lane->socket().congestion(); }), before);
  EXPECT_TRUE(tune("reno"));
  EXPECT_EQ(on(link.a.loop, [&] { return link.a.lane->socket().congestion(); }), "reno");
  EXPECT_TRUE(tune(""));
}

struct PacedLink : Link {
  PacedLink() {
    on(a.loop, [&] {
      EXPECT_TRUE(a.lane->socket().set_congestion("reno"));
      a.lane->keep_window();
      return 0;
    });
  }
  uint64_t window() {
    return on(a.loop, [&] { return a.lane->socket().path().window; });
  }
  uint64_t pace() {
    return on(a.loop, [&] {
      uint64_t rate = 0;
      socklen_t length = sizeof rate;
      getsockopt(a.lane->socket().fd(), SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &length);
      return rate;
    });
  }
  // True if the window would have restarted.
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
  int chunks = 0;
};

// When and how far it is paced is tested without sockets (test_kept_window.cc). On a busy machine
// each pause may be long enough to restart the window, so only a pause that must is tested.
TEST(Lane, KeepsItsWindowAfterAnIdlePeriodAndPacesTheFirstChunks) {
  PacedLink link;
  link.send(3'000'000);
  const uint64_t before = link.window();
  std::this_thread::sleep_for(milliseconds(400));  // longer than a retransmission timeout
  if (!link.send(10'000)) GTEST_SKIP() << "windows do not begin anew on this machine";
  EXPECT_GE(link.window(), before);
  EXPECT_LT(link.pace(), Socket::kPaceAny);
  const Instant late = monotonic_now() + std::chrono::seconds(20);
  while (link.pace() < Socket::kPaceAny && monotonic_now() < late) link.send(10'000);
  EXPECT_EQ(link.pace(), Socket::kPaceAny) << "the limit ends a few round trips later";
}

TEST(Lane, LetsOtherHandlesRunWhileItIsBusy) {
  bool stop = false;
  Link link;
  link.a.on_sent = [&] {
    if (!stop) link.a.lane->send_chunk(chunk(1, link.a.payload.size()), link.a.payload);
  };
  link.b.discards = true;
  on(link.a.loop, [&] {
    link.a.payload = content(1, 4u << 20);
    link.a.on_sent();
    return 0;
  });
  for (int i = 0; i < 20; ++i) {  // they return although the lane never rests
    on(link.a.loop, [] { return 0; });
    on(link.b.loop, [] { return 0; });
  }
  on(link.a.loop, [&] {
    stop = true;
    link.a.lane->withdraw();
    return 0;
  });
}

// Returns the text with which a lane fails after `end_it` has acted on the other end.
std::string failure(const std::function<void(int other)>& end_it) {
  End end("end");
  const auto [mine, other] = connected_fds();
  end.open(mine);
  end_it(other);
  EXPECT_TRUE(eventually(end.loop, [&] { return end.failed_count == 1; }));
  return on(end.loop, [&] {
    EXPECT_TRUE(end.lane->idle());
    EXPECT_TRUE(end.failure.message.starts_with("127.0.0.1:")) << end.failure.message;
    return end.failure.message.substr(end.failure.message.find(": "));
  });
}

TEST(Lane, SaysWhyItFailed) {
  EXPECT_EQ(failure([](int other) { ::close(other); }), ": the other side closed the connection");
  EXPECT_EQ(failure([](int other) {
              const linger at_once{1, 0};
              setsockopt(other, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
              ::close(other);
            }),
            ": connection reset by peer");
  EXPECT_EQ(failure([](int other) {
              const Bytes noise(64);
              EXPECT_EQ(write(other, noise.data(), noise.size()), std::ssize(noise));
              char byte;
              EXPECT_LE(recv(other, &byte, 1, 0), 0) << "it hangs up by itself";
              ::close(other);
            }),
            ": bad frame: no pccl lane speaks like this");
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

// ---- With TLS ----

TEST(Lane, FramesWaitForTheHandshake) {
  End a{"a"}, b{"b"};
  const auto [first, second] = connected_fds();
  a.open(Channel(Socket(first), a_dialler(), monotonic_now() + seconds(30)));
  on(a.loop, [&] { a.lane->send(control(5)); });
  std::this_thread::sleep_for(milliseconds(20));  // whatever leaves has left
  on(a.loop, [&] { EXPECT_EQ(a.established_count, 0); });
  b.open(Channel(Socket(second), an_acceptor(), monotonic_now() + seconds(30)));
  EXPECT_TRUE(eventually(b.loop, [&] { return b.frames == std::vector<uint64_t>{5}; }));
  on(b.loop, [&] {
    EXPECT_EQ(b.established_count, 1);
    EXPECT_EQ(b.lane->identity(), kAlice);
  });
  on(a.loop, [&] { EXPECT_EQ(a.established_count, 1); });
}

TEST(Lane, ACopiedHelloEstablishesNothing) {
  End b{"b"};
  const auto [first, second] = connected_fds();
  b.open(Channel(Socket(first), an_acceptor(), monotonic_now() + seconds(1)));
  Tls dialler_elsewhere = a_dialler();
  const Bytes hello = take_outgoing(dialler_elsewhere);
  EXPECT_EQ(::send(second, hello.data(), hello.size(), 0), std::ssize(hello));
  EXPECT_TRUE(eventually(b.loop, [&] { return b.failed_count == 1; }));
  on(b.loop, [&] {
    EXPECT_EQ(b.proven_count, 1);
    EXPECT_EQ(b.established_count, 0);
  });
  ::close(second);
}

TEST(Lane, AnEndWithAnotherKeyIsRefused) {
  End a{"a"}, b{"b"};
  const auto [first, second] = connected_fds();
  a.open(Channel(Socket(first), a_dialler(9), monotonic_now() + seconds(30)));
  b.open(Channel(Socket(second), an_acceptor(), monotonic_now() + seconds(30)));
  on(a.loop, [&] { a.lane->send(control(5)); });
  for (End* const end : {&a, &b}) {
    EXPECT_TRUE(eventually(end->loop, [&] { return end->failed_count == 1; }));
    on(end->loop, [&] {
      EXPECT_EQ(end->failure.code, Code::kAuthentication);
      EXPECT_EQ(end->established_count, 0);
    });
  }
  on(b.loop, [&] { EXPECT_TRUE(b.frames.empty()); });
}

TEST(Lane, AHandshakeTakesOnlySoLong) {
  End a{"a"};
  const auto [first, second] = connected_fds();
  a.open(Channel(Socket(first), a_dialler(), monotonic_now() + milliseconds(50)));
  EXPECT_TRUE(eventually(a.loop, [&] { return a.failed_count == 1; }));
  on(a.loop, [&] {
    EXPECT_EQ(a.failure.code, Code::kSystem);
    EXPECT_TRUE(a.failure.message.ends_with("the TLS handshake took too long"));
  });
  ::close(second);
}

// The records of a chunk.
Bytes sealed_chunk(Tls& tls, uint64_t number, size_t bytes) {
  const Bytes payload = content(number, bytes);
  FrameWriter writer(false);
  writer.push_chunk(chunk(number, bytes), payload);
  Bytes records;
  while (writer.chunk_pending()) {
    Result<size_t> taken = tls.write(writer.gather());
    EXPECT_TRUE(taken.ok());
    if (!taken.ok()) break;
    writer.wrote(taken.value());
    records = std::move(records) + take_outgoing(tls);
  }
  return records;
}

// A lane that sleeps until much of a chunk has come must count the part of a record that is inside.
TEST(Lane, AnEncryptedChunkArrivesInPiecesOfAnySize) {
  End a{"a"};
  const auto [first, second] = connected_fds();
  Connected tls;
  a.open(Channel(Socket(first), std::move(tls.acceptor), monotonic_now() + seconds(30)));
  const Bytes records = sealed_chunk(tls.dialler, 3, protocol::kChunkBytesMax);
  // The last piece is what a lane would miss if it waited for more than is still to come.
  for (size_t at = 0; at < records.size();) {
    const size_t bytes = std::min<size_t>(records.size() - at, 100'003);
    EXPECT_EQ(::send(second, records.data() + at, bytes, MSG_NOSIGNAL), std::ssize(Bytes(bytes)));
    at += bytes;
    std::this_thread::sleep_for(milliseconds(1));  // the lane goes to sleep
  }
  EXPECT_TRUE(eventually(a.loop, [&] { return a.valid_count == 1; }));
  ::close(second);
}

// Both ends encrypt and decrypt with helpers, in both directions at once.
TEST(Lane, HelpersCarryEncryptedChunks) {
  HelperThreads::set_affordable(2);
  End a{"a"}, b{"b"};
  const auto [first, second] = connected_fds();
  a.open(Channel(Socket(first), a_dialler(), monotonic_now() + seconds(30)));
  b.open(Channel(Socket(second), an_acceptor(), monotonic_now() + seconds(30)));
  for (End* const end : {&a, &b}) {
    on(end->loop, [&, end] {
      end->payload = content(7, protocol::kChunkBytesMax);
      end->on_sent = [end, left = 15]() mutable {
        if (left-- > 0) end->lane->send_chunk(chunk(7, end->payload.size()), end->payload);
      };
      end->lane->send_chunk(chunk(7, end->payload.size()), end->payload);
    });
  }
  for (End* const end : {&a, &b})
    EXPECT_TRUE(eventually(end->loop, [&] { return end->valid_count == 16; }));
  HelperThreads::set_affordable(std::nullopt);
}

// The landing has the data of the records before it, and is as it was from there on.
TEST(Lane, NoByteOfADamagedRecordReachesTheLanding) {
  constexpr size_t kBytes = 100'000, kContent = RecordCipher::kPlainBytesMax;
  constexpr size_t kRecord = kContent + RecordCipher::kExtraBytes;
  for (size_t record = 1; record * kContent < kBytes; ++record) {
    for (const size_t piece : {size_t{1000}, SIZE_MAX}) {
      SCOPED_TRACE("record " + std::to_string(record));
      End a{"a"};
      const auto [first, second] = connected_fds();
      Connected tls;
      a.open(Channel(Socket(first), std::move(tls.acceptor), monotonic_now() + seconds(30)));
      Bytes records = sealed_chunk(tls.dialler, 3, kBytes);
      records[record * kRecord + RecordCipher::kHeaderBytes + 5] ^= std::byte{1};
      for (size_t at = 0; at < records.size(); at += std::min(piece, records.size() - at)) {
        ::send(second, records.data() + at, std::min(piece, records.size() - at), MSG_NOSIGNAL);
      }
      EXPECT_TRUE(eventually(a.loop, [&] { return a.failed_count == 1; }));
      on(a.loop, [&] {
        EXPECT_EQ(a.failure.code, Code::kProtocol);
        const size_t arrived = record * kContent - protocol::kFrameHeaderBytes;
        Bytes expected = content(3, kBytes);
        std::fill(expected.begin() + static_cast<std::ptrdiff_t>(arrived), expected.end(),
                  std::byte{0xee});
        EXPECT_TRUE(same(a.landing, expected));
        EXPECT_EQ(a.valid_count, 0);
      });
      ::close(second);
    }
  }
}

TEST(LaneDeathTest, IsForTheThreadOfItsLoop) {
  Link link;
  EXPECT_DEATH(link.a.lane->send({}), "called on the thread a \\(.*lane.cc:");
}

}  // namespace
}  // namespace pccl::net
