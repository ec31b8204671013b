// Chance: the source of the decisions of random walks.
// The numbers come from a seed, or from the bytes of a fuzzer, which searches for useful choices. A
// byte below 248 is a number; a higher byte announces a number of eight bytes. When the bytes are
// over(), further numbers come from a seed, so that a walk can be brought to its end.
// A walk in events gives kEventBytes to each event, so that a fuzzer can insert, repeat and remove
// an event and leave the others as they are. If an event needs more, a seed supplies the rest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <span>

namespace pccl {

class Chance {
 public:
  using result_type = uint64_t;
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return std::numeric_limits<uint64_t>::max(); }

  explicit Chance(uint64_t seed) : random_(seed) {}
  explicit Chance(std::span<const uint8_t> bytes) : bytes_(bytes), from_bytes_(true) {}
  static Chance in_events(std::span<const uint8_t> bytes) {
    Chance chance(bytes.first(0));
    chance.later_ = bytes;
    chance.in_events_ = true;
    return chance;
  }

  static constexpr size_t kEventBytes = 16;
  // Walks in events only: the numbers that follow belong to the next event.
  void next_event() {
    bytes_ = later_.first(std::min(kEventBytes, later_.size()));
    later_ = later_.subspan(bytes_.size());
    if (!bytes_.empty()) random_.seed(bytes_.front());
  }

  uint64_t operator()() {
    if (bytes_.empty()) return random_();
    const uint8_t first = take();
    if (first < 248) return first;
    uint64_t number = 0;
    for (int i = 0; i < 8 && !bytes_.empty(); ++i) number = (number << 8) | take();
    return number;
  }
  uint64_t below(uint64_t bound) { return (*this)() % bound; }
  bool once_in(uint64_t count) { return below(count) == 0; }
  // Walks from bytes only: no event is left, or no byte.
  bool over() const { return from_bytes_ && later_.empty() && (in_events_ || bytes_.empty()); }

 private:
  uint8_t take() {
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  std::mt19937_64 random_;
  std::span<const uint8_t> bytes_;
  std::span<const uint8_t> later_;  // bytes of the events after this one
  bool from_bytes_ = false, in_events_ = false;
};

}  // namespace pccl
