// tls_listener: hostile handshakes with a real listener, over sockets. Each must end in a closed
// connection and leave nothing, and the next right connection must work. Every wait has a bound.
// test_tls_attacks.cc has more rows, for Tls as a value.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "tests/cpp/net/tls_hellos.h"

namespace pccl::net::forge {

// A listener that should know the identity and the key of `shown`.
struct Target {
  uint16_t port = 0;
  std::string plain_answer;  // a part of what it answers to plain text; empty: nothing
  // Whether it answers so, when said() was said after a right handshake.
  std::function<Bytes()> said;
  std::function<bool(const Bytes&)> is_right;
  // Makes a `shown` that was not completed before, if the listener takes each only once.
  std::function<void()> renew = [] {};
  size_t early_bytes = 0;  // of ciphertext that it sends before the handshake is complete
};

inline constexpr int kClosedMs = 10000;

class Dialled {
 public:
  explicit Dialled(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  Dialled(const Dialled&) = delete;
  Dialled& operator=(const Dialled&) = delete;
  ~Dialled() { close(fd_); }

  // The listener may have closed the connection already.
  void say(const Bytes& bytes) {
    [[maybe_unused]] const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void end() { shutdown(fd_, SHUT_WR); }
  // The bytes that arrive next; empty: it has closed, or is silent for too long.
  Bytes hear() {
    Bytes bytes(65536);
    pollfd readable{fd_, POLLIN, 0};
    const bool some = poll(&readable, 1, kClosedMs) > 0;
    EXPECT_TRUE(some) << "it neither answers nor closes";
    const ssize_t count = some ? recv(fd_, bytes.data(), bytes.size(), 0) : 0;
    bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return bytes;
  }
  Bytes until_closed() {
    Bytes all;
    for (Bytes next = hear(); !next.empty(); next = hear()) all = all + next;
    return all;
  }

 private:
  int fd_;
};

// The answer to these bytes. `ends`: nothing follows them.
inline Bytes answer_to(const Target& target, const Bytes& bytes, bool ends = true) {
  Dialled dialled(target.port);
  dialled.say(bytes);
  if (ends) dialled.end();
  return dialled.until_closed();
}

// An alert in plain text, or less.
constexpr size_t kAlertBytes = 7;

inline void refuses_hellos(const Target& target) {
  target.renew();
  for (const Row& row : kHellos) {
    SCOPED_TRACE(row.name);
    // It waits for the rest of what may still be a hello.
    const bool ends = std::string_view(row.refused).empty();
    const Bytes answer = answer_to(target, row.make(), ends);
    const bool plain = row.refused == std::string_view(kPlain) && !target.plain_answer.empty();
    const bool told = text_of(answer).find(target.plain_answer) != std::string::npos;
    EXPECT_TRUE(plain ? told : answer.size() <= kAlertBytes) << text_of(answer);
  }
}

inline void refuses_changed_hellos(const Target& target) {
  target.renew();
  const Bytes hello = our_hello();
  for (size_t i = 0; i < hello.size(); i += 7) {
    SCOPED_TRACE("byte " + std::to_string(i));
    Bytes changed = hello;
    changed[i] ^= std::byte{1} << (i % 8);
    // A changed first byte makes it plain text, which a master answers.
    const Bytes answer = answer_to(target, changed);
    EXPECT_TRUE(i == 0 || answer.size() <= kAlertBytes);
    changed = Bytes(hello.begin(), hello.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_LE(answer_to(target, changed).size(), kAlertBytes);
  }
}

// A foreign dialler and its connection, after the answer to its hello.
struct Session {
  explicit Session(const Target& target) : foreign(renewed(target)), dialled(target.port) {
    hello = foreign.step();
    dialled.say(hello);
    while (SSL_is_init_finished(foreign.ssl.get()) == 0) {
      const Bytes bytes = dialled.hear();
      if (bytes.empty()) break;
      answer = answer + bytes;
      finished = foreign.step(bytes);
    }
    EXPECT_EQ(SSL_is_init_finished(foreign.ssl.get()), 1);
  }
  // The plaintext that comes next.
  Bytes hear() {
    Bytes plaintext(16384);
    for (;;) {
      const int count = SSL_read(foreign.ssl.get(), plaintext.data(), 16384);
      if (count > 0) return plaintext.resize(static_cast<size_t>(count)), plaintext;
      const Bytes bytes = dialled.hear();
      if (bytes.empty()) return {};
      foreign.give_only(bytes);
    }
  }
  static Foreign::Role renewed(const Target& target) {
    target.renew();
    return Foreign::Role::kDialler;
  }
  Foreign foreign;
  Dialled dialled;
  Bytes hello, answer, finished;
};

inline void accepts_a_right_one(const Target& target) {
  Session session(target);
  session.dialled.say(session.finished + session.foreign.encrypted(text_of(target.said())));
  EXPECT_TRUE(target.is_right(session.hear()));
}

// An alert, encrypted or not, and nothing of the run.
constexpr size_t kSealedAlertBytes = 5 + 2 + 1 + 16;

inline void refuses_changed_ends(const Target& target) {
  const size_t size = Session(target).finished.size();
  for (size_t i = 0; i < size; i += 5) {
    SCOPED_TRACE("byte " + std::to_string(i));
    for (const bool cut : {false, true}) {
      Session session(target);
      session.finished[i] ^= std::byte{1};
      if (cut) session.finished.resize(i);
      session.dialled.say(session.finished);
      // A wrong length of the record may ask for more.
      if (cut || i < 5) session.dialled.end();
      EXPECT_LE(session.dialled.until_closed().size(), kSealedAlertBytes + target.early_bytes);
    }
  }
}

// Somebody on the path sends again what he has seen. A copy gets no further than its first answer.
inline void refuses_copies(const Target& target) {
  Bytes seen, answer;
  {
    Session session(target);
    seen = session.hello + session.finished + session.foreign.encrypted(text_of(target.said()));
    answer = session.answer;
  }
  EXPECT_LE(answer_to(target, seen, false).size(),
            answer.size() + kSealedAlertBytes + target.early_bytes);
  Session reflected(target);
  reflected.dialled.say(reflected.answer);
  EXPECT_LE(reflected.dialled.until_closed().size(), kSealedAlertBytes + target.early_bytes);
}

struct BadEnd {
  const char* name;
  std::function<Bytes(Session&, Sealer&)> make;
};

inline const BadEnd kBadEnds[] = {
    {"a record of 0 bytes", [](Session&, Sealer&) { return record(23, {}); }},
    {"16,385 bytes of data", [](Session&, Sealer& seal) { return seal.seal(23, Bytes(16385)); }},
    {"a changed record",
     [](Session&, Sealer& seal) {
       Bytes bytes = seal.seal(23, Bytes(100));
       bytes[50] ^= std::byte{1};
       return bytes;
     }},
    {"plain data", [](Session&, Sealer&) { return record(23, Bytes(100)); }},
    {"a flood of key updates",
     [](Session& session, Sealer&) {
       Bytes flood;
       for (size_t i = 0; i < Tls::kEmptyRecordsMax + 2; ++i)
         flood = flood + session.foreign.key_update(SSL_KEY_UPDATE_NOT_REQUESTED);
       return flood;
     }},
    {"an end without close_notify", [](Session&, Sealer&) { return Bytes{}; }},
};

inline void closes_bad_ends(const Target& target) {
  for (const BadEnd& row : kBadEnds) {
    SCOPED_TRACE(row.name);
    Session session(target);
    Sealer sealer = session.foreign.sealer();
    session.dialled.say(session.finished);
    const Bytes bytes = row.make(session, sealer);
    session.dialled.say(bytes);
    if (bytes.empty()) session.dialled.end();
    EXPECT_LE(session.dialled.until_closed().size(), kSealedAlertBytes + target.early_bytes);
  }
}

inline size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// All of it; no descriptor is left.
inline void withstands(const Target& target) {
  accepts_a_right_one(target);
  const size_t before = open_descriptors();
  for (const auto& attack : {refuses_hellos, refuses_changed_hellos, refuses_changed_ends,
                             refuses_copies, closes_bad_ends}) {
    attack(target);
    accepts_a_right_one(target);
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kClosedMs);
  while (open_descriptors() > before && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
  EXPECT_LE(open_descriptors(), before);
}

}  // namespace pccl::net::forge
