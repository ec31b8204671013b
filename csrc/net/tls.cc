// Normal operation: OpenSSL makes the handshake. It reads from the caller's ciphertext, and writes
// to the queue of outgoing bytes, through a BIO (OpenSSL's interface of a socket) that is made of
// two functions. It reads no further than one record, so records after Finished are not touched.
// Its key log gives the traffic secrets to SealedRecords, which seals and opens all further records
// in place: libssl would copy each byte twice more. Sending begins at proven(), receiving at
// established(), and then OpenSSL's connection is freed. Failures:
//   - The first record cannot be from the other end of this protocol: OpenSSL does not see it.
//   - OpenSSL refuses the handshake. Its reason becomes the text of the Status. Its alert is sealed
//     here if our sending key is in use: OpenSSL would use the number of a record again.
//   - SealedRecords refuses a record.
#include "csrc/net/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/cpu.h"
#include "csrc/net/byte_queue.h"
#include "csrc/net/openssl.h"
#include "csrc/net/sealed_records.h"

namespace pccl::net {
namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kHeaderBytes = RecordCipher::kHeaderBytes;
static_assert(Tls::kRecordBytesMax == SealedRecords::kRecordBytesMax);
static_assert(Tls::kOutgoingBytesMax == SealedRecords::kOutgoingBytesMax);
static_assert(Tls::kSharedOutgoingBytesMax == SealedRecords::kSharedOutgoingBytesMax);
static_assert(Tls::kEmptyRecordsMax == SealedRecords::kEmptyRecordsMax);

// TLS_AES_128_GCM_SHA256. The other cipher and the shared keys have the same hash.
constexpr unsigned char kCipher[] = {0x13, 0x01};
constexpr const char* kAesFirst = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr const char* kAesLast = "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
struct FreeSession {
  void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
};
using SessionPtr = std::unique_ptr<SSL_SESSION, FreeSession>;

// OpenSSL represents a pre-shared key as a session that it could resume.
SessionPtr session_with(SSL* ssl, const Key& key) {
  SessionPtr session(SSL_SESSION_new());
  const auto* const bytes = reinterpret_cast<const unsigned char*>(key.bytes.data());
  const bool made = session &&
                    SSL_SESSION_set1_master_key(session.get(), bytes, key.bytes.size()) == 1 &&
                    SSL_SESSION_set_cipher(session.get(), SSL_CIPHER_find(ssl, kCipher)) == 1 &&
                    SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) == 1;
  return made ? std::move(session) : nullptr;
}

// A dialler learns from the first alert why it is refused.
Tls::Refusal refusal_in(int alert) {
  switch (alert) {
    case SSL_AD_UNKNOWN_PSK_IDENTITY: return Tls::Refusal::kUnknownIdentity;
    case SSL_AD_ILLEGAL_PARAMETER:
    case SSL_AD_DECRYPT_ERROR: return Tls::Refusal::kWrongKey;
    case SSL_AD_PROTOCOL_VERSION: return Tls::Refusal::kPlainText;
    default: return Tls::Refusal::kOther;
  }
}

// The text for an alert of the other side.
std::string text_of_alert(int alert, Tls::Refusal refusal) {
  switch (refusal) {
    case Tls::Refusal::kUnknownIdentity: return "it does not know this identity";
    case Tls::Refusal::kWrongKey: return "it has another key for this identity";
    case Tls::Refusal::kPlainText: return "it does not speak TLS 1.3";
    case Tls::Refusal::kOther: break;
  }
  return std::string("it ended the connection: ") + SSL_alert_desc_string_long(alert);
}

}  // namespace

struct Tls::Impl {
  static int give(BIO* bio, char* data, size_t size, size_t* given);
  static int take(BIO* bio, const char* data, size_t size, size_t* taken);
  static long control(BIO* bio, int command, long number, void* pointer);
  static BIO_METHOD* make_bio_method();
  static SSL_CTX* make_context(bool dialling);
  static SSL_CTX* context(bool dialling);
  static void on_key(const SSL* ssl, const char* line);
  static void on_message(int outgoing, int version, int type, const void* data, size_t size,
                         SSL* ssl, void* self);
  static int offer_key(SSL* ssl, const EVP_MD* hash, const unsigned char** shown, size_t* size,
                       SSL_SESSION** session);
  static int look_up_key(SSL* ssl, const unsigned char* shown, size_t size, SSL_SESSION** session);
  static Impl& of(const SSL* ssl) { return *static_cast<Impl*>(SSL_get_app_data(ssl)); }

