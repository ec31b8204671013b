// Normal operation: OpenSSL reads from the caller's ciphertext, and writes to the queue of outgoing
// bytes, through a BIO (OpenSSL's interface of a socket) that is made of two functions. OpenSSL
// reads ahead no further than one record. Failures:
//   - The first record cannot be from the other end of this protocol: OpenSSL does not see it.
//   - OpenSSL refuses the handshake or a record. Its reason becomes the text of the Status.
//   - The other side sends too much without data, or makes us answer and does not read.
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
#include "csrc/net/record_cutter.h"

namespace pccl::net {
namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kPlainBytesMax = RecordCutter::kPieceBytesMax;  // of a record: 16 KiB
constexpr size_t kHeaderBytes = SSL3_RT_HEADER_LENGTH;  // of a record: type, version, length
static_assert(kPlainBytesMax == SSL3_RT_MAX_PLAIN_LENGTH);
static_assert(Tls::kRecordBytesMax == kHeaderBytes + SSL3_RT_MAX_TLS13_ENCRYPTED_LENGTH);
// Room for our own answers: alerts and key updates.
constexpr size_t kAnswerBytesMax = 16u << 10;

// TLS_AES_128_GCM_SHA256, whose hash is also the one of the other cipher and of the shared keys.
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
  static void on_message(int outgoing, int version, int type, const void* data, size_t size,
                         SSL* ssl, void* self);
  static int offer_key(SSL* ssl, const EVP_MD* hash, const unsigned char** shown, size_t* size,
                       SSL_SESSION** session);
  static int look_up_key(SSL* ssl, const unsigned char* shown, size_t size, SSL_SESSION** session);
  static Impl& of(SSL* ssl) { return *static_cast<Impl*>(SSL_get_app_data(ssl)); }

  bool start();
  bool take_first_record();
  size_t first_wanted() const;
  bool first_may_be_tls() const;
  std::string wrong_in_first() const;
  void shake_hands();
  bool shake_once();
  void finish_handshake();
  size_t decrypt(std::span<std::byte> plaintext);
  size_t encrypt(Bytes plaintext);
  bool rekey();
  void say_close();
  void fail(Code code, const std::string& why);
  void fail_by_openssl();
  void refuse(int alert, const std::string& why);
  void reserve(size_t plaintext_bytes);

  bool dialling = false;
  std::string identity;
  FindKey find_key;              // of an acceptor
  SessionPtr offered;            // of a dialler, until OpenSSL has taken it
  std::vector<std::byte> first;  // the part of the first record so far
  std::unique_ptr<SSL, FreeSsl> ssl;
  Bytes input;  // ciphertext that OpenSSL has not read; during a call only
  size_t read_before_established = 0;
  ByteQueue queue;           // outgoing
  bool first_taken = false;  // OpenSSL has got the first record
  bool proven = false;
  bool established = false;
  bool closing = false;  // close() was called
  bool closed_by_other = false;
  bool unknown_identity = false;
  Refusal refusal = Refusal::kOther;
  const char* abuse = nullptr;  // why OpenSSL gets no more bytes
  size_t empty_records = 0;     // records that have arrived since the last data
  uint64_t records_sent = 0;    // under the present key
  uint64_t records_per_key = kRecordsPerKeyMax;
  Status failure;
};

// ---- What OpenSSL calls -------------------------------------------------------------------------

// OpenSSL reads ciphertext.
int Tls::Impl::give(BIO* bio, char* data, size_t size, size_t* given) {
  Impl& self = *static_cast<Impl*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  size_t bytes = std::min(size, self.input.size());
  if (!self.established) {
    const size_t left = kHandshakeBytesMax - self.read_before_established;
    if (bytes > left) self.abuse = "it sends too many bytes before its handshake is complete";
    self.read_before_established += std::min(bytes, left);
  }
  if (self.abuse != nullptr) return 0;
  std::copy_n(self.input.data(), bytes, reinterpret_cast<std::byte*>(data));
  self.input = self.input.subspan(bytes);
  *given = bytes;
  if (bytes > 0) return 1;
  BIO_set_retry_read(bio);
  return 0;
}

