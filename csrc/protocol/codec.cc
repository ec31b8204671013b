#include "csrc/protocol/codec.h"

#include <algorithm>
#include <array>

#include "csrc/base/little_endian.h"
#include "csrc/protocol/wire.h"

namespace pccl::protocol {
namespace {

constexpr size_t kPrefixBytes = 4;
// If one large message has made the buffer of a decoder larger than this, in bytes, the decoder
// frees it.
constexpr size_t kBufferBytesKept = 64u << 10;

// ---- From a number to a message ---------------------------------------------------------------

struct Entry {
  Kind kind;
  Message (*read)(Reader& reader);
};

template <typename M>
Message read_message(Reader& reader) {
  M message;
  fields(reader, message);
  return message;
}

template <typename... M>
constexpr auto table_of(const std::variant<M...>*) {
  return std::array<Entry, sizeof...(M)>{Entry{kKind<M>, &read_message<M>}...};
}
constexpr auto kTable = table_of(static_cast<const Message*>(nullptr));

constexpr bool numbered_once() {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (kTable[i].kind.type == 0) return false;
    for (size_t j = 0; j < i; ++j) {
      if (kTable[i].kind.type == kTable[j].kind.type) return false;
    }
  }
  return true;
}
static_assert(numbered_once(), "every message has a number of its own in kKind");

Status refusal(std::string why) { return {Code::kProtocol, std::move(why)}; }

uint32_t read_length(const std::byte* from) { return load_little_endian<uint32_t>(from); }

}  // namespace

void encode(const Message& message, std::vector<std::byte>& out) {
  const size_t start = out.size();
  {
    Writer write{out};
    write(uint32_t{0}, kTable[message.index()].kind.type);
    std::visit([&write](const auto& content) { fields(write, content); }, message);
  }
  const size_t length = out.size() - start - kPrefixBytes;
  PCCL_ASSERT(length <= kMessageBytesMax);
  store_little_endian(out.data() + start, static_cast<uint32_t>(length));
  PCCL_DCHECK(read_length(out.data() + start) == length);
}

size_t encoded_bytes(const Message& message) {
  std::vector<std::byte> bytes;
  encode(message, bytes);
  PCCL_ASSERT(bytes.size() > kPrefixBytes && bytes.size() <= kPrefixBytes + kMessageBytesMax);
  return bytes.size();
}

Result<Message> decode(std::span<const std::byte> frame) {
  uint16_t type = 0;
  Reader reader{frame};
  reader(type);
  if (!reader.refusal().empty()) return refusal("a message without a type");
  const auto entry = std::find_if(kTable.begin(), kTable.end(),
                                  [type](const Entry& known) { return known.kind.type == type; });
  if (entry == kTable.end()) return refusal("a message of unknown type " + std::to_string(type));
  Message message = entry->read(reader);
  PCCL_ASSERT(message.index() == static_cast<size_t>(entry - kTable.begin()));
  if (reader.refusal().empty()) return message;
  return refusal("bad " + std::string(entry->kind.name) + " message: " + reader.refusal() +
                 " (byte " + std::to_string(reader.at()) + " of " + std::to_string(frame.size()) +
                 ")");
}

void Decoder::feed(std::span<const std::byte> bytes) {
  if (!refused_.ok()) return;
  PCCL_ASSERT(at_ <= buffer_.size());
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(at_));
  at_ = 0;
  if (buffer_.empty() && buffer_.capacity() > kBufferBytesKept) buffer_ = {};
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<Message>> Decoder::next() {
  if (!refused_.ok()) return refused_;
  const std::span<const std::byte> rest = std::span<const std::byte>(buffer_).subspan(at_);
  if (rest.size() < kPrefixBytes) return std::optional<Message>{};
  const size_t length = read_length(rest.data());
  if (length > kMessageBytesMax) {
    refused_ =
        refusal("a message of " + std::to_string(length) + " bytes, at most " +
                std::to_string(kMessageBytesMax) + ": the other side may be another program");
  } else if (rest.size() - kPrefixBytes < length) {
    return std::optional<Message>{};
  } else {
    Result<Message> message = decode(rest.subspan(kPrefixBytes, length));
    at_ += kPrefixBytes + length;
    PCCL_ASSERT(at_ <= buffer_.size());
    if (message.ok()) return std::optional<Message>{std::move(message.value())};
    refused_ = message.status();
  }
  PCCL_ASSERT(!refused_.ok());
  buffer_ = {};
  at_ = 0;
  return refused_;
}

const char* name(const Message& message) { return kTable[message.index()].kind.name; }

}  // namespace pccl::protocol