  bool start();
  bool take_first_record();
  size_t first_wanted() const;
  bool first_may_be_tls() const;
  std::string wrong_in_first() const;
  void shake_hands();
  bool shake_once();
  void finish_handshake();
  bool begin(bool sending);
  void fail(Code code, const std::string& why);
  void fail_by_openssl();
  void refuse(int alert, const std::string& why);

  bool dialling = false;
  std::string identity;
  FindKey find_key;                   // of an acceptor
  SessionPtr offered;                 // of a dialler, until OpenSSL has taken it
  std::vector<std::byte> first;       // the part of the first record that has arrived
  std::unique_ptr<SSL, FreeSsl> ssl;  // until established
  std::span<std::byte> input;         // ciphertext that was not read; during a call only
  size_t read_before_established = 0;
  ByteQueue queue;                          // outgoing
  SealedRecords records{queue};             // sends once proven, receives once established
  std::optional<Key> sent_with, read_with;  // traffic secrets, until `records` has them
  bool first_taken = false;                 // OpenSSL has got the first record
  bool proven = false;
  bool established = false;
  bool closing = false;  // close() was called
  bool unknown_identity = false;
  Refusal refusal = Refusal::kOther;
  const char* abuse = nullptr;   // why OpenSSL gets no more bytes
  size_t handshake_records = 0;  // number of records that have arrived
  Status failure;
};

// ---- Callbacks of OpenSSL -----------------------------------------------------------------------

// OpenSSL calls it to read ciphertext.
int Tls::Impl::give(BIO* bio, char* data, size_t size, size_t* given) {
  Impl& self = *static_cast<Impl*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  size_t bytes = std::min(size, self.input.size());
  const size_t left = kHandshakeBytesMax - self.read_before_established;
  if (bytes > left) self.abuse = "it sends too many bytes before its handshake is complete";
  self.read_before_established += std::min(bytes, left);
  if (self.abuse != nullptr) return 0;
  std::copy_n(self.input.data(), bytes, reinterpret_cast<std::byte*>(data));
  self.input = self.input.subspan(bytes);
  *given = bytes;
  if (bytes > 0) return 1;
  BIO_set_retry_read(bio);
  return 0;
}

// OpenSSL calls it to write ciphertext. Once `records` sends, OpenSSL can only write an alert. It
// is dropped, because a record of ours may have the number that OpenSSL has used for it.
int Tls::Impl::take(BIO* bio, const char* data, size_t size, size_t* taken) {
  Impl& self = *static_cast<Impl*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (!self.proven) self.queue.append(std::as_bytes(std::span(data, size)));
  *taken = size;
  return 1;
}

long Tls::Impl::control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH; }

BIO_METHOD* Tls::Impl::make_bio_method() {
  BIO_METHOD* const method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "pccl");
  if (method == nullptr) return nullptr;
  BIO_meth_set_read_ex(method, give);
  BIO_meth_set_write_ex(method, take);
  BIO_meth_set_ctrl(method, control);
  return method;
}

