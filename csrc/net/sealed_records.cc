// Normal operation: records are opened in the caller's buffer, and data is sealed into the queue of
// outgoing bytes. Failures:
//   - A record is damaged, or its content breaks the rules of the protocol.
//   - The other side ends the connection by an alert.
//   - The other side sends too much without data, or asks for answers and does not read them.
#include "csrc/net/sealed_records.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::net {
namespace {

constexpr size_t kPlainBytesMax = RecordCipher::kPlainBytesMax;
static_assert(RecordCutter::kPieceBytesMax == kPlainBytesMax);
static_assert(SealedRecords::kRecordBytesMax ==
              RecordCipher::kHeaderBytes + SSL3_RT_MAX_TLS13_ENCRYPTED_LENGTH);
constexpr size_t kFullRecordBytes = kPlainBytesMax + RecordCipher::kExtraBytes;
// The queue may have this number of bytes more than its maximum, for our answers: new keys.
constexpr size_t kAnswerBytesMax = 16u << 10;

// The start of a KeyUpdate message: its type, and its length of 1 in three bytes. One more byte
// follows: whether the message asks for an answer.
constexpr std::byte kKeyUpdate{24};
constexpr std::array kKeyUpdateStart = {kKeyUpdate, std::byte{0}, std::byte{0}, std::byte{1}};
constexpr size_t kKeyUpdateBytes = kKeyUpdateStart.size() + 1;

size_t length_in(std::span<const std::byte> header) {
  return std::to_integer<size_t>(header[3]) << 8 | std::to_integer<size_t>(header[4]);
}

}  // namespace

bool SealedRecords::begin_sending(RecordCipher::Suite suite, const Key& traffic_secret) {
  sending_ = RecordCipher::make(suite, RecordCipher::Use::kSeal, traffic_secret);
  return sending_.has_value();
}

bool SealedRecords::begin_receiving(RecordCipher::Suite suite, const Key& traffic_secret) {
  receiving_ = RecordCipher::make(suite, RecordCipher::Use::kOpen, traffic_secret);
  return receiving_.has_value();
}

void SealedRecords::fail(std::string why) { failure_ = {Code::kProtocol, std::move(why), {}}; }

void SealedRecords::damaged(Alert kind, const std::string& why) {
  fail("a record is damaged: " + why);
  alert(kind);
}

// ---- Receiving ----

Result<SealedRecords::Bytes> SealedRecords::read(std::span<std::byte>& ciphertext) {
  PCCL_ASSERT(receiving_);
  while (failure_.ok() && !closed_by_other_) {
    if (opened_at_ == opened_.size()) open_together(ciphertext);
    Bytes data;
    if (opened_at_ < opened_.size()) {
      data = take_record(opened_[opened_at_++]);
    } else {
      const std::span<std::byte> record = next_record(ciphertext);
      if (record.empty()) break;
      data = take_record(receiving_->open(record));
    }
    if (!data.empty()) return data;
  }
  if (closed_by_other_) ciphertext = {};  // nothing counts after close_notify
  if (!failure_.ok()) return failure_;
  PCCL_DCHECK(ciphertext.empty());
  std::vector<Opened>().swap(opened_);
  return Bytes();
}

// Opens all full records at the front of `ciphertext`, if they are enough for the helpers.
void SealedRecords::open_together(std::span<std::byte>& ciphertext) {
  opened_.clear();
  opened_at_ = 0;
  if (helpers_ == nullptr || (!partial_.empty() && !partial_opened_)) return;
  size_t count = 0;
  for (auto rest = ciphertext; rest.size() >= kFullRecordBytes; ++count) {
    if (rest[0] != static_cast<std::byte>(Type::kData)) break;
    if (length_in(rest) != kFullRecordBytes - RecordCipher::kHeaderBytes) break;
    rest = rest.subspan(kFullRecordBytes);
  }
  if (count < kSharedRecordsMin || !helpers_->ready()) return;
  if (!receiving_->prepare(helpers_->helpers() + 1)) return;  // this thread opens them alone
  forget_partial();
  opened_.resize(count);
  const uint64_t first = receiving_->take(count);
  helpers_->for_each(count, [&](size_t worker, size_t index) {
    const auto record = ciphertext.subspan(index * kFullRecordBytes, kFullRecordBytes);
    opened_[index] = receiving_->open(first + index, worker, record);
  });
  ciphertext = ciphertext.subspan(count * kFullRecordBytes);
}

