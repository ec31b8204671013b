#include "csrc/memory/state_hash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "csrc/base/assert.h"
#include "csrc/base/cpu.h"
#include "csrc/base/little_endian.h"

#if PCCL_X86
#include <immintrin.h>
#endif

namespace pccl::memory {
namespace {

constexpr size_t kLanes = 32;
constexpr size_t kRowBytes = kLanes * sizeof(uint64_t);
constexpr size_t kTileBytes = 64 * kRowBytes;
static_assert(StateHasher::kUnitBytes == kTileBytes);
// A thread team hashes data of at least this number of tiles (1 MiB). For fewer tiles, waking the
// team costs more than the work.
constexpr size_t kParallelTiles = 64;

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

// The 32 lanes of a tile take rows and are merged into the tile's value. The code exists three
// times: for every machine, for wide vectors, and for the widest.
struct Lanes {
  alignas(32) uint64_t at[kLanes];
};

constexpr Lanes first_lanes(uint64_t tile) {
  Lanes lanes{};
  for (size_t j = 0; j < kLanes; ++j) lanes.at[j] = (kLanes * tile + j + 1) * kLaneStart;
  return lanes;
}

void take_rows(Lanes& lanes, const std::byte* rows, size_t count) {
  constexpr size_t kTogether = 8;  // fits into the registers of most machines
  for (size_t first = 0; first < kLanes; first += kTogether) {
    uint64_t lane[kTogether];
    std::copy_n(lanes.at + first, kTogether, lane);
    const std::byte* from = rows + first * sizeof(uint64_t);
    for (size_t row = 0; row < count; ++row, from += kRowBytes) {
#pragma GCC unroll 8
      for (size_t j = 0; j < kTogether; ++j)
        lane[j] = mix(lane[j] ^ load_little_endian<uint64_t>(from + j * sizeof(uint64_t)));
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

PCCL_WIDE inline __m256i wide_settle(__m256i s) {
  s = _mm256_xor_si256(s, _mm256_set1_epi64x(static_cast<int64_t>(kSettle)));
  return wide_mix(wide_mix(wide_mix(s)));
}

using WideLanes = __m256i[kVectors];

PCCL_WIDE inline void wide_take_rows(WideLanes& lane, const std::byte* rows, size_t count) {
  for (const std::byte* end = rows + count * kRowBytes; rows < end; rows += kRowBytes) {
#pragma GCC unroll 8
    for (size_t i = 0; i < kVectors; ++i) {
      const auto* from = reinterpret_cast<const __m256i*>(rows + i * kVectorBytes);
      lane[i] = wide_mix(_mm256_xor_si256(lane[i], _mm256_loadu_si256(from)));
    }
  }
}

PCCL_WIDE inline void wide_take_rows(Lanes& lanes, const std::byte* rows, size_t count) {
  WideLanes lane;
  std::memcpy(lane, lanes.at, sizeof lane);
  wide_take_rows(lane, rows, count);
  std::memcpy(lanes.at, lane, sizeof lane);
}

// Merges the lanes until one vector is left.
PCCL_WIDE inline __m256i wide_merge_lanes(WideLanes& lane) {
#pragma GCC unroll 3
  for (size_t half = kVectors / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lane[i] = wide_merge(lane[i], lane[i + half]);
  }
  return lane[0];
}

PCCL_WIDE uint64_t wide_merge_lanes(Lanes& lanes) {
  WideLanes lane;
  std::memcpy(lane, lanes.at, sizeof lane);
  const __m256i merged = wide_merge_lanes(lane);
  std::memcpy(lanes.at, &merged, kVectorBytes);
  return merge_lanes(lanes, kVectorBytes / sizeof(uint64_t) / 2);
}

using Four = std::array<std::span<const std::byte>, 4>;

PCCL_WIDE inline __m256i column(const uint64_t (&rows)[4][4], size_t at) {
  return _mm256_set_epi64x(static_cast<int64_t>(rows[3][at]), static_cast<int64_t>(rows[2][at]),
                           static_cast<int64_t>(rows[1][at]), static_cast<int64_t>(rows[0][at]));
}

// The hashes of four entries that have one tile each. The end of each hash is a chain of steps that
// wait for each other, so the four chains are computed together, in the same vectors.
PCCL_WIDE void wide_hash_four(const Four& entries, std::array<uint64_t, 4>& hashes) {
  static constexpr Lanes kStart = first_lanes(0);
  alignas(32) uint64_t lane[4][4];
  alignas(32) uint64_t size[4];
  for (size_t i = 0; i < 4; ++i) {
    const std::span<const std::byte> entry = entries[i];
    WideLanes lanes;
    std::memcpy(lanes, kStart.at, sizeof lanes);
    wide_take_rows(lanes, entry.data(), entry.size() / kRowBytes);
    if (const size_t rest = entry.size() % kRowBytes; rest > 0) {
      std::byte row[kRowBytes] = {};
      std::memcpy(row, entry.data() + (entry.size() - rest), rest);
      wide_take_rows(lanes, row, 1);
    }
    const __m256i merged = wide_merge_lanes(lanes);
    std::memcpy(lane[i], &merged, sizeof merged);
    size[i] = entry.size();
  }
  const __m256i even = wide_merge(column(lane, 0), column(lane, 2)),
                odd = wide_merge(column(lane, 1), column(lane, 3));
  const __m256i value = wide_settle(wide_merge(even, odd));
  __m256i bytes;
  std::memcpy(&bytes, size, sizeof bytes);
  const __m256i hash = wide_settle(wide_merge(value, bytes));
  std::memcpy(hashes.data(), &hash, sizeof hash);
}

// The functions above with AVX-512: 32 lanes are four vectors.
constexpr size_t kWidestVectors = 4;
constexpr size_t kWidestBytes = kRowBytes / kWidestVectors;
using WidestLanes = __m512i[kWidestVectors];
// Some instructions are given a mask of all lanes: for their forms without a mask, GCC 12 warns of
// a variable in its own header.
constexpr __mmask8 kWords = 0xFF;
constexpr __mmask16 kHalves = 0xFFFF;

PCCL_WIDEST inline __m512i widest_mix(__m512i s) {
  constexpr __mmask16 kHighHalves = 0xAAAA;
  for (const uint32_t k : {kTurn1, kTurn2}) {
    const __m512i product = _mm512_maskz_mul_epu32(kWords, s, _mm512_set1_epi64(k));
    // The low half of hi(s) << 32 is zero, so no carry passes from a low half to a high one.
    const __m512i turned = _mm512_mask_add_epi32(product, kHighHalves, product, s);
    s = _mm512_maskz_shuffle_epi32(kHalves, turned,
                                   _MM_PERM_CDAB);  // swaps the halves of each word
  }
  return s;
}

PCCL_WIDEST inline __m512i widest_merge(__m512i a, __m512i b) {
  return widest_mix(_mm512_xor_si512(widest_mix(a), b));
}

PCCL_WIDEST inline __m512i widest_settle(__m512i s) {
  s = _mm512_xor_si512(s, _mm512_set1_epi64(static_cast<int64_t>(kSettle)));
  return widest_mix(widest_mix(widest_mix(s)));
}

// Takes `count` rows into the lanes. Brings `next`, the same number of rows, into the cache.
PCCL_WIDEST inline void widest_take_rows(WidestLanes& lane, const std::byte* rows, size_t count,
                                         const std::byte* next) {
  const std::byte* const end = rows + count * kRowBytes;
  for (; rows < end; rows += kRowBytes, next += kRowBytes) {
#pragma GCC unroll 4
    for (size_t i = 0; i < kWidestVectors; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(next + i * kWidestBytes), _MM_HINT_T0);
      const __m512i words = _mm512_loadu_si512(rows + i * kWidestBytes);
      lane[i] = widest_mix(_mm512_xor_si512(lane[i], words));
    }
  }
}

// Takes the rows of one tile, and merges the lanes until one vector is left.
PCCL_WIDEST inline __m512i widest_lanes(const Lanes& start, std::span<const std::byte> tile,
                                        const std::byte* next) {
  WidestLanes lane;
  std::memcpy(lane, start.at, sizeof lane);
  widest_take_rows(lane, tile.data(), tile.size() / kRowBytes, next);
  if (const size_t rest = tile.size() % kRowBytes; rest > 0) {
    std::byte row[kRowBytes] = {};
    std::memcpy(row, tile.data() + (tile.size() - rest), rest);
    widest_take_rows(lane, row, 1, row);
  }
  return widest_merge(widest_merge(lane[0], lane[2]), widest_merge(lane[1], lane[3]));
}

PCCL_WIDEST uint64_t widest_tile_value(std::span<const std::byte> tile, uint64_t number) {
  Lanes lanes = first_lanes(number);
  const __m512i merged = widest_lanes(lanes, tile, tile.data() + tile.size());
  std::memcpy(lanes.at, &merged, sizeof merged);
  return settle(merge_lanes(lanes, kWidestBytes / sizeof(uint64_t) / 2));
}

// See wide_hash_four(). At the end, each entry has two equal words of a vector. The entries of
// `next` are hashed after these entries: they are brought into the cache meanwhile.
PCCL_WIDEST void widest_hash_four(const Four& entries, const Four& next,
                                  std::array<uint64_t, 4>& hashes) {
  static constexpr Lanes kStart = first_lanes(0);
  constexpr int kFirstHalf = 0x44, kLastHalf = 0xEE, kEvenPairs = 0x88, kOddPairs = 0xDD;
  __m512i lane[4];
  alignas(64) uint64_t words[8];
  for (size_t i = 0; i < 4; ++i) {
    lane[i] = widest_lanes(kStart, entries[i], next[i].data());
    words[2 * i] = words[2 * i + 1] = entries[i].size();
  }
  __m512i four[2];
  for (size_t i = 0; i < 2; ++i) {
    const __m512i one = lane[2 * i], other = lane[2 * i + 1];
    four[i] = widest_merge(_mm512_maskz_shuffle_i64x2(kWords, one, other, kFirstHalf),
                           _mm512_maskz_shuffle_i64x2(kWords, one, other, kLastHalf));
  }
  const __m512i two = widest_merge(_mm512_maskz_shuffle_i64x2(kWords, four[0], four[1], kEvenPairs),
                                   _mm512_maskz_shuffle_i64x2(kWords, four[0], four[1], kOddPairs));
  const __m512i value = widest_settle(widest_merge(_mm512_maskz_unpacklo_epi64(kWords, two, two),
                                                   _mm512_maskz_unpackhi_epi64(kWords, two, two)));
  const __m512i hash = widest_settle(widest_merge(value, _mm512_load_si512(words)));
  _mm512_store_si512(words, hash);
  for (size_t i = 0; i < 4; ++i) hashes[i] = words[2 * i];
}
#endif

enum class Vectors { kNone, kWide, kWidest };

Vectors vectors() {
  if (has_widest_vectors()) return Vectors::kWidest;
  return has_wide_vectors() ? Vectors::kWide : Vectors::kNone;
}

uint64_t tile_value(const std::byte* data, size_t bytes, uint64_t tile,
                    [[maybe_unused]] Vectors how) {
#if PCCL_X86
  if (how == Vectors::kWidest) return widest_tile_value({data, bytes}, tile);
  const bool wide = how == Vectors::kWide;
#endif
  Lanes lanes = first_lanes(tile);
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
  const Vectors how = vectors();
  const std::byte* const data = part.data();
  const size_t bytes = part.size();
  const size_t tiles = bytes / kTileBytes + (bytes % kTileBytes != 0);
  const uint64_t first = offset / kTileBytes;
  const auto value = [&](size_t tile) {
    const size_t at = tile * kTileBytes;
    return tile_value(data + at, std::min(kTileBytes, bytes - at), first + tile, how);
  };
  uint64_t sum = 0;
  if (tiles < kParallelTiles) {
    for (size_t tile = 0; tile < tiles; ++tile) sum += value(tile);
    return sum;
  }
#ifdef _OPENMP
#pragma omp parallel for schedule(static) reduction(+ : sum)
#endif
  for (size_t tile = 0; tile < tiles; ++tile) sum += value(tile);
  return sum;
}

// Entries of one tile are hashed four at a time; the team shares these groups. It also shares the
// tiles of each larger entry.
std::vector<uint64_t> state_hashes(const std::vector<std::span<const std::byte>>& entries) {
  std::vector<uint64_t> hashes(entries.size());
  std::vector<size_t> small;
  small.reserve(entries.size());
  [[maybe_unused]] size_t small_bytes = 0;  // for the condition of the OpenMP loop below
  [[maybe_unused]] const Vectors how = vectors();
  for (size_t at = 0; at < entries.size(); ++at) {
    const std::span<const std::byte> entry = entries[at];
    if (how != Vectors::kNone && !entry.empty() && entry.size() <= kTileBytes) {
      small.push_back(at);
      small_bytes += entry.size();
    } else {
      hashes[at] = state_hash(entry.data(), entry.size());
    }
  }
#if PCCL_X86
#ifdef _OPENMP
#pragma omp parallel for schedule(static) if (small_bytes >= kParallelTiles * kTileBytes)
#endif
  for (size_t first = 0; first < small.size(); first += 4) {
    // The last group is filled up with the last entry.
    const auto four_from = [&](size_t at) {
      Four four;
      for (size_t i = 0; i < 4; ++i) four[i] = entries[small[std::min(at + i, small.size() - 1)]];
      return four;
    };
    const Four group = four_from(first);
    std::array<uint64_t, 4> of_group;
    if (how == Vectors::kWidest) {
      widest_hash_four(group, four_from(first + 4), of_group);
    } else {
      wide_hash_four(group, of_group);
    }
    for (size_t i = 0; i < std::min<size_t>(4, small.size() - first); ++i)
      hashes[small[first + i]] = of_group[i];
  }
#endif
  return hashes;
}

void StateHasher::add(std::span<const std::byte> piece) {
  sum_ += state_sum(piece, bytes_);
  bytes_ += piece.size();
}

uint64_t StateHasher::value() const { return hash_of_sum(sum_, bytes_); }

uint64_t hash_of_sum(uint64_t sum, uint64_t bytes) { return combine_hashes(sum, bytes); }

uint64_t combine_hashes(uint64_t so_far, uint64_t next) { return settle(merge(so_far, next)); }

}  // namespace pccl::memory
