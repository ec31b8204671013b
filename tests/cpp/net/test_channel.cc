#include "csrc/net/channel.h"

#include <optional>

#include "tests/cpp/net/net_test.h"
#include "tests/cpp/net/tls_test.h"

namespace pccl::net {
namespace {

// Both ends of a connection on loopback. The test says when each of them receives and sends.
struct Ends {
  explicit Ends(bool encrypted = true, uint8_t key = 7) : Ends(connected_fds(), encrypted, key) {}
  Ends(std::pair<int, int> fds, bool encrypted, uint8_t key)
      : dialler(encrypted ? Channel(Socket(fds.first), a_dialler(key), Instant{})
                          : Channel(Socket(fds.first))),
        acceptor(encrypted ? Channel(Socket(fds.second), an_acceptor(), Instant{})
                           : Channel(Socket(fds.second))) {}

  // Sends what TLS has to send, and the text.
  static size_t send(Channel& from, std::string_view text = {}) {
    size_t taken = 0;
    for (int turn = 0; turn < 1000; ++turn) {
      const Bytes plain = raw_bytes(text.substr(taken));
      const Channel::Bytes span = plain;
      auto prepared = from.prepare(std::span(&span, plain.empty() ? 0 : 1));
      EXPECT_TRUE(prepared.ok());
      if (!prepared.ok() || prepared.value().empty()) break;
      EXPECT_EQ(prepared.value().size(), 1u);
      const Channel::Bytes bytes = prepared.value().front();
      const ssize_t sent = ::send(from.socket().fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      EXPECT_TRUE(sent >= 0 || errno == EAGAIN);
      taken += from.sent(sent < 0 ? 0 : static_cast<size_t>(sent));
      if (sent < 0) break;
    }
    return taken;
  }
  // What arrives until `size` bytes are there, or the end.
  struct Arrived {
    std::string text;
    Status end;
  };
  static Arrived receive(Channel& to, size_t size, size_t room = 1000) {
    Arrived arrived;
    Bytes space(room);
    const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (arrived.text.size() < size && std::chrono::steady_clock::now() < late) {
      const Channel::Received received = to.receive(space);
      arrived.text += text_of(received.bytes);
      arrived.end = received.end;
      if (!arrived.end.ok()) break;
      if (received.dry) {
        EXPECT_FALSE(to.holds_input());
        if (to.owes()) send(to);
        std::this_thread::yield();
      }
    }
    return arrived;
  }
  void shake_hands() {
    for (int turn = 0; turn < 20000 && !(dialler.established() && acceptor.established()); ++turn) {
      for (Channel* const end : {&dialler, &acceptor}) {
        send(*end);
        Bytes space(4096);
        EXPECT_TRUE(end->receive(space).end.ok());
      }
      std::this_thread::yield();
    }
    EXPECT_TRUE(dialler.established() && acceptor.established());
  }

  Channel dialler, acceptor;
};

std::string a_text(size_t size) {
  std::string text(size, ' ');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i * 7 % 26);
  return text;
}

TEST(Channel, CarriesTextBothWaysEncryptedOrNot) {
  for (const bool encrypted : {false, true}) {
    Ends ends(encrypted);
    EXPECT_EQ(ends.dialler.encrypted(), encrypted);
    EXPECT_EQ(ends.acceptor.established(), !encrypted);
    ends.shake_hands();
    const std::string text = a_text(40'000);
    EXPECT_EQ(Ends::send(ends.dialler, text), text.size());
    EXPECT_EQ(Ends::receive(ends.acceptor, text.size()).text, text);
    EXPECT_EQ(Ends::send(ends.acceptor, text), text.size());
    EXPECT_EQ(Ends::receive(ends.dialler, text.size()).text, text);
    EXPECT_EQ(ends.acceptor.identity(), encrypted ? kAlice : "");
    EXPECT_EQ(ends.dialler.counters().bytes_sent, ends.acceptor.counters().bytes_received);
    EXPECT_GE(ends.dialler.counters().bytes_sent, text.size());
  }
}

TEST(Channel, NothingLeavesBeforeTheOtherEndHasProvenItsKey) {
  Ends ends;
  EXPECT_EQ(Ends::send(ends.dialler, "secret"), 0u);
  EXPECT_EQ(Ends::send(ends.acceptor, "secret"), 0u);
  EXPECT_EQ(ends.acceptor.counters().bytes_sent, 0u);
}

TEST(Channel, BufferedDataIsReturnedBeforeTheSocketIsReadAgain) {
  Ends ends;
  ends.shake_hands();
  Ends::send(ends.dialler, a_text(30'000));  // two records, in one piece
  Bytes space(64 << 10);
  size_t total = 0;
  while (total == 0) total = ends.acceptor.receive(space).bytes.size();
  EXPECT_EQ(total, 16384u) << "one record";
  const uint64_t calls = ends.acceptor.counters().receive_calls;
  while (ends.acceptor.holds_input()) total += ends.acceptor.receive(space).bytes.size();
  EXPECT_EQ(ends.acceptor.counters().receive_calls, calls);
}

TEST(Channel, NothingIsReceivedAfterTheOtherEndHasClosed) {
  Ends ends;
  ends.shake_hands();
  Ends::send(ends.dialler, "last");
  ends.dialler.close();
  Ends::send(ends.dialler);
  const Ends::Arrived arrived = Ends::receive(ends.acceptor, 5);
  EXPECT_EQ(arrived.text, "last");
  EXPECT_EQ(arrived.end.message, "the other side closed the connection");
}

TEST(Channel, AWrongKeyEndsBothSidesWithTheReason) {
  Ends ends(true, 8);
  Ends::send(ends.dialler);
  const Status refused = Ends::receive(ends.acceptor, 1).end;
  EXPECT_EQ(refused.code, Code::kAuthentication);
  const Status told = Ends::receive(ends.dialler, 1).end;
  EXPECT_EQ(told.code, Code::kAuthentication);
  EXPECT_EQ(told.message, "it has another key for this identity");
}

TEST(Channel, AChangedBitIsTheEnd) {
  const auto [first, second] = connected_fds();
  Connected tls;
  encrypt(tls.dialler, a_text(1000));
  Bytes records = take_outgoing(tls.dialler);
  records[500] ^= std::byte{4};
  EXPECT_EQ(::send(first, records.data(), records.size(), 0), std::ssize(records));
  Channel acceptor(Socket(second), std::move(tls.acceptor), Instant{});
  const Ends::Arrived arrived = Ends::receive(acceptor, 1000);
  EXPECT_EQ(arrived.text, "");
  EXPECT_EQ(arrived.end.code, Code::kProtocol);
  ::close(first);
}

TEST(Channel, TellsAnEndFromACut) {
  for (const bool announced : {true, false}) {
    Ends ends;
    ends.shake_hands();
    if (announced) {
      ends.dialler.close();
      EXPECT_TRUE(ends.dialler.owes());
      Ends::send(ends.dialler);
    }
    ends.dialler.drop_socket();
    const Status end = Ends::receive(ends.acceptor, 1).end;
    EXPECT_EQ(end.code, Code::kSystem);
    EXPECT_EQ(end.message, announced
                               ? "the other side closed the connection"
                               : "the connection was cut off: the other side had not closed it");
  }
}

TEST(Channel, SaysWhyNothingComesWithoutTls) {
  Ends ends(false);
  ends.dialler.drop_socket();
  const Status end = Ends::receive(ends.acceptor, 1).end;
  EXPECT_EQ(end, (Status{Code::kSystem, "the other side closed the connection", {}}));
}

}  // namespace
}  // namespace pccl::net
