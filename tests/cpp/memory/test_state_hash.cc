#include "csrc/memory/state_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "csrc/base/cpu.h"

namespace pccl::memory {
namespace {

using Bytes = std::vector<std::byte>;

constexpr size_t kRow = 256;
constexpr size_t kTile = 16384;

// The definition in state_hash.h, word for word, without regard to speed.
namespace definition {

uint64_t turn(uint64_t s, uint64_t k) {
  const uint64_t low = s & 0xFFFFFFFFu, high = s >> 32;
  const uint64_t t = low * k + (high << 32);
  return (t << 32) | (t >> 32);
}
uint64_t mix(uint64_t s) { return turn(turn(s, 0x9E3779B1u), 0x85EBCA77u); }
uint64_t merge(uint64_t a, uint64_t b) { return mix(mix(a) ^ b); }
uint64_t settle(uint64_t s) { return mix(mix(mix(s ^ 0x9E3779B97F4A7C15u))); }

uint64_t word(const Bytes& data, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < 8; ++i) {
    if (at + i < data.size()) value |= std::to_integer<uint64_t>(data[at + i]) << (8 * i);
  }
  return value;
}

uint64_t state_hash(const Bytes& data) {
  uint64_t sum = 0;
  for (uint64_t tile = 0; tile * kTile < data.size(); ++tile) {
    std::array<uint64_t, 32> lane;
    for (uint64_t j = 0; j < 32; ++j) lane[j] = (32 * tile + j + 1) * 0xC2B2AE3D27D4EB4Fu;
    for (size_t row = tile * kTile; row < std::min((tile + 1) * kTile, data.size()); row += kRow) {
      for (size_t j = 0; j < 32; ++j) lane[j] = mix(lane[j] ^ word(data, row + 8 * j));
    }
    for (size_t half : {16, 8, 4, 2, 1}) {
      for (size_t j = 0; j < half; ++j) lane[j] = merge(lane[j], lane[j + half]);
    }
    sum += settle(lane[0]);
  }
  return settle(merge(sum, data.size()));
}

}  // namespace definition

Bytes pattern(size_t size) {
  Bytes data(size);
  for (size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(i * 37 + (i >> 8));
  return data;
}

Bytes random_bytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes data(size);
  for (auto& byte : data) byte = static_cast<std::byte>(random());
  return data;
}

uint64_t hash(const Bytes& data) { return state_hash(data.data(), data.size()); }

void flip(Bytes& data, size_t bit) { data[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8)); }

void swap_spans(Bytes& data, size_t a, size_t b, size_t size) {
  std::swap_ranges(&data[a], &data[a] + size, &data[b]);
}

enum class Variant { kWidest, kWide, kPortable };

// Runs each test with the vector code of this machine, with that of a machine without AVX-512, and
// with the portable code.
class StateHash : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    allow_widest_vectors(GetParam() == Variant::kWidest);
    allow_wide_vectors(GetParam() != Variant::kPortable);
  }
  void TearDown() override {
    allow_widest_vectors(true);
    allow_wide_vectors(true);
  }
};
INSTANTIATE_TEST_SUITE_P(All, StateHash,
                         testing::Values(Variant::kWidest, Variant::kWide, Variant::kPortable),
                         [](const auto& variant) {
                           switch (variant.param) {
                             case Variant::kWidest: return "widest";
                             case Variant::kWide: return "wide";
                             case Variant::kPortable: return "portable";
                           }
                           return "";
                         });

// These values identify the shared state of past runs. A program in another language computed them
// from the header's definition. A change here is a change of the format.
TEST_P(StateHash, GoldenValues) {
  const std::pair<size_t, uint64_t> golden[] = {
      {0, 0x38BC31AF52A94EDDu},     {1, 0xC6D2DDB591E20CFBu},      {8, 0x12D5A36F930AB786u},
      {255, 0x5A9622E86E2D0E05u},   {256, 0x4A718CB5524010FFu},    {257, 0x129CBA36724B6921u},
      {4096, 0xEA69329F0C70CD5Bu},  {16383, 0x3F9A65AAEA83A757u},  {16384, 0x1493E4910B90BB94u},
      {16385, 0x4093FF2C5DBDF52Bu}, {100000, 0x2910E1206C3FE87Fu}, {1500000, 0x8109A463A1189A26u},
  };
  for (const auto& [size, value] : golden) EXPECT_EQ(hash(pattern(size)), value) << size;
  EXPECT_EQ(hash(Bytes(kTile)), 0x23AF2F247B6C10DEu);
  EXPECT_EQ(combine_hashes(0, 0), 0x38BC31AF52A94EDDu);
  EXPECT_EQ(combine_hashes(1, 2), 0xAEAF4ED6FAD2B5BFu);
  EXPECT_EQ(combine_hashes(2, 1), 0xA81245028B192023u);
}