// Returns the next whole record: a part of `ciphertext`, or partial_, where its parts were put
// together. Empty: the record is incomplete, or its header is wrong.
std::span<std::byte> SealedRecords::next_record(std::span<std::byte>& ciphertext) {
  forget_partial();
  if (partial_.empty() && ciphertext.size() >= RecordCipher::kHeaderBytes) {
    if (!check_header(ciphertext)) return {};
    const size_t bytes = RecordCipher::kHeaderBytes + length_in(ciphertext);
    if (bytes <= ciphertext.size()) {
      const auto record = ciphertext.first(bytes);
      ciphertext = ciphertext.subspan(bytes);
      return record;
    }
  }
  for (size_t wanted = RecordCipher::kHeaderBytes;;
       wanted = RecordCipher::kHeaderBytes + length_in(partial_)) {
    const size_t missing = wanted - std::min(wanted, partial_.size());
    const auto more = ciphertext.first(std::min(missing, ciphertext.size()));
    if (!more.empty()) partial_.reserve(wanted);
    partial_.insert(partial_.end(), more.begin(), more.end());
    ciphertext = ciphertext.subspan(more.size());
    if (partial_.size() < wanted) break;
    if (wanted > RecordCipher::kHeaderBytes) {
      partial_opened_ = true;
      return partial_;
    }
    if (!check_header(partial_)) return {};
  }
  if (partial_.empty()) std::vector<std::byte>().swap(partial_);
  return {};
}

void SealedRecords::forget_partial() {
  if (std::exchange(partial_opened_, false)) partial_.clear();
}

// True if the header is valid. Then the length in it is not 0, so the record is longer than its
// header.
bool SealedRecords::check_header(Bytes header) {
  const size_t length = length_in(header);
  if (header[0] != static_cast<std::byte>(Type::kData)) {
    damaged(Alert::kUnexpectedMessage, "bad record type");
  } else if (length <= RecordCipher::kTagBytes) {
    damaged(Alert::kDecodeError, "length too short");
  } else if (length > kRecordBytesMax - RecordCipher::kHeaderBytes) {
    damaged(Alert::kRecordOverflow, "encrypted length too long");
  }
  return failure_.ok();
}

// Returns the data of a record; empty if the record has no data, or if it fails.
SealedRecords::Bytes SealedRecords::take_record(const Opened& opened) {
  if (!opened) {
    damaged(Alert::kBadRecordMac, "decryption failed or bad record mac");
    return {};
  }
  size_t size = opened->size();  // without padding
  while (size > 0 && (*opened)[size - 1] == std::byte{0}) --size;
  const int type = size == 0 ? 0 : std::to_integer<int>((*opened)[size - 1]);
  const Bytes content = opened->first(size - std::min<size_t>(size, 1));
  if (opened->size() > kPlainBytesMax + 1) {
    damaged(Alert::kRecordOverflow, "data length too long");
    return {};
  }
  if (type == static_cast<int>(Type::kData)) return take_data(content);
  if (opened->size() > kPlainBytesMax) {
    damaged(Alert::kUnexpectedMessage, "no data in a full record");
  } else if (type == static_cast<int>(Type::kAlert)) {
    take_alert(content);
  } else if (type == static_cast<int>(Type::kHandshake)) {
    take_handshake(content);
  } else {
    damaged(Alert::kUnexpectedMessage, "bad record type");
  }
  if (failure_.ok() && !closed_by_other_ && ++empty_records_ > kEmptyRecordsMax) {
    fail("it sends many records without data");
    alert(Alert::kUnexpectedMessage);
  }
  return {};
}

