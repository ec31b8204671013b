// wire: turns values into little-endian bytes and back, for the codec of control messages and for
// the journal of the master. A function fields(wire, struct), which argument-dependent lookup
// finds, defines the fields of the struct (fields.h: the fields of the messages). Writer and Reader
// both use this function, so they cannot disagree. A Writer or Reader belongs to one caller. The
// Reader trusts no input: it checks a count against its limit and against the number of bytes
// present before it allocates anything. Failure: Reader::refusal().
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/little_endian.h"
#include "csrc/base/text.h"
#include "csrc/protocol/fields.h"
#include "csrc/protocol/limits.h"

namespace pccl::protocol {

// ---- Writing ----------------------------------------------------------------------------------

// Appends to `out`. No other code uses `out` while the Writer exists. `out` is complete when the
// Writer is destroyed.
class Writer {
 public:
  explicit Writer(std::vector<std::byte>& out) : out_(out), start_(out.size()), written_(start_) {}
  ~Writer() { out_.resize(written_); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  template <typename... T>
  void operator()(const T&... field) {
    (put(field), ...);
  }
  void introduction(uint32_t magic, const VersionRange& versions) {
    (*this)(magic, versions.lowest, versions.highest);
  }
  void code_of_any_version(Code code) { put(code); }

 private:
  template <std::integral T>
  void put(T value) {
    store_little_endian(room(sizeof(T)), value);
  }
  void put(double value) { put(std::bit_cast<uint64_t>(value)); }
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
  void put(const Shown<const std::string>& name) {
    PCCL_ASSERT(name.content.size() <= name.max);
    put_bytes(name.content, name.content.size());
  }
  void put(const FreeText<const std::string>& text) {
    put_bytes(text.content, cut(text.content, kTextBytesMax).size());
  }
  template <typename T>
  void put(const Bounded<const std::vector<T>>& list) {
    PCCL_ASSERT(list.content.size() <= list.max);
    put(static_cast<uint32_t>(list.content.size()));
    for (const T& entry : list.content) put(entry);
  }
  template <typename T>
  void put(const Bounded<const SharedList<T>>& list) {
    put(Bounded<const std::vector<T>>{list.content.all(), list.max});
  }
  template <typename S>
  requires std::is_class_v<S>
  void put(const S& structure) { fields(*this, structure); }
  template <typename S>
  void put(const std::optional<S>& structure) {
    put(structure.has_value());
    if (structure) put(*structure);
  }
  void put_bytes(const std::string& text, size_t length) {
    PCCL_DCHECK(length <= text.size());
    put(static_cast<uint32_t>(length));
    if (length > 0) std::memcpy(room(length), text.data(), length);
  }
  // Returns the place of the next `bytes` bytes. `out_` grows in steps, not with each field: each
  // step is about as large as all that this Writer has written.
  std::byte* room(size_t bytes) {
    if (out_.size() - written_ < bytes)
      out_.resize(written_ + std::max(bytes, written_ - start_ + kStepBytes));
    written_ += bytes;
    return out_.data() + written_ - bytes;
  }
  static constexpr size_t kStepBytes = 64;

  std::vector<std::byte>& out_;
  const size_t start_;
  size_t written_;
};

// ---- Reading ----------------------------------------------------------------------------------

// The smallest number of bytes that a T takes on the wire. With it, the Reader limits the number of
// entries of a list before it makes any entry.
template <typename T>
size_t bytes_min() {
  static const size_t bytes = [] {
    std::vector<std::byte> out;
    Writer{out}(T{});
    return out.size();
  }();
  return bytes;
}

// After the first error, and after the introduction of a party that has no version in common with
// us, the Reader reads nothing more and leaves every further field as it is.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename... T>
  void operator()(T&&... field) {
    (get(field), ...);
  }
  void introduction(uint32_t& magic, VersionRange& versions) {
    get(magic);
    if (reading() && magic != kControlMagic) {
      refuse("it does not begin with pccl's magic number: the other side is another program");
    }
    get(versions.lowest);
    get(versions.highest);
    if (!reading()) return;
    if (versions.highest < versions.lowest) refuse("it speaks " + text(versions));
    foreign_ = !common(versions, kSpoken);
  }
  void code_of_any_version(Code& code) {
    uint8_t number = 0;
    get(number);
    const bool known = number <= static_cast<uint8_t>(last(code));
    code = known ? static_cast<Code>(number) : Code::kProtocol;
  }

  // The reason why the bytes are refused; empty if they are not.
  const std::string& refusal() const { return refusal_; }
  size_t at() const { return at_; }

 private:
  bool reading() const { return refusal_.empty() && !foreign_; }
  void refuse(std::string why) {
    PCCL_ASSERT(!why.empty());  // an empty refusal means none
    if (refusal_.empty()) refusal_ = std::move(why);
  }
  // Moves past `count` bytes and returns them. If there are fewer, it refuses and returns null.
  const std::byte* take(size_t count) {
    if (!reading()) return nullptr;
    if (bytes_.size() - at_ < count) {
      refuse("it ends too early");
      return nullptr;
    }
    at_ += count;
    PCCL_DCHECK(at_ >= count && at_ <= bytes_.size());
    return bytes_.data() + at_ - count;
  }

  template <std::integral T>
  requires(!std::same_as<T, bool>) void get(T& value) {
    const std::byte* from = take(sizeof(T));
    if (from == nullptr) return;
    value = load_little_endian<T>(from);
  }
  void get(bool& value) {
    uint8_t number = 0;
    get(number);
    if (!reading()) return;
    if (number > 1) refuse("a truth value of " + std::to_string(number) + ", at most 1");
    value = number == 1;
  }
  void get(double& value) {
    uint64_t bits = 0;
    get(bits);
    if (!reading()) return;
    value = std::bit_cast<double>(bits);
    if (!std::isfinite(value)) refuse("a number that is not finite");
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
  // Reads the count before a text or list, and checks it before anything is allocated. Returns 0 on
  // a refusal.
  size_t count(size_t max, size_t entry_bytes_min, const char* what) {
    PCCL_ASSERT(entry_bytes_min > 0);
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
  void get(Shown<std::string> name) {
    get_bytes(name.content, name.max);
    if (reading() && !is_printable(name.content)) {
      refuse("a name with characters that cannot be shown: " + printable(name.content));
    }
  }
  void get(FreeText<std::string> text) { get_bytes(text.content, kTextBytesMax); }
  template <typename T>
  void get(Bounded<std::vector<T>> list) {
    list.content.resize(count(list.max, bytes_min<T>(), "a list"));
    for (T& entry : list.content) {
      if (!reading()) return;
      get(entry);
    }
  }
  template <typename T>
  void get(Bounded<SharedList<T>> list) {
    std::vector<T> entries;
    get(Bounded<std::vector<T>>{entries, list.max});
    list.content = std::move(entries);
  }
  template <typename S>
  requires std::is_class_v<S>
  void get(S& structure) { fields(*this, structure); }
  template <typename S>
  void get(std::optional<S>& structure) {
    bool there = false;
    get(there);
    if (reading() && there) get(structure.emplace());
  }

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool foreign_ = false;  // the sender has no version in common with us
  std::string refusal_;
};

}  // namespace pccl::protocol