TEST_P(StateHash, FollowsTheDefinitionAtEveryBoundary) {
  for (size_t edge : {size_t{0}, kRow, 8 * kRow, kTile, 3 * kTile, 64 * kTile}) {
    for (int delta : {-257, -9, -8, -7, -1, 0, 1, 7, 8, 9, 255}) {
      if (delta < 0 && edge < static_cast<size_t>(-delta)) continue;
      const Bytes data = random_bytes(edge + static_cast<size_t>(delta), edge);
      EXPECT_EQ(hash(data), definition::state_hash(data)) << data.size();
    }
  }
}

TEST_P(StateHash, AlignmentDoesNotMatter) {
  const Bytes data = random_bytes(kTile + 777, 1);
  const uint64_t expected = hash(data);
  for (size_t offset = 1; offset < 33; ++offset) {
    Bytes moved(offset + data.size());
    std::copy(data.begin(), data.end(), moved.begin() + static_cast<ptrdiff_t>(offset));
    EXPECT_EQ(state_hash(moved.data() + offset, data.size()), expected) << offset;
  }
}

TEST_P(StateHash, ManyEntriesAtOnceHaveTheirOwnHashes) {
  std::mt19937_64 random(7);
  std::vector<Bytes> entries;
  for (int i = 0; i < 300; ++i) entries.emplace_back(random() % 20000);
  for (size_t rows : {1, 4, 64}) entries.emplace_back(rows * kRow);  // no row is short
  entries.emplace_back(0);
  entries.emplace_back((size_t{3} << 20) + 5);  // the team shares it
  std::vector<std::span<const std::byte>> spans;
  for (Bytes& entry : entries) {
    for (std::byte& byte : entry) byte = static_cast<std::byte>(random());
    spans.emplace_back(entry);
  }
  const std::vector<uint64_t> hashes = state_hashes(spans);
  ASSERT_EQ(hashes.size(), entries.size());
  for (size_t i = 0; i < entries.size(); ++i)
    EXPECT_EQ(hashes[i], state_hash(entries[i].data(), entries[i].size())) << i;
  for (size_t count = 0; count < 9; ++count) {  // of four at a time, some are left
    const std::vector<std::span<const std::byte>> few(
        spans.begin(), spans.begin() + static_cast<ptrdiff_t>(count));
    EXPECT_EQ(state_hashes(few),
              std::vector(hashes.begin(), hashes.begin() + static_cast<ptrdiff_t>(count)))
        << count;
  }
}

TEST_P(StateHash, SameForAnyPieces) {
  const Bytes data = random_bytes(9 * kTile + 777, 3);
  for (size_t piece : {kTile, 4 * kTile, 100 * kTile}) {
    StateHasher hasher;
    for (size_t at = 0; at < data.size(); at += piece)
      hasher.add(std::span(data).subspan(at, std::min(piece, data.size() - at)));
    EXPECT_EQ(hasher.value(), definition::state_hash(data)) << piece;
  }
  EXPECT_EQ(StateHasher().value(), definition::state_hash({}));
}

TEST_P(StateHash, SameForAnyNumberOfThreads) {
  const Bytes data = random_bytes(200 * kTile + 12345, 2);
  const uint64_t expected = definition::state_hash(data);
#ifdef _OPENMP
  const int before = omp_get_max_threads();
  for (int threads : {1, 2, 3, 7, 16}) {
    omp_set_num_threads(threads);
    for (int repetition = 0; repetition < 50; ++repetition) {  // lost updates are rare
      ASSERT_EQ(hash(data), expected) << threads;
    }
    EXPECT_EQ(omp_get_max_threads(), threads) << "the caller's setting was changed";
  }
  omp_set_num_threads(before);
#endif
  std::array<uint64_t, 3> seen{};
  std::vector<std::thread> callers;
  callers.reserve(seen.size());
  for (auto& value : seen) callers.emplace_back([&] { value = hash(data); });
  for (auto& caller : callers) caller.join();
  for (uint64_t value : seen) EXPECT_EQ(value, expected);
}

