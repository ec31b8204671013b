// tls_test: what the tests of Tls share: keys, two ends, and the bytes between them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "csrc/net/tls.h"

namespace pccl::net {

using Bytes = std::vector<std::byte>;

inline const std::string kAlice = "alice-laptop";

inline Key key_of(uint8_t number) {
  Key key;
  key.bytes.fill(std::byte{number});
  return key;
}

// A dialler and an acceptor with this key.
inline Tls a_dialler(uint8_t key = 7, const std::string& identity = kAlice) {
  Result<Tls> made = Tls::dial(identity, key_of(key));
  EXPECT_TRUE(made.ok());
  return std::move(made.value());
}
inline Tls an_acceptor(uint8_t key = 7) {
  return Tls::accept([key](std::string_view identity) {
    return identity == kAlice ? std::optional(key_of(key)) : std::nullopt;
  });
}

inline Bytes raw_bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}
inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Everything that `tls` has to send.
inline Bytes take_outgoing(Tls& tls) {
  const auto bytes = tls.outgoing();
  const Bytes taken(bytes.begin(), bytes.end());
  tls.sent(taken.size());
  return taken;
}

// The result of giving bytes to `tls`.
struct Outcome {
  Status status;
  Bytes plaintext;
};

// Gives it `ciphertext` in pieces, until it refuses.
inline Outcome deliver(Tls& tls, std::span<const std::byte> ciphertext,
                       size_t piece_max = SIZE_MAX) {
  Outcome outcome;
  while (!ciphertext.empty()) {
    const auto next = ciphertext.first(std::min(piece_max, ciphertext.size()));
    ciphertext = ciphertext.subspan(next.size());
    Bytes copy(next.begin(), next.end());  // it is decrypted where it lies
    std::span<std::byte> piece = copy;
    for (;;) {
      Result<std::span<const std::byte>> data = tls.read(piece);
      if (!data.ok()) {
        outcome.status = data.status();
        return outcome;
      }
      if (data.value().empty()) break;
      outcome.plaintext.insert(outcome.plaintext.end(), data.value().begin(), data.value().end());
    }
    EXPECT_TRUE(piece.empty());
  }
  return outcome;
}

inline size_t encrypt(Tls& tls, std::span<const std::byte> bytes) {
  Result<size_t> taken = tls.write(std::span(&bytes, 1));
  EXPECT_TRUE(taken.ok());
  return taken.ok() ? taken.value() : 0;
}
inline size_t encrypt(Tls& tls, std::string_view text) {
  return encrypt(tls, std::as_bytes(std::span(text)));
}

// Two ends whose handshake is complete.
struct Connected {
  Tls dialler = a_dialler();
  Tls acceptor = an_acceptor();
  Connected() {
    EXPECT_TRUE(deliver(acceptor, take_outgoing(dialler)).status.ok());
    EXPECT_TRUE(deliver(dialler, take_outgoing(acceptor)).status.ok());
    EXPECT_TRUE(deliver(acceptor, take_outgoing(dialler)).status.ok());
    EXPECT_TRUE(dialler.established() && acceptor.established());
  }
};

// The lengths of the records in `bytes`, without their headers.
inline std::vector<size_t> record_lengths(std::span<const std::byte> bytes) {
  std::vector<size_t> lengths;
  while (!bytes.empty()) {
    EXPECT_GE(bytes.size(), 5u);
    const size_t length =
        std::to_integer<size_t>(bytes[3]) << 8 | std::to_integer<size_t>(bytes[4]);
    EXPECT_GE(bytes.size(), 5 + length);
    if (bytes.size() < 5 + length) break;
    bytes = bytes.subspan(5 + length);
    lengths.push_back(length);
  }
  return lengths;
}

}  // namespace pccl::net