// Sets every option that matters, because the configuration of the machine may have set anything.
SSL_CTX* Tls::Impl::make_context(bool dialling) {
  ERR_clear_error();
  if (openssl_context() == nullptr) return nullptr;
  SSL_CTX* const made = SSL_CTX_new_ex(openssl_context(), nullptr,
                                       dialling ? TLS_client_method() : TLS_server_method());
  if (made == nullptr) return nullptr;
  SSL_CTX_set_security_level(made, 2);
  SSL_CTX_clear_options(made, SSL_CTX_get_options(made));
  SSL_CTX_set_options(made, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_max_early_data(made, 0);
  SSL_CTX_set_recv_max_early_data(made, 0);
  SSL_CTX_set_msg_callback(made, on_message);
  SSL_CTX_set_keylog_callback(made, on_key);
  if (dialling) {
    SSL_CTX_set_psk_use_session_callback(made, offer_key);
    // An acceptor that does not know the key could show a certificate instead: none is accepted.
    SSL_CTX_set_verify(made, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_cert_verify_callback(
        made, [](X509_STORE_CTX*, void*) { return 0; }, nullptr);
  } else {
    SSL_CTX_set_psk_find_session_callback(made, look_up_key);
  }
  if (SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION) == 1 &&
      SSL_CTX_set_max_proto_version(made, TLS1_3_VERSION) == 1 &&
      SSL_CTX_set_num_tickets(made, 0) == 1 && SSL_CTX_set_ciphersuites(made, kAesFirst) == 1 &&
      SSL_CTX_set1_groups_list(made, "X25519") == 1) {
    return made;
  }
  SSL_CTX_free(made);
  return nullptr;
}

// The context of all diallers, or of all acceptors. It is never freed, because a thread may still
// use it when the process ends.
SSL_CTX* Tls::Impl::context(bool dialling) {
  static SSL_CTX* const of_dialler = make_context(true);
  static SSL_CTX* const of_acceptor = make_context(false);
  return dialling ? of_dialler : of_acceptor;
}

// A line of the key log: a label, the random of the ClientHello, and the secret in hexadecimal.
void Tls::Impl::on_key(const SSL* ssl, const char* line) {
  Impl& self = of(ssl);
  const std::string_view text = line;
  const bool of_dialler = text.starts_with("CLIENT_TRAFFIC_SECRET_0 ");
  if (!of_dialler && !text.starts_with("SERVER_TRAFFIC_SECRET_0 ")) return;
  const std::string_view digits = text.substr(text.rfind(' ') + 1);
  Key secret;
  if (digits.size() != 2 * secret.bytes.size()) return;  // of another hash: proven() stays false
  for (size_t i = 0; i < secret.bytes.size(); ++i) {
    const auto digit = [&](size_t at) {
      return static_cast<unsigned>(OPENSSL_hexchar2int(static_cast<unsigned char>(digits[at])));
    };
    secret.bytes[i] = static_cast<std::byte>(digit(2 * i) << 4 | digit(2 * i + 1));
  }
  (of_dialler == self.dialling ? self.sent_with : self.read_with) = secret;
}

// OpenSSL calls this for every record of the handshake, in both directions. The function limits the
// number of records that arrive.
void Tls::Impl::on_message(int outgoing, int, int type, const void*, size_t, SSL* ssl, void*) {
  if (type != SSL3_RT_HEADER || outgoing != 0) return;
  Impl& self = of(ssl);
  if (self.handshake_records++ > kEmptyRecordsMax)
    self.abuse = "it sends many records without data";
}

// OpenSSL calls it once for each ClientHello. A second ClientHello would answer a
// HelloRetryRequest, which our acceptor never sends: the result 0 ends the handshake.
int Tls::Impl::offer_key(SSL* ssl, const EVP_MD*, const unsigned char** shown, size_t* size,
                         SSL_SESSION** session) {
  Impl& self = of(ssl);
  if (!self.offered) return 0;
  *session = self.offered.release();
  *shown = reinterpret_cast<const unsigned char*>(self.identity.data());
  *size = self.identity.size();
  return 1;
}

// The result 0 ends the handshake, before a public-key operation and before a further identity is
// looked up.
int Tls::Impl::look_up_key(SSL* ssl, const unsigned char* shown, size_t size,
                           SSL_SESSION** session) {
  Impl& self = of(ssl);
  *session = nullptr;
  self.identity.assign(reinterpret_cast<const char*>(shown), size);
  const std::optional<Key> key = self.find_key(self.identity);
  self.unknown_identity = !key;
  if (key) *session = session_with(ssl, *key).release();
  return *session != nullptr;
}

// ---- The handshake ------------------------------------------------------------------------------

bool Tls::Impl::start() {
  static BIO_METHOD* const method = make_bio_method();
  SSL_CTX* const made = context(dialling);
  ERR_clear_error();
  if (made != nullptr) ssl.reset(SSL_new(made));
  BIO* const bio = ssl && method != nullptr ? BIO_new(method) : nullptr;
  if (bio == nullptr) return false;
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl.get(), bio, bio);
  SSL_set_app_data(ssl.get(), this);
  if (!has_aes()) {
    SSL_set_ciphersuites(ssl.get(), kAesLast);
    SSL_set_options(ssl.get(), SSL_OP_CIPHER_SERVER_PREFERENCE);
  }
  dialling ? SSL_set_connect_state(ssl.get()) : SSL_set_accept_state(ssl.get());
  return true;
}

