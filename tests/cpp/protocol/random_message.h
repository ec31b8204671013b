// random_message: any message with random contents within the limits, and a count of the fields of
// a struct. It uses the fields() that the codec uses, so a new message is tested without a line
// here.
#pragma once

#include <algorithm>
#include <random>

#include "csrc/protocol/fields.h"

namespace pccl::protocol {

// Fills every field with random values. Lists and texts are mostly short, and at times as long as
// their limit.
template <typename Random>
class Randomizer {
 public:
  explicit Randomizer(Random& random) : random_(random) {}

  template <typename... T>
  void operator()(T&&... field) {
    (fill(field), ...);
  }
  void introduction(uint32_t&, VersionRange&) {}
  void code_of_any_version(Code& code) { fill(code); }

 private:
  uint64_t below(uint64_t bound) { return random_() % bound; }
  size_t length(size_t max) {
    const size_t longest = below(100) == 0 ? std::min<size_t>(max, 5000) : std::min<size_t>(max, 6);
    return below(100) == 1 ? longest : below(longest + 1);
  }

  template <std::integral T>
  void fill(T& value) {
    value = static_cast<T>(below(8) == 0 ? ~uint64_t{0} : random_());
  }
  void fill(bool& value) { value = below(2) == 1; }
  void fill(double& value) { value = static_cast<double>(random_()) / 3; }
  template <typename E>
  requires std::is_enum_v<E>
  void fill(E& value) { value = static_cast<E>(below(static_cast<uint64_t>(last(value)) + 1)); }
  void fill_text(std::string& text, size_t max) {
    text.resize(length(max));
    for (char& letter : text) letter = static_cast<char>(random_());
  }
  void fill(Bounded<std::string> name) { fill_text(name.content, name.max); }
  void fill(Shown<std::string> name) {
    name.content.resize(length(name.max));
    for (char& letter : name.content) letter = static_cast<char>(' ' + below(95));
  }
  void fill(FreeText<std::string> text) { fill_text(text.content, kTextBytesMax); }
  template <typename T>
  void fill(Bounded<std::vector<T>> list) {
    list.content.resize(length(list.max));
    for (T& entry : list.content) fill(entry);
  }
  template <typename T>
  void fill(Bounded<SharedList<T>> list) {
    std::vector<T> entries;
    fill(Bounded<std::vector<T>>{entries, list.max});
    list.content = std::move(entries);
  }
  template <typename S>
  requires std::is_class_v<S>
  void fill(S& structure) { fields(*this, structure); }

  template <typename S>
  void fill(std::optional<S>& structure) {
    if (below(2) == 0) fill(structure.emplace());
  }

  Random& random_;
};

template <typename M, typename Random>
Message random_of(Random& random) {
  M message;
  Randomizer<Random> fill{random};
  fields(fill, message);
  return message;
}
template <typename Random, typename... M>
Message random_one_of(Random& random, const std::variant<M...>*) {
  static constexpr Message (*kMakers[])(Random&) = {&random_of<M, Random>...};
  return kMakers[random() % sizeof...(M)](random);
}
template <typename Random>
Message random_message(Random& random) {
  return random_one_of(random, static_cast<const Message*>(nullptr));
}

// Counts the fields that fields() names; members_of() counts the members that the struct has.
struct FieldCounter {
  template <typename... T>
  void operator()(T&&...) {
    count += sizeof...(T);
  }
  void introduction(uint32_t&, VersionRange&) { count += 2; }
  void code_of_any_version(Code&) { ++count; }
  size_t count = 0;
};
struct Anything {
  template <typename T>
  operator T() const;
};
template <typename S, typename... A>
constexpr size_t members_of() {
  if constexpr (requires { S{A{}..., Anything{}}; }) {
    return members_of<S, A..., Anything>();
  } else {
    return sizeof...(A);
  }
}

}  // namespace pccl::protocol