TEST_P(StateHash, EverySingleBitCounts) {
  Bytes data = random_bytes(3 * kTile + 1000, 3);
  std::set<uint64_t> seen{hash(data)};
  size_t flips = 0;
  const auto try_bit = [&](size_t bit) {
    flip(data, bit);
    seen.insert(hash(data));
    flip(data, bit);
    ++flips;
  };
  for (size_t bit = 0; bit < 2 * kRow * 8; ++bit) try_bit(bit);  // two rows
  for (size_t bit = (data.size() - kRow) * 8; bit < data.size() * 8; ++bit)
    // The incomplete last row.
    try_bit(bit);
  for (size_t bit = 2 * kRow * 8; bit < (data.size() - kRow) * 8; bit += 997) try_bit(bit);
  EXPECT_EQ(seen.size(), flips + 1);
}

// A sum of words, or a chain that only multiplies, would not notice these changes.
TEST_P(StateHash, PairsOfSignsCount) {
  Bytes data = random_bytes(4 * kRow, 4);
  std::set<uint64_t> seen{hash(data)};
  size_t flips = 0;
  const size_t floats = data.size() / 4;
  for (size_t a = 0; a < floats; a += 3) {
    for (size_t b = a + 1; b < floats; ++b) {
      flip(data, a * 32 + 31);
      flip(data, b * 32 + 31);
      seen.insert(hash(data));
      flip(data, a * 32 + 31);
      flip(data, b * 32 + 31);
      ++flips;
    }
  }
  for (size_t i = 0; i < floats; ++i) flip(data, i * 32 + 31);  // the whole tensor negated
  seen.insert(hash(data));
  EXPECT_EQ(seen.size(), flips + 2);
}

TEST_P(StateHash, PlacesCount) {
  const Bytes data = random_bytes(8 * kTile, 5);
  std::set<uint64_t> seen{hash(data)};
  size_t swaps = 0;
  const auto try_swap = [&](size_t a, size_t b, size_t size) {
    Bytes changed = data;
    swap_spans(changed, a, b, size);
    seen.insert(hash(changed));
    ++swaps;
  };
  for (size_t i = 1; i < 32; ++i) try_swap(0, 8 * i, 8);          // words of a row
  for (size_t i = 1; i < 64; ++i) try_swap(0, kRow * i, 8);       // words of a lane
  for (size_t i = 1; i < 64; ++i) try_swap(0, kRow * i, kRow);    // rows
  for (size_t i = 1; i < 8; ++i) try_swap(0, kTile * i, kTile);   // tiles
  for (size_t i = 1; i < 8; ++i) try_swap(0, kTile * i, kRow);    // rows of different tiles
  for (size_t i = 0; i < 64; ++i) try_swap(8 * i, 8 * i + 4, 4);  // halves of a word
  try_swap(0, 4 * kTile, 4 * kTile);
  EXPECT_EQ(seen.size(), swaps + 1);
}

TEST_P(StateHash, LengthCounts) {
  std::set<uint64_t> seen;
  const size_t steps = 3 * kRow;
  for (size_t size = 0; size < steps; ++size) seen.insert(hash(Bytes(size)));
  for (size_t rows = 3; rows < 200; ++rows) seen.insert(hash(Bytes(rows * kRow)));
  EXPECT_EQ(seen.size(), steps + 197);

  Bytes data = random_bytes(kTile - 3, 6);
  seen = {hash(data)};
  for (size_t i = 0; i < 600; ++i) {
    data.push_back(std::byte{0});
    seen.insert(hash(data));
  }
  EXPECT_EQ(seen.size(), 601u);
}

TEST_P(StateHash, BothHalvesSpread) {
  std::array<std::set<uint32_t>, 2> halves;
  for (uint64_t i = 0; i < 4096; ++i) {
    const uint64_t value = state_hash(reinterpret_cast<const std::byte*>(&i), sizeof i);
    halves[0].insert(static_cast<uint32_t>(value));
    halves[1].insert(static_cast<uint32_t>(value >> 32));
  }
  EXPECT_GE(halves[0].size(), 4094u);  // one pair of equal values is expected in 500 such tests
  EXPECT_GE(halves[1].size(), 4094u);
}

TEST(CombineHashes, ListsDifferByOrderLengthAndItems) {
  const auto of = [](std::initializer_list<uint64_t> items) {
    uint64_t so_far = 0;
    for (uint64_t item : items) so_far = combine_hashes(so_far, item);
    return so_far;
  };
  const std::set<uint64_t> seen{of({}),     of({0}),    of({0, 0}), of({1}),       of({1, 2}),
                                of({2, 1}), of({1, 0}), of({0, 1}), of({1, 2, 0}), of({1, 2, 3})};
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_EQ(of({7, 8}), of({7, 8}));
  EXPECT_EQ(combine_hashes(3, 4), definition::settle(definition::merge(3, 4)));
}

}  // namespace
}  // namespace pccl::memory
