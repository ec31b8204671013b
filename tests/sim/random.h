// Random: the simulator's only source of randomness. It is SplitMix64 (public domain, Sebastiano
// Vigna): every seed is good, and the same seed gives the same run on every machine.
#pragma once

#include <cstdint>

#include "csrc/base/clock.h"

namespace pccl::sim {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Uniform in [0, bound). REQUIRES: bound > 0.
  uint64_t below(uint64_t bound) { return next() % bound; }
  // Uniform in [low, high].
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  // True with probability 1 / `one_in`.
  bool once_in(uint64_t one_in) { return below(one_in) == 0; }
  Duration duration(Duration low, Duration high) {
    return low +
           Duration{static_cast<int64_t>(below(static_cast<uint64_t>((high - low).count()) + 1))};
  }

 private:
  uint64_t state_;
};

inline uint64_t mix(uint64_t a, uint64_t b) { return Random(a * 0x9e3779b97f4a7c15 + b).next(); }

}  // namespace pccl::sim
