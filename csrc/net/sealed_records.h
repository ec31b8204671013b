// SealedRecords: the records of a TLS 1.3 connection that carry data, alerts and new keys (RFC
// 8446, sections 4.6.3, 5 and 6). Tls begins each direction when the handshake has made the key of
// that direction. Data is sealed from where it lies into the outgoing queue, and is opened where it
// was received.
// One thread at a time may use it.
// Invariants:
//   1. A view that read() returns was verified. Nobody gets the other received bytes.
//   2. At most one incomplete record stays inside. If there is none, no memory is kept for it.
//   3. Only data fills a record: an alert or a message of this size is refused. So full records can
//      be opened together, because none of them replaces the key.
//   4. Each record in the queue is complete. If a record cannot be sealed, the queue is emptied,
//      and the connection fails.
// Failure: read() or write() returns it, and is not called again. The code is kProtocol. An alert
// in the queue then names the kind of the failure to the other side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/helper_threads.h"
#include "csrc/base/result.h"
#include "csrc/net/byte_queue.h"
#include "csrc/net/record_cipher.h"
#include "csrc/net/record_cutter.h"

namespace pccl::net {

class SealedRecords {
 public:
  using Bytes = std::span<const std::byte>;

  // The kinds of content, and the alerts that are sent (RFC 8446, appendix B).
  enum class Type : uint8_t { kAlert = 21, kHandshake = 22, kData = 23 };
  enum class Alert : uint8_t {
    kCloseNotify = 0,
    kUnexpectedMessage = 10,
    kBadRecordMac = 20,
    kRecordOverflow = 22,
    kIllegalParameter = 47,
    kDecodeError = 50,
    kDecryptError = 51,
    kInternalError = 80,
    kUserCanceled = 90,
  };

  static constexpr size_t kRecordBytesMax = 5 + 16384 + 256;  // of a record from the other end
  static constexpr size_t kOutgoingBytesMax = 128u << 10;
  // The same limit for a write that helpers share: a few records are too little work for them.
  static constexpr size_t kSharedOutgoingBytesMax = 1u << 20;
  // At least this number of full records are sealed or opened together with the helpers.
  static constexpr size_t kSharedRecordsMin = 4;
  // The largest number of records without data that arrive one after the other.
  static constexpr size_t kEmptyRecordsMax = 32;
  // `kKeysMax`: the largest number of new keys of the other side. One more is allowed for each
  // kBytesPerKey bytes of its data. A new key takes as long as some kilobytes of data, so that a
  // large number of new keys would keep the thread busy.
  static constexpr uint64_t kKeysMax = 8192;
  static constexpr uint64_t kBytesPerKey = 1u << 20;
  // A key encrypts at most this number of records, then a new key follows (RFC 8446, section 5.5).
  static constexpr uint64_t kRecordsPerKeyMax = 1u << 24;

  // Adds its records to `outgoing`, which must outlive this object.
  explicit SealedRecords(ByteQueue& outgoing) : outgoing_(outgoing) {}

  // Sets the key of a direction. False if OpenSSL refuses.
  bool begin_sending(RecordCipher::Suite suite, const Key& traffic_secret);
  bool begin_receiving(RecordCipher::Suite suite, const Key& traffic_secret);

  // Shares the work on long data with these threads, which must outlive this object.
  void share_work(HelperThreads& helpers);

  // Takes bytes from the front of `ciphertext`, opens them in place, and returns the data of the
  // next record that contains data: a view of `ciphertext` or of memory inside, valid until the
  // next call. Empty: all ciphertext was used and more is needed.
  // REQUIRES: begin_receiving(). Until a call has returned nothing, no other code writes to the
  // bytes that were taken: helpers may have opened several records.
  Result<Bytes> read(std::span<std::byte>& ciphertext);
  // Seals the spans in order. Returns the number of bytes that were sealed: fewer than all if the
  // queue is full. Small spans share a record with the spans after them. REQUIRES: begin_sending().
  Result<size_t> write(std::span<const Bytes> plaintext);
  // Adds the last record, which shows that no data is missing. Nothing may be written after it.
  void close();
  // Adds an alert that ends the connection. No effect before begin_sending().
  void alert(Alert alert);
  bool closed_by_other() const { return closed_by_other_; }

  // A key seals at most this number of records, then the next key follows.
  void replace_key_after(uint64_t records) { records_per_key_ = records; }

 private:
  using Opened = std::optional<std::span<std::byte>>;
  void open_together(std::span<std::byte>& ciphertext);
  std::span<std::byte> next_record(std::span<std::byte>& ciphertext);
  void forget_partial();
  bool check_header(Bytes header);
  Bytes take_record(const Opened& opened);
  Bytes take_data(Bytes data);
  void take_alert(Bytes content);
  void take_handshake(Bytes content);
  void update_keys(bool answer);
  Bytes next_content(RecordCutter& cutter, size_t outgoing_max);
  bool seal(Type type, Bytes content);
  bool seal_together(Bytes content);
  bool cannot_seal();
  bool replace_sending_key();
  void reserve(size_t plaintext_bytes, size_t outgoing_max);
  void fail(std::string why);
  void damaged(Alert alert, const std::string& why);

  ByteQueue& outgoing_;
  HelperThreads* helpers_ = nullptr;
  std::optional<RecordCipher> sending_, receiving_;
  std::vector<Opened> opened_;      // records that were opened together
  size_t opened_at_ = 0;            // the next of them
  std::vector<std::byte> partial_;  // the part of a record that has arrived
  bool partial_opened_ = false;     // partial_ was a whole record, and the caller may still read it
  std::vector<std::byte> message_;  // the part of a handshake message that has arrived
  size_t empty_records_ = 0;        // number of records that have arrived since the last data
  uint64_t keys_received_ = 0;      // number of new keys of the other side
  size_t answer_bytes_ = 0;         // bytes of our new keys since the queue was seen empty
  uint64_t bytes_received_ = 0;     // bytes of data of the other side
  uint64_t records_per_key_ = kRecordsPerKeyMax;
  bool closed_ = false;
  bool closed_by_other_ = false;
  Status failure_;
};

}  // namespace pccl::net
