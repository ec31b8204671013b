// Handshakes and records that must fail and leave nothing: no plaintext, and no complete handshake.
#include <openssl/x509.h>

#include "tests/cpp/net/tls_hellos.h"

namespace pccl::net::forge {
namespace {

// `refused` is a part of the text; empty: the end may also wait for more, and then the end of the
// TCP stream is an error.
void expect_refusal(const Tls& tls, const Outcome& outcome, Code code, std::string_view refused) {
  EXPECT_TRUE(outcome.plaintext.empty());
  EXPECT_FALSE(tls.established());
  EXPECT_FALSE(tls.ended().ok());
  if (refused.empty() && outcome.status.ok()) return;
  EXPECT_EQ(outcome.status.code, code);
  EXPECT_NE(outcome.status.message.find(refused), std::string::npos) << outcome.status.message;
}

// ---- What an acceptor gets ----------------------------------------------------------------------

class TlsHello : public testing::TestWithParam<Row> {};

TEST_P(TlsHello, IsRefused) {
  for (const size_t piece : {size_t{1}, SIZE_MAX}) {
    Tls acceptor = an_acceptor();
    const Outcome outcome = deliver(acceptor, GetParam().make(), piece);
    expect_refusal(acceptor, outcome, Code::kAuthentication, GetParam().refused);
    EXPECT_FALSE(acceptor.proven());
    EXPECT_EQ(acceptor.identity(), "");
    EXPECT_LE(acceptor.outgoing().size(), 7u);  // an alert
  }
}

std::string name_of(const testing::TestParamInfo<Row>& info) {
  std::string name = info.param.name;
  std::erase_if(name, [](unsigned char c) { return c != ' ' && std::isalnum(c) == 0; });
  std::ranges::replace(name, ' ', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Tls, TlsHello, testing::ValuesIn(kHellos), name_of);

// The rows above fail for their reason: a hello that is only put together again is accepted.
TEST(TlsAttacks, AHelloThatIsPutTogetherAgainIsAccepted) {
  const Bytes hello = our_hello();
  EXPECT_EQ(Hello(hello).bytes(), hello);
  Tls acceptor = an_acceptor();
  EXPECT_TRUE(deliver(acceptor, changed_hello([](Hello& one) { one.random[0] ^= std::byte{1}; }))
                  .status.ok());
  EXPECT_TRUE(acceptor.proven());
}

TEST(TlsAttacks, ASecondIdentityIsNotLookedUp) {
  std::vector<std::string> asked;
  Tls acceptor = Tls::accept([&asked](std::string_view identity) -> std::optional<Key> {
    asked.emplace_back(identity);
    return std::nullopt;
  });
  deliver(acceptor, changed_hello([](Hello& hello) { hello.identities = {"mallory", kAlice}; }));
  EXPECT_EQ(asked, std::vector<std::string>{"mallory"});
}

// ---- Changed, cut and repeated flights ----------------------------------------------------------

// Calls `attack` with each byte of `flight` changed in one bit, and with each beginning of it.
void for_each_change(const Bytes& flight, const std::function<void(const Bytes&)>& attack) {
  for (size_t i = 0; i < flight.size(); ++i) {
    SCOPED_TRACE("byte " + std::to_string(i));
    Bytes changed = flight;
    changed[i] ^= std::byte{1} << (i % 8);
    attack(changed);
    attack(Bytes(flight.begin(), flight.begin() + static_cast<std::ptrdiff_t>(i)));
  }
}

TEST(TlsAttacks, AChangedHelloProvesNothing) {
  for_each_change(our_hello(), [](const Bytes& hello) {
    Tls acceptor = an_acceptor();
    expect_refusal(acceptor, deliver(acceptor, hello), Code::kAuthentication, "");
    EXPECT_FALSE(acceptor.proven());
  });
}

TEST(TlsAttacks, AChangedAnswerProvesNothing) {
  Connected sizes;
  Tls probe = an_acceptor();
  deliver(probe, our_hello());
  const size_t size = take_outgoing(probe).size();
  for (size_t i = 0; i < size; ++i) {
    SCOPED_TRACE("byte " + std::to_string(i));
    for (const bool cut : {false, true}) {
      Tls dialler = a_dialler();
      Tls acceptor = an_acceptor();
      deliver(acceptor, take_outgoing(dialler));
      Bytes answer = take_outgoing(acceptor);
      EXPECT_EQ(answer.size(), size);
      answer[i] ^= std::byte{1} << (i % 8);
      if (cut) answer.resize(i);
      expect_refusal(dialler, deliver(dialler, answer), Code::kAuthentication, "");
      EXPECT_FALSE(dialler.proven());
      const Bytes secret = raw_bytes("secret");
      const std::span<const std::byte> span = secret;
      const Result<size_t> taken = dialler.write(std::span(&span, 1));
      EXPECT_TRUE(!taken.ok() || dialler.outgoing().empty());
    }
  }
}

TEST(TlsAttacks, AChangedFinishedDeliversNoData) {
  const auto flight_and_acceptor = [] {
    Tls dialler = a_dialler();
    Tls acceptor = an_acceptor();
    deliver(acceptor, take_outgoing(dialler));
    deliver(dialler, take_outgoing(acceptor));
    return std::pair(take_outgoing(dialler), std::move(acceptor));
  };
  const size_t size = flight_and_acceptor().first.size();
  for (size_t i = 0; i < size; ++i) {
    SCOPED_TRACE("byte " + std::to_string(i));
    for (const bool cut : {false, true}) {
      auto [finished, acceptor] = flight_and_acceptor();
      finished[i] ^= std::byte{1} << (i % 8);
      if (cut) finished.resize(i);
      expect_refusal(acceptor, deliver(acceptor, finished), Code::kAuthentication, "");
    }
  }
}

// The acceptor has sealed data when it refuses: its alert has the next number, not the first.
TEST(TlsAttacks, AChangedFinishedIsAnnouncedAfterTheData) {
  Tls dialler = a_dialler();
  Tls acceptor = an_acceptor();
  deliver(acceptor, take_outgoing(dialler));
  EXPECT_EQ(encrypt(acceptor, "data"), 4u);
  EXPECT_EQ(text_of(deliver(dialler, take_outgoing(acceptor)).plaintext), "data");
  Bytes finished = take_outgoing(dialler);
  finished.back() ^= std::byte{1};
  EXPECT_EQ(deliver(acceptor, finished).status.code, Code::kAuthentication);
  const Bytes last = take_outgoing(acceptor);
  EXPECT_EQ(record_lengths(last), std::vector<size_t>{2 + 1 + 16});
  EXPECT_EQ(deliver(dialler, last).status.message, "it ended the connection: decrypt error");
}

TEST(TlsAttacks, AChangedRecordDeliversNoData) {
  const auto sent = [](Connected& ends) {
    encrypt(ends.dialler, "secret");
    return take_outgoing(ends.dialler);
  };
  Connected first;
  const size_t size = sent(first).size();
  for (size_t i = 0; i < size; ++i) {
    SCOPED_TRACE("byte " + std::to_string(i));
    for (const bool cut : {false, true}) {
      Connected ends;
      Bytes bytes = sent(ends);
      bytes[i] ^= std::byte{1} << (i % 8);
      if (cut) bytes.resize(i);
      const Outcome outcome = deliver(ends.acceptor, bytes);
      EXPECT_TRUE(outcome.plaintext.empty());
      EXPECT_FALSE(ends.acceptor.ended().ok());
      EXPECT_TRUE(outcome.status.ok() || outcome.status.code == Code::kProtocol);
      EXPECT_TRUE(cut || i < 5 || !outcome.status.ok());
    }
  }
}

// A copy of a ClientHello is as good as the original: it gets the first flight, and no further.
TEST(TlsAttacks, ARepeatedConnectionReadsAndDeliversNothing) {
  Tls dialler = a_dialler();
  Tls acceptor = an_acceptor();
  const Bytes hello = take_outgoing(dialler);
  deliver(acceptor, hello);
  deliver(dialler, take_outgoing(acceptor));
  encrypt(dialler, "remove the member");
  const Bytes rest = take_outgoing(dialler);
  EXPECT_EQ(text_of(deliver(acceptor, rest).plaintext), "remove the member");

  Tls again = an_acceptor();
  EXPECT_TRUE(deliver(again, hello).status.ok());
  EXPECT_TRUE(again.proven());
  EXPECT_FALSE(again.established());
  const Bytes answer = take_outgoing(again);
  expect_refusal(again, deliver(again, rest), Code::kAuthentication, "bad record mac");
  // The dialler of the original does not take this answer either.
  const Status status = deliver(dialler, answer).status;
  EXPECT_EQ(status.code, Code::kProtocol);
}

TEST(TlsAttacks, ReflectedFlightsAreRefused) {
  Tls dialler = a_dialler();
  const Bytes hello = take_outgoing(dialler);
  expect_refusal(dialler, deliver(dialler, hello), Code::kAuthentication,
                 "it answers in plain text or speaks another protocol");
  Tls second = a_dialler();
  Bytes disguised = take_outgoing(second);
  disguised[2] = std::byte{3};  // the version that an answer has
  expect_refusal(second, deliver(second, disguised), Code::kAuthentication, "unexpected message");

  Connected ends;
  encrypt(ends.dialler, "ping");
  EXPECT_EQ(deliver(ends.dialler, take_outgoing(ends.dialler)).status.code, Code::kProtocol);
}

TEST(TlsAttacks, RecordsAreNeitherRepeatedNorLeftOutNorExchanged) {
  for (const auto& order : {std::vector{0, 0}, {1}, {1, 0}}) {
    Connected ends;
    encrypt(ends.dialler, "0");
    Bytes records[2] = {take_outgoing(ends.dialler), {}};
    encrypt(ends.dialler, "1");
    records[1] = take_outgoing(ends.dialler);
    Outcome outcome;
    for (const int which : order) {
      if (!outcome.status.ok()) break;
      outcome = deliver(ends.acceptor, records[which]);
    }
    EXPECT_EQ(outcome.status.code, Code::kProtocol);
    EXPECT_TRUE(outcome.plaintext.empty());
  }
}

// ---- Before Finished ----------------------------------------------------------------------------

// `make` continues after the ClientHello of a foreign dialler; it gets the answer of the acceptor.
Outcome after_hello(const std::function<Bytes(Foreign&, const Bytes&)>& make) {
  Foreign foreign(Foreign::Role::kDialler);
  Tls acceptor = an_acceptor();
  deliver(acceptor, foreign.step());
  EXPECT_TRUE(acceptor.proven());
  const Bytes answer = take_outgoing(acceptor);
  const Outcome outcome = deliver(acceptor, make(foreign, answer));
  EXPECT_FALSE(acceptor.established());
  EXPECT_TRUE(outcome.plaintext.empty());
  EXPECT_EQ(outcome.status.code, Code::kAuthentication);
  return outcome;
}

TEST(TlsAttacks, DataBeforeFinishedAreRefused) {
  const Outcome outcome = after_hello([](Foreign& foreign, const Bytes& answer) {
    foreign.step(answer);
    return foreign.sealer().seal(23, raw_bytes("data"));
  });
  EXPECT_EQ(outcome.status.message, "it is refused: decryption failed or bad record mac");
}

TEST(TlsAttacks, BytesBeforeFinishedAreBounded) {
  const Outcome outcome =
      after_hello([](Foreign&, const Bytes&) { return record(23, Bytes(16384 + 256)); });
  EXPECT_EQ(outcome.status.message, "it sends too many bytes before its handshake is complete");
}

TEST(TlsAttacks, RecordsBeforeFinishedAreBounded) {
  const Outcome outcome = after_hello([](Foreign&, const Bytes&) {
    Bytes many;
    for (size_t i = 0; i <= Tls::kEmptyRecordsMax; ++i) many = many + record(20, number(1, 1));
    return many;
  });
  EXPECT_NE(outcome.status.message, "");
}

// ---- After the handshake ------------------------------------------------------------------------

Bytes repeated(size_t count, const std::function<Bytes()>& make) {
  Bytes all;
  for (size_t i = 0; i < count; ++i) all = all + make();
  return all;
}

struct RecordRow {
  const char* name;
  const char* refused;
  std::function<Bytes(Sealer&)> make;
};
std::ostream& operator<<(std::ostream& out, const RecordRow& row) { return out << row.name; }

constexpr const char* kFlood = "it sends many records without data";
Bytes handshake_message(uint8_t type, const Bytes& body) {
  return number(type, 1) + with_length(body, 3);
}

const RecordRow kRecords[] = {
    {"plain data", "", [](Sealer&) { return record(23, raw_bytes("plain text, long enough")); }},
    {"plain text", "", [](Sealer&) { return raw_bytes("GET / HTTP/1.1\r\n\r\n"); }},
    {"a record of 0 bytes", "", [](Sealer&) { return record(23, {}); }},
    {"a record without type", "bad record type",
     [](Sealer& sealer) { return sealer.seal(Bytes(100)); }},
    {"a record of an unknown type", "bad record type",
     [](Sealer& sealer) { return sealer.seal(25, Bytes(100)); }},
    {"16,385 bytes of data", "data length too long",
     [](Sealer& sealer) { return sealer.seal(23, Bytes(16385)); }},
    {"a record of 16,641 bytes", "length too long",
     [](Sealer&) { return record(23, Bytes(16384 + 256 + 1)); }},
    {"a plain alert", "", [](Sealer&) { return record(21, number(0x0228, 2)); }},
    {"a fatal alert", "it ended the connection: internal error",
     [](Sealer& sealer) { return sealer.seal(21, number(0x0250, 2)); }},
    {"an alert of one byte", "", [](Sealer& sealer) { return sealer.seal(21, number(2, 1)); }},
    {"a change of cipher", "", [](Sealer& sealer) { return sealer.seal(20, number(1, 1)); }},
    {"a plain change of cipher", "", [](Sealer&) { return record(20, number(1, 1)); }},
    {"a ClientHello", "",
     [](Sealer& sealer) {
       const Key key = key_of(7);
       return sealer.seal(22, Hello(our_hello()).message(&key));
     }},
    {"a request for a certificate", "",
     [](Sealer& sealer) { return sealer.seal(22, handshake_message(13, Bytes(3))); }},
    {"a ticket", "",
     [](Sealer& sealer) { return sealer.seal(22, handshake_message(4, Bytes(20))); }},
    {"an empty handshake record", "", [](Sealer& sealer) { return sealer.seal(22, {}); }},
    {"a key update with an unknown request", "bad key update",
     [](Sealer& sealer) { return sealer.seal(22, handshake_message(24, number(2, 1))); }},
    {"a key update with two requests", "",
     [](Sealer& sealer) { return sealer.seal(22, handshake_message(24, number(0, 2))); }},
    {"two key updates in a record", "record boundary",
     [](Sealer& sealer) {
       const Bytes update = handshake_message(24, number(0, 1));
       return sealer.seal(22, update + update);
     }},
    {"many empty records", "",
     [](Sealer& sealer) {
       return repeated(Tls::kEmptyRecordsMax + 2, [&] { return sealer.seal(23, {}); });
     }},
};

class TlsRecord : public testing::TestWithParam<RecordRow> {};

TEST_P(TlsRecord, IsRefused) {
  for (const size_t piece : {size_t{7}, SIZE_MAX}) {
    ForeignConnected ends;
    Sealer sealer = ends.dialler.sealer();
    const Bytes first = sealer.seal(23, raw_bytes("fine"));
    const Outcome outcome = deliver(ends.acceptor, first + GetParam().make(sealer), piece);
    EXPECT_EQ(text_of(outcome.plaintext), "fine");
    EXPECT_EQ(outcome.status.code, Code::kProtocol) << outcome.status.message;
    EXPECT_NE(outcome.status.message.find(GetParam().refused), std::string::npos)
        << outcome.status.message;
  }
}

std::string record_name_of(const testing::TestParamInfo<RecordRow>& info) {
  return name_of({{info.param.name, "", {}}, info.index});
}
INSTANTIATE_TEST_SUITE_P(Tls, TlsRecord, testing::ValuesIn(kRecords), record_name_of);

// The opposite of a flood: few records without data, and then data, again and again.
TEST(TlsAttacks, AFewRecordsWithoutDataAreNoAttack) {
  ForeignConnected ends;
  std::string received;
  for (int i = 0; i < 10; ++i) {
    for (size_t j = 0; j < Tls::kEmptyRecordsMax; ++j) {
      const Outcome outcome =
          deliver(ends.acceptor, ends.dialler.key_update(SSL_KEY_UPDATE_REQUESTED));
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message;
      ends.dialler.step(take_outgoing(ends.acceptor));
    }
    received += text_of(deliver(ends.acceptor, ends.dialler.encrypted("x")).plaintext);
  }
  EXPECT_EQ(received, "xxxxxxxxxx");
}

TEST(TlsAttacks, AFloodOfKeyUpdatesIsCutOff) {
  ForeignConnected ends;
  const Bytes flood = repeated(Tls::kEmptyRecordsMax + 2, [&ends] {
    return ends.dialler.key_update(SSL_KEY_UPDATE_NOT_REQUESTED);
  });
  const Outcome outcome = deliver(ends.acceptor, flood);
  EXPECT_EQ(outcome.status, (Status{Code::kProtocol, kFlood, {}}));
}

// Each update comes with data and asks for an answer, and nobody takes the answers.
TEST(TlsAttacks, AnswersThatNobodyReadsAreBounded) {
  ForeignConnected ends;
  Outcome outcome;
  size_t rounds = 0;
  for (; outcome.status.ok() && rounds < 20000; ++rounds) {
    const Bytes update = ends.dialler.key_update(SSL_KEY_UPDATE_REQUESTED);
    outcome = deliver(ends.acceptor, update + ends.dialler.encrypted("x"));
  }
  EXPECT_EQ(outcome.status.message, "it asks for many answers and does not read them");
  EXPECT_LT(rounds * 27, Tls::kOutgoingBytesMax + 40000);
}

TEST(TlsAttacks, AMessageMayComeInParts) {
  ForeignConnected ends;
  Sealer sealer = ends.dialler.sealer();
  const Bytes update = handshake_message(24, number(0, 1));
  const Bytes begin = sealer.seal(22, Bytes(update.begin(), update.begin() + 4));
  const Bytes end = sealer.seal(22, Bytes(update.begin() + 4, update.end()));
  EXPECT_TRUE(deliver(ends.acceptor, begin).status.ok());
  EXPECT_EQ(encrypt(ends.acceptor, "between"), 7u);
  EXPECT_TRUE(deliver(ends.acceptor, end).status.ok());
  ends.dialler.give_only(take_outgoing(ends.acceptor));
  char text[8] = {};
  EXPECT_EQ(SSL_read(ends.dialler.ssl.get(), text, sizeof text), 7);
  EXPECT_STREQ(text, "between");
  // The next record comes under the next key.
  EXPECT_EQ(deliver(ends.acceptor, sealer.seal(23, raw_bytes("old"))).status.message,
            "a record is damaged: decryption failed or bad record mac");
}

TEST(TlsAttacks, DataInsideOfAMessageIsRefused) {
  ForeignConnected ends;
  Sealer sealer = ends.dialler.sealer();
  const Bytes begin = sealer.seal(22, number(24, 1));
  EXPECT_EQ(deliver(ends.acceptor, begin + sealer.seal(23, raw_bytes("x"))).status.message,
            "a record is damaged: data inside of a handshake message");
}

// ---- What a dialler gets ------------------------------------------------------------------------

// The answer of a foreign acceptor to our dialler.
Outcome answered(const Foreign::Prepare& prepare, std::optional<Key> key = key_of(7)) {
  Foreign foreign(Foreign::Role::kAcceptor, prepare);
  foreign.key = std::move(key);
  Tls dialler = a_dialler();
  const Outcome outcome = deliver(dialler, foreign.step(take_outgoing(dialler)));
  if (!outcome.status.ok()) {
    EXPECT_FALSE(dialler.proven() || dialler.established());
    EXPECT_EQ(outcome.status.code, Code::kAuthentication);
  }
  return outcome;
}

// A certificate that proves nothing.
void show_certificate(SSL_CTX* context) {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = X509_new();
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_sign(certificate, key, EVP_sha256());
  EXPECT_EQ(SSL_CTX_use_certificate(context, certificate), 1);
  EXPECT_EQ(SSL_CTX_use_PrivateKey(context, key), 1);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

TEST(TlsAttacks, AForeignAcceptorWithTheKeyIsAccepted) { EXPECT_TRUE(answered({}).status.ok()); }

TEST(TlsAttacks, AnAcceptorWithoutTheKeyIsRefused) {
  EXPECT_EQ(answered({}, key_of(8)).status.message, "it has another key for this identity");
  EXPECT_NE(answered({}, std::nullopt).status.message, "");
  EXPECT_EQ(answered(show_certificate, std::nullopt).status.message,
            "it does not prove that it knows the key: certificate verify failed");
}

TEST(TlsAttacks, AnAcceptorThatDoesNotKnowTheIdentitySaysSo) {
  Tls dialler = a_dialler(7, "mallory");
  Tls acceptor = an_acceptor();
  EXPECT_EQ(deliver(acceptor, take_outgoing(dialler)).status.message,
            "it shows an unknown identity");
  const Outcome outcome = deliver(dialler, take_outgoing(acceptor));
  expect_refusal(dialler, outcome, Code::kAuthentication, "it does not know this identity");

  Tls other_key = a_dialler(8);
  deliver(acceptor = an_acceptor(), take_outgoing(other_key));
  expect_refusal(other_key, deliver(other_key, take_outgoing(acceptor)), Code::kAuthentication,
                 "it has another key for this identity");
}

TEST(TlsAttacks, AnOlderVersionIsNotNegotiated) {
  const Outcome outcome = answered(
      [](SSL_CTX* context) {
        show_certificate(context);
        SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
      },
      std::nullopt);
  EXPECT_FALSE(outcome.status.ok());
}

TEST(TlsAttacks, OtherCiphersAreNotNegotiated) {
  for (const char* names : {"TLS_AES_256_GCM_SHA384", "TLS_AES_128_CCM_SHA256"}) {
    const Outcome outcome =
        answered([&](SSL_CTX* context) { SSL_CTX_set_ciphersuites(context, names); });
    EXPECT_FALSE(outcome.status.ok());
  }
}

TEST(TlsAttacks, OtherGroupsAreNotNegotiated) {
  const Outcome outcome =
      answered([](SSL_CTX* context) { SSL_CTX_set1_groups_list(context, "P-256"); });
  EXPECT_FALSE(outcome.status.ok());
}

// A HelloRetryRequest with a cookie asks for a second ClientHello.
TEST(TlsAttacks, ASecondHelloIsNotSent) {
  Foreign foreign(Foreign::Role::kAcceptor, [](SSL_CTX* context) {
    SSL_CTX_set_stateless_cookie_generate_cb(context,
                                             [](SSL*, unsigned char* cookie, size_t* size) {
                                               std::memset(cookie, 1, *size = 8);
                                               return 1;
                                             });
    SSL_CTX_set_stateless_cookie_verify_cb(context,
                                           [](SSL*, const unsigned char*, size_t) { return 1; });
  });
  Tls dialler = a_dialler();
  foreign.give_only(take_outgoing(dialler));
  EXPECT_EQ(SSL_stateless(foreign.ssl.get()), 0);
  const Bytes request = foreign.take_bytes();
  EXPECT_FALSE(request.empty());
  expect_refusal(dialler, deliver(dialler, request), Code::kAuthentication, "");
  EXPECT_LE(dialler.outgoing().size(), 7u);
}

TEST(TlsAttacks, PlainAnswersAreRefused) {
  for (const Bytes& answer : {raw_bytes("HTTP/1.1 400 Bad Request\r\n\r\n"), control_hello(),
                              lane_hello(), Bytes(100), record(23, Bytes(40))}) {
    for (const size_t piece : {size_t{1}, SIZE_MAX}) {
      Tls dialler = a_dialler();
      expect_refusal(dialler, deliver(dialler, answer, piece), Code::kAuthentication,
                     "it answers in plain text or speaks another protocol");
      EXPECT_FALSE(dialler.proven());
    }
  }
}

// Our acceptor sends no tickets.
TEST(TlsAttacks, ATicketIsRefused) {
  Foreign foreign(Foreign::Role::kAcceptor);
  Tls dialler = a_dialler();
  deliver(dialler, foreign.step(take_outgoing(dialler)));
  foreign.step(take_outgoing(dialler));
  EXPECT_TRUE(dialler.established());
  EXPECT_EQ(SSL_new_session_ticket(foreign.ssl.get()), 1);
  EXPECT_EQ(deliver(dialler, foreign.step()).status,
            (Status{Code::kProtocol, "a record is damaged: unexpected message", {}}));
}

}  // namespace
}  // namespace pccl::net::forge
