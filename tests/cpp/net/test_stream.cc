#include "csrc/net/stream.h"

#include "tests/cpp/net/net_test.h"
#include "tests/cpp/net/tls_test.h"

namespace pccl::net {
namespace {

using std::chrono::milliseconds;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A stream on a loop of its own, and the descriptor of the other end, which the test drives by
// hand.
class StreamTest : public ::testing::Test {
 protected:
  StreamTest() {
    const auto [mine, theirs] = connected_fds();
    other = theirs;
    on(loop, [this, fd = mine] {
      stream = std::make_unique<Stream>(
          loop, Socket(fd),
          Stream::Callbacks{[this](std::span<const std::byte> bytes) {
                              received.append(reinterpret_cast<const char*>(bytes.data()),
                                              bytes.size());
                              if (then) then();
                            },
                            [this](Status status) {
                              ++closed_count;
                              closed = std::move(status);
                              if (then) then();
                            }});
      return 0;
    });
  }
  ~StreamTest() override {
    loop.post([this] {
      then = nullptr;
      stream.reset();
    });
    loop.stop();
    if (other >= 0) ::close(other);
  }

  void set_then(std::function<void()> what) {
    on(loop, [&] {
      then = std::move(what);
      return 0;
    });
  }
  void send(std::string_view text) {
    on(loop, [&] {
      stream->send(bytes_of(text));
      return 0;
    });
  }
  bool is_closed() {
    return eventually(loop, [this] { return closed_count == 1; });
  }
  // Reads from the other end until it has `size` bytes or the stream ends.
  std::string read_other(size_t size) {
    std::string text(size, 0);
    size_t at = 0;
    while (at < size) {
      const ssize_t bytes = recv(other, text.data() + at, size - at, 0);
      if (bytes <= 0) break;
      at += static_cast<size_t>(bytes);
    }
    text.resize(at);
    return text;
  }
  void write_other(const std::string& text) {
    EXPECT_EQ(::send(other, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // Closes the other end with a reset.
  void reset_other() {
    const linger at_once{1, 0};
    setsockopt(other, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    ::close(std::exchange(other, -1));
  }
  std::string other_text() {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    getsockname(other, reinterpret_cast<sockaddr*>(&address), &length);
    return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }

  Loop loop{"test"};
  int other = -1;
  std::unique_ptr<Stream> stream;
  std::string received;
  int closed_count = 0;
  Status closed;
  std::function<void()> then;
};

TEST_F(StreamTest, CarriesBytesBothWaysInOrder) {
  send("hello ");
  send("world");
  EXPECT_EQ(read_other(11), "hello world");
  write_other("and back");
  EXPECT_TRUE(eventually(loop, [&] { return received == "and back"; }));
}

TEST_F(StreamTest, CarriesMoreThanTheSystemHolds) {
  std::string large(20u << 20, 0);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 2654435761u >> 13);
  on(loop, [&] {
    for (size_t at = 0; at < large.size(); at += 100000) {
      stream->send(bytes_of(std::string_view(large).substr(at, 100000)));
    }
    return 0;
  });
  std::thread writer([&] { write_other(large); });
  EXPECT_TRUE(read_other(large.size()) == large);
  writer.join();
  EXPECT_TRUE(eventually(loop, [&] { return received.size() == large.size(); }));
  EXPECT_TRUE(received == large);
}

TEST_F(StreamTest, SaysWhenTheOtherSideCloses) {
  const std::string whom = other_text();
  write_other("last words");
  ::close(std::exchange(other, -1));
  ASSERT_TRUE(is_closed());
  EXPECT_EQ(received, "last words");
  EXPECT_EQ(closed, (Status{Code::kSystem, whom + ": the other side closed the connection", {}}));
  send("into the void");
}

TEST_F(StreamTest, SaysWhenTheOtherSideResets) {
  const std::string whom = other_text();
  reset_other();
  ASSERT_TRUE(is_closed());
  EXPECT_EQ(closed.message, whom + ": connection reset by peer");
}

TEST_F(StreamTest, ReadsTheLastWordsThoughItCannotWriteAnyMore) {
  // In one turn: the loop tries to write before it sees the reset.
  on(loop, [&] {
    write_other("last words");
    reset_other();
    std::this_thread::sleep_for(milliseconds(20));
    stream->send(bytes_of("too late"));
    return 0;
  });
  ASSERT_TRUE(is_closed());
  EXPECT_EQ(received, "last words");
  EXPECT_EQ(closed.code, Code::kSystem);
}

TEST_F(StreamTest, ClosesOnlyWhenAllHasLeft) {
  const std::string large(8u << 20, 'x');
  on(loop, [&] {
    stream->send(bytes_of(large));
    stream->close_after_flush();
    stream->send(bytes_of("too late"));
    return 0;
  });
  write_other("unread input must not make the system drop what is under way");
  EXPECT_EQ(read_other(large.size() + 1).size(), large.size());  // and then the end
  EXPECT_EQ(on(loop, [&] { return closed_count; }), 0);
  ::close(std::exchange(other, -1));
  ASSERT_TRUE(is_closed());
  EXPECT_TRUE(closed.ok()) << closed.message;
  EXPECT_EQ(received, "");
}

TEST_F(StreamTest, ClosesAfterASecondWhateverTheOtherSideDoes) {
  const auto start = std::chrono::steady_clock::now();
  const std::string large(32u << 20, 'x');  // more than the system's buffers hold; nobody reads
  on(loop, [&] {
    stream->send(bytes_of(large));
    stream->close_after_flush();
    return 0;
  });
  ASSERT_TRUE(is_closed());
  EXPECT_GE(std::chrono::steady_clock::now() - start, Stream::kCloseTimeout);
  EXPECT_NE(closed.message.find("did not take"), std::string::npos) << closed.message;
}

TEST_F(StreamTest, ClosesLaterWhereItMay) {
  const std::string large(32u << 20, 'x');
  on(loop, [&] {
    stream->send(bytes_of(large));
    stream->close_after_flush(std::chrono::seconds(20));
    return 0;
  });
  std::this_thread::sleep_for(Stream::kCloseTimeout + milliseconds(200));
  EXPECT_EQ(read_other(large.size() + 1).size(), large.size());
}

TEST_F(StreamTest, CutsOffWhoDoesNotRead) {
  on(loop, [&] {
    const std::string large(1u << 20, 'x');
    for (size_t sent = 0; sent <= Stream::kQueueBytesMax + large.size(); sent += large.size()) {
      stream->send(bytes_of(large));
    }
    EXPECT_EQ(closed_count, 0);  // not from inside the call
    return 0;
  });
  ASSERT_TRUE(is_closed());
  EXPECT_NE(closed.message.find("it does not read: "), std::string::npos) << closed.message;
}

TEST_F(StreamTest, MayBeDestroyedInOnBytes) {
  set_then([this] { stream.reset(); });
  write_other("a");
  EXPECT_TRUE(eventually(loop, [&] { return stream == nullptr; }));
  EXPECT_EQ(read_other(1), "");  // closed at once
  EXPECT_EQ(on(loop, [&] { return closed_count; }), 0);
}

TEST_F(StreamTest, MayBeDestroyedInOnClosed) {
  set_then([this] { stream.reset(); });
  reset_other();
  ASSERT_TRUE(is_closed());
  EXPECT_TRUE(eventually(loop, [&] { return stream == nullptr; }));
}

TEST_F(StreamTest, StopsWithItsLoop) {
  send("before");
  loop.stop();
  EXPECT_EQ(read_other(6), "before");
  EXPECT_EQ(closed_count, 0);
  stream.reset();
  EXPECT_EQ(read_other(1), "");
}

// ---- With TLS ----

// A stream on the loop of the test, which records what it calls.
struct Encrypted {
  std::unique_ptr<Stream> stream;
  bool established = false, proven = false;
  std::string received;
  int closed_count = 0;
  Status closed;

  void open(Loop& loop, int fd, Tls tls, Duration at_most = std::chrono::seconds(30)) {
    const auto on_bytes = [this](std::span<const std::byte> bytes) {
      EXPECT_TRUE(established);
      received += text_of(bytes);
    };
    const auto on_closed = [this](Status why) {
      ++closed_count;
      closed = std::move(why);
    };
    stream = std::make_unique<Stream>(
        loop, Channel(Socket(fd), std::move(tls), monotonic_now() + at_most),
        Stream::Callbacks{.on_bytes = on_bytes,
                          .on_closed = on_closed,
                          .on_established =
                              [this] {
                                EXPECT_TRUE(proven);
                                established = true;
                              },
                          .on_proven = [this] { proven = true; }});
  }
};

class EncryptedStreams : public ::testing::Test {
 protected:
  ~EncryptedStreams() override {
    loop.post([this] {
      dialler.stream.reset();
      acceptor.stream.reset();
    });
    loop.stop();
  }
  void open(uint8_t key = 7) {
    const auto [first, second] = connected_fds();
    on(loop, [&, a = first, b = second] {
      dialler.open(loop, a, a_dialler(key));
      acceptor.open(loop, b, an_acceptor());
    });
  }
  bool until(const std::function<bool()>& condition) { return eventually(loop, condition); }

  Loop loop{"test"};
  Encrypted dialler, acceptor;
};

TEST_F(EncryptedStreams, SayWhoTheOtherEndIsAndCarryAllThatWasSentBefore) {
  open();
  std::string large(5u << 20, 'x');
  on(loop, [&] {
    dialler.stream->send(bytes_of("hello "));
    dialler.stream->send(bytes_of(large));
    acceptor.stream->send(bytes_of(large));
  });
  EXPECT_TRUE(until([&] { return acceptor.received.size() == large.size() + 6; }));
  EXPECT_TRUE(until([&] { return dialler.received == large; }));
  on(loop, [&] {
    EXPECT_EQ(acceptor.stream->identity(), kAlice);
    EXPECT_EQ(acceptor.received, "hello " + large);
    EXPECT_EQ(acceptor.stream->unsent(), 0u);
  });
}

TEST_F(EncryptedStreams, CloseOnlyWhenAllHasLeft) {
  open();
  const std::string large(5u << 20, 'x');
  on(loop, [&] {
    dialler.stream->send(bytes_of(large));
    dialler.stream->close_after_flush(std::chrono::seconds(20));
  });
  EXPECT_TRUE(until([&] { return acceptor.closed_count == 1; }));
  on(loop, [&] {
    EXPECT_TRUE(acceptor.received == large);
    EXPECT_TRUE(acceptor.closed.message.ends_with("the other side closed the connection"));
    acceptor.stream.reset();
  });
  EXPECT_TRUE(until([&] { return dialler.closed_count == 1; }));
  on(loop, [&] { EXPECT_EQ(dialler.closed, Status{}); });
}

TEST_F(EncryptedStreams, WithoutTheKeyNothingArrives) {
  open(8);
  on(loop, [&] { dialler.stream->send(bytes_of("let me in")); });
  EXPECT_TRUE(until([&] { return dialler.closed_count == 1 && acceptor.closed_count == 1; }));
  on(loop, [&] {
    EXPECT_FALSE(dialler.established || acceptor.established);
    EXPECT_EQ(acceptor.received, "");
    EXPECT_EQ(acceptor.closed.code, Code::kAuthentication);
    EXPECT_EQ(dialler.closed.code, Code::kAuthentication);
    EXPECT_TRUE(dialler.closed.message.ends_with(": it has another key for this identity"));
  });
}

// The copy of a ClientHello proves the key, but whoever has made the copy does not know it.
TEST_F(EncryptedStreams, ACopiedHelloEstablishesNothing) {
  const auto [first, second] = connected_fds();
  on(loop, [&, fd = first] { acceptor.open(loop, fd, an_acceptor(), milliseconds(300)); });
  Tls dialler_elsewhere = a_dialler();
  const Bytes hello = take_outgoing(dialler_elsewhere);
  EXPECT_EQ(::send(second, hello.data(), hello.size(), 0), std::ssize(hello));
  EXPECT_TRUE(until([&] { return acceptor.closed_count == 1; }));
  on(loop, [&] {
    EXPECT_TRUE(acceptor.proven);
    EXPECT_FALSE(acceptor.established);
    EXPECT_EQ(acceptor.received, "");
    EXPECT_TRUE(acceptor.closed.message.ends_with(": the TLS handshake took too long"));
  });
  ::close(second);
}

TEST_F(EncryptedStreams, AHandshakeTakesOnlySoLong) {
  const auto [first, second] = connected_fds();
  on(loop, [&, fd = first] { acceptor.open(loop, fd, an_acceptor(), milliseconds(50)); });
  EXPECT_TRUE(until([&] { return acceptor.closed_count == 1; }));
  on(loop, [&] {
    EXPECT_EQ(acceptor.closed.code, Code::kSystem);
    EXPECT_TRUE(acceptor.closed.message.ends_with(": the TLS handshake took too long"));
  });
  ::close(second);
}

TEST_F(EncryptedStreams, ACompleteHandshakeHasNoEnd) {
  const auto [first, second] = connected_fds();
  on(loop, [&, a = first, b = second] {
    dialler.open(loop, a, a_dialler(), milliseconds(200));
    acceptor.open(loop, b, an_acceptor(), milliseconds(200));
  });
  EXPECT_TRUE(until([&] { return acceptor.established && dialler.established; }));
  std::this_thread::sleep_for(milliseconds(300));  // longer than the time for a handshake
  on(loop, [&] { EXPECT_EQ(dialler.closed_count + acceptor.closed_count, 0); });
}

TEST_F(EncryptedStreams, BytesInPlainTextAreRefused) {
  const auto [first, second] = connected_fds();
  on(loop, [&, fd = first] { acceptor.open(loop, fd, an_acceptor()); });
  EXPECT_EQ(::send(second, "hello", 5, 0), 5);
  EXPECT_TRUE(until([&] { return acceptor.closed_count == 1; }));
  on(loop, [&] {
    EXPECT_EQ(acceptor.closed.code, Code::kAuthentication);
    EXPECT_TRUE(acceptor.closed.message.ends_with("it speaks plain text or another protocol"));
  });
  ::close(second);
}

}  // namespace
}  // namespace pccl::net
