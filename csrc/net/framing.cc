#include "csrc/net/framing.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/little_endian.h"

namespace pccl::net {
namespace {

using protocol::kFrameHeaderBytes;
using protocol::kFrameTrailerBytes;

// The first bytes of a header, and the offset of each field, in bytes (PROTOCOL.md, section 6).
constexpr uint32_t kMagic = 0x314c6350;  // "PcL1"
constexpr size_t kTypeAt = 4, kRoundAt = 6, kEpochAt = 8, kTagAt = 16, kSequenceAt = 24;
constexpr size_t kBlockAt = 28, kDigestAt = 32, kSliceAt = 40, kLengthAt = 44, kValueAt = 48;
constexpr size_t kZeroAt = 56, kSumAt = 60;

// The values of the second half of a trailer.
constexpr uint32_t kValid = 1;
constexpr uint32_t kVoid = 2;

// The largest piece of filler, in bytes, which is written in place of a withdrawn payload.
// Discarded payload is read in pieces of the same size.
constexpr size_t kFillerBytes = 64u << 10;
constexpr std::array<std::byte, kFillerBytes> kFiller{};

// The checksum is computed this many bytes ahead of the write, so that the bytes are in the cache
// when the system copies them.
constexpr size_t kSumAheadBytes = 256u << 10;

// If the written bytes at the front of the queue are at least this number, and at least half of the
// queue, they are removed.
constexpr size_t kForgottenBytes = 256u << 10;
// An empty queue keeps at most this capacity, in bytes. A larger memory is freed.
constexpr size_t kQueueKeptBytes = 4u << 20;

Status refusal(std::string why) { return {Code::kProtocol, "bad frame: " + std::move(why), {}}; }

std::optional<protocol::VersionRange> versions_in(const FrameHeader& header) {
  const uint32_t lowest = header.slice;
  const uint32_t highest = header.op.sequence;
  if (highest < lowest || highest > UINT16_MAX) return std::nullopt;
  return protocol::VersionRange{static_cast<uint16_t>(lowest), static_cast<uint16_t>(highest)};
}

}  // namespace

FrameHeader hello_frame(FrameType type, const protocol::LaneHello& hello) {
  PCCL_ASSERT(type == FrameType::kHello || type == FrameType::kHelloOk);
  FrameHeader header;
  header.type = type;
  header.epoch = Epoch{hello.run_id};
  header.op.tag = TagId{hello.self.value};
  header.digest = hello.other.value;
  header.value = hello.machine;
  header.slice = hello.versions.lowest;
  header.op.sequence = hello.versions.highest;
  header.block = hello.serial;
  header.round = hello.further ? 1 : 0;
  return header;
}

std::optional<protocol::LaneHello> hello_in(FrameType type, const FrameHeader& header) {
  PCCL_ASSERT(type == FrameType::kHello || type == FrameType::kHelloOk);
  const auto versions = versions_in(header);
  if (header.type != type || !versions) return std::nullopt;
  if (header.round > 1 && protocol::common(*versions, protocol::kSpoken)) return std::nullopt;
  return protocol::LaneHello{.run_id = header.epoch.value,
                             .self = PeerId{header.op.tag.value},
                             .other = PeerId{header.digest},
                             .machine = header.value,
                             .versions = *versions,
                             .serial = header.block,
                             .further = header.round == 1};
}

HeaderBytes encode_header(const FrameHeader& header) {
  PCCL_DCHECK(header.type == FrameType::kChunk || header.length == 0);
  HeaderBytes bytes{};
  store_little_endian(bytes.data(), kMagic);
  store_little_endian(bytes.data() + kTypeAt, static_cast<uint8_t>(header.type));
  store_little_endian(bytes.data() + kRoundAt, header.round);
  store_little_endian(bytes.data() + kEpochAt, header.epoch.value);
  store_little_endian(bytes.data() + kTagAt, header.op.tag.value);
  store_little_endian(bytes.data() + kSequenceAt, header.op.sequence);
  store_little_endian(bytes.data() + kBlockAt, header.block);
  store_little_endian(bytes.data() + kDigestAt, header.digest);
  store_little_endian(bytes.data() + kSliceAt, header.slice);
  store_little_endian(bytes.data() + kLengthAt, header.length);
  store_little_endian(bytes.data() + kValueAt, header.value);
  store_little_endian(bytes.data() + kSumAt, checksum(std::span(bytes).first<kSumAt>()));
  return bytes;
}

Result<FrameHeader> decode_header(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  const std::byte* from = bytes.data();
  if (load_little_endian<uint32_t>(from) != kMagic) return refusal("no pccl lane speaks like this");
  if (load_little_endian<uint32_t>(from + kSumAt) != checksum(bytes.first<kSumAt>())) {
    return refusal("the checksum of its header does not match");
  }
  const auto type = load_little_endian<uint8_t>(from + kTypeAt);
  if (type < static_cast<uint8_t>(FrameType::kHello) ||
      type > static_cast<uint8_t>(FrameType::kTrialResult)) {
    return refusal("unknown type " + std::to_string(type));
  }
  if (load_little_endian<uint8_t>(from + kTypeAt + 1) != 0 ||
      load_little_endian<uint32_t>(from + kZeroAt) != 0) {
    return refusal("a reserved field is not zero");
  }
  FrameHeader header{static_cast<FrameType>(type),
                     load_little_endian<uint16_t>(from + kRoundAt),
                     load_little_endian<uint32_t>(from + kBlockAt),
                     Epoch{load_little_endian<uint64_t>(from + kEpochAt)},
                     OpKey{TagId{load_little_endian<uint64_t>(from + kTagAt)},
                           load_little_endian<uint32_t>(from + kSequenceAt)},
                     load_little_endian<uint64_t>(from + kDigestAt),
                     load_little_endian<uint32_t>(from + kSliceAt),
                     load_little_endian<uint32_t>(from + kLengthAt),
                     load_little_endian<uint64_t>(from + kValueAt)};
  const size_t length_max = header.type == FrameType::kChunk ? protocol::kChunkBytesMax : 0;
  if (header.length > length_max) {
    return refusal("a payload of " + std::to_string(header.length) + " bytes, at most " +
                   std::to_string(length_max));
  }
  return header;
}

// ---- FrameReader ------------------------------------------------------------------------------

FrameReader::FrameReader(FrameSink& sink, bool checked) : sink_(&sink), checked_(checked) {}

std::span<std::byte> FrameReader::space() {
  PCCL_DCHECK(buffered_ < buffer_.size());
  if (expects_ != Expects::kPayload) return std::span(buffer_).subspan(buffered_);
  PCCL_DCHECK(at_ < length_);
  if (!landing_.empty()) return landing_.subspan(at_);
  if (discarded_.empty()) discarded_.resize(kFillerBytes);
  return std::span(discarded_).first(std::min(discarded_.size(), payload_rest()));
}

Status FrameReader::filled(size_t bytes) {
  PCCL_DCHECK(bytes <= space().size());
  if (!refused_.ok() || sink_ == nullptr) return refused_;
  if (expects_ == Expects::kPayload) {
    payload_arrived(bytes);
  } else {
    buffered_ += bytes;
    parse_buffer();
  }
  return refused_;
}

// The buffer gets only the rest of a header or trailer, so that payload is copied once.
Status FrameReader::take(std::span<const std::byte> bytes) {
  while (!bytes.empty() && sink_ != nullptr) {
    const std::span<std::byte> to = space();
    size_t count = std::min(bytes.size(), to.size());
    if (expects_ == Expects::kHeader) count = std::min(count, kFrameHeaderBytes - buffered_);
    if (expects_ == Expects::kTrailer) count = std::min(count, kFrameTrailerBytes - buffered_);
    std::copy_n(bytes.begin(), count, to.begin());
    bytes = bytes.subspan(count);
    if (expects_ == Expects::kPayload && refused_.ok()) {
      payload_copied(count);
      if (at_ == length_) report();
    } else if (Status status = filled(count); !status.ok()) {
      return status;
    }
  }
  return refused_;
}

// Parses the complete parts of the buffer and moves the rest to its front.
void FrameReader::parse_buffer() {
  size_t at = 0;
  while (refused_.ok() && sink_ != nullptr) {
    const auto rest = std::span<const std::byte>(buffer_).subspan(at, buffered_ - at);
    if (expects_ == Expects::kHeader) {
      if (rest.size() < kFrameHeaderBytes) break;
      at += kFrameHeaderBytes;
      parse_header(rest.first<kFrameHeaderBytes>());
    } else if (expects_ == Expects::kPayload) {
      const size_t bytes = std::min(rest.size(), payload_rest());
      if (bytes == 0) break;
      at += bytes;
      if (!landing_.empty()) std::memcpy(landing_.data() + at_, rest.data(), bytes);
      payload_arrived(bytes);
    } else {
      if (rest.size() < kFrameTrailerBytes) break;
      at += kFrameTrailerBytes;
      parse_trailer(rest.first<kFrameTrailerBytes>());
    }
  }
  PCCL_DCHECK(at <= buffered_);
  buffered_ -= at;
  std::memmove(buffer_.data(), buffer_.data() + at, buffered_);
  PCCL_DCHECK(!refused_.ok() || sink_ == nullptr || buffered_ < kFrameHeaderBytes);
}

void FrameReader::parse_header(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  PCCL_DCHECK(landing_.empty());  // the chunk before has ended
  Result<FrameHeader> decoded = decode_header(bytes);
  if (!decoded.ok()) {
    refused_ = decoded.status();
    return;
  }
  const FrameHeader& header = decoded.value();
  if (header.type != FrameType::kChunk) return sink_->on_frame(header);
  length_ = header.length;
  at_ = reported_ = 0;
  expects_ = length_ > 0 ? Expects::kPayload : Expects::kTrailer;
  const std::span<std::byte> landing = sink_->on_chunk(header);
  if (sink_ == nullptr) return;
  PCCL_ASSERT(landing.empty() || landing.size() == length_);
  landing_ = landing;
  verify_ = checked_ && !landing_.empty();
  if (verify_) sum_.reset();
}

// `bytes` more bytes of the payload were read into space() or copied by parse_buffer().
void FrameReader::payload_arrived(size_t bytes) {
  payload_copied(bytes);
  report();
}

void FrameReader::payload_copied(size_t bytes) {
  PCCL_DCHECK(expects_ == Expects::kPayload && bytes <= payload_rest());
  at_ += bytes;
  if (at_ == length_) expects_ = Expects::kTrailer;
}

void FrameReader::report() {
  PCCL_DCHECK(reported_ <= at_);
  const size_t from = std::exchange(reported_, at_);
  if (landing_.empty() || from == at_) return;
  if (verify_) sum_.add(landing_.subspan(from, at_ - from));
  PCCL_DCHECK(landing_.size() == length_ && sink_ != nullptr);
  sink_->on_piece(from, at_ - from);
}

void FrameReader::parse_trailer(std::span<const std::byte, kFrameTrailerBytes> bytes) {
  PCCL_DCHECK(at_ == length_);
  const auto sum = load_little_endian<uint32_t>(bytes.data());
  const auto mark = load_little_endian<uint32_t>(bytes.data() + sizeof sum);
  expects_ = Expects::kHeader;
  if (mark != kValid && mark != kVoid) {
    refused_ = refusal("a chunk ends in neither valid nor void");
    return;
  }
  if (landing_.empty()) return;
  landing_ = {};
  if (mark == kValid && verify_ && sum != sum_.value()) {
    refused_ = refusal("the checksum of a chunk of " + std::to_string(length_) +
                       " bytes does not match: it was changed on the way");
    return;
  }
  sink_->on_chunk_end(mark == kValid);
}

void FrameReader::revoke() { landing_ = {}; }

void FrameReader::detach() {
  sink_ = nullptr;
  landing_ = {};
}

size_t FrameReader::certain() const {
  switch (expects_) {
    case Expects::kHeader: return kFrameHeaderBytes - buffered_;
    case Expects::kPayload: return payload_rest() + kFrameTrailerBytes;
    case Expects::kTrailer: return kFrameTrailerBytes - buffered_;
  }
  return 1;
}

// ---- FrameWriter ------------------------------------------------------------------------------

FrameWriter::FrameWriter(bool checked) : checked_(checked) {}

void FrameWriter::push(const FrameHeader& header) {
  PCCL_DCHECK(header.type != FrameType::kChunk);
  const HeaderBytes bytes = encode_header(header);
  forget_what_has_left();
  control_.insert(control_.end(), bytes.begin(), bytes.end());
}

// Removes the written bytes from the queue when there are many of them. wrote() clears an empty
// queue, but a busy queue is perhaps never empty, and would grow without a bound.
void FrameWriter::forget_what_has_left() {
  PCCL_DCHECK(control_at_ <= control_.size());
  if (control_at_ < kForgottenBytes || control_at_ < control_.size() / 2) return;
  span_count_ = 0;
  control_.erase(control_.begin(), control_.begin() + static_cast<ptrdiff_t>(control_at_));
  control_at_ = 0;
}

void FrameWriter::push_copy(const FrameHeader& header, std::span<const std::byte> payload) {
  PCCL_ASSERT(header.type == FrameType::kChunk && header.length == payload.size());
  PCCL_ASSERT(payload.size() <= protocol::kChunkBytesMax);
  const HeaderBytes bytes = encode_header(header);
  Trailer trailer;
  store_little_endian(trailer.data(), checked_ ? checksum(payload) : uint32_t{0});
  store_little_endian(trailer.data() + 4, kValid);
  forget_what_has_left();
  control_.insert(control_.end(), bytes.begin(), bytes.end());
  control_.insert(control_.end(), payload.begin(), payload.end());
  control_.insert(control_.end(), trailer.begin(), trailer.end());
}

void FrameWriter::push_chunk(const FrameHeader& header, std::span<const std::byte> payload) {
  PCCL_ASSERT(!chunk_.active);
  PCCL_ASSERT(header.type == FrameType::kChunk && header.length == payload.size());
  PCCL_ASSERT(payload.size() <= protocol::kChunkBytesMax);
  chunk_.active = true;
  chunk_.checked = checked_;
  chunk_.header = encode_header(header);
  chunk_.payload = payload;
  chunk_.length = payload.size();
  chunk_.at = 0;
  chunk_.summed = 0;
  store_little_endian(chunk_.trailer.data(), uint32_t{0});
  store_little_endian(chunk_.trailer.data() + 4, kValid);
  sum_.reset();
}

void FrameWriter::withdraw() {
  if (!chunk_.active) return;
  PCCL_ASSERT(chunk_.at < chunk_.total());
  span_count_ = 0;
  if (chunk_.at > 0) {
    // The header is written, at least in part, so only the mark in the trailer can make the chunk
    // void. If the trailer is partly written too, the whole payload was written and stays valid.
    PCCL_ASSERT(!cut_.active);
    cut_ = chunk_;
    cut_.payload = {};
    cut_.checked = false;
    if (cut_.at <= cut_.total() - kFrameTrailerBytes) {
      store_little_endian(cut_.trailer.data(), uint32_t{0});
      store_little_endian(cut_.trailer.data() + 4, kVoid);
    }
  }
  chunk_ = {};
}

std::span<const std::span<const std::byte>> FrameWriter::gather() {
  span_count_ = 0;
  if (cut_.active) {
    plan_chunk(cut_);
  } else if (chunk_.at > 0) {
    if (plan_chunk(chunk_)) plan_control();
  } else {
    plan_control();
    plan_chunk(chunk_);
  }
  PCCL_DCHECK(span_count_ > 0 || (!cut_.active && !chunk_.active && queued_bytes() == 0));
  return std::span(spans_).first(span_count_);
}

void FrameWriter::plan(std::span<const std::byte> bytes, size_t* progress) {
  if (bytes.empty()) return;
  PCCL_DCHECK(span_count_ < spans_.size());
  spans_[span_count_] = bytes;
  progress_[span_count_++] = progress;
}

void FrameWriter::plan_control() {
  plan(std::span<const std::byte>(control_).subspan(control_at_), &control_at_);
}

// Plans the rest of a chunk as far as it can be written now: the checksum of a checked payload is
// computed piece by piece. Returns true if the plan has the whole rest, so that other bytes may
// follow.
bool FrameWriter::plan_chunk(Chunk& chunk) {
  if (!chunk.active) return true;
  PCCL_DCHECK(chunk.at < chunk.total());
  PCCL_DCHECK(chunk.payload.empty() || chunk.payload.size() == chunk.length);
  const size_t header_left = chunk.header.size() - std::min(chunk.at, chunk.header.size());
  plan(std::span<const std::byte>(chunk.header).last(header_left), &chunk.at);
  const size_t payload_at = std::min(chunk.length, chunk.at - (chunk.header.size() - header_left));
  const size_t payload_left = chunk.length - payload_at;
  if (chunk.payload.size() != chunk.length) {
    const size_t bytes = std::min(payload_left, kFillerBytes);
    plan(std::span<const std::byte>(kFiller).first(bytes), &chunk.at);
    if (bytes < payload_left) return false;
  } else {
    const size_t end = chunk.checked ? sum_ahead(chunk, payload_at) : chunk.length;
    plan(chunk.payload.subspan(payload_at, end - payload_at), &chunk.at);
    if (end < chunk.length) return false;
  }
  const size_t trailer_at = chunk.at - std::min(chunk.at, chunk.header.size() + chunk.length);
  plan(std::span<const std::byte>(chunk.trailer).subspan(trailer_at), &chunk.at);
  return true;
}

// Adds the next piece to the checksum, unless the checksum is already ahead of the write. Returns
// the offset in the payload up to which bytes may be written.
size_t FrameWriter::sum_ahead(Chunk& chunk, size_t payload_at) {
  PCCL_DCHECK(chunk.summed >= payload_at && chunk.summed <= chunk.length);
  if (chunk.summed == payload_at) {
    const size_t bytes = std::min(kSumAheadBytes, chunk.length - payload_at);
    sum_.add(chunk.payload.subspan(payload_at, bytes));
    chunk.summed += bytes;
    if (chunk.summed == chunk.length) store_little_endian(chunk.trailer.data(), sum_.value());
  }
  return chunk.summed;
}

void FrameWriter::wrote(size_t bytes) {
  for (size_t i = 0; i < span_count_ && bytes > 0; ++i) {
    const size_t part = std::min(bytes, spans_[i].size());
    *progress_[i] += part;
    bytes -= part;
  }
  PCCL_ASSERT(bytes == 0);
  span_count_ = 0;
  PCCL_DCHECK(control_at_ <= control_.size());
  PCCL_DCHECK(chunk_.at <= chunk_.total() && cut_.at <= cut_.total());
  if (control_at_ == control_.size()) {
    control_.clear();
    control_at_ = 0;
    if (control_.capacity() > kQueueKeptBytes) control_.shrink_to_fit();
  }
  if (cut_.active && cut_.at == cut_.total()) cut_ = {};
  if (chunk_.active && chunk_.at == chunk_.total()) chunk_ = {};
}

}  // namespace pccl::net