// The number of bytes that OpenSSL gets first, all at once. An acceptor waits for the whole record
// of the ClientHello, a dialler for the header of the answer.
size_t Tls::Impl::first_wanted() const {
  if (dialling || first.size() < kHeaderBytes) return kHeaderBytes;
  return kHeaderBytes + (std::to_integer<size_t>(first[3]) << 8) +
         std::to_integer<size_t>(first[4]);
}

// Whether the first record, as far as it has arrived, may be of a TLS handshake. Plain text is
// found out at its first byte.
bool Tls::Impl::first_may_be_tls() const {
  const auto at = [this](size_t index, int otherwise) {
    return index < first.size() ? std::to_integer<int>(first[index]) : otherwise;
  };
  const int type = at(0, SSL3_RT_HANDSHAKE);
  const bool alert = dialling && type == SSL3_RT_ALERT;
  // The version here is TLS 1.0 in a ClientHello, TLS 1.2 in the answer, and either one in an
  // alert.
  const int minor = dialling ? 3 : 1;
  const bool known = at(1, 3) == 3 && (at(2, minor) == minor || (alert && at(2, 1) == 1));
  return (type == SSL3_RT_HANDSHAKE || alert) && known;
}

// The reason to refuse the first record, as far as it has arrived; empty if there is none.
std::string Tls::Impl::wrong_in_first() const {
  if (!first_may_be_tls()) {
    return dialling ? "it answers in plain text or speaks another protocol"
                    : "it speaks plain text or another protocol";
  }
  if (first_wanted() <= kHelloBytesMax) return "";
  return "its first record has " + std::to_string(first_wanted()) + " bytes, at most " +
         std::to_string(kHelloBytesMax);
}

// Returns true once OpenSSL has got the first record; the rest of `input` follows it.
bool Tls::Impl::take_first_record() {
  if (first_taken) return true;
  while (first.size() < first_wanted()) {
    if (input.empty()) return false;
    const size_t bytes = std::min(first_wanted() - first.size(), input.size());
    first.insert(first.end(), input.begin(), input.begin() + static_cast<std::ptrdiff_t>(bytes));
    input = input.subspan(bytes);
    const std::string wrong = wrong_in_first();
    if (!wrong.empty()) {
      if (!first_may_be_tls()) refusal = Refusal::kPlainText;
      fail(Code::kAuthentication, wrong);
      return false;
    }
  }
  first_taken = true;
  if (dialling || start()) {
    const std::span<std::byte> rest = std::exchange(input, first);
    shake_hands();
    PCCL_ASSERT(input.empty() || !failure.ok());
    input = rest;
  } else {
    fail_by_openssl();
  }
  std::vector<std::byte>().swap(first);
  if (!dialling && !proven && failure.ok()) {
    refuse(SSL_AD_HANDSHAKE_FAILURE, "its ClientHello does not fit: it needs a second one");
  }
  return failure.ok();
}

void Tls::Impl::shake_hands() {
  const auto waits = [this] { return proven && input.empty(); };  // an acceptor waits for Finished
  while (failure.ok() && !established && !waits() && shake_once()) {
  }
}

