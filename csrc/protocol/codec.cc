#include "csrc/protocol/codec.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <type_traits>

#include "csrc/protocol/fields.h"
#include "csrc/protocol/limits.h"

namespace pccl::protocol {
namespace {

constexpr size_t kPrefixBytes = 4;
// A decoder gives back a buffer that one large message has made larger than this.
constexpr size_t kBufferBytesKept = 64u << 10;

// ---- Writing ----------------------------------------------------------------------------------

size_t cut_length(const std::string& text) {
  if (text.size() <= kTextBytesMax) return text.size();
  size_t length = kTextBytesMax;
  while (length > 0 && (text[length] & 0xc0) == 0x80) --length;  // not inside a UTF-8 character
  return length;
}

class Writer {
 public:
  explicit Writer(std::vector<std::byte>& out) : out_(out) {}

  template <typename... T>
  void operator()(const T&... field) {
    (put(field), ...);
  }
  void introduction(uint32_t magic, uint16_t version) { (*this)(magic, version); }
  void code_of_any_version(Code code) { put(code); }

 private:
  template <std::integral T>
  void put(T value) {
    std::array<std::byte, sizeof(T)> bytes;
    const auto bits = static_cast<uint64_t>(value);
    for (size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<std::byte>(bits >> (8 * i));
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  template <typename E>
  requires std::is_enum_v<E>
  void put(E value) {
    PCCL_ASSERT(value <= last(value));
    put(static_cast<uint8_t>(value));
  }
  void put(const Bounded<const std::string>& name) {
    PCCL_ASSERT(name.content.size() <= name.max);
    put_bytes(name.content, name.content.size());
  }
  void put(const Prose<const std::string>& text) {
    put_bytes(text.content, cut_length(text.content));
  }
  template <typename T>
  void put(const Bounded<const std::vector<T>>& list) {
    PCCL_ASSERT(list.content.size() <= list.max);
    put(static_cast<uint32_t>(list.content.size()));
    for (const T& entry : list.content) put(entry);
  }
  template <typename S>
  requires std::is_class_v<S>
  void put(const S& structure) { fields(*this, structure); }
  void put_bytes(const std::string& text, size_t length) {
    put(static_cast<uint32_t>(length));
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    out_.insert(out_.end(), bytes, bytes + length);
  }

  std::vector<std::byte>& out_;
};

// ---- Reading ----------------------------------------------------------------------------------

// The fewest bytes that a T takes: what bounds the entries of a list before any is made.
template <typename T>
size_t bytes_min() {
  static const size_t bytes = [] {
    std::vector<std::byte> out;
    Writer{out}(T{});
    return out.size();
  }();
  return bytes;
}

// After the first thing that is wrong, and after an introduction in another version, every further
// field is left as it is and nothing more is read.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename... T>
  void operator()(T&&... field) {
    (get(field), ...);
  }
  void introduction(uint32_t& magic, uint16_t& version) {
    get(magic);
    if (reading() && magic != kControlMagic) {
      refuse("it does not begin with pccl's magic number: the other side is another program");
    }
    get(version);
    if (reading() && version != kVersion) foreign_ = true;
  }
  void code_of_any_version(Code& code) {
    uint8_t number = 0;
    get(number);
    const bool known = number <= static_cast<uint8_t>(last(code));
    code = known ? static_cast<Code>(number) : Code::kProtocol;
  }

  void end() {
    if (reading() && at_ < bytes_.size()) {
      refuse(std::to_string(bytes_.size() - at_) + " bytes are left over after its last field");
    }
  }
  // Why the bytes are refused; empty if they are not.
  const std::string& refusal() const { return refusal_; }
  size_t at() const { return at_; }

 private:
  bool reading() const { return refusal_.empty() && !foreign_; }
  void refuse(std::string why) {
    if (refusal_.empty()) refusal_ = std::move(why);
  }
  // Moves over `count` bytes; null, having refused, if there are fewer.
  const std::byte* take(size_t count) {
    if (!reading()) return nullptr;
    if (bytes_.size() - at_ < count) {
      refuse("it ends too early");
      return nullptr;
    }
    at_ += count;
    return bytes_.data() + at_ - count;
  }

  template <std::integral T>
  requires(!std::same_as<T, bool>) void get(T& value) {
    const std::byte* from = take(sizeof(T));
    if (from == nullptr) return;
    uint64_t bits = 0;
    for (size_t i = 0; i < sizeof(T); ++i) bits |= static_cast<uint64_t>(from[i]) << (8 * i);
    value = static_cast<T>(bits);
  }
  void get(bool& value) {
    uint8_t number = 0;
    get(number);
    if (!reading()) return;
    if (number > 1) refuse("a truth value of " + std::to_string(number) + ", at most 1");
    value = number == 1;
  }
  template <typename E>
  requires std::is_enum_v<E>
  void get(E& value) {
    uint8_t number = 0;
    get(number);
    if (!reading()) return;
    const auto number_max = static_cast<uint8_t>(last(value));
    if (number <= number_max) {
      value = static_cast<E>(number);
    } else {
      refuse("an enumerator of " + std::to_string(number) + ", at most " +
             std::to_string(number_max));
    }
  }
  // The count before a text or list, checked before anything is allocated; 0 if there is none.
  size_t count(size_t max, size_t entry_bytes_min, const char* what) {
    uint32_t number = 0;
    get(number);
    if (!reading()) return 0;
    if (number > max) {
      refuse(std::string(what) + " of " + std::to_string(number) + ", at most " +
             std::to_string(max));
      return 0;
    }
    if (number > (bytes_.size() - at_) / entry_bytes_min) {
      refuse(std::string(what) + " of " + std::to_string(number) +
             ", more than there are bytes for");
      return 0;
    }
    return number;
  }
  void get_bytes(std::string& text, size_t max) {
    const size_t length = count(max, 1, "a text");
    const std::byte* from = take(length);
    if (from != nullptr) text.assign(reinterpret_cast<const char*>(from), length);
  }
  void get(Bounded<std::string> name) { get_bytes(name.content, name.max); }
  void get(Prose<std::string> text) { get_bytes(text.content, kTextBytesMax); }
  template <typename T>
  void get(Bounded<std::vector<T>> list) {
    list.content.resize(count(list.max, bytes_min<T>(), "a list"));
    for (T& entry : list.content) {
      if (!reading()) return;
      get(entry);
    }
  }
  template <typename S>
  requires std::is_class_v<S>
  void get(S& structure) { fields(*this, structure); }

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool foreign_ = false;  // an introduction in another version: its other fields are unknown to us
  std::string refusal_;
};

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

uint32_t read_length(const std::byte* from) {
  uint32_t length = 0;
  for (size_t i = 0; i < kPrefixBytes; ++i) length |= static_cast<uint32_t>(from[i]) << (8 * i);
  return length;
}

}  // namespace

void encode(const Message& message, std::vector<std::byte>& out) {
  const size_t start = out.size();
  Writer write{out};
  write(uint32_t{0}, kTable[message.index()].kind.type);
  std::visit([&write](const auto& content) { fields(write, content); }, message);
  const size_t length = out.size() - start - kPrefixBytes;
  PCCL_ASSERT(length <= kMessageBytesMax);
  for (size_t i = 0; i < kPrefixBytes; ++i)
    out[start + i] = static_cast<std::byte>(length >> (8 * i));
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
  reader.end();
  if (reader.refusal().empty()) return message;
  return refusal("bad " + std::string(entry->kind.name) + " message: " + reader.refusal() +
                 " (byte " + std::to_string(reader.at()) + " of " + std::to_string(frame.size()) +
                 ")");
}

void Decoder::feed(std::span<const std::byte> bytes) {
  if (!refused_.ok()) return;
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
    if (message.ok()) return std::optional<Message>{std::move(message.value())};
    refused_ = message.status();
  }
  buffer_ = {};
  at_ = 0;
  return refused_;
}

const char* name(const Message& message) { return kTable[message.index()].kind.name; }

}  // namespace pccl::protocol
