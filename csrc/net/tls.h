// Tls: one end of a TLS 1.3 connection whose ends share a key. It has no socket: ciphertext goes in
// and comes out as bytes, and the owner of the socket carries it. One thread at a time may use it.
// The dialler shows an identity, and the acceptor looks up the key for it. Each end proves by the
// handshake that it knows the key. There are no certificates, and no other way to authenticate.
//
//   dialler                                acceptor
//   dial()   ClientHello: identity, proof   --->   proven(): may write
//            <---   ServerHello, Finished: proof; data
//   proven(), established(): may write
//            Finished, data                 --->   established(): reads data
//
// So the acceptor may send data a round trip before it receives any. Until established(), the
// received proof may be a copy: an attacker on the path may have repeated the ClientHello of
// another connection. The attacker can neither read the answer nor continue. But the acceptor must
// not act because of a copy. It should send nothing secret, and change nothing, before
// established().
// Invariants:
//   1. read() returns nothing only when it has used all ciphertext. Then no complete record is
//      inside. No socket becomes readable for such a record, so it would be read late.
//   2. Nothing can be read before the other end has proven its key and the handshake is complete.
//   3. An acceptor that has not received a whole ClientHello holds at most kHelloBytesMax, and it
//      has allocated nothing else. An unknown identity costs no public-key operation.
//   4. The pre-shared key is wiped when the handshake is over, and a secret of SealedRecords when
//      it is replaced. libssl frees its copies of the first secrets and does not wipe them.
// Failure: read() and write() return it, and return it again from then on. The code is
// kAuthentication before established(), and kProtocol after it; kSystem if OpenSSL lacks memory.
// Texts contain no secret.
// After a failure, outgoing() may have an alert with the reason for the other side. To send it is a
// courtesy. The end of the TCP stream is not seen here: see ended().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "csrc/base/helper_threads.h"
#include "csrc/base/result.h"
#include "csrc/net/keys.h"

namespace pccl::net {

class Tls {
 public:
  static constexpr size_t kIdentityBytesMax = 256;
  static constexpr size_t kHelloBytesMax = 1024;       // of a ClientHello record
  static constexpr size_t kHandshakeBytesMax = 16384;  // all that one end sends in the handshake
  static constexpr size_t kOutgoingBytesMax = 128u << 10;
  // The largest number of bytes of an incomplete record that stay inside when read() has returned
  // nothing. They count if a socket is to become readable only when many bytes have arrived
  // (SO_RCVLOWAT).
  static constexpr size_t kRecordBytesMax = 5 + 16384 + 256;
  // The largest number of records without data that arrive one after the other.
  static constexpr size_t kEmptyRecordsMax = 32;

  // Returns the key for an identity that a dialler shows; nullopt if it is unknown. The identity
  // has 1 to kHelloBytesMax bytes of any value. The function must not use the Tls that calls it.
  using FindKey = std::function<std::optional<Key>(std::string_view identity)>;

  // outgoing() has the ClientHello at once. kInvalidArgument if the identity is empty or longer
  // than kIdentityBytesMax; kSystem if OpenSSL refuses.
  static Result<Tls> dial(std::string identity, const Key& key);
  static Tls accept(FindKey find_key);
  Tls(Tls&&) noexcept;
  Tls& operator=(Tls&&) noexcept;
  ~Tls();

  // Takes bytes from the front of `ciphertext`, decrypts them where they lie, and returns the data
  // of one record. Empty: all ciphertext was used and more is needed. So call it until it returns
  // nothing. The data lies in `ciphertext` or inside the Tls, and is valid until the next call of a
  // method. Until a call has returned nothing, no other code may write to the bytes that were
  // taken. The call may add to outgoing(), and change proven() and established().
  Result<std::span<const std::byte>> read(std::span<std::byte>& ciphertext);
  // Encrypts the spans in order and adds them to outgoing(). Returns the number of bytes that it
  // has taken: fewer than all if outgoing() would exceed kOutgoingBytesMax, and 0 before proven()
  // and after close(). Small spans share a record with the spans after them.
  Result<size_t> write(std::span<const std::span<const std::byte>> plaintext);

  // The ciphertext to send next; valid until the next call of another method. After a send, pass
  // the number of bytes to sent().
  std::span<const std::byte> outgoing() const;
  void sent(size_t bytes);

  // Adds the last record to outgoing(), at once or when the handshake is complete: it shows the
  // other side that no data is missing. Nothing can be written any more. The other side may still
  // write.
  void close();
  // Call it when the TCP stream has ended. kSystem if the other side has not called close() before:
  // the stream was cut off, by a fault or by an attacker on the path.
  Status ended() const;

  // The other side has called close(): nothing more can be read.
  bool closed_by_other() const;
  // The other side has proven that it knows the key (of an acceptor: see above).
  bool proven() const;
  // The handshake is complete on this side.
  bool established() const;
  // Why the handshake has failed, as far as the other side has shown it.
  enum class Refusal {
    kOther,            // another reason, or no failure
    kUnknownIdentity,  // the acceptor does not know the identity of the dialler
    kWrongKey,         // the acceptor has a different key for the identity
    kPlainText,        // the other side speaks plain text, or another protocol
  };
  Refusal refusal() const;
  // A dialler has the identity that it was given. An acceptor has the identity that the dialler has
  // proven; it is empty before proven().
  const std::string& identity() const;

  // For an acceptor that speaks plain text. begins(): whether these first bytes begin a
  // ClientHello. plain_text_alert(): the answer to it (Refusal::kPlainText).
  static bool begins(std::span<const std::byte> bytes);
  static std::span<const std::byte> plain_text_alert();

  // Long data is encrypted and decrypted with these threads, which must outlive this object. Then
  // outgoing() has up to kSharedOutgoingBytesMax.
  static constexpr size_t kSharedOutgoingBytesMax = 1u << 20;
  void share_work(HelperThreads& helpers);

  // For tests: a new key follows after this many records.
  void rekey_after(uint64_t records);

 private:
  struct Impl;
  explicit Tls(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pccl::net