// OpenSSL writes ciphertext. write() has made sure that its records have room.
int Tls::Impl::take(BIO* bio, const char* data, size_t size, size_t* taken) {
  Impl& self = *static_cast<Impl*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (self.queue.size() + size > kOutgoingBytesMax + kAnswerBytesMax) {
    self.abuse = "it asks for many answers and does not read them";
    return 0;
  }
  self.queue.append(std::as_bytes(std::span(data, size)));
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

// The configuration of the machine may have set anything, so that all that matters is set here.
SSL_CTX* Tls::Impl::make_context(bool dialling) {
  ERR_clear_error();
  if (openssl_context() == nullptr) return nullptr;
  SSL_CTX* const made = SSL_CTX_new_ex(openssl_context(), nullptr,
                                       dialling ? TLS_client_method() : TLS_server_method());
  if (made == nullptr) return nullptr;
  SSL_CTX_set_security_level(made, 2);
  SSL_CTX_clear_options(made, SSL_CTX_get_options(made));
  SSL_CTX_set_options(made, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  SSL_CTX_set_mode(made, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_max_early_data(made, 0);
  SSL_CTX_set_recv_max_early_data(made, 0);
  SSL_CTX_set_block_padding(made, 0);
  SSL_CTX_set_msg_callback(made, on_message);
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

// Never freed: a thread may still use it when the process ends.
SSL_CTX* Tls::Impl::context(bool dialling) {
  static SSL_CTX* const of_dialler = make_context(true);
  static SSL_CTX* const of_acceptor = make_context(false);
  return dialling ? of_dialler : of_acceptor;
}

// Sees every record, in both directions.
void Tls::Impl::on_message(int outgoing, int, int type, const void*, size_t, SSL* ssl, void*) {
  if (type != SSL3_RT_HEADER) return;
  Impl& self = of(ssl);
  if (outgoing != 0) {
    ++self.records_sent;
  } else if (self.empty_records++ > kEmptyRecordsMax) {
    self.abuse = "it sends many records without data";
  }
}

// OpenSSL asks once for each ClientHello. A second one would answer a HelloRetryRequest, which our
// acceptor never sends: 0 ends the handshake.
int Tls::Impl::offer_key(SSL* ssl, const EVP_MD*, const unsigned char** shown, size_t* size,
                         SSL_SESSION** session) {
  Impl& self = of(ssl);
  if (!self.offered) return 0;
  *session = self.offered.release();
  *shown = reinterpret_cast<const unsigned char*>(self.identity.data());
  *size = self.identity.size();
  return 1;
}

// 0 ends the handshake, before a public-key operation and before a further identity is looked up.
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
    const Bytes rest = std::exchange(input, first);
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
  const auto waits = [this] { return proven && input.empty(); };  // an acceptor, for Finished
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
  // As if early data could come: this call returns after our own flight has left, not after the
  // Finished of the dialler. So the acceptor can write a round trip sooner.
  char nothing = 0;
  size_t bytes = 0;
  const int result = SSL_read_early_data(ssl.get(), &nothing, sizeof nothing, &bytes);
  if (result == SSL_READ_EARLY_DATA_FINISH) {
    const bool early = SSL_get_early_data_status(ssl.get()) != SSL_EARLY_DATA_NOT_SENT;
    proven = SSL_session_reused(ssl.get()) == 1 && !early;
    if (!proven)
      refuse(SSL_AD_HANDSHAKE_FAILURE,
             "its ClientHello does not fit: it offers early data, or no key");
    return proven;
  }
  const bool hungry = SSL_get_error(ssl.get(), 0) == SSL_ERROR_WANT_READ;
  if (!hungry) fail_by_openssl();
  return false;
}

void Tls::Impl::finish_handshake() {
  if (SSL_session_reused(ssl.get()) != 1) return fail(Code::kAuthentication, "it uses no key");
  proven = established = true;
  empty_records = 0;
  const Key none;
  const auto* const zeros = reinterpret_cast<const unsigned char*>(none.bytes.data());
  SSL_SESSION_set1_master_key(SSL_get_session(ssl.get()), zeros, none.bytes.size());
  find_key = nullptr;
  if (closing) say_close();
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
  const Code code = established ? Code::kProtocol : Code::kAuthentication;
  const int alert = ERR_GET_REASON(error) - SSL_AD_REASON_OFFSET;
  if (abuse != nullptr) return fail(code, abuse);
  if (unknown_identity) {
    refusal = Refusal::kUnknownIdentity;
    return refuse(SSL_AD_UNKNOWN_PSK_IDENTITY, "it shows an unknown identity");
  }
  if (ERR_GET_REASON(error) == SSL_R_BINDER_DOES_NOT_VERIFY) refusal = Refusal::kWrongKey;
  if (alert >= 0 && alert < 256) {
    if (dialling && !established) refusal = refusal_in(alert);
    return fail(code, text_of_alert(alert, refusal));
  }
  if (established) return fail(code, "a record is damaged: " + reason);
  fail(code, (dialling ? "it does not prove that it knows the key: " : "it is refused: ") + reason);
}

// ---- Data ---------------------------------------------------------------------------------------

// Makes room for the records of this many bytes at once, as far as write() takes them.
void Tls::Impl::reserve(size_t plaintext_bytes) {
  const size_t records = plaintext_bytes / kPlainBytesMax + 1;
  const size_t wanted = plaintext_bytes + records * (kRecordBytesMax - kPlainBytesMax);
  const size_t room = kOutgoingBytesMax - std::min(kOutgoingBytesMax, queue.size());
  queue.reserve(std::min(wanted, room));
}

size_t Tls::Impl::decrypt(std::span<std::byte> plaintext) {
  size_t total = 0;
  while (total < plaintext.size()) {
    size_t bytes = 0;
    ERR_clear_error();
    const auto rest = plaintext.subspan(total);
    if (SSL_read_ex(ssl.get(), rest.data(), rest.size(), &bytes) == 1) {
      empty_records = 0;
      total += bytes;
      continue;
    }
    const int error = SSL_get_error(ssl.get(), 0);
    closed_by_other = error == SSL_ERROR_ZERO_RETURN;
    if (error != SSL_ERROR_WANT_READ && !closed_by_other) fail_by_openssl();
    break;
  }
  return total;
}

// OpenSSL cannot do it while it has a part of the Finished of the dialler; this is called again
// when the handshake is complete. A second SSL_shutdown() would read, and discard data.
void Tls::Impl::say_close() {
  if ((SSL_get_shutdown(ssl.get()) & SSL_SENT_SHUTDOWN) != 0) return;
  ERR_clear_error();
  SSL_shutdown(ssl.get());
  ERR_clear_error();
}

// Encrypts one record. Returns how many bytes it has taken: all, or none if OpenSSL first needs the
// rest of a message of the other side.
size_t Tls::Impl::encrypt(Bytes plaintext) {
  PCCL_DCHECK(!plaintext.empty() && plaintext.size() <= kPlainBytesMax);
  ERR_clear_error();
  size_t taken = 0;
  const int result =
      established ? SSL_write_ex(ssl.get(), plaintext.data(), plaintext.size(), &taken)
                  : SSL_write_early_data(ssl.get(), plaintext.data(), plaintext.size(), &taken);
  if (result == 1) return taken;
  if (SSL_get_error(ssl.get(), result) != SSL_ERROR_WANT_READ) fail_by_openssl();
  return 0;
}

// Replaces our sending key, if it is time; false if that has to wait for the rest of a message of
// the other side. OpenSSL announces the new key before the next record.
bool Tls::Impl::rekey() {
  if (!established || records_sent < records_per_key) return true;
  ERR_clear_error();
  if (SSL_key_update(ssl.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return false;
  records_sent = 0;
  return true;
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

Result<size_t> Tls::read(Bytes& ciphertext, std::span<std::byte> plaintext) {
  PCCL_ASSERT(!plaintext.empty());
  Impl& self = *impl_;
  if (!self.failure.ok()) return self.failure;
  self.input = ciphertext;
  size_t bytes = 0;
  if (self.take_first_record()) self.shake_hands();
  if (self.established && self.failure.ok() && !self.closed_by_other)
    bytes = self.decrypt(plaintext);
  if (self.closed_by_other) self.input = {};  // nothing counts after close_notify
  ciphertext = std::exchange(self.input, {});
  if (bytes == 0 && !self.failure.ok()) return self.failure;
  PCCL_DCHECK(bytes > 0 || ciphertext.empty());
  return bytes;
}

Result<size_t> Tls::write(std::span<const Bytes> plaintext) {
  Impl& self = *impl_;
  if (!self.failure.ok()) return self.failure;
  size_t total = 0;
  if (!self.proven || self.closing) return total;
  size_t given = 0;
  for (const Bytes span : plaintext) given += span.size();
  self.reserve(given);
  RecordCutter cutter(plaintext);
  while (self.queue.size() + kRecordBytesMax <= kOutgoingBytesMax && self.rekey()) {
    const Bytes record = cutter.next();
    const size_t bytes = record.empty() ? 0 : self.encrypt(record);
    if (bytes == 0) break;
    total += bytes;
  }
  if (total == 0 && !self.failure.ok()) return self.failure;
  return total;
}

Bytes Tls::outgoing() const { return impl_->queue.bytes(); }
void Tls::sent(size_t bytes) { impl_->queue.drop(bytes); }

void Tls::close() {
  impl_->closing = true;
  if (impl_->failure.ok() && impl_->proven) impl_->say_close();
}

Status Tls::ended() const {
  if (!impl_->failure.ok()) return impl_->failure;
  if (impl_->closed_by_other) return {};
  const char* const when = impl_->established
                               ? "the connection was cut off: the other side had not closed it"
                               : "the other side closed the connection during the TLS handshake";
  return {Code::kSystem, when, {}};
}

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

void Tls::rekey_after(uint64_t records) { impl_->records_per_key = records; }

}  // namespace pccl::net