// Takes one step of the handshake. False if OpenSSL needs more bytes, or refuses.
bool Tls::Impl::shake_once() {
  ERR_clear_error();
  if (dialling || proven) {
    const int result = SSL_do_handshake(ssl.get());
    if (result == 1) {
      finish_handshake();
      return true;
    }
    if (SSL_get_error(ssl.get(), result) != SSL_ERROR_WANT_READ) fail_by_openssl();
    return false;
  }
  // The acceptor reads as if early data could come: this call returns after our own messages have
  // left, not after the Finished of the dialler. So the acceptor can write a round trip sooner.
  char nothing = 0;
  size_t bytes = 0;
  const int result = SSL_read_early_data(ssl.get(), &nothing, sizeof nothing, &bytes);
  if (result == SSL_READ_EARLY_DATA_FINISH) {
    const bool early = SSL_get_early_data_status(ssl.get()) != SSL_EARLY_DATA_NOT_SENT;
    if (SSL_session_reused(ssl.get()) != 1 || early) {
      refuse(SSL_AD_HANDSHAKE_FAILURE,
             "its ClientHello does not fit: it offers early data, or no key");
      return false;
    }
    if (!begin(true)) return false;
    proven = true;
    if (closing) records.close();
    return true;
  }
  const bool hungry = SSL_get_error(ssl.get(), 0) == SSL_ERROR_WANT_READ;
  if (!hungry) fail_by_openssl();
  return false;
}

void Tls::Impl::finish_handshake() {
  if (SSL_session_reused(ssl.get()) != 1) return fail(Code::kAuthentication, "it uses no key");
  if ((!proven && !begin(true)) || !begin(false)) return;
  proven = established = true;
  const Key none;
  const auto* const zeros = reinterpret_cast<const unsigned char*>(none.bytes.data());
  SSL_SESSION_set1_master_key(SSL_get_session(ssl.get()), zeros, none.bytes.size());
  find_key = nullptr;
  ssl.reset();
  if (closing) records.close();
}

// Gives the secret of a direction to `records`.
bool Tls::Impl::begin(bool sending) {
  std::optional<Key>& secret = sending ? sent_with : read_with;
  const auto suite = SSL_CIPHER_get_protocol_id(SSL_get_current_cipher(ssl.get())) ==
                             (TLS1_3_CK_AES_128_GCM_SHA256 & 0xffff)
                         ? RecordCipher::Suite::kAes128Gcm
                         : RecordCipher::Suite::kChaCha20Poly1305;
  const bool begun = secret && (sending ? records.begin_sending(suite, *secret)
                                        : records.begin_receiving(suite, *secret));
  secret.reset();
  if (!begun) fail(Code::kSystem, "OpenSSL gives no key for records: " + take_openssl_error());
  return begun;
}

void Tls::Impl::fail(Code code, const std::string& why) {
  PCCL_ASSERT(failure.ok());
  failure = {code, why, {}};
}

// Replaces OpenSSL's queued output by an alert.
void Tls::Impl::refuse(int alert, const std::string& why) {
  const unsigned char record[] = {
      SSL3_RT_ALERT, 3, 3, 0, 2, SSL3_AL_FATAL, static_cast<unsigned char>(alert)};
  queue.clear();
  queue.append(std::as_bytes(std::span(record)));
  fail(Code::kAuthentication, why);
}

void Tls::Impl::fail_by_openssl() {
  const unsigned long error = ERR_peek_error();
  const std::string reason = take_openssl_error();
  if (proven) records.alert(SealedRecords::Alert::kDecryptError);
  const int alert = ERR_GET_REASON(error) - SSL_AD_REASON_OFFSET;
  if (abuse != nullptr) return fail(Code::kAuthentication, abuse);
  if (unknown_identity) {
    refusal = Refusal::kUnknownIdentity;
    return refuse(SSL_AD_UNKNOWN_PSK_IDENTITY, "it shows an unknown identity");
  }
  if (ERR_GET_REASON(error) == SSL_R_BINDER_DOES_NOT_VERIFY) refusal = Refusal::kWrongKey;
  if (alert >= 0 && alert < 256) {
    if (dialling) refusal = refusal_in(alert);
    return fail(Code::kAuthentication, text_of_alert(alert, refusal));
  }
  fail(Code::kAuthentication,
       (dialling ? "it does not prove that it knows the key: " : "it is refused: ") + reason);
}