SealedRecords::Bytes SealedRecords::take_data(Bytes data) {
  if (!message_.empty()) {
    damaged(Alert::kUnexpectedMessage, "data inside of a handshake message");
    return {};
  }
  if (!data.empty()) {
    empty_records_ = 0;
    bytes_received_ += data.size();
    return data;
  }
  if (++empty_records_ > kEmptyRecordsMax) {
    fail("it sends many records without data");
    alert(Alert::kUnexpectedMessage);
  }
  return {};
}

void SealedRecords::take_alert(Bytes content) {
  if (content.empty()) return damaged(Alert::kUnexpectedMessage, "an empty alert");
  if (content.size() != 2) return damaged(Alert::kDecodeError, "invalid alert");
  const auto kind = std::to_integer<uint8_t>(content[1]);
  if (kind == static_cast<uint8_t>(Alert::kCloseNotify)) {
    closed_by_other_ = true;
  } else if (kind != static_cast<uint8_t>(Alert::kUserCanceled)) {
    fail(std::string("it ended the connection: ") + SSL_alert_desc_string_long(kind));
  }
}

// A message may come in several records. Only a KeyUpdate comes after the handshake. Its last
// record has nothing after the message, because another key opens the next record.
void SealedRecords::take_handshake(Bytes content) {
  if (content.empty()) return damaged(Alert::kUnexpectedMessage, "an empty handshake record");
  const auto more = content.first(std::min(content.size(), kKeyUpdateBytes - message_.size()));
  message_.insert(message_.end(), more.begin(), more.end());
  const size_t known = std::min(message_.size(), kKeyUpdateStart.size());
  if (!std::equal(message_.begin(), message_.begin() + static_cast<std::ptrdiff_t>(known),
                  kKeyUpdateStart.begin())) {
    return damaged(Alert::kUnexpectedMessage, "unexpected message");
  }
  if (message_.size() < kKeyUpdateBytes) return;
  if (more.size() < content.size())
    return damaged(Alert::kUnexpectedMessage, "not on record boundary");
  const std::byte request = message_.back();
  std::vector<std::byte>().swap(message_);
  if (request > std::byte{1}) return damaged(Alert::kIllegalParameter, "bad key update");
  update_keys(request == std::byte{1});
}

void SealedRecords::update_keys(bool answer) {
  if (++keys_received_ > kKeysMax + bytes_received_ / kBytesPerKey) {
    fail("it sends many new keys for its data");
    return alert(Alert::kUnexpectedMessage);
  }
  if (!receiving_->replace()) return damaged(Alert::kInternalError, "no new key");
  if (!answer || closed_) return;
  constexpr size_t kAnswerBytes = kKeyUpdateBytes + RecordCipher::kExtraBytes;
  if (outgoing_.size() == 0) answer_bytes_ = 0;
  answer_bytes_ += kAnswerBytes;
  if (answer_bytes_ > kAnswerBytesMax)
    return fail("it asks for many answers and does not read them");
  replace_sending_key();
}

// ---- Sending ----

void SealedRecords::share_work(HelperThreads& helpers) {
  if (helpers.helpers() > 0) helpers_ = &helpers;
}

bool SealedRecords::seal(Type type, Bytes content) {
  const size_t bytes = content.size() + RecordCipher::kExtraBytes;
  return sending_->seal(static_cast<uint8_t>(type), content, outgoing_.extend(bytes)) ||
         cannot_seal();
}

// Ends the connection, because the number of the record is used up. Returns false.
bool SealedRecords::cannot_seal() {
  outgoing_.clear();
  sending_.reset();
  if (failure_.ok()) fail("a record could not be encrypted");
  return false;
}

