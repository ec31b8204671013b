#include "csrc/net/tls.h"

#include <malloc.h>

#include <array>
#include <fstream>
#include <random>
#include <sstream>

#include "csrc/base/cpu.h"
#include "tests/cpp/net/tls_test.h"

namespace pccl::net {
namespace {

std::string random_text(std::mt19937_64& random, size_t size) {
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// Delivers what each end has to send until both are silent.
void settle(Tls& one, Tls& other, std::string* to_one = nullptr, std::string* to_other = nullptr) {
  while (!one.outgoing().empty() || !other.outgoing().empty()) {
    const Outcome at_other = deliver(other, take_outgoing(one));
    const Outcome at_one = deliver(one, take_outgoing(other));
    ASSERT_TRUE(at_one.status.ok()) << at_one.status.message;
    ASSERT_TRUE(at_other.status.ok()) << at_other.status.message;
    if (to_one != nullptr) *to_one += text_of(at_one.plaintext);
    if (to_other != nullptr) *to_other += text_of(at_other.plaintext);
  }
}

// ---- The handshake ------------------------------------------------------------------------------

TEST(Tls, HandshakeTakesOneRoundTripAndDataTravelWithIt) {
  Tls dialler = a_dialler();
  Tls acceptor = an_acceptor();
  EXPECT_EQ(dialler.identity(), kAlice);
  EXPECT_EQ(acceptor.identity(), "");
  EXPECT_TRUE(acceptor.outgoing().empty());
  EXPECT_EQ(encrypt(dialler, "too early"), 0u);
  EXPECT_EQ(encrypt(acceptor, "too early"), 0u);

  EXPECT_TRUE(deliver(acceptor, take_outgoing(dialler)).status.ok());
  EXPECT_TRUE(acceptor.proven());
  EXPECT_FALSE(acceptor.established());
  EXPECT_EQ(acceptor.identity(), kAlice);
  EXPECT_EQ(encrypt(acceptor, "welcome"), 7u);

  const Outcome at_dialler = deliver(dialler, take_outgoing(acceptor));
  EXPECT_TRUE(at_dialler.status.ok()) << at_dialler.status.message;
  EXPECT_EQ(text_of(at_dialler.plaintext), "welcome");
  EXPECT_TRUE(dialler.proven() && dialler.established());
  EXPECT_EQ(encrypt(dialler, "hello"), 5u);

  const Outcome at_acceptor = deliver(acceptor, take_outgoing(dialler));
  EXPECT_TRUE(at_acceptor.status.ok()) << at_acceptor.status.message;
  EXPECT_EQ(text_of(at_acceptor.plaintext), "hello");
  EXPECT_TRUE(acceptor.established());
  EXPECT_TRUE(dialler.outgoing().empty() && acceptor.outgoing().empty());
}

TEST(Tls, AcceptorWritesWhileItWaitsForFinished) {
  Tls dialler = a_dialler();
  Tls acceptor = an_acceptor();
  std::string received;
  deliver(acceptor, take_outgoing(dialler));
  EXPECT_EQ(encrypt(acceptor, "one "), 4u);
  received += text_of(deliver(dialler, take_outgoing(acceptor)).plaintext);
  const Bytes finished = take_outgoing(dialler);
  const auto middle = static_cast<std::ptrdiff_t>(finished.size() / 2);
  EXPECT_TRUE(deliver(acceptor, Bytes(finished.begin(), finished.begin() + middle)).status.ok());
  EXPECT_FALSE(acceptor.established());
  EXPECT_EQ(encrypt(acceptor, "two "), 4u);
  EXPECT_TRUE(deliver(acceptor, Bytes(finished.begin() + middle, finished.end())).status.ok());
  EXPECT_TRUE(acceptor.established());
  EXPECT_EQ(encrypt(acceptor, "three"), 5u);
  received += text_of(deliver(dialler, take_outgoing(acceptor)).plaintext);
  EXPECT_EQ(received, "one two three");
}

TEST(Tls, PiecesOfAnySizeMakeTheSameConnection) {
  for (const size_t piece : {1u, 2u, 5u, 6u, 100u}) {
    Tls dialler = a_dialler();
    Tls acceptor = an_acceptor();
    EXPECT_TRUE(deliver(acceptor, take_outgoing(dialler), piece).status.ok());
    EXPECT_TRUE(acceptor.proven());
    EXPECT_EQ(encrypt(acceptor, "welcome"), 7u);
    EXPECT_EQ(text_of(deliver(dialler, take_outgoing(acceptor), piece).plaintext), "welcome");
    EXPECT_EQ(encrypt(dialler, "hello"), 5u);
    EXPECT_EQ(text_of(deliver(acceptor, take_outgoing(dialler), piece).plaintext), "hello");
  }
}

TEST(Tls, IdentityMayBeAnyBytesUpToItsBound) {
  const auto first_bytes = [](const std::string& identity) {
    std::string shown;
    Tls dialler = a_dialler(7, identity);
    Tls acceptor = Tls::accept([&shown](std::string_view found) {
      shown = found;
      return std::optional(key_of(7));
    });
    settle(dialler, acceptor);
    EXPECT_TRUE(acceptor.established());
    EXPECT_EQ(shown, acceptor.identity());
    return acceptor.identity();
  };
  const std::string binary = std::string("\0\xff\n", 3) + std::string(29, 'x');
  for (const std::string& identity : {binary, std::string(Tls::kIdentityBytesMax, 'x')}) {
    EXPECT_EQ(first_bytes(identity), identity);
  }
  for (const size_t size : {size_t{0}, Tls::kIdentityBytesMax + 1}) {
    const Result<Tls> made = Tls::dial(std::string(size, 'x'), key_of(7));
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.status().code, Code::kInvalidArgument);
    EXPECT_EQ(made.status().message,
              "an identity of " + std::to_string(size) + " bytes: 1 to 256 are allowed");
  }
}

// The cipher that the dialler prefers, and the one that the acceptor has chosen, at their places in
// ClientHello and ServerHello: after a record header, a message header, version, random and an
// empty session id.
TEST(Tls, AesIsTakenIfBothHaveItInHardware) {
  const auto ciphers = [](bool at_dialler, bool at_acceptor) {
    allow_aes(at_dialler);
    Tls dialler = a_dialler();
    allow_aes(at_acceptor);
    Tls acceptor = an_acceptor();
    const Bytes hello = take_outgoing(dialler);
    EXPECT_TRUE(deliver(acceptor, hello).status.ok());
    const Bytes answer = take_outgoing(acceptor);
    allow_aes(true);
    constexpr size_t kAt = 5 + 4 + 2 + 32 + 1;
    const auto in_hello = std::to_integer<int>(hello[kAt + 3]);
    EXPECT_TRUE(deliver(dialler, answer).status.ok());
    EXPECT_TRUE(deliver(acceptor, take_outgoing(dialler)).status.ok());
    EXPECT_TRUE(acceptor.established());
    return std::pair(in_hello, std::to_integer<int>(answer[kAt + 1]));
  };
  constexpr int kAes = 1, kChaCha = 3;
  EXPECT_EQ(ciphers(false, false), std::pair(kChaCha, kChaCha));
  if (!has_aes()) GTEST_SKIP() << "no AES instructions here";
  EXPECT_EQ(ciphers(true, true), std::pair(kAes, kAes));
  EXPECT_EQ(ciphers(false, true), std::pair(kChaCha, kChaCha));
  EXPECT_EQ(ciphers(true, false), std::pair(kAes, kChaCha));
}

// ---- Data ---------------------------------------------------------------------------------------

TEST(Tls, DataOfAnySizeArriveInOrderInBothDirections) {
  std::mt19937_64 random{1};
  Connected ends;
  for (const size_t size : {1u, 16383u, 16384u, 16385u, 100000u, 110000u}) {
    for (const size_t piece : {size_t{700}, SIZE_MAX}) {
      const std::string text = random_text(random, size);
      EXPECT_EQ(encrypt(ends.dialler, text), size);
      EXPECT_EQ(encrypt(ends.acceptor, text), size);
      const Outcome there = deliver(ends.acceptor, take_outgoing(ends.dialler), piece);
      const Outcome here = deliver(ends.dialler, take_outgoing(ends.acceptor), piece);
      EXPECT_TRUE(text_of(there.plaintext) == text);
      EXPECT_TRUE(text_of(here.plaintext) == text);
    }
  }
}

TEST(Tls, SmallSpansShareARecord) {
  Connected ends;
  const std::string control(64, 'c'), header(64, 'h'), payload(40000, 'p'), trailer(8, 't');
  std::vector<std::span<const std::byte>> spans;
  for (const std::string* part : {&control, &header, &payload, &trailer}) {
    spans.push_back(std::as_bytes(std::span(*part)));
  }
  spans.insert(spans.begin() + 1, std::span<const std::byte>());
  Result<size_t> taken = ends.dialler.write(spans);
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(taken.value(), 64u + 64 + 40000 + 8);
  const Bytes records = take_outgoing(ends.dialler);
  constexpr size_t kExtra = 17;  // the type of the content, and the tag
  const std::vector<size_t> expected{16384 + kExtra, 16384 + kExtra, 40136 - 2 * 16384 + kExtra};
  EXPECT_EQ(record_lengths(records), expected);
  EXPECT_TRUE(text_of(deliver(ends.acceptor, records).plaintext) ==
              control + header + payload + trailer);
  taken = ends.dialler.write({});
  EXPECT_EQ(taken.value(), 0u);
  EXPECT_TRUE(ends.dialler.outgoing().empty());
}

TEST(Tls, OutgoingBytesAreBounded) {
  std::mt19937_64 random{2};
  Connected ends;
  const std::string text = random_text(random, 3 * Tls::kOutgoingBytesMax);
  std::string received;
  size_t written = 0;
  while (received.size() < text.size()) {
    written += encrypt(ends.dialler, std::string_view(text).substr(written));
    const auto outgoing = ends.dialler.outgoing();
    ASSERT_FALSE(outgoing.empty());
    EXPECT_LE(outgoing.size(), Tls::kOutgoingBytesMax);
    const size_t part = 1 + random() % outgoing.size();
    if (written < text.size()) {
      EXPECT_GT(outgoing.size(), Tls::kOutgoingBytesMax - Tls::kRecordBytesMax);
      EXPECT_EQ(encrypt(ends.dialler, std::string_view(text).substr(written)), 0u);
    }
    const auto sent = ends.dialler.outgoing().first(part);
    received += text_of(deliver(ends.acceptor, sent).plaintext);
    ends.dialler.sent(part);
  }
  EXPECT_EQ(written, text.size());
  EXPECT_TRUE(received == text);
  EXPECT_TRUE(ends.dialler.outgoing().empty());
}

// A record of one byte has 23 bytes, and one with a key update has 27.
TEST(Tls, KeysAreReplacedAfterTheirRecords) {
  Connected ends;
  ends.dialler.rekey_after(10);
  std::string received;
  size_t updates = 0;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(encrypt(ends.dialler, "x"), 1u);
    const Bytes records = take_outgoing(ends.dialler);
    const std::vector<size_t> lengths = record_lengths(records);
    updates += static_cast<size_t>(std::ranges::count(lengths, 27 - 5));
    received += text_of(deliver(ends.acceptor, records).plaintext);
    EXPECT_EQ(encrypt(ends.acceptor, "y"), 1u);
    EXPECT_EQ(text_of(deliver(ends.dialler, take_outgoing(ends.acceptor)).plaintext), "y");
  }
  EXPECT_EQ(received, std::string(100, 'x'));
  EXPECT_GE(updates, 9u);
  EXPECT_LE(updates, 11u);
}

// ---- The end ------------------------------------------------------------------------------------

TEST(Tls, CloseSaysThatNothingIsMissing) {
  Connected ends;
  EXPECT_EQ(encrypt(ends.dialler, "last"), 4u);
  ends.dialler.close();
  ends.dialler.close();
  EXPECT_EQ(encrypt(ends.dialler, "too late"), 0u);
  const Bytes last = take_outgoing(ends.dialler);
  EXPECT_EQ(record_lengths(last).size(), 2u);
  EXPECT_FALSE(ends.acceptor.ended().ok());
  const Outcome outcome = deliver(ends.acceptor, last + raw_bytes("whatever follows"));
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.message;
  EXPECT_EQ(text_of(outcome.plaintext), "last");
  EXPECT_TRUE(ends.acceptor.ended().ok());
  // The other direction is still open.
  EXPECT_EQ(encrypt(ends.acceptor, "answer"), 6u);
  EXPECT_EQ(text_of(deliver(ends.dialler, take_outgoing(ends.acceptor)).plaintext), "answer");
}

TEST(Tls, AcceptorMayCloseBeforeFinished) {
  Tls dialler = a_dialler();
  Tls acceptor = an_acceptor();
  deliver(acceptor, take_outgoing(dialler));
  EXPECT_EQ(encrypt(acceptor, "go away"), 7u);
  acceptor.close();
  EXPECT_EQ(text_of(deliver(dialler, take_outgoing(acceptor)).plaintext), "go away");
  EXPECT_TRUE(dialler.ended().ok());
  // The acceptor still reads what comes with Finished.
  EXPECT_EQ(encrypt(dialler, "goodbye"), 7u);
  EXPECT_EQ(text_of(deliver(acceptor, take_outgoing(dialler)).plaintext), "goodbye");
  EXPECT_FALSE(acceptor.ended().ok());
}

// A close that comes too early is sent when the handshake is complete.
TEST(Tls, CloseBeforeTheHandshakeIsSentAfterIt) {
  for (const bool by_dialler : {true, false}) {
    Tls dialler = a_dialler();
    Tls acceptor = an_acceptor();
    if (by_dialler) dialler.close();
    deliver(acceptor, take_outgoing(dialler));
    deliver(dialler, take_outgoing(acceptor));
    const Bytes finished = take_outgoing(dialler);
    deliver(acceptor, std::span(finished).first(10));
    if (!by_dialler) acceptor.close();
    EXPECT_EQ(encrypt(by_dialler ? dialler : acceptor, "too late"), 0u);
    EXPECT_TRUE(deliver(acceptor, std::span(finished).subspan(10)).status.ok());
    EXPECT_TRUE(deliver(dialler, take_outgoing(acceptor)).status.ok());
    EXPECT_TRUE((by_dialler ? acceptor : dialler).ended().ok());
  }
}

TEST(Tls, AnEndWithoutCloseIsAnError) {
  Connected ends;
  EXPECT_EQ(
      ends.acceptor.ended(),
      (Status{Code::kSystem, "the connection was cut off: the other side had not closed it", {}}));
  const std::string early = "the other side closed the connection during the TLS handshake";
  for (const Tls& tls : {an_acceptor(), a_dialler()}) {
    EXPECT_EQ(tls.ended(), (Status{Code::kSystem, early, {}}));
  }
}

TEST(Tls, AFailureIsReturnedAgain) {
  Connected ends;
  EXPECT_EQ(encrypt(ends.dialler, "whole"), 5u);
  Bytes records = take_outgoing(ends.dialler);
  EXPECT_EQ(encrypt(ends.dialler, "damaged"), 7u);
  Bytes damaged = take_outgoing(ends.dialler);
  damaged.back() ^= std::byte{1};
  const Outcome outcome = deliver(ends.acceptor, records + damaged);
  EXPECT_EQ(text_of(outcome.plaintext), "whole");
  EXPECT_EQ(outcome.status.code, Code::kProtocol);
  EXPECT_EQ(outcome.status.message, "a record is damaged: decryption failed or bad record mac");
  EXPECT_EQ(deliver(ends.acceptor, records).status, outcome.status);
  const std::span<const std::byte> more = records;
  EXPECT_EQ(ends.acceptor.write(std::span(&more, 1)).status(), outcome.status);
  EXPECT_EQ(ends.acceptor.ended(), outcome.status);
  // The alert tells the other side why.
  const Status told = deliver(ends.dialler, take_outgoing(ends.acceptor)).status;
  EXPECT_EQ(told, (Status{Code::kProtocol, "it ended the connection: bad record mac", {}}));
}

// ---- What a stranger may cost, and what stays in memory -----------------------------------------

#ifndef PCCL_SANITIZED
TEST(Tls, ASilentStrangerCostsLessThanAKibibyte) {
  constexpr size_t kCount = 1000;
  std::vector<Tls> acceptors;
  acceptors.reserve(kCount);
  const Bytes hello = take_outgoing(*std::make_unique<Tls>(a_dialler()));
  const size_t before = mallinfo2().uordblks;
  for (size_t i = 0; i < kCount; ++i) {
    acceptors.push_back(an_acceptor());
    EXPECT_TRUE(deliver(acceptors.back(), std::span(hello).first(4)).status.ok());
  }
  EXPECT_LT(mallinfo2().uordblks - before, kCount * 1024);
}

// Buffers of records exist only while there are records: 2 x 17 KiB less. An end has 5,150 bytes,
// most of them in the two contexts of OpenSSL's cipher.
TEST(Tls, AnIdleConnectionCostsLittle) {
  constexpr size_t kCount = 100;
  std::vector<std::unique_ptr<Connected>> connections;
  const size_t before = mallinfo2().uordblks;
  for (size_t i = 0; i < kCount; ++i) {
    connections.push_back(std::make_unique<Connected>());
    Connected& ends = *connections.back();
    const std::string burst(200000, 'x');
    for (const std::string& text : {burst, std::string("ping")}) {
      encrypt(ends.dialler, text);
      deliver(ends.acceptor, take_outgoing(ends.dialler));
    }
  }
  const size_t bytes = (mallinfo2().uordblks - before) / (2 * kCount);
  EXPECT_LT(bytes, 6u << 10);
}

// Whether this process has these bytes in its heap.
bool heap_has(std::span<const std::byte> wanted) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("[heap]") == std::string::npos) continue;
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    const std::span heap(reinterpret_cast<const std::byte*>(begin), end - begin);
    if (!std::ranges::search(heap, wanted).empty()) return true;
  }
  return false;
}

// The key that is searched exists on the stack only.
TEST(Tls, KeysAreWipedAfterTheHandshake) {
  std::array<std::byte, 32> wanted;
  std::mt19937_64 random{3};
  for (std::byte& byte : wanted) byte = static_cast<std::byte>(random());
  Result<Tls> dialler = Tls::dial(kAlice, Key(wanted));
  Tls acceptor = Tls::accept([&wanted](std::string_view) { return std::optional(Key(wanted)); });
  EXPECT_TRUE(heap_has(wanted));  // the acceptor's answer needs it at the dialler
  settle(dialler.value(), acceptor);
  EXPECT_TRUE(dialler.value().established() && acceptor.established());
  EXPECT_FALSE(heap_has(wanted));
}
#endif

}  // namespace
}  // namespace pccl::net