// ---- Tls ----------------------------------------------------------------------------------------

Tls::Tls(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tls::Tls(Tls&&) noexcept = default;
Tls& Tls::operator=(Tls&&) noexcept = default;
Tls::~Tls() = default;

Result<Tls> Tls::dial(std::string identity, const Key& key) {
  if (identity.empty() || identity.size() > kIdentityBytesMax) {
    return Status{Code::kInvalidArgument,
                  "an identity of " + std::to_string(identity.size()) + " bytes: 1 to " +
                      std::to_string(kIdentityBytesMax) + " are allowed",
                  {}};
  }
  auto impl = std::make_unique<Impl>();
  impl->dialling = true;
  impl->identity = std::move(identity);
  if (impl->start()) impl->offered = session_with(impl->ssl.get(), key);
  if (impl->offered) impl->shake_hands();
  if (impl->queue.size() == 0) {
    const Status& failure = impl->failure;
    const std::string why = failure.ok() ? take_openssl_error() : failure.message;
    return Status{Code::kSystem, "OpenSSL makes no ClientHello: " + why, {}};
  }
  return Tls(std::move(impl));
}

Tls Tls::accept(FindKey find_key) {
  auto impl = std::make_unique<Impl>();
  impl->find_key = std::move(find_key);
  return Tls(std::move(impl));
}

Result<Bytes> Tls::read(std::span<std::byte>& ciphertext) {
  Impl& self = *impl_;
  if (!self.failure.ok()) return self.failure;
  self.input = ciphertext;
  if (!self.established && self.take_first_record()) self.shake_hands();
  ciphertext = std::exchange(self.input, {});
  if (!self.failure.ok()) return self.failure;
  if (!self.established) return Bytes();
  Result<Bytes> data = self.records.read(ciphertext);
  if (!data.ok()) self.failure = data.status();
  return data;
}

Result<size_t> Tls::write(std::span<const Bytes> plaintext) {
  Impl& self = *impl_;
  if (!self.failure.ok()) return self.failure;
  if (!self.proven || self.closing) return size_t{0};
  Result<size_t> taken = self.records.write(plaintext);
  if (!taken.ok()) self.failure = taken.status();
  return taken;
}

Bytes Tls::outgoing() const { return impl_->queue.bytes(); }
void Tls::sent(size_t bytes) { impl_->queue.drop(bytes); }

void Tls::close() {
  impl_->closing = true;
  if (impl_->failure.ok() && impl_->proven) impl_->records.close();
}

Status Tls::ended() const {
  if (!impl_->failure.ok()) return impl_->failure;
  if (closed_by_other()) return {};
  const char* const when = impl_->established
                               ? "the connection was cut off: the other side had not closed it"
                               : "the other side closed the connection during the TLS handshake";
  return {Code::kSystem, when, {}};
}

bool Tls::closed_by_other() const { return impl_->records.closed_by_other(); }
bool Tls::proven() const { return impl_->proven; }
bool Tls::established() const { return impl_->established; }
Tls::Refusal Tls::refusal() const { return impl_->refusal; }
const std::string& Tls::identity() const {
  static const std::string none;
  return impl_->dialling || impl_->proven ? impl_->identity : none;
}

bool Tls::begins(Bytes bytes) {
  return bytes.size() >= 3 && bytes[0] == std::byte{SSL3_RT_HANDSHAKE} &&
         bytes[1] == std::byte{3} && bytes[2] == std::byte{1};
}

Bytes Tls::plain_text_alert() {
  static constexpr unsigned char kAlert[] = {SSL3_RT_ALERT,           3, 3, 0, 2, SSL3_AL_FATAL,
                                             TLS1_AD_PROTOCOL_VERSION};
  return std::as_bytes(std::span(kAlert));
}

void Tls::share_work(HelperThreads& helpers) { impl_->records.share_work(helpers); }
void Tls::rekey_after(uint64_t records) { impl_->records.replace_key_after(records); }

}  // namespace pccl::net
