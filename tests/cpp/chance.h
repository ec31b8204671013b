// Chance: what random walks decide by: numbers from a seed, or from the bytes of a fuzzer, which
// finds out what to choose. A byte is a number below 248; the others announce a number of eight
// bytes. When the bytes are over() numbers go on from a seed, so that a walk can be brought to its
// end.
#pragma once

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
  // Only of bytes.
  bool over() const { return from_bytes_ && bytes_.empty(); }

 private:
  uint8_t take() {
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  std::mt19937_64 random_;
  std::span<const uint8_t> bytes_;
  bool from_bytes_ = false;
};

}  // namespace pccl
