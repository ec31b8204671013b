// tls_hellos: ClientHellos that no acceptor may accept, one a row, for tests of Tls as a value and
// of listeners. They show the identity of forge::shown, and its key proves them where it matters.
#pragma once

#include "csrc/net/framing.h"
#include "csrc/protocol/codec.h"
#include "tests/cpp/net/tls_forge.h"

namespace pccl::net::forge {

inline Bytes our_hello() {
  Result<Tls> dialler = Tls::dial(shown.identity, shown.key);
  EXPECT_TRUE(dialler.ok());
  return take_outgoing(dialler.value());
}

struct Row {
  const char* name;
  const char* refused;
  std::function<Bytes()> make;
};
inline std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }

inline Bytes changed_hello(const std::function<void(Hello&)>& change) {
  Hello hello(our_hello());
  change(hello);
  return hello.bytes();
}

inline Bytes with_key_share(const Bytes& shares) {
  return changed_hello([&](Hello& hello) { hello.extension(kKeyShare) = with_length(shares, 2); });
}

inline Bytes foreign_hello(const Foreign::Prepare& prepare) {
  return Foreign(Foreign::Role::kDialler, prepare).step();
}

inline Bytes with_ciphers(const char* names) {
  return foreign_hello([&](SSL_CTX* context) { SSL_CTX_set_ciphersuites(context, names); });
}

// The key share is of the first group.
inline Bytes with_groups(const char* names) {
  return foreign_hello([&](SSL_CTX* context) { SSL_CTX_set1_groups_list(context, names); });
}

// Early data after a ClientHello that announces them.
inline Bytes early_data() {
  Foreign foreign(Foreign::Role::kDialler);
  foreign.early_bytes_max = 1000;
  size_t written = 0;
  EXPECT_EQ(SSL_write_early_data(foreign.ssl.get(), "early", 5, &written), 1);
  return foreign.take_bytes();
}

inline Bytes in_two_records(const Bytes& hello) {
  const Bytes message(hello.begin() + 5, hello.end());
  const auto half = message.begin() + static_cast<std::ptrdiff_t>(message.size() / 2);
  return record(22, Bytes(message.begin(), half), 0x0301) +
         record(22, Bytes(half, message.end()), 0x0301);
}

inline Bytes control_hello() {
  std::vector<std::byte> bytes;
  protocol::encode(protocol::Hello{}, bytes);
  return bytes;
}

inline Bytes lane_hello() {
  const HeaderBytes bytes = encode_header(hello_frame(FrameType::kHello, {}));
  return {bytes.begin(), bytes.end()};
}

inline constexpr const char* kPlain = "it speaks plain text or another protocol";
inline constexpr const char* kDoesNotFit = "its ClientHello does not fit";

inline const Row kHellos[] = {
    {"an HTTP request", kPlain, [] { return raw_bytes("GET / HTTP/1.1\r\nHost: pccl\r\n\r\n"); }},
    {"a Hello of the control plane", kPlain, control_hello},
    {"a hello of a lane", kPlain, lane_hello},
    {"zeros", kPlain, [] { return Bytes(100); }},
    {"a hello of SSL 2", kPlain, [] { return number(0x802e010301, 5) + Bytes(43); }},
    {"a record of SSL 2's number", kPlain, [] { return record(22, Bytes(100), 0x0200); }},
    {"data in place of a hello", kPlain, [] { return record(23, Bytes(100)); }},
    {"an alert in place of a hello", kPlain, [] { return record(21, number(0x0228, 2), 0x0301); }},
    {"a change of cipher in place of a hello", kPlain, [] { return record(20, number(1, 1)); }},
    {"an empty record", "", [] { return record(22, {}, 0x0301); }},
    {"a record of 1,025 bytes", "its first record has 1025 bytes, at most 1024",
     [] { return record(22, Bytes(1020), 0x0301); }},
    {"the header of a long record", "its first record has 16645 bytes, at most 1024",
     [] { return number(0x1603014100, 5); }},
    {"another message", "unexpected message",
     [] { return record(22, number(2, 1) + with_length(Bytes(60), 3), 0x0301); }},
    {"two records", kDoesNotFit, [] { return in_two_records(our_hello()); }},
    {"bytes after the hello", "",
     [] { return record(22, Hello(our_hello()).message(&shown.key) + Bytes(8), 0x0301); }},
    {"an unknown identity", "it shows an unknown identity",
     [] { return changed_hello([](Hello& hello) { hello.identities = {"mallory"}; }); }},
    {"an unknown identity before a known one", "it shows an unknown identity",
     [] {
       return changed_hello([](Hello& hello) { hello.identities = {"mallory", shown.identity}; });
     }},
    {"a wrong key", "binder does not verify", [] { return Hello(our_hello()).bytes(key_of(8)); }},
    {"no identity", "it is refused", [] { return Hello(our_hello()).bytes_without_identity(); }},
    {"no version", "it is refused",
     [] { return changed_hello([](Hello& hello) { hello.remove(kVersions); }); }},
    {"TLS 1.2", "unsupported protocol",
     [] {
       return foreign_hello(
           [](SSL_CTX* context) { SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION); });
     }},
    {"AES-256", "it is refused", [] { return with_ciphers("TLS_AES_256_GCM_SHA384"); }},
    {"AES-CCM", "no shared cipher", [] { return with_ciphers("TLS_AES_128_CCM_SHA256"); }},
    {"P-256", kDoesNotFit, [] { return with_groups("P-256:X25519"); }},
    {"P-256 only", "it is refused", [] { return with_groups("P-256"); }},
    {"a key exchange without Diffie-Hellman", "it is refused",
     [] {
       return changed_hello([](Hello& hello) { hello.extension(kKeyModes) = number(0x0100, 2); });
     }},
    {"no modes of key exchange", "it is refused",
     [] { return changed_hello([](Hello& hello) { hello.remove(kKeyModes); }); }},
    {"an empty key share", kDoesNotFit, [] { return with_key_share({}); }},
    {"no key share", "it is refused",
     [] { return changed_hello([](Hello& hello) { hello.remove(kKeyShare); }); }},
    {"a key share of another group", "it is refused",
     [] { return with_key_share(number(23, 2) + with_length(number(4, 1) + Bytes(64), 2)); }},
    {"a key share that is cut", "it is refused",
     [] { return with_key_share(number(29, 2) + with_length(Bytes(31), 2)); }},
    {"a key share of zeros", "it is refused",
     [] { return with_key_share(number(29, 2) + with_length(Bytes(32), 2)); }},
    {"compression", "it is refused",
     [] { return changed_hello([](Hello& hello) { hello.compression = number(0x0100, 2); }); }},
    {"the offer of early data", kDoesNotFit,
     [] {
       return changed_hello(
           [](Hello& hello) { hello.extensions.emplace_back(kEarlyData, Bytes()); });
     }},
    {"early data", kDoesNotFit, early_data},
    {"its own answer", kPlain,
     [] {
       Tls other = Tls::accept([](std::string_view) { return std::optional(shown.key); });
       deliver(other, our_hello());
       return take_outgoing(other);
     }},
};

}  // namespace pccl::net::forge