// Announces the next key to the other side before the first record of that key.
bool SealedRecords::replace_sending_key() {
  std::array<std::byte, kKeyUpdateBytes> message{};  // its last byte asks for no answer
  std::ranges::copy(kKeyUpdateStart, message.begin());
  if (!seal(Type::kHandshake, message)) return false;
  if (sending_->replace()) return true;
  sending_.reset();
  fail("no new key could be made");
  return false;
}

// Reserves memory at once for the records of this number of bytes, but only for those that write()
// takes.
void SealedRecords::reserve(size_t plaintext_bytes, size_t outgoing_max) {
  const size_t records = plaintext_bytes / kPlainBytesMax + 1;
  const size_t wanted = plaintext_bytes + records * RecordCipher::kExtraBytes;
  const size_t room = outgoing_max - std::min(outgoing_max, outgoing_.size());
  outgoing_.reserve(std::min(wanted, room));
}

Result<size_t> SealedRecords::write(std::span<const Bytes> plaintext) {
  size_t total = 0;
  if (!failure_.ok()) return failure_;
  PCCL_ASSERT(sending_ && !closed_);
  size_t given = 0;
  for (const Bytes span : plaintext) given += span.size();
  const bool is_long = given >= kSharedRecordsMin * kPlainBytesMax;
  const bool shared = is_long && helpers_ != nullptr && helpers_->ready();
  const size_t outgoing_max = shared ? kSharedOutgoingBytesMax : kOutgoingBytesMax;
  reserve(given, outgoing_max);
  RecordCutter cutter(plaintext);
  while (!cutter.empty() && outgoing_.size() + kRecordBytesMax <= outgoing_max) {
    if (sending_->records() >= records_per_key_ && !replace_sending_key()) return failure_;
    const Bytes content = shared ? next_content(cutter, outgoing_max) : cutter.next();
    const bool sealed =
        content.size() > kPlainBytesMax ? seal_together(content) : seal(Type::kData, content);
    if (!sealed) return failure_;
    total += content.size();
  }
  return total;
}

// Returns the content of the next record, or of as many full records as the helpers may seal with
// the present key.
SealedRecords::Bytes SealedRecords::next_content(RecordCutter& cutter, size_t outgoing_max) {
  const size_t room = (outgoing_max - outgoing_.size()) / kFullRecordBytes;
  const auto left = static_cast<size_t>(records_per_key_ - sending_->records());
  const size_t count = std::min({cutter.pieces(), room, left});
  const bool shared = count >= kSharedRecordsMin && sending_->prepare(helpers_->helpers() + 1);
  return shared ? cutter.next_pieces(count) : cutter.next();
}

// Seals full records with the helpers. REQUIRES: the key is prepared for them.
bool SealedRecords::seal_together(Bytes content) {
  const size_t count = content.size() / kPlainBytesMax;
  PCCL_ASSERT(content.size() == count * kPlainBytesMax);
  const std::span<std::byte> records = outgoing_.extend(count * kFullRecordBytes);
  const uint64_t first = sending_->take(count);
  std::atomic<bool> sealed = true;
  const auto seal_one = [&](size_t worker, size_t index) {
    const auto record = records.subspan(index * kFullRecordBytes, kFullRecordBytes);
    const Bytes piece = content.subspan(index * kPlainBytesMax, kPlainBytesMax);
    if (!sending_->seal(first + index, worker, static_cast<uint8_t>(Type::kData), piece, record))
      sealed = false;
  };
  helpers_->for_each(count, seal_one);
  return sealed || cannot_seal();
}

void SealedRecords::close() {
  if (std::exchange(closed_, true) || !failure_.ok()) return;
  constexpr std::array kContent = {std::byte{SSL3_AL_WARNING}, std::byte{SSL_AD_CLOSE_NOTIFY}};
  seal(Type::kAlert, kContent);
}

void SealedRecords::alert(Alert kind) {
  if (!sending_ || closed_) return;
  const std::array content = {std::byte{SSL3_AL_FATAL}, static_cast<std::byte>(kind)};
  seal(Type::kAlert, content);
}

}  // namespace pccl::net
