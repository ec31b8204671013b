#include "csrc/memory/state_hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "csrc/base/assert.h"
#include "csrc/base/cpu.h"

#if PCCL_X86
#include <immintrin.h>
#endif

namespace pccl::memory {
namespace {

constexpr size_t kLanes = 32;
constexpr size_t kRowBytes = kLanes * sizeof(uint64_t);
constexpr size_t kTileBytes = 64 * kRowBytes;
static_assert(StateHasher::kUnitBytes == kTileBytes);
// 1 MiB: below that, waking a thread team costs more than the work.
[[maybe_unused]] constexpr size_t kParallelTiles = 64;

constexpr uint32_t kTurn1 = 0x9E3779B1u;
constexpr uint32_t kTurn2 = 0x85EBCA77u;
constexpr uint64_t kSettle = 0x9E3779B97F4A7C15u;
constexpr uint64_t kLaneStart = 0xC2B2AE3D27D4EB4Fu;
constexpr uint64_t kHighHalf = 0xFFFFFFFF00000000u;

uint64_t turn(uint64_t s, uint32_t k) {
  return std::rotl((s & ~kHighHalf) * k + (s & kHighHalf), 32);
}

uint64_t mix(uint64_t s) { return turn(turn(s, kTurn1), kTurn2); }

uint64_t merge(uint64_t a, uint64_t b) { return mix(mix(a) ^ b); }

uint64_t settle(uint64_t s) { return mix(mix(mix(s ^ kSettle))); }

uint64_t load_word(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

// The 32 lanes of a tile take rows and are merged into the tile's value. The code exists twice: for
// every machine, and for wide vectors.
struct Lanes {
  alignas(32) uint64_t at[kLanes];
};

void take_rows(Lanes& lanes, const std::byte* rows, size_t count) {
  constexpr size_t kTogether = 8;  // fits into the registers of most machines
  for (size_t first = 0; first < kLanes; first += kTogether) {
    uint64_t lane[kTogether];
    std::copy_n(lanes.at + first, kTogether, lane);
    const std::byte* from = rows + first * sizeof(uint64_t);
    for (size_t row = 0; row < count; ++row, from += kRowBytes) {
#pragma GCC unroll 8
      for (size_t j = 0; j < kTogether; ++j)
        lane[j] = mix(lane[j] ^ load_word(from + j * sizeof(uint64_t)));
    }
    std::copy_n(lane, kTogether, lanes.at + first);
  }
}

// Merges the first 2 * `half` lanes into lane 0.
uint64_t merge_lanes(Lanes& lanes, size_t half) {
  for (; half > 0; half /= 2) {
    for (size_t j = 0; j < half; ++j) lanes.at[j] = merge(lanes.at[j], lanes.at[j + half]);
  }
  return lanes.at[0];
}

#if PCCL_X86
constexpr size_t kVectors = 8;
constexpr size_t kVectorBytes = kRowBytes / kVectors;

PCCL_WIDE inline __m256i wide_mix(__m256i s) {
  const __m256i high_half = _mm256_set1_epi64x(static_cast<int64_t>(kHighHalf));
  for (const uint32_t k : {kTurn1, kTurn2}) {
    const __m256i product = _mm256_mul_epu32(s, _mm256_set1_epi64x(k));
    const __m256i turned = _mm256_add_epi64(product, _mm256_and_si256(s, high_half));
    s = _mm256_shuffle_epi32(turned, 0xB1);  // swaps the halves of each word
  }
  return s;
}

PCCL_WIDE inline __m256i wide_merge(__m256i a, __m256i b) {
  return wide_mix(_mm256_xor_si256(wide_mix(a), b));
}

PCCL_WIDE void wide_take_rows(Lanes& lanes, const std::byte* rows, size_t count) {
  __m256i lane[kVectors];
  std::memcpy(lane, lanes.at, sizeof lane);
  for (const std::byte* end = rows + count * kRowBytes; rows < end; rows += kRowBytes) {
#pragma GCC unroll 8
    for (size_t i = 0; i < kVectors; ++i) {
      const auto* from = reinterpret_cast<const __m256i*>(rows + i * kVectorBytes);
      lane[i] = wide_mix(_mm256_xor_si256(lane[i], _mm256_loadu_si256(from)));
    }
  }
  std::memcpy(lanes.at, lane, sizeof lane);
}

PCCL_WIDE uint64_t wide_merge_lanes(Lanes& lanes) {
  __m256i lane[kVectors];
  std::memcpy(lane, lanes.at, sizeof lane);
  for (size_t half = kVectors / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lane[i] = wide_merge(lane[i], lane[i + half]);
  }
  std::memcpy(lanes.at, lane, kVectorBytes);
  return merge_lanes(lanes, kVectorBytes / sizeof(uint64_t) / 2);
}
#endif

uint64_t tile_value(const std::byte* data, size_t bytes, uint64_t tile,
                    [[maybe_unused]] bool wide) {
  Lanes lanes;
  for (size_t j = 0; j < kLanes; ++j) lanes.at[j] = (kLanes * tile + j + 1) * kLaneStart;
  const auto take = [&](const std::byte* rows, size_t count) {
#if PCCL_X86
    if (wide) return wide_take_rows(lanes, rows, count);
#endif
    take_rows(lanes, rows, count);
  };
  take(data, bytes / kRowBytes);
  if (const size_t rest = bytes % kRowBytes; rest > 0) {
    std::byte row[kRowBytes] = {};
    std::memcpy(row, data + (bytes - rest), rest);
    take(row, 1);
  }
#if PCCL_X86
  if (wide) return settle(wide_merge_lanes(lanes));
#endif
  return settle(merge_lanes(lanes, kLanes / 2));
}

}  // namespace

uint64_t state_hash(const std::byte* data, size_t bytes) {
  StateHasher hasher;
  hasher.add({data, bytes});
  return hasher.value();
}

uint64_t state_sum(std::span<const std::byte> part, uint64_t offset) {
  PCCL_ASSERT(offset % kTileBytes == 0);
  const bool wide = has_wide_vectors();
  const std::byte* const data = part.data();
  const size_t bytes = part.size();
  const size_t tiles = bytes / kTileBytes + (bytes % kTileBytes != 0);
  const uint64_t first = offset / kTileBytes;
  uint64_t sum = 0;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) reduction(+ : sum) if (tiles >= kParallelTiles)
#endif
  for (size_t tile = 0; tile < tiles; ++tile) {
    const size_t at = tile * kTileBytes;
    sum += tile_value(data + at, std::min(kTileBytes, bytes - at), first + tile, wide);
  }
  return sum;
}

void StateHasher::add(std::span<const std::byte> piece) {
  sum_ += state_sum(piece, bytes_);
  bytes_ += piece.size();
}

uint64_t StateHasher::value() const { return hash_of_sum(sum_, bytes_); }

uint64_t hash_of_sum(uint64_t sum, uint64_t bytes) { return combine_hashes(sum, bytes); }

uint64_t combine_hashes(uint64_t so_far, uint64_t next) { return settle(merge(so_far, next)); }

}  // namespace pccl::memory
